//! Opening an index: first the place, then the ring that it is to be of.

use super::{FilesIndex, Index};
#[cfg(feature = "mongodb")]
use super::{MongoIndex, mongo};
use crate::config::IndexPlace;
use crate::error::Result;
use crate::fs::Fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What becomes of a process that finds no server when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is told, and ends: a wrong address is best noticed now.
    Fatal,
    /// It goes on without.
    Borne,
}

/// What a process does with a place for an index that is not its ring's yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: it only looks.
    Look,
    /// It takes one that is nobody's.
    Hold,
    /// It takes one that is another ring's, too, and throws away what that left.
    TakeOver,
}

/// A place for an index, found and in order; which ring's it is to be is said by [`Opening::of`].
pub enum Opening {
    /// Files in the ring.
    Files,
    /// A MongoDB.
    #[cfg(feature = "mongodb")]
    MongoDb(mongo::Connection),
}

/// The process and the ring that an index is opened for.
pub struct Owner<'a> {
    /// The ring's id.
    pub ring_id: &'a str,
    /// Its directory.
    pub path: &'a Path,
    /// Where files of its index are kept.
    pub files: PathBuf,
    /// Samples in a generation.
    pub swap_cap: u64,
    /// The process's owner name.
    pub me: &'a str,
}

impl Opening {
    /// Goes to `place`.
    ///
    /// # Errors
    /// A server that is not there, unless that is borne, or that does not serve us; [`crate::Error::Config`] for a connection
    /// string that is none, or where this build knows no MongoDB.
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

    /// Returns which server does not answer, and why, while that is so.
    pub fn silence(&self) -> Option<String> {
        match self {
            Opening::Files => None,
            #[cfg(feature = "mongodb")]
            Opening::MongoDb(connection) => connection.silence(),
        }
    }

    /// The index of this ring.
    ///
    /// # Errors
    /// [`crate::Error::WrongRing`] when the place holds the index of another ring, and is not to be taken over.
    pub fn of(self, fs: Arc<dyn Fs>, owner: Owner<'_>, claim: Claim) -> Result<Arc<dyn Index>> {
        // Numbers are taken in blocks, so that many generators cost the index little; small rings get small blocks, so
        // that their names stay dense.
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
