//! The coordination store in a MongoDB. It uses only basic operations, each on one document.
//!
//! ```text
//! COUNTER_COLLECTION   { _id: <generation>, ring, next, closed }
//! status               { _id: "<COUNTER_COLLECTION>.swap", ring, of, path, swapped, swap_timestamp, generation, samples }
//!                      { _id: "<COUNTER_COLLECTION>.lease.<role>", ring, of, token, holder, released }
//!                      { _id: "<COUNTER_COLLECTION>.member.<owner>", ring, of, beat, report }
//!                      { _id: "<COUNTER_COLLECTION>.note.<folder>/<name>", ring, of, folder, name, text }
//! ```
//!
//! `docs/operations/mongodb.md` describes the fields. Correctness does not depend on the answers: a
//! counter that repeats itself, a reply that arrives twice or never, and a server that lost all
//! data cost work, but no sample.

mod connection;
mod counter;
mod diagnosis;
mod documents;
mod leases;
mod membership;
mod notes;
mod outage_log;
mod process;
mod reconnect;

pub use connection::MongoStore;
pub use documents::{Collections, RingName};

use super::{CoordinationStore, SwapStatus};
use crate::error::Result;
use mongodb::bson::{Bson, Document, doc};

/// Upper limit of numbers that are read. No generation, token or count gets near it, and sums with
/// it do not overflow.
const LARGEST: u64 = 1 << 62;
/// Attempts of an operation while other processes change the same document.
const ATTEMPTS: usize = 4;

impl CoordinationStore for MongoStore {
    fn place(&self) -> String {
        self.shown().to_owned()
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

/// Converts a number to MongoDB's type. No generation or count gets near the limit.
fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Returns a whole number, in whichever type a server or a person stored it, or 0 if it is missing.
fn whole(document: &Document, field: &str) -> u64 {
    match document.get(field) {
        Some(Bson::Int64(n)) => u64::try_from(*n).unwrap_or_default(),
        Some(Bson::Int32(n)) => u64::try_from(*n).unwrap_or_default(),
        Some(Bson::Double(n)) if *n > 0.0 => *n as u64,
        _ => 0,
    }
    .min(LARGEST)
}

/// Returns a string, or an empty one if the field is missing or not a string.
fn text(document: &Document, field: &str) -> String {
    document.get_str(field).unwrap_or_default().to_owned()
}
