//! Manifests: the sealed list of what a generation holds, and the only judge of what was delivered.
//!
//! Text, for people and `grep`: a line of JSON about the generation, a line for each segment, and a last line with the
//! number of lines and the CRC-32 of all before it. Published whole, by link; never changed.

use crate::error::{Error, Result};
use crate::layout::{is_owner, segment_index};
use crate::segment::reader::SegmentReader;
use ringreel_format::{Footer, FormatError, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Component, Path};
use std::sync::OnceLock;

/// Version of the manifest that is written and read.
const VERSION: u32 = 1;
/// Largest manifest that is read, in bytes.
pub(super) const MAX_BYTES: u64 = 1 << 30;
/// Most segments that a manifest lists: a line takes less than 512 bytes, so that readers accept all of it.
pub(super) const MAX_SEGMENTS: usize = (MAX_BYTES >> 9) as usize;
/// Most samples in a generation: as many as SWAP_CAP may be.
const MAX_SAMPLES: u64 = 1 << 40;
pub(super) const CUT_OFF: &str = "it is cut off";

/// One segment, as its generation's manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentEntry {
    /// Its id.
    #[serde(with = "id_text")]
    pub id: SegmentId,
    /// Its place in the generation.
    pub index: u64,
    /// Its file, in the generation's directory.
    pub file: String,
    /// Who wrote it.
    pub owner: String,
    /// The generation that was being written when it was begun.
    pub born: u64,
    /// Samples in it.
    pub samples: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Checksum of its footer, which stands for the whole file.
    #[serde(with = "hex_u32")]
    pub check: u32,
}

/// Said of a file under a name that a manifest lists.
pub const ANOTHER: &str = "it is another segment than the manifest lists";

impl SegmentEntry {
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

#[derive(Serialize, Deserialize)]
struct End {
    end: u64,
    lines: usize,
    crc32: String,
}

/// A generation's manifest.
#[derive(Debug)]
pub struct Manifest {
    /// About the generation.
    pub summary: Summary,
    /// Its segments, in the order of positions.
    pub segments: Vec<SegmentEntry>,
    by_id: OnceLock<HashMap<SegmentId, usize>>,
    starts: OnceLock<Vec<u64>>,
}

impl Manifest {
    /// A manifest of these.
    pub fn new(summary: Summary, segments: Vec<SegmentEntry>) -> Manifest {
        Manifest { summary, segments, by_id: OnceLock::new(), starts: OnceLock::new() }
    }

    pub(super) fn of_generation(self, n: u64) -> std::result::Result<Manifest, String> {
        let is = self.summary.generation;
        if is == n { Ok(self) } else { Err(format!("it is that of generation {is}, under another name")) }
    }

    /// Bytes that it takes in memory, about, once a segment was looked up in it.
    pub(super) fn memory(&self) -> usize {
        let text: usize = self.segments.iter().map(|entry| entry.file.len() + entry.owner.len()).sum();
        let looked_up = size_of::<(SegmentId, usize)>() + size_of::<u64>();
        self.segments.capacity() * (size_of::<SegmentEntry>() + looked_up) + text + size_of::<Manifest>()
    }

    /// Whether it lists the segment.
    pub fn lists(&self, id: SegmentId) -> bool {
        self.locate_id(id).is_some()
    }

    /// The segment of this id.
    pub fn locate_id(&self, id: SegmentId) -> Option<&SegmentEntry> {
        self.by_id().get(&id).map(|n| &self.segments[*n])
    }

    pub(super) fn by_id(&self) -> &HashMap<SegmentId, usize> {
        self.by_id.get_or_init(|| self.segments.iter().enumerate().map(|(n, s)| (s.id, n)).collect())
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

    /// The bytes of the file.
    ///
    /// # Errors
    /// None in practice: everything in it is plain text and numbers.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let mut out = serde_json::to_vec(&self.summary)?;
        out.push(b'\n');
        for segment in &self.segments {
            serde_json::to_writer(&mut out, segment)?;
            out.push(b'\n');
        }
        let crc32 = format!("{:08x}", crc32fast::hash(&out));
        serde_json::to_writer(&mut out, &End { end: self.summary.generation, lines: self.segments.len() + 1, crc32 })?;
        out.push(b'\n');
        Ok(out)
    }

    /// The manifest in `bytes`.
    ///
    /// # Errors
    /// In words: truncated, damaged, another version, or names that lead out of the generation's directory.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Manifest, String> {
        let body = bytes.strip_suffix(b"\n").ok_or(format!("{CUT_OFF}: no end of line"))?;
        let cut = body.iter().rposition(|byte| *byte == b'\n').ok_or(format!("{CUT_OFF}: it has one line only"))? + 1;
        let (lines, last) = body.split_at(cut);
        let end: End = serde_json::from_slice(last).map_err(|_| format!("{CUT_OFF}: the last line is not an end"))?;
        let crc32 = format!("{:08x}", crc32fast::hash(lines));
        if end.crc32 != crc32 {
            return Err(format!("it is damaged: CRC-32 is {crc32}, recorded {}", end.crc32));
        }
        let mut lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let first = lines.next().ok_or("it is empty")?;
        let summary: Summary = serde_json::from_slice(first).map_err(|error| format!("its first line: {error}"))?;
        if summary.manifest != VERSION {
            return Err(format!("it has version {}, this program reads version {VERSION}", summary.manifest));
        }
        let segments = lines.map(serde_json::from_slice::<SegmentEntry>).collect::<serde_json::Result<Vec<_>>>();
        let segments = segments.map_err(|error| format!("a line about a segment: {error}"))?;
        let total = segments.iter().try_fold(0u64, |sum, s| sum.checked_add(s.samples));
        if end.end != summary.generation || end.lines != segments.len() + 1 || total != Some(summary.samples) {
            return Err("its lines contradict one another".to_owned());
        }
        if summary.samples > MAX_SAMPLES {
            return Err(format!(
                "it lists {} samples, and no generation holds more than {MAX_SAMPLES}",
                summary.samples
            ));
        }
        let plain = |s: &SegmentEntry| {
            let mut parts = Path::new(&s.file).components();
            matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none()
        };
        match segments.iter().find(|s| !plain(s) || !is_owner(&s.owner) || segment_index(&s.file).is_none()) {
            Some(stray) => Err(format!("it lists {:?} of {:?}, which is no name of ours", stray.file, stray.owner)),
            None => Ok(Manifest::new(summary, segments)),
        }
    }
}

mod id_text {
    use ringreel_format::SegmentId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &SegmentId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SegmentId, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

mod hex_u32 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(n: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{n:08x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        u32::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn example(count: u64) -> Manifest {
        let entry = |n: u64| SegmentEntry {
            id: SegmentId((n as u128).to_be_bytes()),
            index: n * 3,
            file: crate::layout::segment_name(n * 3),
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

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for (file, owner) in [("../x.rec", "o"), ("/etc/passwd", "o"), ("a/000001.rec", "o"), ("000001.rec", "../o")] {
            let mut manifest = example(1);
            manifest.segments[0].file = file.into();
            manifest.segments[0].owner = owner.into();
            assert!(Manifest::decode(&manifest.encode().unwrap()).is_err(), "{file} {owner}");
        }
    }
}
