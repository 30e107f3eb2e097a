//! The store as a whole: whose it is, and the swap status, in one document.

use super::{ATTEMPTS, MongoIndex, int, whole};
use crate::error::Result;
use crate::index::{Index, SwapStatus};
use mongodb::bson::doc;

impl Index for MongoIndex {
    fn place(&self) -> String {
        self.connection.shown().to_owned()
    }

    fn ping(&self) -> Result<()> {
        self.call(|tables| async move { tables.hold().await })
    }

    fn publish_status(&self, status: &SwapStatus) -> Result<bool> {
        let SwapStatus { generation, unix_ms, total_samples } = *status;
        self.call(move |tables| async move {
            let set = doc! {
                "swapped": true,
                "swap_timestamp": unix_ms as f64 / 1e3,
                "generation": int(generation),
                "samples": int(total_samples),
            };
            for _ in 0..ATTEMPTS {
                let mut older = tables.swap();
                older.insert("ring", tables.ring());
                older.insert("generation", doc! { "$lte": int(generation) });
                if tables.status.update_one(older, doc! { "$set": set.clone() }).await?.matched_count > 0 {
                    return Ok(true);
                }
                match tables.find(&tables.status, tables.swap()).await? {
                    Some(newest) if whole(&newest, "generation") > generation => return Ok(false),
                    _ => tables.hold().await?,
                }
            }
            Ok(false)
        })
    }

    fn status(&self) -> Result<Option<SwapStatus>> {
        let found = self.call(|tables| async move { tables.find(&tables.status, tables.swap()).await })?;
        let swapped = found.filter(|status| status.get_bool("swapped").unwrap_or(false));
        Ok(swapped.map(|status| SwapStatus {
            generation: whole(&status, "generation"),
            unix_ms: (status.get_f64("swap_timestamp").unwrap_or_default() * 1e3).round() as u64,
            total_samples: whole(&status, "samples"),
        }))
    }

    fn forget_before(&self, generation: u64) -> Result<()> {
        self.call(move |tables| async move {
            let filter = doc! { "ring": tables.ring(), "_id": { "$lt": int(generation) } };
            tables.counters.delete_many(filter).await.map(|_| ())
        })
    }

    fn clear(&self) -> Result<()> {
        self.call(|tables| async move { tables.clear().await })
    }
}
