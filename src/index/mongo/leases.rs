//! Leases: a document for each role, changed only to a higher token.

use super::{ATTEMPTS, MongoIndex, documents, int, text, whole};
use crate::error::Result;
use crate::index::{Lease, Leases};
use mongodb::bson::doc;

impl Leases for MongoIndex {
    fn lease(&self, role: &str) -> Result<Option<Lease>> {
        let role = role.to_owned();
        let lease = self.call(|tables| async move { tables.find(&tables.status, tables.lease(&role)).await })?;
        Ok(lease.map(|lease| Lease {
            token: whole(&lease, "token"),
            holder: text(&lease, "holder"),
            released: lease.get_bool("released").unwrap_or(false),
        }))
    }

    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool> {
        let (role, holder) = (role.to_owned(), holder.to_owned());
        self.call(move |tables| async move {
            let held = doc! {
                "ring": tables.ring(),
                "of": tables.name(),
                "token": int(token),
                "holder": &holder,
                "released": false,
            };
            for _ in 0..ATTEMPTS {
                let mut earlier = tables.lease(&role);
                earlier.insert("ring", tables.ring());
                earlier.insert("token", doc! { "$lt": int(token) });
                if tables.status.update_one(earlier, doc! { "$set": held.clone() }).await?.matched_count > 0 {
                    return Ok(true);
                }
                if let Some(lease) = tables.find(&tables.status, tables.lease(&role)).await? {
                    // It is ours if the reply got lost, or the request came twice.
                    return Ok(whole(&lease, "token") == token && text(&lease, "holder") == holder);
                }
                let mut first = tables.lease(&role);
                first.extend(held.clone());
                match tables.status.insert_one(first).await {
                    Err(error) if documents::is_duplicate(&error) => {}
                    other => return other.map(|_| true),
                }
            }
            Ok(false)
        })
    }

    fn release_lease(&self, role: &str, token: u64) -> Result<()> {
        let role = role.to_owned();
        self.call(move |tables| async move {
            let mut held = tables.lease(&role);
            held.insert("ring", tables.ring());
            held.insert("token", int(token));
            tables.status.update_one(held, doc! { "$set": { "released": true } }).await.map(|_| ())
        })
    }
}
