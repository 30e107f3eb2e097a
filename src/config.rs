//! config.yaml: which keys there are, what they mean, and where each value came from.
//!
//! Wirehead's keys keep their names and meaning, so that its `config.yaml` works as it is. An unknown key is an error
//! that suggests the nearest known one; every error names the key and, in a file, the line.

mod given;
mod keys;
mod place;
#[cfg(test)]
mod tests;

pub use place::{IndexPlace, MongoPlace, STATUS_COLLECTION};

use crate::error::{Error, Result};
use crate::fs::Modes;
pub use given::bytes_option;
use given::{Given, is_plain_name, nearest, quoted};
pub use keys::{GROUPS, Key};
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a part is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// As it is.
    #[default]
    Plain,
    /// By zstd, at this level.
    Level(i32),
    /// As each generator finds to be better, by trying.
    Auto,
}

impl Compress {
    /// The level, where one is given.
    pub fn level(self) -> Option<i32> {
        match self {
            Compress::Level(level) => Some(level),
            Compress::Plain | Compress::Auto => None,
        }
    }
}

/// When checksums of samples' large parts are compared. (Heads are always checked.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The first time that this process reads a sample.
    First,
    /// Every time.
    Always,
    /// Never.
    Never,
}

/// How segments are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Mapped on a local filesystem, read elsewhere.
    Auto,
    /// Mapped.
    Mmap,
    /// Read into memory of our own.
    Pread,
}

/// What survives what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Everything finished survives the death of any process.
    Process,
    /// And that of the machine.
    Node,
}

/// What a generator does with a sample whose floating-point parts hold NaN or infinite elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFinite {
    /// It does not look.
    Off,
    /// It logs a warning, and writes the sample.
    Warn,
    /// It refuses the sample.
    Refuse,
}

/// How often a generation is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// So many passes over a generation are made before the next one is promoted; 0: none is waited for.
    pub min: u64,
    /// After so many passes readers want a newer one; 0: there is no limit.
    pub max: u64,
}

/// What a reader does when its generation was read REUSE max times, or when no generator has lived for STALE_AFTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStale {
    /// It says so, and reads on.
    Warn,
    /// It waits for a newer generation.
    Wait,
    /// It ends with an error.
    Stop,
}

/// One key as it is in effect.
#[derive(Clone, Debug)]
pub struct Effective {
    /// Its name.
    pub key: &'static str,
    /// Its value, as YAML would write it.
    pub value: String,
    /// Where it came from: `default`, or file and line.
    pub origin: String,
}

/// The configuration in effect. Times are durations, sizes are bytes unless said otherwise.
#[derive(Clone, Debug)]
pub struct Config {
    /// DBNAME; where it is not given, the name of the ring's directory, without `.ring`.
    pub name: String,
    /// RING: the ring's directory.
    pub ring: PathBuf,
    /// INDEX: where counter, swap status and leases are kept.
    pub index: IndexPlace,
    /// SWAP_CAP: samples in a generation. Needed by whoever makes a ring; a reader takes the ring's own.
    pub swap_cap: Option<u64>,
    /// SAMPLE: names of the parts, in order. Needed by whoever makes a ring.
    pub sample: Option<Vec<String>>,
    /// KEEP: generations kept besides the newest one.
    pub keep: u64,
    /// SEGMENT_SAMPLES: samples in one file; `None` for `auto`, by pace and size.
    pub segment_samples: Option<u64>,
    /// SEGMENT_BYTES: with `auto`, a file of this size is complete.
    pub segment_bytes: u64,
    /// SEGMENT_SECONDS: with `auto`, a written sample waits at most this long for others.
    pub segment_time: Duration,
    /// COMPRESS, by part.
    pub compress: BTreeMap<String, Compress>,
    /// COMPRESS, of all other parts.
    pub compress_all: Compress,
    /// CHECK_FINITE.
    pub check_finite: CheckFinite,
    /// VERIFY.
    pub verify: Verify,
    /// READ.
    pub read: ReadMode,
    /// DURABILITY.
    pub durability: Durability,
    /// LEASE_SECONDS: for how long a role may be silent before it counts as dead.
    pub lease: Duration,
    /// POLL_SECONDS: time between two looks; none: 0.2 s on a local filesystem, 1 s on a network.
    pub poll: Option<Duration>,
    /// MAX_BYTES: most bytes that the ring may take; none: what the disk has.
    pub max_bytes: Option<u64>,
    /// MAX_FILES: most files; none: what the disk has.
    pub max_files: Option<u64>,
    /// MAX_PART: most bytes of one part.
    pub max_part: u64,
    /// REUSE.
    pub reuse: Reuse,
    /// ON_STALE; not given, and REUSE has a max: wait.
    pub on_stale: OnStale,
    /// STALE_AFTER: for how long no generator may have lived.
    pub stale_after: Duration,
    /// RUN_GRACE: how long the generations of a killed run are kept; zero: not at all.
    pub run_grace: Duration,
    /// VALIDATION: so many samples, the ring's first, are held out; none: as many as the ring was made with, and none in
    /// a new one.
    pub validation: Option<u64>,
    /// PREFETCH_BYTES: most bytes that a stream holds ready; 0: it reads nothing ahead.
    pub prefetch_bytes: u64,
    /// STRICT_SCHEMA: a generator refuses a first sample whose dtypes or shapes are not those of the ring.
    pub strict_schema: bool,
    /// RING_MODE: modes of what is made in the ring; none: what the umask leaves.
    pub modes: Option<Modes>,
    /// CHUNKSIZE: write buffer.
    pub write_buffer: usize,
    /// Every key, its value and where that came from.
    pub effective: Vec<Effective>,
    /// What the user should know: accepted, but without effect here.
    pub notes: Vec<String>,
}

/// Longest RUN_GRACE, in seconds: a year.
const MAX_RUN_GRACE: u64 = 365 * 24 * 60 * 60;

/// Most generations that are kept besides the newest one.
pub const MAX_KEEP: u64 = 1000;

/// Keys that may hold a password (MONGOHOST as in `user:password@host`).
const SECRET: [&str; 2] = ["MONGOURI", "MONGOHOST"];

impl Config {
    /// Reads a YAML file. Relative paths in it are taken from the file's directory.
    ///
    /// # Errors
    /// A file that is missing or is no YAML; an unknown key; a value that does not fit.
    pub fn load(path: &Path) -> Result<Config> {
        Config::load_with_index(path, None)
    }

    /// The same, as if INDEX were this.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_with_index(path: &Path, index: Option<&str>) -> Result<Config> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Error::Config {
            origin: origin.clone(),
            message: format!("cannot read the configuration: {error}"),
        })?;
        let base = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut given = Given::new(&text, &origin, true)?;
        if let Some(index) = index {
            given.values.insert("INDEX".to_owned(), Value::String(index.to_owned()));
        }
        Config::of(&given, base)
    }

    /// Reads YAML (or JSON) text. `origin` names it in messages; relative paths are taken from `base`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, origin: &str, base: &Path, has_lines: bool) -> Result<Config> {
        Config::of(&Given::new(text, origin, has_lines)?, base)
    }

    /// One that names a ring by its directory and leaves everything else to it: enough to look at it. (Where its index
    /// is kept on a server, only a configuration knows where.)
    ///
    /// # Errors
    /// A path that is no UTF-8.
    pub fn of_ring(ring: &Path) -> Result<Config> {
        let ring = std::path::absolute(ring).unwrap_or_else(|_| ring.to_owned());
        let origin = ring.display().to_string();
        let not_utf8 = || Error::Config { origin: origin.clone(), message: "this path is no UTF-8".to_owned() };
        let text = serde_json::json!({ "RING": ring.to_str().ok_or_else(not_utf8)?, "INDEX": "files" }).to_string();
        Config::parse(&text, &origin, Path::new("."), false)
    }

    fn of(given: &Given<'_>, base: &Path) -> Result<Config> {
        let (name, ring) = Config::place(given, base)?;
        let index = given.index()?;
        let (compress, compress_all) = given.compress()?;
        let sample = given.sample()?;
        if let Some(sample) = &sample
            && let Some(stray) = compress.keys().find(|name| !sample.contains(name))
        {
            let near = nearest(stray, sample.iter().map(String::as_str));
            return Err(given.bad("COMPRESS", &format!("{stray:?} is no part of SAMPLE{near}")));
        }
        let reuse = given.reuse()?;
        let mut config = Config {
            name,
            ring,
            index,
            swap_cap: given.whole("SWAP_CAP", 1, 1 << 40)?,
            sample,
            keep: given.whole("KEEP", 0, MAX_KEEP)?.unwrap_or(1),
            segment_samples: given.segment_samples()?,
            segment_bytes: given.bytes("SEGMENT_BYTES", 1, 1 << 40)?.unwrap_or(32 << 20),
            segment_time: given.seconds("SEGMENT_SECONDS")?.unwrap_or(Duration::from_millis(500)),
            compress,
            compress_all,
            check_finite: given.choice(
                "CHECK_FINITE",
                &[("off", CheckFinite::Off), ("warn", CheckFinite::Warn), ("refuse", CheckFinite::Refuse)],
            )?,
            verify: given
                .choice("VERIFY", &[("first", Verify::First), ("always", Verify::Always), ("never", Verify::Never)])?,
            read: given
                .choice("READ", &[("auto", ReadMode::Auto), ("mmap", ReadMode::Mmap), ("pread", ReadMode::Pread)])?,
            durability: given.choice("DURABILITY", &[("process", Durability::Process), ("node", Durability::Node)])?,
            lease: given.seconds("LEASE_SECONDS")?.unwrap_or(Duration::from_secs(10)),
            poll: given.seconds("POLL_SECONDS")?,
            max_bytes: given.bytes("MAX_BYTES", 1, u64::MAX)?,
            max_files: given.whole("MAX_FILES", 1, u64::MAX)?,
            max_part: given.bytes("MAX_PART", 1, 1 << 50)?.unwrap_or(1 << 40),
            reuse,
            on_stale: given.on_stale(reuse)?,
            stale_after: given.stale_after()?,
            run_grace: Duration::from_secs(given.whole("RUN_GRACE", 0, MAX_RUN_GRACE)?.unwrap_or(3600)),
            validation: given.whole("VALIDATION", 0, 1 << 40)?,
            prefetch_bytes: given.bytes("PREFETCH_BYTES", 0, 1 << 40)?.unwrap_or(256 << 20),
            strict_schema: given.flag("STRICT_SCHEMA")?,
            modes: given.modes()?,
            write_buffer: given.whole("CHUNKSIZE", 1, 1024)?.unwrap_or(1) as usize * (1 << 20),
            effective: Vec::new(),
            notes: given.notes(),
        };
        for name in ["WRITE_COLLECTION", "READ_COLLECTION", "TEMP_COLLECTION"] {
            given.text_of(name)?;
        }
        config.effective = given.effective(&config);
        Ok(config)
    }

    /// The name of the ring, and its directory.
    fn place(given: &Given<'_>, base: &Path) -> Result<(String, PathBuf)> {
        let ring = match (given.text_of("RING")?, given.text_of("DBNAME")?) {
            (Some(ring), _) => base.join(ring),
            (None, Some(name)) if is_plain_name(&name) => base.join(format!("{name}.ring")),
            (None, Some(name)) => {
                return Err(given.bad("DBNAME", &format!("{} cannot be part of a file name; give RING", quoted(&name))));
            }
            (None, None) => return Err(given.fail("neither RING nor DBNAME is given: say where the ring is")),
        };
        let of_ring = || ring.file_name().map(|name| name.to_string_lossy().trim_end_matches(".ring").to_owned());
        let name = given.text_of("DBNAME")?.or_else(of_ring).unwrap_or_default();
        Ok((name, ring))
    }

    /// How each of `parts` is to be stored.
    pub fn compression_of(&self, parts: &[String]) -> Vec<Compress> {
        parts.iter().map(|name| self.compress.get(name).copied().unwrap_or(self.compress_all)).collect()
    }
}

/// Whether these can be the parts of a sample.
///
/// # Errors
/// In words: none at all, an empty or overlong name, a name twice.
pub fn check_names(names: &[String]) -> std::result::Result<(), String> {
    let mut sorted = names.to_vec();
    sorted.sort();
    sorted.dedup();
    match names.iter().find(|name| name.is_empty() || name.len() > 255) {
        Some(name) => Err(format!("{} is no name of a part (1 to 255 bytes)", quoted(name))),
        None if names.is_empty() => Err("it names no part".to_owned()),
        None if sorted.len() != names.len() => Err("a part is named twice".to_owned()),
        None => Ok(()),
    }
}
