//! The store as a whole: its owner and the swap status, in one document.

use super::{ATTEMPTS, MongoStore, int, whole};
use crate::coordination::{CoordinationStore, SwapStatus};
use crate::error::Result;
use mongodb::bson::doc;

impl CoordinationStore for MongoStore {
    fn place(&self) -> String {
        self.connection.shown().to_owned()
    }

    fn ping(&self) -> Result<()> {
        self.call(|collections| async move { collections.hold().await })
    }

    fn publish_status(&self, status: &SwapStatus) -> Result<bool> {
        let SwapStatus { generation, unix_ms, total_samples } = *status;
        self.call(move |collections| async move {
            let set = doc! {
                "swapped": true,
                "swap_timestamp": unix_ms as f64 / 1e3,
                "generation": int(generation),
                "samples": int(total_samples),
            };
            for _ in 0..ATTEMPTS {
                let mut older = collections.swap();
                older.insert("ring", collections.ring());
                older.insert("generation", doc! { "$lte": int(generation) });
                if collections.status.update_one(older, doc! { "$set": set.clone() }).await?.matched_count > 0 {
                    return Ok(true);
                }
                match collections.find(&collections.status, collections.swap()).await? {
                    Some(newest) if whole(&newest, "generation") > generation => return Ok(false),
                    _ => collections.hold().await?,
                }
            }
            Ok(false)
        })
    }

    fn status(&self) -> Result<Option<SwapStatus>> {
        let found =
            self.call(|collections| async move { collections.find(&collections.status, collections.swap()).await })?;
        let swapped = found.filter(|status| status.get_bool("swapped").unwrap_or(false));
        Ok(swapped.map(|status| SwapStatus {
            generation: whole(&status, "generation"),
            unix_ms: (status.get_f64("swap_timestamp").unwrap_or_default() * 1e3).round() as u64,
            total_samples: whole(&status, "samples"),
        }))
    }

    fn forget_before(&self, generation: u64) -> Result<()> {
        self.call(move |collections| async move {
            let filter = doc! { "ring": collections.ring(), "_id": { "$lt": int(generation) } };
            collections.counters.delete_many(filter).await.map(|_| ())
        })
    }

    fn clear(&self) -> Result<()> {
        self.call(|collections| async move { collections.clear().await })
    }
}
