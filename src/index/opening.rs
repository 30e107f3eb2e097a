//! Opening a store: first the place, then the ring that it is to be of.

use super::{FilesIndex, Index};
#[cfg(feature = "mongodb")]
use super::{MongoIndex, mongo};
use crate::config::IndexPlace;
use crate::error::Result;
use crate::fs::Fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a process does that finds no server when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It fails, since a wrong address is best noticed now.
    Fatal,
    /// It goes on without a store, until the server answers.
    Borne,
}

/// What a process does with a place for a store that is not its ring's yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing. For processes that only read.
    Look,
    /// It claims a place that belongs to no ring.
    Hold,
    /// It also claims a place of another ring, and removes what that ring left.
    TakeOver,
}

/// A place for a store, to which a connection was made. [`Opening::of`] opens the store of a ring
/// there.
pub enum Opening {
    /// Files in the ring.
    Files,
    /// A MongoDB.
    #[cfg(feature = "mongodb")]
    MongoDb(mongo::Connection),
}

/// The process and the ring that a store is opened for.
pub struct Owner<'a> {
    /// The ring's id.
    pub ring_id: &'a str,
    /// Its directory.
    pub path: &'a Path,
    /// The directory of a store in files.
    pub files: PathBuf,
    /// Samples in a generation.
    pub swap_cap: u64,
    /// The process's owner name.
    pub me: &'a str,
}

impl Opening {
    /// Connects to `place`.
    ///
    /// # Errors
    /// [`crate::Error::IndexAway`] for a server that does not answer, with [`Absence::Fatal`];
    /// [`crate::Error::IndexRefused`] for one that refuses us; [`crate::Error::Config`] for an
    /// invalid connection string, or where this build knows no MongoDB.
    pub fn at(place: &IndexPlace, absence: Absence) -> Result<Opening> {
        match place {
            IndexPlace::Files => Ok(Opening::Files),
            #[cfg(feature = "mongodb")]
            IndexPlace::MongoDb(place) => Ok(Opening::MongoDb(mongo::Connection::open(place, absence)?)),
            #[cfg(not(feature = "mongodb"))]
            IndexPlace::MongoDb(place) => {
                let (_, message) = (absence, "this build has no MongoDB: use INDEX: files, or the feature `mongodb`");
                Err(crate::error::Error::Config { origin: place.shown(), message: message.to_owned() })
            }
        }
    }

    /// Returns which server does not answer, and why, while that is so; `None` otherwise.
    pub fn silence(&self) -> Option<String> {
        match self {
            Opening::Files => None,
            #[cfg(feature = "mongodb")]
            Opening::MongoDb(connection) => connection.silence(),
        }
    }

    /// Opens the store of the ring that `owner` describes.
    ///
    /// # Errors
    /// [`crate::Error::WrongRing`] when the place holds the store of another ring, and is not to be
    /// taken over.
    pub fn of(self, fs: Arc<dyn Fs>, owner: Owner<'_>, claim: Claim) -> Result<Arc<dyn Index>> {
        // Large blocks cost the store little with many generators. Small rings get small ones, so that their names stay
        // dense.
        let block = (owner.swap_cap / 64).clamp(1, 64);
        match (self, claim) {
            (Opening::Files, _) => Ok(Arc::new(FilesIndex::new(fs, owner.files, owner.me, block))),
            #[cfg(feature = "mongodb")]
            (Opening::MongoDb(connection), claim) => {
                let path = std::path::absolute(owner.path).unwrap_or_else(|_| owner.path.to_owned());
                let ring = mongo::RingName { id: owner.ring_id.to_owned(), path: path.display().to_string() };
                connection.belongs_to(ring, claim)?;
                Ok(Arc::new(MongoIndex::new(connection, block)))
            }
        }
    }
}
