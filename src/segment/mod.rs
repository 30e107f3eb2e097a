//! Segments as files: written in staging by one owner, read once they are sealed.

pub mod reader;
pub mod staging;

use ringreel_format::SegmentId;
use std::fmt;

/// Names a sample for ever: its segment, and its ordinal there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleId {
    /// The segment.
    pub segment: SegmentId,
    /// Position in the segment, from 0.
    pub ordinal: u64,
}

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.segment, self.ordinal)
    }
}
