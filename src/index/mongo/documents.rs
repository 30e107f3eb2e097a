//! Which documents there are, and whose they are.

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, Result, WriteFailure};
use mongodb::{Collection, Database};
use std::sync::Arc;

use crate::config::{MongoPlace, STATUS_COLLECTION};

/// The code of "this `_id` is there already".
const DUPLICATE_KEY: i32 = 11_000;

/// The ring that an index belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingName {
    /// Its id, as in its `ring.json`.
    pub id: String,
    /// Its directory: for people to read.
    pub path: String,
}

/// The collections of one index, and the names of its documents.
#[derive(Clone)]
pub struct Tables {
    /// Counters by generation.
    pub counters: Collection<Document>,
    /// Everything else.
    pub status: Collection<Document>,
    names: Arc<(String, RingName)>,
}

/// The place holds the index of another ring. Travels as a custom error of the driver.
#[derive(Clone, Debug)]
pub struct OtherRing(pub RingName);

impl Tables {
    /// The index of `owner` at `place`.
    pub fn new(database: &Database, place: &MongoPlace, owner: &RingName) -> Tables {
        Tables {
            counters: database.collection(&place.counters),
            status: database.collection(STATUS_COLLECTION),
            names: Arc::new((place.counters.clone(), owner.clone())),
        }
    }

    /// The id of the ring that this process works for.
    pub fn ring(&self) -> &str {
        &self.names.1.id
    }

    /// What tells this index apart from others in the database: the name of its collection of counters.
    pub fn name(&self) -> &str {
        &self.names.0
    }

    fn id(&self, rest: &str) -> Document {
        doc! { "_id": format!("{}.{rest}", self.name()) }
    }

    /// The one document of the swap status, which also says whose the index is.
    pub fn swap(&self) -> Document {
        self.id("swap")
    }

    /// The lease of `role`.
    pub fn lease(&self, role: &str) -> Document {
        self.id(&format!("lease.{role}"))
    }

    /// A process that takes part.
    pub fn member(&self, member: &str) -> Document {
        self.id(&format!("member.{member}"))
    }

    /// All of them.
    pub fn members(&self) -> Document {
        doc! { "of": self.name(), "ring": self.ring() }
    }

    /// The name in the id that [`Tables::member`] made.
    pub fn member_name<'a>(&self, id: &'a str) -> Option<&'a str> {
        id.strip_prefix(self.name())?.strip_prefix(".member.")
    }

    /// `found`, if it is of our ring.
    pub fn ours(&self, found: Option<Document>) -> Result<Option<Document>> {
        let Some(document) = found else { return Ok(None) };
        let ring = document.get_str("ring").unwrap_or_default();
        if ring == self.ring() {
            return Ok(Some(document));
        }
        let path = document.get_str("path").unwrap_or_default().to_owned();
        Err(Error::custom(OtherRing(RingName { id: ring.to_owned(), path })))
    }

    /// Makes the index this ring's, if it is nobody's; an error if it is another one's.
    pub async fn hold(&self) -> Result<()> {
        let created = doc! {
            "ring": self.ring(),
            "path": &self.names.1.path,
            "swapped": false,
            "swap_timestamp": 0.0,
            "generation": 0_i64,
            "samples": 0_i64,
        };
        match self.status.update_one(self.swap(), doc! { "$setOnInsert": created }).upsert(true).await {
            Err(error) if is_duplicate(&error) => {} // two made it at once
            other => drop(other?),
        }
        self.ours(self.status.find_one(self.swap()).await?).map(|_| ())
    }

    /// Removes everything that this index holds of `ring`.
    pub async fn clear(&self, ring: &str) -> Result<()> {
        self.counters.delete_many(doc! { "ring": ring }).await?;
        self.status.delete_many(doc! { "ring": ring, "of": self.name() }).await?;
        for mut one in [self.lease(crate::manager::ROLE), self.swap()] {
            one.insert("ring", ring);
            self.status.delete_one(one).await?;
        }
        Ok(())
    }
}

/// Whether it says that the `_id` is there already.
pub fn is_duplicate(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Command(command) => command.code == DUPLICATE_KEY,
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code == DUPLICATE_KEY,
        _ => false,
    }
}
