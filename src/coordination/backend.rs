//! Opening a store: first the place, then the ring that it is to be of.

use super::{CoordinationStore, FileStore};
#[cfg(feature = "mongodb")]
use super::{MongoStore, mongo};
use crate::config::IndexPlace;
use crate::error::Result;
use crate::fs::Fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a process does that finds no server when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfUnreachable {
    /// It fails, since a wrong address is best noticed now.
    Fail,
    /// It goes on without a store, until the server answers.
    Continue,
}

/// What a process does with a place for a store that is not its ring's yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing. For processes that only read.
    Never,
    /// It claims a place that belongs to no ring.
    IfUnowned,
    /// It also claims a place of another ring, and removes what that ring left.
    TakeOver,
}

/// A place for a store, to which a connection was made. [`Backend::open`] opens the store of a ring
/// there.
pub enum Backend {
    /// Files in the ring.
    Files,
    /// A MongoDB.
    #[cfg(feature = "mongodb")]
    MongoDb(mongo::Connection),
}

/// The process and the ring that a store is opened for.
pub struct RingContext<'a> {
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

impl Backend {
    /// Connects to `place`.
    ///
    /// # Errors
    /// [`crate::Error::CoordinationUnavailable`] for a server that does not answer, with [`IfUnreachable::Fail`];
    /// [`crate::Error::CoordinationDenied`] for one that refuses us; [`crate::Error::Config`] for an
    /// invalid connection string, or where this build knows no MongoDB.
    pub fn connect(place: &IndexPlace, if_unreachable: IfUnreachable) -> Result<Backend> {
        match place {
            IndexPlace::Files => Ok(Backend::Files),
            #[cfg(feature = "mongodb")]
            IndexPlace::MongoDb(place) => Ok(Backend::MongoDb(mongo::Connection::open(place, if_unreachable)?)),
            #[cfg(not(feature = "mongodb"))]
            IndexPlace::MongoDb(place) => {
                let (_, message) =
                    (if_unreachable, "this build has no MongoDB: use INDEX: files, or the feature `mongodb`");
                Err(crate::error::Error::Config { origin: place.shown(), message: message.to_owned() })
            }
        }
    }

    /// Returns which server does not answer, and why, while that is so; `None` otherwise.
    pub fn silence(&self) -> Option<String> {
        match self {
            Backend::Files => None,
            #[cfg(feature = "mongodb")]
            Backend::MongoDb(connection) => connection.silence(),
        }
    }

    /// Opens the store of the ring that `ring` describes.
    ///
    /// # Errors
    /// [`crate::Error::RingMismatch`] when the place holds the store of another ring, and is not to be
    /// taken over.
    pub fn open(self, fs: Arc<dyn Fs>, ring: RingContext<'_>, claim: Claim) -> Result<Arc<dyn CoordinationStore>> {
        // Large blocks cost the store little with many generators. Small rings get small ones, so that their names stay
        // dense.
        let block = (ring.swap_cap / 64).clamp(1, 64);
        match (self, claim) {
            (Backend::Files, _) => Ok(Arc::new(FileStore::new(fs, ring.files, ring.me, block))),
            #[cfg(feature = "mongodb")]
            (Backend::MongoDb(connection), claim) => {
                let path = std::path::absolute(ring.path).unwrap_or_else(|_| ring.path.to_owned());
                let ring = mongo::RingName { id: ring.ring_id.to_owned(), path: path.display().to_string() };
                connection.belongs_to(ring, claim)?;
                Ok(Arc::new(MongoStore::new(connection, block)))
            }
        }
    }
}
