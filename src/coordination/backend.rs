//! Opens a coordination store: first connects to the place, then binds the store to a ring.

use super::{CoordinationStore, FileStore};
#[cfg(feature = "mongodb")]
use super::{MongoStore, mongo};
use crate::config::IndexPlace;
use crate::error::Result;
use crate::fs::Fs;
use crate::layout::Layout;
use std::path::Path;
use std::sync::Arc;

/// What a process does if the server does not answer when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfUnreachable {
    /// It fails, because a wrong address is best reported at the start.
    Fail,
    /// It continues without a store until the server answers.
    Continue,
}

/// What a process does with a place that does not belong to its ring yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing; for processes that only read.
    Never,
    /// It claims a place that belongs to no ring.
    IfUnowned,
    /// It also claims a place of another ring, and removes the documents of that ring.
    TakeOver,
}

/// A place for a store, with an open connection. [`Backend::open`] opens the store of a ring there.
pub enum Backend {
    /// Files in the ring.
    Files,
    /// A MongoDB.
    #[cfg(feature = "mongodb")]
    MongoDb(Box<MongoStore>),
}

/// The process and the ring that a store is opened for.
pub struct RingContext<'a> {
    /// The id of the ring.
    pub ring_id: &'a str,
    /// Its directory.
    pub path: &'a Path,
    /// Maximum number of samples in a generation.
    pub swap_cap: u64,
    /// The owner name of the process.
    pub me: &'a str,
}

impl Backend {
    /// Connects to `place`.
    ///
    /// # Errors
    /// [`crate::Error::CoordinationUnavailable`] for a server that does not answer, with
    /// [`IfUnreachable::Fail`]; [`crate::Error::CoordinationDenied`] for a server that refuses
    /// access; [`crate::Error::Config`] for an invalid connection string, or if this build does not
    /// support MongoDB.
    pub fn connect(place: &IndexPlace, if_unreachable: IfUnreachable) -> Result<Backend> {
        match place {
            IndexPlace::Files => Ok(Backend::Files),
            #[cfg(feature = "mongodb")]
            IndexPlace::MongoDb(place) => Ok(Backend::MongoDb(Box::new(MongoStore::open(place, if_unreachable)?))),
            #[cfg(not(feature = "mongodb"))]
            IndexPlace::MongoDb(place) => {
                let (_, message) =
                    (if_unreachable, "this build does not support MongoDB: use INDEX: files, or the feature `mongodb`");
                Err(crate::error::Error::Config { origin: place.shown(), message: message.to_owned() })
            }
        }
    }

    /// Returns which server does not answer and why, or `None` if the server answers. Sends the server a request
    /// unless it is known not to answer.
    pub fn silence(&self) -> Option<String> {
        match self {
            Backend::Files => None,
            #[cfg(feature = "mongodb")]
            Backend::MongoDb(store) => store.silence(),
        }
    }

    /// Opens the store of the ring that `ring` describes.
    ///
    /// # Errors
    /// [`crate::Error::RingMismatch`] if the place belongs to another ring and is not to be taken
    /// over.
    pub fn open(self, fs: Arc<dyn Fs>, ring: RingContext<'_>, claim: Claim) -> Result<Arc<dyn CoordinationStore>> {
        // Large blocks reduce the number of requests with many generators. Small rings get small
        // blocks, so that their numbers stay dense.
        let block = (ring.swap_cap / 64).clamp(1, 64);
        match (self, claim) {
            (Backend::Files, _) => Ok(Arc::new(FileStore::new(fs, Layout::new(ring.path).index(), ring.me, block))),
            #[cfg(feature = "mongodb")]
            (Backend::MongoDb(mut store), claim) => {
                let path = std::path::absolute(ring.path).unwrap_or_else(|_| ring.path.to_owned());
                let ring = mongo::RingName { id: ring.ring_id.to_owned(), path: path.display().to_string() };
                store.block = block;
                store.belongs_to(ring, claim)?;
                Ok(Arc::<MongoStore>::from(store))
            }
        }
    }
}
