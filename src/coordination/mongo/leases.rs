//! Leases: one document for each role, changed only to a higher token.

use super::{ATTEMPTS, MongoStore, documents, int, text, whole};
use crate::coordination::{Lease, Leases};
use crate::error::Result;
use mongodb::bson::doc;

impl Leases for MongoStore {
    fn lease(&self, role: &str) -> Result<Option<Lease>> {
        let role = role.to_owned();
        let lease = self
            .call(|collections| async move { collections.find(&collections.status, collections.lease(&role)).await })?;
        Ok(lease.map(|lease| Lease {
            token: whole(&lease, "token"),
            holder: text(&lease, "holder"),
            released: lease.get_bool("released").unwrap_or(false),
        }))
    }

    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool> {
        let (role, holder) = (role.to_owned(), holder.to_owned());
        self.call(move |collections| async move {
            let held = doc! {
                "ring": collections.ring(),
                "of": collections.name(),
                "token": int(token),
                "holder": &holder,
                "released": false,
            };
            for _ in 0..ATTEMPTS {
                let mut earlier = collections.lease(&role);
                earlier.insert("ring", collections.ring());
                earlier.insert("token", doc! { "$lt": int(token) });
                if collections.status.update_one(earlier, doc! { "$set": held.clone() }).await?.matched_count > 0 {
                    return Ok(true);
                }
                if let Some(lease) = collections.find(&collections.status, collections.lease(&role)).await? {
                    // It is ours if the reply was lost, or the request was sent twice.
                    return Ok(whole(&lease, "token") == token && text(&lease, "holder") == holder);
                }
                let mut first = collections.lease(&role);
                first.extend(held.clone());
                match collections.status.insert_one(first).await {
                    Err(error) if documents::is_duplicate(&error) => {}
                    other => return other.map(|_| true),
                }
            }
            Ok(false)
        })
    }

    fn release_lease(&self, role: &str, token: u64) -> Result<()> {
        let role = role.to_owned();
        self.call(move |collections| async move {
            let mut held = collections.lease(&role);
            held.insert("ring", collections.ring());
            held.insert("token", int(token));
            collections.status.update_one(held, doc! { "$set": { "released": true } }).await.map(|_| ())
        })
    }
}
