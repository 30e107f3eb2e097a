//! Segment files: written in staging by one owner, read after they are sealed.

pub mod borrow;
pub mod reader;
pub mod writer;

use crate::error::Error;
use crate::layout::parse_number;
use ringreel_format::SegmentId;
use std::fmt;
use std::str::FromStr;

/// Identifies a sample permanently: its segment, and its ordinal in the segment.
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

impl FromStr for SampleId {
    type Err = Error;

    fn from_str(text: &str) -> Result<SampleId, Error> {
        let bad = || Error::Sample(format!("{text:?} is not a sample id (32 hexadecimal digits, a dot, a number)"));
        let (segment, ordinal) = text.split_once('.').ok_or_else(bad)?;
        let segment = segment.parse().map_err(|_| bad())?;
        Ok(SampleId { segment, ordinal: parse_number(ordinal).ok_or_else(bad)? })
    }
}
