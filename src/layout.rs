//! The paths and names of a ring.

use ringreel_format::SegmentId;
use std::fmt;
use std::path::{Path, PathBuf};

/// The paths of one ring.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

/// Prefix of the scratch directories of `ringreel doctor`. No other name of a ring begins with it.
pub const SCRATCH: &str = ".doctor-";
/// The directories that every ring has since its creation.
pub const DIRECTORIES: [&str; 5] = ["manifests", "staging", "index", "quarantine", "trash"];

/// A directory that holds a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationDir {
    /// `write.<n>`
    Write(u64),
    /// `read.<n>`
    Read(u64),
}

impl GenerationDir {
    /// Returns the number of the generation.
    pub fn number(self) -> u64 {
        match self {
            GenerationDir::Write(n) | GenerationDir::Read(n) => n,
        }
    }

    /// Parses the name of a generation's directory.
    pub fn parse(name: &str) -> Option<GenerationDir> {
        let (kind, number) = name.split_once('.')?;
        let number = parse_number(number)?;
        match kind {
            "write" => Some(GenerationDir::Write(number)),
            "read" => Some(GenerationDir::Read(number)),
            _ => None,
        }
    }
}

impl fmt::Display for GenerationDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GenerationDir::Write(n) => write!(f, "write.{n}"),
            GenerationDir::Read(n) => write!(f, "read.{n}"),
        }
    }
}

/// Returns the numbers of the `read.<n>` among the names in a ring's directory, in the order of the names.
pub fn read_generations<'a>(names: impl IntoIterator<Item = &'a String>) -> impl Iterator<Item = u64> {
    names.into_iter().filter_map(|name| match GenerationDir::parse(name) {
        Some(GenerationDir::Read(n)) => Some(n),
        Some(GenerationDir::Write(_)) | None => None,
    })
}

/// Upper limit of valid numbers, so that every number has a successor.
const NUMBERS_END: u64 = 1 << 62;

/// Parses a number in the form that ringreel writes: digits without leading zeros.
pub fn parse_number(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (number < NUMBERS_END && number.to_string() == text).then_some(number)
}

/// The name of a segment in its generation: `000017.rec` with one sample, `000017.12.rec` with 12.
/// It contains the number of samples, so that a listing shows how full the generation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The index of the segment in its generation.
    pub index: u64,
    /// The number of samples in the segment.
    pub samples: u64,
}

impl SegmentName {
    /// Parses the name of a segment. Returns `None` for other names.
    pub fn parse(name: &str) -> Option<SegmentName> {
        let stem = name.strip_suffix(".rec")?;
        let (index, samples) = stem.split_once('.').unwrap_or((stem, "1"));
        let parsed = SegmentName { index: index.parse().ok()?, samples: samples.parse().ok()? };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.samples {
            1 => write!(f, "{:06}.rec", self.index),
            samples => write!(f, "{:06}.{samples}.rec", self.index),
        }
    }
}

/// Returns the name of a segment with `samples` samples at `index` in its generation.
pub fn segment_name(index: u64, samples: u64) -> String {
    SegmentName { index, samples }.to_string()
}

/// Parses the staging name of a sealed segment.
pub fn sealed_id(name: &str) -> Option<SegmentId> {
    name.strip_suffix(".rec")?.parse().ok()
}

/// Returns whether `owner` is a valid owner name, which is also a directory name: host, pid and a
/// random number.
pub fn is_owner(owner: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !owner.is_empty() && owner.len() <= 200 && !owner.starts_with('.') && owner.bytes().all(plain)
}

impl Layout {
    /// Creates the layout of the ring in `root`.
    pub fn new(root: &Path) -> Layout {
        Layout { root: root.to_owned() }
    }

    /// Returns the directory of the ring.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of `ring.json`, the ring descriptor.
    pub fn ring_json(&self) -> PathBuf {
        self.root.join("ring.json")
    }

    /// Returns the directory of the manifests, which are named by their generation.
    pub fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    /// Returns the path of the manifest of generation `n`.
    pub fn manifest(&self, n: u64) -> PathBuf {
        self.manifests().join(n.to_string())
    }

    /// Returns the directory of generation `n` while it fills.
    pub fn write(&self, n: u64) -> PathBuf {
        self.generation(GenerationDir::Write(n))
    }

    /// Returns the directory of generation `n` from its promotion on.
    pub fn read(&self, n: u64) -> PathBuf {
        self.generation(GenerationDir::Read(n))
    }

    /// Returns the directory of a generation.
    pub fn generation(&self, dir: GenerationDir) -> PathBuf {
        self.root.join(dir.to_string())
    }

    /// Returns the directory of the staging directories of all owners.
    pub fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    /// Returns the staging directory of `owner`: segments that it is writing, and sealed ones that
    /// no manifest lists yet.
    pub fn staging_of(&self, owner: &str) -> PathBuf {
        self.staging().join(owner)
    }

    /// Returns the path of a sealed segment in staging.
    pub fn sealed(&self, owner: &str, id: SegmentId) -> PathBuf {
        self.staging_of(owner).join(format!("{id}.rec"))
    }

    /// Returns the path of a segment that its owner is writing.
    pub fn part(&self, owner: &str, id: SegmentId) -> PathBuf {
        self.staging_of(owner).join(format!("{id}.part"))
    }

    /// Returns the directory of the coordination store in files.
    pub fn index(&self) -> PathBuf {
        self.root.join("index")
    }

    /// Returns the directory of segments that were found damaged.
    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// Returns the directory of directories that are being removed.
    pub fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_parsed() {
        assert_eq!(GenerationDir::parse("write.12"), Some(GenerationDir::Write(12)));
        for name in ["write.012", "write.", "write", "read.-1", "read.1x", "trash.1", "write.1.2"] {
            assert_eq!(GenerationDir::parse(name), None, "{name}");
        }
        for name in ["read.0", "write.7"] {
            assert_eq!(GenerationDir::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(GenerationDir::parse("read.18446744073709551615"), None);
        for (name, index, samples) in
            [("000017.rec", 17, 1), ("1234567.rec", 1_234_567, 1), ("000017.12.rec", 17, 12), ("000017.0.rec", 17, 0)]
        {
            assert_eq!(SegmentName::parse(name), Some(SegmentName { index, samples }), "{name}");
        }
        let wrong = ["17.rec", "000017.rec2", "0000017.rec", "x.rec", "+00017.rec", "000017.1.rec", "000017.012.rec"];
        for name in wrong.into_iter().chain(["000017..rec", "000017.1.2.rec", ".12.rec", "000017.-2.rec"]) {
            assert_eq!(SegmentName::parse(name), None, "{name}");
        }
        let names = ["read.3", "write.4", "read.10", "trash", "read.x"].map(str::to_owned);
        assert!(read_generations(&names).eq([3, 10]));
        assert!(is_owner("node-1.lab_4711-9f") && !is_owner("..") && !is_owner("a/b") && !is_owner(""));
    }
}
