//! The documents of a store, and the ring that owns them.

use super::ATTEMPTS;
use crate::config::{MongoPlace, STATUS_COLLECTION};
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, Result, WriteFailure};
use mongodb::options::ReturnDocument;
use mongodb::{Collection, Database};
use std::sync::Arc;

/// MongoDB's error code for an `_id` that exists already.
const DUPLICATE_KEY: i32 = 11_000;

/// The ring that a store belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingName {
    /// The id in its `ring.json`.
    pub id: String,
    /// Its directory, for display.
    pub path: String,
}

/// The collections of one store, and the names of its documents.
#[derive(Clone)]
pub struct Collections {
    /// Counters by generation.
    pub counters: Collection<Document>,
    /// All other documents.
    pub status: Collection<Document>,
    names: Arc<(String, RingName)>,
    /// Whether this ring claims a place that belongs to no ring when it uses the place.
    claims: bool,
}

/// The error that the place belongs to another ring, wrapped in a custom error of the driver.
#[derive(Clone, Debug)]
pub struct OtherRing(pub RingName);

impl Collections {
    /// Returns the store of `owner` at `place`. With `claims`, it claims a place that belongs to no
    /// ring when it uses the place.
    pub fn new(database: &Database, place: &MongoPlace, owner: &RingName, claims: bool) -> Collections {
        Collections {
            counters: database.collection(&place.counters),
            status: database.collection(STATUS_COLLECTION),
            names: Arc::new((place.counters.clone(), owner.clone())),
            claims,
        }
    }

    /// Returns the same collections through another connection.
    pub fn on(&self, database: &Database, place: &MongoPlace) -> Collections {
        Collections::new(database, place, &self.names.1, self.claims)
    }

    /// Returns the id of the ring that this process works for.
    pub fn ring(&self) -> &str {
        &self.names.1.id
    }

    /// Returns the name of the counter collection, which identifies this store among others in the
    /// database.
    pub fn name(&self) -> &str {
        &self.names.0
    }

    fn id(&self, rest: &str) -> Document {
        doc! { "_id": format!("{}.{rest}", self.name()) }
    }

    /// Returns the `_id` of the swap status, whose document also names the ring that owns the
    /// store.
    pub fn swap(&self) -> Document {
        self.id("swap")
    }

    /// Returns the `_id` of the lease of `role`.
    pub fn lease(&self, role: &str) -> Document {
        self.id(&format!("lease.{role}"))
    }

    /// Returns the `_id` of a member.
    pub fn member(&self, member: &str) -> Document {
        self.id(&format!("member.{member}"))
    }

    /// Returns the `_id` of a note.
    pub fn note(&self, folder: &str, name: &str) -> Document {
        self.id(&format!("note.{folder}/{name}"))
    }

    /// Finds the document `id`, if our ring owns it. Removes a document that another ring left in a
    /// place that now belongs to us.
    pub async fn find(&self, table: &Collection<Document>, id: Document) -> Result<Option<Document>> {
        let Some(document) = table.find_one(id).await? else { return Ok(None) };
        if document.get_str("ring").is_ok_and(|ring| ring == self.ring()) {
            return Ok(Some(document));
        }
        self.hold().await?;
        let foreign = doc! { "_id": document.get("_id"), "ring": document.get("ring") };
        table.delete_one(foreign).await.map(|_| None)
    }

    /// Changes the document `id`, or creates it; never changes another ring's. Returns the document after the change.
    pub async fn change(&self, table: &Collection<Document>, id: Document, change: Document) -> Result<Document> {
        let mut filter = id.clone();
        filter.insert("ring", self.ring());
        for _ in 0..ATTEMPTS {
            let changed = table.find_one_and_update(filter.clone(), change.clone()).upsert(true);
            match changed.return_document(ReturnDocument::After).await {
                Ok(Some(document)) => return Ok(document),
                Ok(None) => {}
                // It belonged to another ring and is removed now, or another process created it at the same time.
                Err(error) if is_duplicate(&error) => drop(self.find(table, id.clone()).await?),
                Err(error) => return Err(error),
            }
        }
        Err(contested())
    }

    /// Claims a place that belongs to no ring, if this process may. Fails with [`OtherRing`] if the
    /// place belongs to another ring.
    pub async fn hold(&self) -> Result<()> {
        let mut holder = self.status.find_one(self.swap()).await?;
        if holder.is_none() && self.claims {
            let mut first = self.swap();
            first.extend(doc! {
                "ring": self.ring(),
                "of": self.name(),
                "path": &self.names.1.path,
                "swapped": false,
                "swap_timestamp": 0.0,
                "generation": 0_i64,
                "samples": 0_i64,
            });
            match self.status.insert_one(first).await {
                Err(error) if is_duplicate(&error) => holder = self.status.find_one(self.swap()).await?,
                other => return other.map(drop),
            }
        }
        let Some(holder) = holder else { return Ok(()) };
        let text = |field| holder.get_str(field).unwrap_or_default().to_owned();
        if text("ring") == self.ring() {
            return Ok(());
        }
        Err(Error::custom(OtherRing(RingName { id: text("ring"), path: text("path") })))
    }

    /// Removes all documents of our ring.
    pub async fn clear(&self) -> Result<()> {
        self.counters.delete_many(doc! { "ring": self.ring() }).await?;
        self.status.delete_many(doc! { "of": self.name(), "ring": self.ring() }).await.map(|_| ())
    }

    /// Removes all documents of other rings. Keeps documents without a ring (Wirehead's counters).
    pub async fn clear_others(&self) -> Result<()> {
        let others = || doc! { "$exists": true, "$ne": self.ring() };
        self.counters.delete_many(doc! { "ring": others() }).await?;
        self.status.delete_many(doc! { "of": self.name(), "ring": others() }).await?;
        let mut swap = self.swap();
        swap.insert("ring", doc! { "$ne": self.ring() });
        self.status.delete_one(swap).await.map(drop)
    }
}

/// Returns whether the error means that the `_id` exists already.
pub fn is_duplicate(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Command(command) => command.code == DUPLICATE_KEY,
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code == DUPLICATE_KEY,
        _ => false,
    }
}

/// Returns the error for a document that other processes changed during each attempt.
pub fn contested() -> Error {
    Error::custom("other processes changed the same document at the same time".to_owned())
}
