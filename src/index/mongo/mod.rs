//! The index kept in a MongoDB: only what a plain server does, each operation on one document.
//!
//! ```text
//! COUNTER_COLLECTION   { _id: <generation>, ring, next, closed }
//! status               { _id: "<COUNTER_COLLECTION>.swap", ring, of, path, swapped, swap_timestamp, generation, samples }
//!                      { _id: "<COUNTER_COLLECTION>.lease.<role>", ring, of, token, holder, released }
//!                      { _id: "<COUNTER_COLLECTION>.member.<owner>", ring, of, beat, report }
//!                      { _id: "<COUNTER_COLLECTION>.note.<folder>/<name>", ring, of, folder, name, text }
//! ```
//!
//! Field by field in `docs/mongodb.md`. No answer is relied upon: a counter that repeats itself, a reply that came twice
//! or not at all, a server that lost everything cost work, and no sample.

mod connection;
mod diagnosis;
mod documents;
pub mod probe;

pub use connection::Connection;
pub use documents::RingName;

use super::block::{Block, Numbers};
use super::{Index, Lease, Report, SwapStatus};
use crate::error::Result;
use documents::Tables;
use mongodb::bson::{Bson, Document, deserialize_from_document, doc, serialize_to_document};
use std::fmt;
use std::future::Future;

/// No generation, token or count comes near it, and sums with it do not overflow.
const LARGEST: u64 = 1 << 62;
/// How often an operation is tried that somebody else may have been faster with.
const ATTEMPTS: usize = 4;

/// See the module.
pub struct MongoIndex {
    connection: Connection,
    numbers: Block,
    block: u64,
}

impl fmt::Debug for MongoIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MongoIndex").field(&self.connection.shown()).finish()
    }
}

impl MongoIndex {
    /// The index behind `connection`, whose ring was said. Numbers are taken `block` at a time.
    pub fn new(connection: Connection, block: u64) -> MongoIndex {
        MongoIndex { connection, numbers: Block::default(), block: block.max(1) }
    }

    fn call<T, F>(&self, op: impl FnOnce(Tables) -> F + Clone) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
    {
        self.connection.call(op)
    }

    fn claim_numbers(&self, generation: u64) -> Result<Option<Numbers>> {
        let counter =
            self.change_counter(generation, doc! { "$inc": { "next": int(self.block) } }, doc! { "closed": false })?;
        if counter.get_bool("closed").unwrap_or(false) {
            return Ok(None);
        }
        let end = whole(&counter, "next").max(self.block);
        Ok(Some(Numbers { generation, next: end - self.block, end }))
    }

    /// Changes the counter of `generation`; makes it, with `created` in it, where there is none.
    fn change_counter(&self, generation: u64, mut change: Document, created: Document) -> Result<Document> {
        change.insert("$setOnInsert", created);
        let id = doc! { "_id": int(generation) };
        self.call(move |tables| async move {
            for _ in 0..ATTEMPTS {
                if let Some(counter) = tables.change(&tables.counters, id.clone(), change.clone()).await? {
                    return Ok(counter);
                }
            }
            Err(documents::contested())
        })
    }
}

/// A number as MongoDB keeps it: no generation or count comes near its end.
fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A whole number, in whichever type a server or a person at a shell wrote it; 0 for what is none.
fn whole(document: &Document, field: &str) -> u64 {
    match document.get(field) {
        Some(Bson::Int64(n)) => u64::try_from(*n).unwrap_or_default(),
        Some(Bson::Int32(n)) => u64::try_from(*n).unwrap_or_default(),
        Some(Bson::Double(n)) if *n > 0.0 => *n as u64,
        _ => 0,
    }
    .min(LARGEST)
}

fn text(document: &Document, field: &str) -> String {
    document.get_str(field).unwrap_or_default().to_owned()
}

impl Index for MongoIndex {
    fn place(&self) -> String {
        self.connection.shown().to_owned()
    }

    fn ping(&self) -> Result<()> {
        self.call(|tables| async move { tables.hold().await })
    }

    fn next_index(&self, generation: u64) -> Result<Option<u64>> {
        self.numbers.take(generation, |_| self.claim_numbers(generation))
    }

    fn close_generation(&self, generation: u64) -> Result<()> {
        self.change_counter(generation, doc! { "$set": { "closed": true } }, doc! { "next": 0_i64 }).map(drop)
    }

    fn handed_out(&self, generation: u64) -> Result<u64> {
        let filter = doc! { "_id": int(generation) };
        let counter =
            self.call(
                |tables| async move { tables.ours(&tables.counters, tables.counters.find_one(filter).await?).await },
            )?;
        Ok(counter.map_or(0, |counter| whole(&counter, "next")))
    }

    fn skip_to(&self, generation: u64, next: u64) -> Result<()> {
        self.numbers.skip_to(generation, next);
        self.change_counter(generation, doc! { "$max": { "next": int(next) } }, doc! { "closed": false }).map(drop)
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
                match tables.ours(&tables.status, tables.status.find_one(tables.swap()).await?).await? {
                    Some(newest) if whole(&newest, "generation") > generation => return Ok(false),
                    _ => tables.hold().await?,
                }
            }
            Ok(false)
        })
    }

    fn status(&self) -> Result<Option<SwapStatus>> {
        let found = self.call(|tables| async move {
            tables.ours(&tables.status, tables.status.find_one(tables.swap()).await?).await
        })?;
        let swapped = found.filter(|status| status.get_bool("swapped").unwrap_or(false));
        Ok(swapped.map(|status| SwapStatus {
            generation: whole(&status, "generation"),
            unix_ms: (status.get_f64("swap_timestamp").unwrap_or_default() * 1e3).round() as u64,
            total_samples: whole(&status, "samples"),
        }))
    }

    fn lease(&self, role: &str) -> Result<Option<Lease>> {
        let role = role.to_owned();
        let lease = self.call(|tables| async move {
            tables.ours(&tables.status, tables.status.find_one(tables.lease(&role)).await?).await
        })?;
        Ok(lease.map(|lease| Lease {
            token: whole(&lease, "token"),
            holder: text(&lease, "holder"),
            released: lease.get_bool("released").unwrap_or(false),
        }))
    }

    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool> {
        let (role, holder) = (role.to_owned(), holder.to_owned());
        self.call(move |tables| async move {
            let held = doc! { "ring": tables.ring(), "of": tables.name(), "token": int(token), "holder": &holder, "released": false };
            for _ in 0..ATTEMPTS {
                let mut earlier = tables.lease(&role);
                earlier.insert("ring", tables.ring());
                earlier.insert("token", doc! { "$lt": int(token) });
                if tables.status.update_one(earlier, doc! { "$set": held.clone() }).await?.matched_count > 0 {
                    return Ok(true);
                }
                if let Some(lease) = tables.ours(&tables.status, tables.status.find_one(tables.lease(&role)).await?).await? {
                    // Ours: the reply got lost, or the request came twice.
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

    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()> {
        let report = serialize_to_document(report).map_err(|error| crate::Error::Index(error.to_string()))?;
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
        // What nobody can read, a person wrote: it is no report.
        Ok(said.and_then(|mut said| deserialize_from_document(said.get_document_mut("report").ok()?.clone()).ok()))
    }

    fn note(&self, folder: &str, name: &str, words: &str) -> Result<String> {
        let (folder, name, written) = (folder.to_owned(), name.to_owned(), words.to_owned());
        self.call(move |tables| async move {
            let id = tables.note(&folder, &name);
            for _ in 0..ATTEMPTS {
                let mut first = id.clone();
                first.extend(doc! { "ring": tables.ring(), "of": tables.name(), "folder": &folder, "name": &name, "text": &written });
                match tables.status.insert_one(first).await {
                    Err(error) if documents::is_duplicate(&error) => {}
                    other => return other.map(|_| written),
                }
                if let Some(found) = tables.ours(&tables.status, tables.status.find_one(id.clone()).await?).await? {
                    return Ok(text(&found, "text"));
                }
            }
            Err(documents::contested())
        })
    }

    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        let found = self.call(move |tables| async move {
            tables.ours(&tables.status, tables.status.find_one(tables.note(&folder, &name)).await?).await
        })?;
        Ok(found.map(|found| text(&found, "text")))
    }

    fn note_names(&self, folder: &str) -> Result<Vec<String>> {
        let folder = folder.to_owned();
        self.call(move |tables| async move {
            let notes = doc! { "of": tables.name(), "ring": tables.ring(), "folder": folder };
            let mut found = tables.status.find(notes).projection(doc! { "name": 1 }).await?;
            let mut names = Vec::new();
            while found.advance().await? {
                names.push(text(&found.deserialize_current()?, "name"));
            }
            Ok(names)
        })
    }

    fn drop_note(&self, folder: &str, name: &str) -> Result<()> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        self.call(move |tables| async move {
            let mut note = tables.note(&folder, &name);
            note.insert("ring", tables.ring());
            tables.status.delete_one(note).await.map(|_| ())
        })
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
