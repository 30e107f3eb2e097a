//! Encodes and decodes the text of a manifest line by line. The text of 100,000 segments takes 16
//! MB, and their entries half of that.

use super::{MAX_SAMPLES, Manifest, SegmentEntry, Summary, VERSION};
use crate::layout::{SegmentName, is_owner};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;

/// Prefix of the error messages for text that is not complete.
pub(crate) const CUT_OFF: &str = "it is truncated";

/// A line of a manifest, about one segment.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    index: u64,
    #[serde(borrow)]
    file: Cow<'a, str>,
    #[serde(borrow)]
    owner: Cow<'a, str>,
    born: u64,
    samples: u64,
    bytes: u64,
    #[serde(borrow)]
    check: Cow<'a, str>,
}

impl Line<'_> {
    /// Returns the entry of the line. The owner name is shared through `owners`.
    fn entry(self, owners: &mut Owners) -> Result<SegmentEntry, String> {
        let Line { id, index, file, owner, born, samples, bytes, check } = self;
        if SegmentName::parse(&file) != Some(SegmentName { index, samples }) || !is_owner(&owner) {
            return Err(format!("it lists {file:?} of {owner:?}, which is not a valid file or owner name"));
        }
        let id = id.parse().map_err(|error| format!("invalid segment line: {error}"))?;
        let check = u32::from_str_radix(&check, 16).map_err(|error| format!("invalid segment line: {error}"))?;
        Ok(SegmentEntry { id, index, owner: owners.share(&owner), born, samples, bytes, check })
    }
}

impl Serialize for SegmentEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let SegmentEntry { id, index, owner, born, samples, bytes, check } = self;
        let (id, file, check) = (id.to_string().into(), self.file().into(), format!("{check:08x}").into());
        let (index, owner, born, samples, bytes) = (*index, (&**owner).into(), *born, *samples, *bytes);
        Line { id, index, file, owner, born, samples, bytes, check }.serialize(to)
    }
}

/// Owner names, each stored once.
#[derive(Default)]
pub(crate) struct Owners(HashSet<Arc<str>>);

impl Owners {
    /// Returns the shared string of the name, which is stored if it is new.
    pub fn share(&mut self, owner: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(owner) {
            return shared.clone();
        }
        let shared = Arc::from(owner);
        self.0.insert(Arc::clone(&shared));
        shared
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct End {
    pub end: u64,
    pub lines: usize,
    pub crc32: String,
}

/// Writes `value` as a line of JSON, and adds the line to the CRC-32.
fn write_line(out: &mut impl Write, crc32: &mut crc32fast::Hasher, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    crc32.update(&line);
    out.write_all(&line)
}

fn hex(crc32: crc32fast::Hasher) -> String {
    format!("{:08x}", crc32.finalize())
}

impl Manifest {
    /// Writes the text of the manifest.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        let mut crc32 = crc32fast::Hasher::new();
        write_line(&mut out, &mut crc32, &self.summary)?;
        for segment in &self.segments {
            write_line(&mut out, &mut crc32, segment)?;
        }
        let (end, lines) = (self.summary.generation, self.segments.len() + 1);
        let end = End { end, lines, crc32: hex(crc32.clone()) };
        write_line(&mut out, &mut crc32, &end)?;
        out.flush()
    }

    /// Returns the text of the manifest.
    ///
    /// # Errors
    /// None in practice, because the manifest consists of plain text and numbers.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }

    /// Checks that readers will accept the manifest.
    ///
    /// # Errors
    /// The reason for which they would refuse it.
    pub fn check(&self) -> Result<(), String> {
        let mut decoder = Decoder { only_checks: true, ..Decoder::default() };
        self.write_to(io::BufWriter::new(&mut decoder)).map_err(|error| error.to_string())?;
        decoder.end().map(drop)
    }

    /// Decodes the manifest in `bytes`.
    ///
    /// # Errors
    /// The reason: truncated, damaged, of another version, or with file names outside the
    /// generation's directory.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        decoder.end()
    }
}

/// Decodes a manifest that is fed in pieces.
#[derive(Default)]
pub(crate) struct Decoder {
    /// The last line fed, complete or not. It may be the last line of the manifest.
    line: Vec<u8>,
    crc32: crc32fast::Hasher,
    summary: Option<Summary>,
    /// Number of segments, and of their samples; `None` if the sum overflows.
    listed: usize,
    samples: Option<u64>,
    /// Whether segments are only checked and not stored.
    only_checks: bool,
    segments: Vec<SegmentEntry>,
    owners: Owners,
    /// The first error in a line. If the checksum is wrong too, that error is reported instead.
    wrong: Option<String>,
}

impl Decoder {
    pub fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.take(&line);
                self.line = line;
                self.line.clear();
            }
            self.line.extend_from_slice(piece);
        }
    }

    /// Decodes a line that is not the last one.
    fn take(&mut self, line: &[u8]) {
        self.crc32.update(line);
        let line = line.trim_ascii_end();
        if line.is_empty() || self.wrong.is_some() {
            return;
        }
        let taken = if self.summary.is_none() { self.take_summary(line) } else { self.take_segment(line) };
        self.wrong = taken.err();
    }

    fn take_summary(&mut self, line: &[u8]) -> Result<(), String> {
        let summary: Summary = serde_json::from_slice(line).map_err(|error| format!("invalid first line: {error}"))?;
        if summary.manifest != VERSION {
            return Err(format!("it has version {}, this program reads version {VERSION}", summary.manifest));
        }
        (self.summary, self.samples) = (Some(summary), Some(0));
        Ok(())
    }

    fn take_segment(&mut self, line: &[u8]) -> Result<(), String> {
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| format!("invalid segment line: {error}"))?;
        let entry = line.entry(&mut self.owners)?;
        self.listed += 1;
        self.samples = self.samples.and_then(|sum| sum.checked_add(entry.samples));
        if !self.only_checks {
            self.segments.push(entry);
        }
        Ok(())
    }

    /// Returns the manifest after all of it was fed.
    pub fn end(self) -> Result<Manifest, String> {
        let Decoder { line, crc32, summary, listed, samples, segments, wrong, .. } = self;
        let last = line.strip_suffix(b"\n").ok_or(format!("{CUT_OFF}: no end of line"))?;
        if summary.is_none() && wrong.is_none() {
            return Err(format!("{CUT_OFF}: it has only one line"));
        }
        let end: End = serde_json::from_slice(last).map_err(|_| format!("{CUT_OFF}: the last line is not an end"))?;
        let crc32 = hex(crc32);
        if end.crc32 != crc32 {
            return Err(format!("it is damaged: CRC-32 is {crc32}, recorded {}", end.crc32));
        }
        let summary = wrong.map_or_else(|| summary.ok_or("it is empty".to_owned()), Err)?;
        if end.end != summary.generation || end.lines != listed + 1 || samples != Some(summary.samples) {
            return Err("its lines contradict each other".to_owned());
        }
        if summary.samples > MAX_SAMPLES {
            return Err(format!("it lists {} samples, but a generation has at most {MAX_SAMPLES}", summary.samples));
        }
        Ok(Manifest::new(summary, segments))
    }
}

impl Write for Decoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.feed(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
