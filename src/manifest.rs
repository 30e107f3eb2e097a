//! Manifests: the sealed list of what a generation holds, and the only judge of what was delivered.
//!
//! Text, for people and `grep`: a line of JSON about the generation, a line for each segment, and a last line with the
//! number of lines and the CRC-32 of all before it. Published whole, by link; never changed.

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

/// Version of the manifest that is written and read.
const VERSION: u32 = 1;
/// Largest manifest that is read, in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// Most segments that a manifest lists: a line takes less than 512 bytes, so that readers accept all of it.
pub(crate) const MAX_SEGMENTS: usize = (MAX_BYTES >> 9) as usize;
/// Most samples in a generation: as many as SWAP_CAP may be.
const MAX_SAMPLES: u64 = 1 << 40;

/// One segment, as its generation's manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Its id.
    pub id: SegmentId,
    /// Its place in the generation.
    pub index: u64,
    /// Who wrote it. Entries of one manifest share the text: a generation may have 100,000 of them.
    pub owner: Arc<str>,
    /// The generation that was being written when it was begun.
    pub born: u64,
    /// Samples in it.
    pub samples: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Checksum of its footer, which stands for the whole file.
    pub check: u32,
}

/// Said of a file under a name that a manifest lists.
pub const ANOTHER: &str = "it is another segment than the manifest lists";

impl SegmentEntry {
    /// What its file's name in the generation's directory says.
    pub fn name(&self) -> SegmentName {
        SegmentName { index: self.index, samples: self.samples }
    }

    /// The name of its file, in the generation's directory.
    pub fn file(&self) -> String {
        self.name().to_string()
    }

    /// Whether it is the segment with this footer, in a file of so many bytes.
    pub fn describes(&self, footer: &Footer, bytes: u64) -> bool {
        (self.id, self.bytes, self.check, self.samples) == (footer.info.id, bytes, footer.check, footer.count)
    }

    /// Whether it is this one.
    ///
    /// # Errors
    /// It is another one.
    pub fn check(&self, segment: &SegmentReader) -> Result<()> {
        let tail = segment.tail();
        if self.describes(&tail.footer, tail.len) {
            return Ok(());
        }
        Err(Error::Format { path: segment.path().to_path_buf(), source: FormatError::NotASegment { why: ANOTHER } })
    }
}

/// What a manifest says of its generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the manifest's own format.
    pub manifest: u32,
    /// The ring's id.
    pub ring: String,
    /// The generation.
    pub generation: u64,
    /// Who published it.
    pub by: String,
    /// When, by its clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// Samples in it.
    pub samples: u64,
    /// Bytes of its segments.
    pub bytes: u64,
    /// Samples in all generations up to and with this one.
    pub total_samples: u64,
    /// Bytes in all generations up to and with this one.
    pub total_bytes: u64,
    /// How long generators could not commit, about: from the closing of this generation until the next one was open, in ms.
    pub swap_ms: f64,
    /// Of a manifest that was lost and is rebuilt: samples that it listed once, and that are not there any more. They
    /// count in `total_samples`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Summary {
    /// That of the empty generation 0, with which a ring begins.
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

    /// That of the generation after this one, which holds `segments`.
    pub fn next(&self, by: &str, segments: &[SegmentEntry], swap_ms: f64) -> Summary {
        let sum = |sum: u64, more: u64| sum.saturating_add(more); // a manifest may claim anything
        let samples = segments.iter().map(|s| s.samples).fold(0, sum);
        let bytes = segments.iter().map(|s| s.bytes).fold(0, sum);
        Summary {
            manifest: VERSION,
            ring: self.ring.clone(),
            generation: self.generation + 1,
            by: by.to_owned(),
            unix_ms: crate::unix_ms(),
            samples,
            bytes,
            total_samples: sum(self.total_samples, samples),
            total_bytes: sum(self.total_bytes, bytes),
            swap_ms,
            lost: 0,
        }
    }

    /// Samples in all generations before this one.
    pub fn before(&self) -> u64 {
        self.total_samples.saturating_sub(self.samples).saturating_sub(self.lost)
    }
}

/// A generation's manifest.
#[derive(Debug)]
pub struct Manifest {
    /// About the generation.
    pub summary: Summary,
    /// Its segments, in the order of positions.
    pub segments: Vec<SegmentEntry>,
    /// Places in `segments`, in the order of ids.
    by_id: OnceLock<Vec<u32>>,
    starts: OnceLock<Vec<u64>>,
}

impl Manifest {
    /// A manifest of these.
    pub fn new(summary: Summary, mut segments: Vec<SegmentEntry>) -> Manifest {
        segments.shrink_to_fit(); // it is kept for long
        Manifest { summary, segments, by_id: OnceLock::new(), starts: OnceLock::new() }
    }

    pub(crate) fn of_generation(self, n: u64) -> std::result::Result<Manifest, String> {
        let is = self.summary.generation;
        if is == n { Ok(self) } else { Err(format!("it is that of generation {is}, under another name")) }
    }

    /// Bytes that it takes in memory, about, once a segment was looked up in it.
    pub(crate) fn memory(&self) -> usize {
        let each = size_of::<SegmentEntry>() + size_of::<u32>() + size_of::<u64>();
        self.segments.capacity() * each + size_of::<Manifest>()
    }

    /// Whether it lists the segment.
    pub fn lists(&self, id: SegmentId) -> bool {
        self.locate_id(id).is_some()
    }

    /// The segment of this id.
    pub fn locate_id(&self, id: SegmentId) -> Option<&SegmentEntry> {
        self.place_of(id).map(|n| &self.segments[n])
    }

    /// The place in `segments` of the segment of this id.
    pub(crate) fn place_of(&self, id: SegmentId) -> Option<usize> {
        let by_id = self.by_id();
        let found = by_id.binary_search_by_key(&id, |n| self.segments[*n as usize].id);
        found.ok().map(|found| by_id[found] as usize)
    }

    /// The names of all its segments' files.
    pub fn names(&self) -> HashSet<SegmentName> {
        self.segments.iter().map(SegmentEntry::name).collect()
    }

    pub(crate) fn by_id(&self) -> &[u32] {
        self.by_id.get_or_init(|| {
            let mut by_id: Vec<u32> = (0..).take(self.segments.len()).collect();
            by_id.sort_by_key(|n| self.segments[*n as usize].id);
            by_id
        })
    }

    /// The segment that holds the sample at `position` of the generation, and the sample's ordinal in it.
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
        let summary = Summary {
            manifest: VERSION,
            ring: "r".into(),
            generation: 5,
            by: "node-1-ab".into(),
            unix_ms: 1,
            samples,
            bytes: 7,
            total_samples: 100,
            total_bytes: 1000,
            swap_ms: 0.5,
            lost: 0,
        };
        Manifest::new(summary, segments)
    }

    #[test]
    fn a_manifest_comes_back_and_any_damage_to_it_is_found() {
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
    fn positions_lead_to_segments_and_ordinals() {
        let manifest = example(5); // 1, 2, 3, 1, 2 samples
        let found: Vec<_> = (0..10).map(|p| manifest.locate(p).map(|(s, o)| (s.index / 3, o))).collect();
        let want = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0), (4, 1)];
        assert_eq!(found[..9], want.map(Some));
        assert_eq!(found[9], None);
    }

    #[test]
    fn more_samples_than_a_generation_may_hold_are_refused() {
        let mut manifest = example(1);
        for (samples, may) in [(1 << 40, true), ((1 << 40) + 1, false), (u64::MAX, false)] {
            (manifest.segments[0].samples, manifest.summary.samples) = (samples, samples);
            assert_eq!(Manifest::decode(&manifest.encode().unwrap()).is_ok(), may, "{samples}");
        }
    }

    /// The manifest, with another name of its only file and of that file's owner.
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
    fn manifest_with_names_other_than_ours_is_refused() {
        let only = Manifest::decode(&renamed("000000.rec", "o")).unwrap().segments.remove(0);
        assert_eq!((&*only.owner, only.file().as_str()), ("o", "000000.rec"));
        let wrong = ["../x.rec", "/etc/passwd", "a/000000.rec", "0.rec", "000001.rec", "000000"];
        let wrong = wrong.map(|file| (file, "o")).into_iter().chain([("000000.rec", "../o"), ("000000.rec", "")]);
        for (file, owner) in wrong {
            let refused = Manifest::decode(&renamed(file, owner)).unwrap_err();
            assert!(refused.contains("no name of ours"), "{file} {owner}: {refused}");
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
