//! Manifests: the final list of the segments of a generation. Only a manifest decides what was
//! delivered.
//!
//! A manifest is text, readable by people and `grep`: a line of JSON about the generation, a line
//! for each segment, and a last line with the number of lines and the CRC-32 of all lines before
//! it. It is published whole, by a hard link, and never changed.

pub mod store;
mod text;

use crate::error::{Error, Result};
use crate::layout::SegmentName;
use crate::segment::reader::SegmentReader;
use ringreel_format::{Footer, FormatError, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
pub(crate) use text::{CUT_OFF, Decoder, Owners};

/// The manifest version that this crate writes and reads.
const VERSION: u32 = 1;
/// Size limit of a manifest, in bytes; larger ones are refused.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// Maximum number of segments in a manifest. A line takes less than 512 bytes, so a manifest within
/// this limit is smaller than [`MAX_BYTES`].
pub(crate) const MAX_SEGMENTS: usize = (MAX_BYTES >> 9) as usize;
/// Maximum number of samples in a generation, which is also the maximum of SWAP_CAP.
const MAX_SAMPLES: u64 = 1 << 40;

/// One segment, as the manifest of its generation lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// The id of the segment.
    pub id: SegmentId,
    /// Its index in the generation.
    pub index: u64,
    /// The process that wrote it. The entries of a manifest share the string, because a generation
    /// may have 100,000 entries.
    pub owner: Arc<str>,
    /// The generation that was filling when the segment was begun.
    pub born: u64,
    /// Number of samples in it.
    pub samples: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Checksum of its footer, which represents the whole file.
    pub check: u32,
}

/// The reason given for a file that has a listed name but is another segment.
pub const ANOTHER: &str = "it is not the segment that the manifest lists";

impl SegmentEntry {
    /// Returns the parsed name of its file in the generation's directory.
    pub fn name(&self) -> SegmentName {
        SegmentName { index: self.index, samples: self.samples }
    }

    /// Returns the name of its file in the generation's directory.
    pub fn file(&self) -> String {
        self.name().to_string()
    }

    /// Returns whether this entry describes a file of `bytes` bytes with this footer.
    pub fn describes(&self, footer: &Footer, bytes: u64) -> bool {
        (self.id, self.bytes, self.check, self.samples) == (footer.info.id, bytes, footer.check, footer.count)
    }

    /// Checks that this entry describes `segment`.
    ///
    /// # Errors
    /// [`Error::Format`] if it describes another one.
    pub fn check(&self, segment: &SegmentReader) -> Result<()> {
        let tail = segment.tail();
        if self.describes(&tail.footer, tail.len) {
            return Ok(());
        }
        Err(Error::Format { path: segment.path().to_path_buf(), source: FormatError::NotASegment { why: ANOTHER } })
    }
}

/// The first line of a manifest, about its generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the manifest format.
    pub manifest: u32,
    /// The id of the ring.
    pub ring: String,
    /// The number of the generation.
    pub generation: u64,
    /// The process that published the manifest.
    pub by: String,
    /// Time of the publication by that process's clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Number of samples in the generation.
    pub samples: u64,
    /// Total size of its segments in bytes.
    pub bytes: u64,
    /// Number of samples in all generations up to and including this one.
    pub total_samples: u64,
    /// Bytes in all generations up to and including this one.
    pub total_bytes: u64,
    /// Approximate milliseconds for which generators could not commit: from closing this generation
    /// until the next one was open.
    pub swap_ms: f64,
    /// In a rebuilt manifest: the number of samples that the lost manifest listed and that no
    /// longer exist. `total_samples` includes them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Summary {
    /// Returns the summary of the empty generation 0 of a new ring.
    pub fn empty(ring: &str, by: &str) -> Summary {
        Summary {
            manifest: VERSION,
            ring: ring.to_owned(),
            generation: 0,
            by: by.to_owned(),
            unix_ms: crate::unix_ms(),
            samples: 0,
            bytes: 0,
            total_samples: 0,
            total_bytes: 0,
            swap_ms: 0.0,
            lost: 0,
        }
    }

    /// Returns the summary of the next generation, which has `segments`.
    pub fn next(&self, by: &str, segments: &[SegmentEntry], swap_ms: f64) -> Summary {
        let sum = |sum: u64, more: u64| sum.saturating_add(more); // a forged manifest may claim any number
        let samples = segments.iter().map(|s| s.samples).fold(0, sum);
        let bytes = segments.iter().map(|s| s.bytes).fold(0, sum);
        Summary {
            generation: self.generation + 1,
            samples,
            bytes,
            total_samples: sum(self.total_samples, samples),
            total_bytes: sum(self.total_bytes, bytes),
            swap_ms,
            ..Summary::empty(&self.ring, by)
        }
    }

    /// Returns the number of samples in all generations before this one.
    pub fn before(&self) -> u64 {
        self.total_samples.saturating_sub(self.samples).saturating_sub(self.lost)
    }
}

/// The manifest of a generation.
#[derive(Debug)]
pub struct Manifest {
    /// The line about the generation.
    pub summary: Summary,
    /// The segments of the generation, in the order of positions.
    pub segments: Vec<SegmentEntry>,
    /// Indices into `segments`, sorted by segment id.
    by_id: OnceLock<Vec<u32>>,
    starts: OnceLock<Vec<u64>>,
}

impl Manifest {
    /// Builds a manifest from its parts.
    pub fn new(summary: Summary, mut segments: Vec<SegmentEntry>) -> Manifest {
        segments.shrink_to_fit(); // manifests are cached
        Manifest { summary, segments, by_id: OnceLock::new(), starts: OnceLock::new() }
    }

    /// Returns its approximate size in memory in bytes, including the lookup tables.
    pub(crate) fn memory(&self) -> usize {
        let each = size_of::<SegmentEntry>() + size_of::<u32>() + size_of::<u64>();
        self.segments.capacity() * each + size_of::<Manifest>()
    }

    /// Returns whether the manifest lists the segment.
    pub fn lists(&self, id: SegmentId) -> bool {
        self.locate_id(id).is_some()
    }

    /// Returns the entry of the segment with this id.
    pub fn locate_id(&self, id: SegmentId) -> Option<&SegmentEntry> {
        self.place_of(id).map(|n| &self.segments[n])
    }

    /// Returns the index in `segments` of the segment with this id.
    pub(crate) fn place_of(&self, id: SegmentId) -> Option<usize> {
        let by_id = self.by_id.get_or_init(|| {
            let mut by_id: Vec<u32> = (0..).take(self.segments.len()).collect();
            by_id.sort_by_key(|n| self.segments[*n as usize].id);
            by_id
        });
        let found = by_id.binary_search_by_key(&id, |n| self.segments[*n as usize].id);
        found.ok().map(|found| by_id[found] as usize)
    }

    /// Returns the file names of all segments.
    pub fn names(&self) -> HashSet<SegmentName> {
        self.segments.iter().map(SegmentEntry::name).collect()
    }

    /// Returns the segment that holds the sample at `position` of the generation, and the sample's
    /// ordinal in it.
    pub fn locate(&self, position: u64) -> Option<(&SegmentEntry, u64)> {
        let starts = self.starts.get_or_init(|| {
            let starts = self.segments.iter().scan(0, |next, s| {
                let start = *next;
                *next += s.samples;
                Some(start)
            });
            starts.collect()
        });
        let n = starts.partition_point(|start| *start <= position).checked_sub(1)?;
        let (segment, ordinal) = (&self.segments[n], position - starts[n]);
        (ordinal < segment.samples).then_some((segment, ordinal))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example(count: u64) -> Manifest {
        let entry = |n: u64| SegmentEntry {
            id: SegmentId((n as u128).to_be_bytes()),
            index: n * 3,
            owner: "node-1-ab".into(),
            born: 4,
            samples: n % 3 + 1,
            bytes: 1000 + n,
            check: n as u32,
        };
        let segments: Vec<_> = (0..count).map(entry).collect();
        let samples = segments.iter().map(|s| s.samples).sum();
        let empty = Summary::empty("r", "node-1-ab");
        let (total_samples, total_bytes, swap_ms) = (100, 1000, 0.5);
        let summary =
            Summary { generation: 5, unix_ms: 1, samples, bytes: 7, total_samples, total_bytes, swap_ms, ..empty };
        Manifest::new(summary, segments)
    }

    #[test]
    fn manifest_survives_a_round_trip_and_damage_is_detected() {
        let bytes = example(4).encode().unwrap();
        let again = Manifest::decode(&bytes).unwrap();
        assert_eq!(again.segments, example(4).segments);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Manifest::decode(&damaged) {
                assert_eq!((&read.segments, &read.summary), (&again.segments, &again.summary), "bit {bit}");
            }
        }
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn positions_are_located_in_segments() {
        let manifest = example(5); // 1, 2, 3, 1, 2 samples
        let found: Vec<_> = (0..10).map(|p| manifest.locate(p).map(|(s, o)| (s.index / 3, o))).collect();
        let want = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0), (4, 1)];
        assert_eq!(found[..9], want.map(Some));
        assert_eq!(found[9], None);
    }

    #[test]
    fn manifest_with_too_many_samples_is_refused() {
        let mut manifest = example(1);
        for (samples, may) in [(1 << 40, true), ((1 << 40) + 1, false), (u64::MAX, false)] {
            (manifest.segments[0].samples, manifest.summary.samples) = (samples, samples);
            assert_eq!(Manifest::decode(&manifest.encode().unwrap()).is_ok(), may, "{samples}");
        }
    }

    /// Returns a manifest whose only entry has another file name and owner.
    fn renamed(file: &str, owner: &str) -> Vec<u8> {
        let text = String::from_utf8(example(1).encode().unwrap()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let lines = lines[..lines.len() - 1].join("\n") + "\n";
        let lines = lines.replace("\"000000.rec\"", &format!("{file:?}"));
        let lines = lines.replace("\"owner\":\"node-1-ab\"", &format!("\"owner\":{owner:?}"));
        let crc32 = format!("{:08x}", crc32fast::hash(lines.as_bytes()));
        let end = serde_json::to_string(&text::End { end: 5, lines: 2, crc32 }).unwrap();
        format!("{lines}{end}\n").into_bytes()
    }

    #[test]
    fn manifest_with_invalid_names_is_refused() {
        let only = Manifest::decode(&renamed("000000.rec", "o")).unwrap().segments.remove(0);
        assert_eq!((&*only.owner, only.file().as_str()), ("o", "000000.rec"));
        let wrong = ["../x.rec", "/etc/passwd", "a/000000.rec", "0.rec", "000001.rec", "000000"];
        let wrong = wrong.map(|file| (file, "o")).into_iter().chain([("000000.rec", "../o"), ("000000.rec", "")]);
        for (file, owner) in wrong {
            let refused = Manifest::decode(&renamed(file, owner)).unwrap_err();
            assert!(refused.contains("not a valid file or owner name"), "{file} {owner}: {refused}");
        }
    }

    #[test]
    fn entries_of_one_owner_share_its_name() {
        let read = Manifest::decode(&example(100).encode().unwrap()).unwrap();
        assert!(read.segments.iter().all(|entry| Arc::ptr_eq(&entry.owner, &read.segments[0].owner)));
    }

    #[test]
    fn segments_are_found_by_id() {
        let mut manifest = example(100);
        manifest.segments.reverse();
        for (n, entry) in manifest.segments.iter().enumerate() {
            assert_eq!((manifest.place_of(entry.id), manifest.locate_id(entry.id)), (Some(n), Some(entry)));
        }
        assert!([100, u128::MAX].iter().all(|id| !manifest.lists(SegmentId(id.to_be_bytes()))));
    }
}
