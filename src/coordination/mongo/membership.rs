//! Members: one document for each, whose heartbeat only grows.

use super::{MongoStore, int, text, whole};
use crate::coordination::{Membership, Report};
use crate::error::{Error, Result};
use mongodb::bson::{Document, deserialize_from_document, doc, serialize_to_document};

impl Membership for MongoStore {
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()> {
        let report = serialize_to_document(report).map_err(|error| Error::Coordination(error.to_string()))?;
        let member = member.to_owned();
        self.call(move |collections| async move {
            let set = doc! { "of": collections.name(), "report": report };
            // A request that arrives late or twice does not decrease the heartbeat.
            let update = doc! { "$set": set, "$max": { "beat": int(beat) } };
            collections.change(&collections.status, collections.member(&member), update).await.map(drop)
        })
    }

    fn leave(&self, member: &str) -> Result<()> {
        let member = member.to_owned();
        self.call(move |collections| async move {
            collections.status.delete_one(collections.member(&member)).await.map(|_| ())
        })
    }

    fn members(&self) -> Result<Vec<(String, u64)>> {
        self.call(|collections| async move {
            let prefix = format!("{}.member.", collections.name());
            let filter = doc! { "of": collections.name(), "ring": collections.ring(), "beat": { "$exists": true } };
            let mut found = collections.status.find(filter).projection(doc! { "beat": 1 }).await?;
            let mut members = Vec::new();
            while found.advance().await? {
                let member: Document = found.deserialize_current()?;
                if let Some(name) = text(&member, "_id").strip_prefix(&prefix) {
                    members.push((name.to_owned(), whole(&member, "beat")));
                }
            }
            Ok(members)
        })
    }

    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>> {
        let member = member.to_owned();
        let found = self
            .call(move |collections| async move { collections.status.find_one(collections.member(&member)).await })?;
        let said = found.filter(|found| whole(found, "beat") == beat);
        // A report that cannot be decoded was edited by hand, and is ignored.
        Ok(said.and_then(|mut said| deserialize_from_document(said.get_document_mut("report").ok()?.clone()).ok()))
    }
}
