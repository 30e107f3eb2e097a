//! A callback before each seal, for callers that must know after a crash which of their inputs are in the ring.
//!
//! A caller that is killed between the seal of a segment and its own note of the seal cannot tell finished samples from
//! lost ones. With the callback it notes the segment first, and calls [`Ring::is_sealed`] when it starts again.

use super::Generator;
use crate::error::Result;
use crate::manifest::store::Lookup;
use crate::ring::Ring;
use ringreel_format::SegmentId;

/// A segment that is about to be sealed.
#[derive(Clone, Copy, Debug)]
pub struct Sealing<'a> {
    /// The process that wrote it.
    pub owner: &'a str,
    /// The segment.
    pub id: SegmentId,
    /// The first generation whose manifest can list it.
    pub born: u64,
    /// Samples in it.
    pub samples: u64,
    /// Samples of this generator that were thrown away with segments that could not be completed.
    pub discarded: u64,
}

/// The callback. If it returns an error, the segment is not sealed.
pub(crate) type BeforeSeal = Box<dyn FnMut(Sealing<'_>) -> Result<()> + Send>;

impl Generator {
    /// Calls `callback` before each seal of a segment, from the thread that seals it. When sealing is retried, the
    /// callback is called again for the same segment. If it fails, the segment stays open, and the call that would
    /// have sealed it returns the error.
    pub fn before_seal(&mut self, callback: impl FnMut(Sealing<'_>) -> Result<()> + Send + 'static) {
        super::handle::lock(&self.core).before_seal = Some(Box::new(callback));
    }
}

impl Ring {
    /// Returns whether the segment `id` of a process that has ended was sealed: its owner's directory has it, or a
    /// manifest from generation `born` on lists it. False for a segment in quarantine, and if the manifest was pruned.
    ///
    /// # Errors
    /// What the filesystem says; a damaged manifest.
    pub fn is_sealed(&self, owner: &str, id: SegmentId, born: u64) -> Result<bool> {
        // In this order: the name in staging is removed only after a manifest lists the segment.
        if self.fs.exists(&self.layout.sealed(owner, id))? {
            return Ok(true);
        }
        let newest = self.manifests.newest_listed()?;
        Ok(matches!(self.manifests.find(id, born, newest)?, Lookup::Listed(_)))
    }
}
