//! config.yaml: its keys, what they mean, and the origin of each value.
//!
//! Wirehead's keys keep their names and meaning, so that its `config.yaml` works unchanged. An unknown key is an
//! error that suggests the nearest known one. Every error names the key and, for a file, the line.

mod given;
mod keys;
mod place;

pub use place::{IndexPlace, MongoPlace, STATUS_COLLECTION};

use crate::error::{Error, Result};
use crate::fs::Modes;
pub use given::bytes_option;
use given::{DAY, Given, YEAR, is_plain_name, nearest, quoted};
pub use keys::KEYS;
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a part is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// Uncompressed.
    #[default]
    Plain,
    /// With zstd, at this level.
    Level(i32),
    /// With zstd or not, as each generator decides by compressing some of its samples.
    Auto,
}

impl Compress {
    /// Returns the zstd level if it is fixed.
    pub fn level(self) -> Option<i32> {
        match self {
            Compress::Level(level) => Some(level),
            Compress::Plain | Compress::Auto => None,
        }
    }
}

/// When the checksums of samples' large parts are verified. (Heads are always verified.)
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
    /// Memory-mapped on a local filesystem, read with `pread` on others.
    Auto,
    /// Memory-mapped.
    Mmap,
    /// Read into a buffer of the process.
    Pread,
}

/// Which failures finished samples survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of any process.
    Process,
    /// The death of any process, and of the machine.
    Node,
}

/// How a generator handles a sample whose floating-point parts have NaN or infinite elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFinite {
    /// The generator does not check.
    Off,
    /// The generator logs a warning and writes the sample.
    Warn,
    /// The generator refuses the sample.
    Refuse,
}

/// How often a generation is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Passes over a generation that readers make before the next one is promoted; 0: no minimum.
    pub min: u64,
    /// Passes over a generation after which readers need a newer one; 0: no limit.
    pub max: u64,
}

/// What a reader does when its generation was read REUSE max times, or when no generator was alive for STALE_AFTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStale {
    /// The reader logs a warning and continues.
    Warn,
    /// The reader waits for a newer generation.
    Wait,
    /// The reader ends with an error.
    Stop,
}

/// One key and its value in effect.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The key.
    pub key: &'static str,
    /// The value, as YAML writes it.
    pub value: String,
    /// Where the value comes from: `default`, or file and line.
    pub origin: String,
}

/// The configuration in effect. Sizes are in bytes unless stated otherwise.
#[derive(Clone, Debug)]
pub struct Config {
    /// DBNAME. By default the name of the ring's directory, without `.ring`.
    pub name: String,
    /// RING: the ring's directory.
    pub ring: PathBuf,
    /// INDEX: where the counter, the swap status and the leases are stored.
    pub index: IndexPlace,
    /// SWAP_CAP: samples in a generation. Required to create a ring; readers use the ring's own value.
    pub swap_cap: Option<u64>,
    /// SAMPLE: names of the parts, in order. Required to create a ring.
    pub sample: Option<Vec<String>>,
    /// KEEP: generations kept besides the newest one.
    pub keep: u64,
    /// SEGMENT_SAMPLES: samples in a segment; `None` for `auto`, which decides by pace and size.
    pub segment_samples: Option<u64>,
    /// SEGMENT_BYTES: with `auto`, a segment of this size is sealed.
    pub segment_bytes: u64,
    /// SEGMENT_SECONDS: with `auto`, the longest time that a written sample waits for others.
    pub segment_time: Duration,
    /// COMPRESS, for each part that it names.
    pub compress: BTreeMap<String, Compress>,
    /// COMPRESS, for all other parts.
    pub compress_all: Compress,
    /// CHECK_FINITE.
    pub check_finite: CheckFinite,
    /// VERIFY.
    pub verify: Verify,
    /// READ.
    pub read: ReadMode,
    /// DURABILITY.
    pub durability: Durability,
    /// LEASE_SECONDS: time without a heartbeat after which a process is considered dead.
    pub lease: Duration,
    /// POLL_SECONDS: time between two polls; `None`: 0.2 s on a local filesystem, 1 s on a network filesystem.
    pub poll: Option<Duration>,
    /// MAX_BYTES: largest size of the ring; `None`: limited by the disk.
    pub max_bytes: Option<u64>,
    /// MAX_FILES: most files of the ring; `None`: limited by the disk.
    pub max_files: Option<u64>,
    /// MAX_PART: largest size of one part.
    pub max_part: u64,
    /// REUSE.
    pub reuse: Reuse,
    /// ON_STALE. The default is `Wait` if REUSE has a max, else `Warn`.
    pub on_stale: OnStale,
    /// STALE_AFTER: time without a live generator after which the ring is stale.
    pub stale_after: Duration,
    /// RUN_GRACE: how long the generations of a killed run are kept; zero: they are not kept.
    pub run_grace: Duration,
    /// VALIDATION: number of samples, the first ones of the ring, that are held out. `None`: the number that the ring
    /// was created with, or 0 in a new ring.
    pub validation: Option<u64>,
    /// PREFETCH_BYTES: most bytes that a stream prefetches; 0: no prefetch.
    pub prefetch_bytes: u64,
    /// STRICT_SCHEMA: a generator refuses its first sample if dtypes or shapes differ from those of the ring.
    pub strict_schema: bool,
    /// RING_MODE: modes of files and directories that are created in the ring; `None`: from the umask.
    pub modes: Option<Modes>,
    /// CHUNKSIZE: size of the write buffer.
    pub write_buffer: usize,
    /// Every key with its value and origin.
    pub effective: Vec<Effective>,
    /// Notes for the user about keys that have no effect.
    pub notes: Vec<String>,
}

/// Longest RUN_GRACE, in seconds: one year.
const MAX_RUN_GRACE: u64 = 365 * 24 * 60 * 60;

/// Largest KEEP: generations that are kept besides the newest one.
pub const MAX_KEEP: u64 = 1000;

/// Keys that may hold a password (MONGOHOST as in `user:password@host`).
const SECRET: [&str; 2] = ["MONGOURI", "MONGOHOST"];

impl Config {
    /// Reads a YAML file. Relative paths in it are resolved against the file's directory.
    ///
    /// # Errors
    /// The file is missing or is not YAML; a key is unknown; a value is invalid.
    pub fn load(path: &Path) -> Result<Config> {
        Config::load_with_index(path, None)
    }

    /// Reads a YAML file as [`Config::load`] does, with `index` in place of its INDEX.
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

    /// Parses YAML (or JSON) text. `origin` names it in messages; relative paths are resolved against `base`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, origin: &str, base: &Path, has_lines: bool) -> Result<Config> {
        Config::of(&Given::new(text, origin, has_lines)?, base)
    }

    /// Returns a configuration that gives only the ring's directory, which is enough to inspect a ring. (If the
    /// ring's index is in MongoDB, only a full configuration says on which server.)
    ///
    /// # Errors
    /// The path is not UTF-8.
    pub fn of_ring(ring: &Path) -> Result<Config> {
        let ring = std::path::absolute(ring).unwrap_or_else(|_| ring.to_owned());
        let origin = ring.display().to_string();
        let not_utf8 = || Error::Config { origin: origin.clone(), message: "the path is not valid UTF-8".to_owned() };
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
            return Err(given.bad("COMPRESS", &format!("{stray:?} is not a part in SAMPLE{near}")));
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
            segment_time: given.seconds("SEGMENT_SECONDS", DAY)?.unwrap_or(Duration::from_millis(500)),
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
            lease: given.seconds("LEASE_SECONDS", DAY)?.unwrap_or(Duration::from_secs(10)),
            poll: given.seconds("POLL_SECONDS", DAY)?,
            max_bytes: given.bytes("MAX_BYTES", 1, u64::MAX)?,
            max_files: given.whole("MAX_FILES", 1, u64::MAX)?,
            max_part: given.bytes("MAX_PART", 1, 1 << 50)?.unwrap_or(1 << 40),
            reuse,
            on_stale: given.on_stale(reuse)?,
            stale_after: given.seconds("STALE_AFTER", YEAR)?.unwrap_or(Duration::from_secs(300)),
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

    /// Returns the name of the ring and its directory.
    fn place(given: &Given<'_>, base: &Path) -> Result<(String, PathBuf)> {
        let (ring, name) = (given.text_of("RING")?, given.text_of("DBNAME")?);
        let ring = match (ring, &name) {
            (Some(ring), _) => base.join(ring),
            (None, Some(name)) if is_plain_name(name) => base.join(format!("{name}.ring")),
            (None, Some(name)) => {
                return Err(given.bad("DBNAME", &format!("{} cannot be part of a file name; give RING", quoted(name))));
            }
            (None, None) => {
                return Err(given.fail("neither RING nor DBNAME is given: set RING to the ring's directory"));
            }
        };
        let of_ring = || ring.file_name().map(|name| name.to_string_lossy().trim_end_matches(".ring").to_owned());
        let name = name.or_else(of_ring).unwrap_or_default();
        Ok((name, ring))
    }

    /// Returns how each of `parts` is stored.
    pub fn compression_of(&self, parts: &[String]) -> Vec<Compress> {
        parts.iter().map(|name| self.compress.get(name).copied().unwrap_or(self.compress_all)).collect()
    }
}

/// Checks names of the parts of a sample.
///
/// # Errors
/// Why the names are invalid: the list is empty, a name is empty or longer than 255 bytes, or a name occurs
/// twice.
pub fn check_names(names: &[String]) -> std::result::Result<(), String> {
    let mut sorted = names.to_vec();
    sorted.sort();
    sorted.dedup();
    match names.iter().find(|name| name.is_empty() || name.len() > 255) {
        Some(name) => Err(format!("{} is not a valid part name (1 to 255 bytes)", quoted(name))),
        None if names.is_empty() => Err("the list of parts is empty".to_owned()),
        None if sorted.len() != names.len() => Err("a part is named twice".to_owned()),
        None => Ok(()),
    }
}
