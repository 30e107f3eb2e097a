//! Members: a document for each, whose beat only grows.

use super::{ATTEMPTS, MongoIndex, documents, int, text, whole};
use crate::error::{Error, Result};
use crate::index::{Membership, Report};
use mongodb::bson::{Document, deserialize_from_document, doc, serialize_to_document};

impl Membership for MongoIndex {
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()> {
        let report = serialize_to_document(report).map_err(|error| Error::Index(error.to_string()))?;
        let member = member.to_owned();
        self.call(move |tables| async move {
            let set = doc! { "of": tables.name(), "report": report };
            // A request that comes late, or twice, does not turn the beat back.
            let update = doc! { "$set": set, "$max": { "beat": int(beat) } };
            for _ in 0..ATTEMPTS {
                if tables.change(&tables.status, tables.member(&member), update.clone()).await?.is_some() {
                    return Ok(());
                }
            }
            Err(documents::contested())
        })
    }

    fn leave(&self, member: &str) -> Result<()> {
        let member = member.to_owned();
        self.call(move |tables| async move { tables.status.delete_one(tables.member(&member)).await.map(|_| ()) })
    }

    fn members(&self) -> Result<Vec<(String, u64)>> {
        self.call(|tables| async move {
            let mut found = tables.status.find(tables.members()).projection(doc! { "beat": 1 }).await?;
            let mut members = Vec::new();
            while found.advance().await? {
                let member: Document = found.deserialize_current()?;
                if let Some(name) = tables.member_name(&text(&member, "_id")) {
                    members.push((name.to_owned(), whole(&member, "beat")));
                }
            }
            Ok(members)
        })
    }

    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>> {
        let member = member.to_owned();
        let found = self.call(move |tables| async move { tables.status.find_one(tables.member(&member)).await })?;
        let said = found.filter(|found| whole(found, "beat") == beat);
        // A report that cannot be decoded was written by a person.
        Ok(said.and_then(|mut said| deserialize_from_document(said.get_document_mut("report").ok()?.clone()).ok()))
    }
}
