//! config.yaml: which keys there are, what they mean, and where each value came from.
//!
//! Wirehead's keys keep their names and meaning, so that its `config.yaml` works as it is. An unknown key is an error
//! that suggests the nearest known one; every error names the key and, in a file, the line.

mod place;

pub use place::{IndexPlace, MongoPlace, STATUS_COLLECTION};

use crate::error::{Error, Result};
use place::without_password;
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// SEGMENT_SAMPLES: samples in one file.
    pub segment_samples: u64,
    /// COMPRESS: zstd level by part.
    pub compress: BTreeMap<String, i32>,
    /// COMPRESS given as one level for all parts.
    pub compress_all: Option<i32>,
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
    /// CHUNKSIZE: write buffer.
    pub write_buffer: usize,
    /// Every key, its value and where that came from.
    pub effective: Vec<Effective>,
    /// What the user should know: accepted, but without effect here.
    pub notes: Vec<String>,
}

/// Keys, in the order in which they are shown, with their defaults.
const KEYS: [(&str, &str); 30] = [
    ("DBNAME", ""),
    ("RING", "<DBNAME>.ring beside the config file"),
    ("SWAP_CAP", ""),
    ("SAMPLE", ""),
    ("INDEX", "files"),
    ("KEEP", "1"),
    ("SEGMENT_SAMPLES", "1"),
    ("COMPRESS", "none"),
    ("VERIFY", "first"),
    ("READ", "auto"),
    ("DURABILITY", "process"),
    ("LEASE_SECONDS", "10"),
    ("POLL_SECONDS", "0.2 local, 1 network"),
    ("CHUNKSIZE", "1"),
    ("MAX_BYTES", "none"),
    ("MAX_FILES", "none"),
    ("MAX_PART", "1099511627776"),
    ("REUSE", "{min: 0, max: 0}"),
    ("ON_STALE", "warn"),
    ("STALE_AFTER", "300"),
    ("VALIDATION", "0"),
    ("PREFETCH_BYTES", ""),
    ("RING_MODE", "from the umask"),
    ("MONGOHOST", ""),
    ("MONGOURI", ""),
    ("PORT", "27017"),
    ("WRITE_COLLECTION", ""),
    ("READ_COLLECTION", ""),
    ("COUNTER_COLLECTION", "counter"),
    ("TEMP_COLLECTION", ""),
];

/// Keys that this version knows by name only; any value but the default is refused.
const LATER: [(&str, &str); 6] = [
    ("REUSE", "the reuse policy"),
    ("ON_STALE", "the reuse policy"),
    ("STALE_AFTER", "the reuse policy"),
    ("VALIDATION", "the held-out slice"),
    ("PREFETCH_BYTES", "prefetching"),
    ("RING_MODE", "file modes other than the umask's"),
];

/// Keys that may hold a password (MONGOHOST as in `user:password@host`).
const SECRET: [&str; 2] = ["MONGOURI", "MONGOHOST"];
/// The values as given, with what is needed to say where they stand.
struct Given<'a> {
    text: &'a str,
    origin: &'a str,
    has_lines: bool,
    values: BTreeMap<String, Value>,
}

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

    fn of(given: &Given<'_>, base: &Path) -> Result<Config> {
        given.refuse_later()?;
        let ring = match (given.text_of("RING")?, given.text_of("DBNAME")?) {
            (Some(ring), _) => base.join(ring),
            (None, Some(name)) if is_plain_name(&name) => base.join(format!("{name}.ring")),
            (None, Some(name)) => {
                return Err(given.bad("DBNAME", &format!("{} cannot be part of a file name; give RING", quoted(&name))));
            }
            (None, None) => return Err(given.fail("neither RING nor DBNAME is given: say where the ring is")),
        };
        let index = given.index()?;
        let (compress, compress_all) = given.compress()?;
        let sample = given.sample()?;
        if let Some(sample) = &sample
            && let Some(stray) = compress.keys().find(|name| !sample.contains(name))
        {
            let near = nearest(stray, sample.iter().map(String::as_str));
            return Err(given.bad("COMPRESS", &format!("{stray:?} is no part of SAMPLE{near}")));
        }
        let mut config = Config {
            ring,
            index,
            swap_cap: given.whole("SWAP_CAP", 1, 1 << 40)?,
            sample,
            keep: given.whole("KEEP", 0, 1000)?.unwrap_or(1),
            segment_samples: given.whole("SEGMENT_SAMPLES", 1, 1 << 24)?.unwrap_or(1),
            compress,
            compress_all,
            verify: given
                .choice("VERIFY", &[("first", Verify::First), ("always", Verify::Always), ("never", Verify::Never)])?,
            read: given
                .choice("READ", &[("auto", ReadMode::Auto), ("mmap", ReadMode::Mmap), ("pread", ReadMode::Pread)])?,
            durability: given.choice("DURABILITY", &[("process", Durability::Process), ("node", Durability::Node)])?,
            lease: given.seconds("LEASE_SECONDS")?.unwrap_or(Duration::from_secs(10)),
            poll: given.seconds("POLL_SECONDS")?,
            max_bytes: given.whole("MAX_BYTES", 1, u64::MAX)?,
            max_files: given.whole("MAX_FILES", 1, u64::MAX)?,
            max_part: given.whole("MAX_PART", 1, 1 << 50)?.unwrap_or(1 << 40),
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

    /// zstd level for each of `parts`.
    pub fn compression_of(&self, parts: &[String]) -> Vec<Option<i32>> {
        parts.iter().map(|name| self.compress.get(name).copied().or(self.compress_all)).collect()
    }
}

impl<'a> Given<'a> {
    fn new(text: &'a str, origin: &'a str, has_lines: bool) -> Result<Given<'a>> {
        let mut given = Given { text, origin, has_lines, values: BTreeMap::new() };
        let parsed: Value =
            serde_yaml::from_str(text).map_err(|error| given.fail(&format!("not valid YAML: {error}")))?;
        let map = match parsed {
            Value::Mapping(map) => map,
            Value::Null => return Err(given.fail("the configuration is empty")),
            _ => return Err(given.fail("the configuration is not a list of `KEY: value`")),
        };
        for (key, value) in map {
            let Value::String(key) = key else {
                return Err(given.fail(&format!("a key is not text: {key:?}")));
            };
            if !KEYS.iter().any(|row| row.0 == key) {
                let upper = key.to_uppercase();
                let near = nearest(&upper, KEYS.iter().map(|row| row.0));
                return Err(given.bad(&key, &format!("unknown key{near}")));
            }
            if value != Value::Null {
                given.values.insert(key, value);
            }
        }
        Ok(given)
    }

    fn line(&self, key: &str) -> Option<usize> {
        let is_key = |line: &str| {
            let line = line.trim_start().trim_start_matches(['"', '\'']);
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
        };
        self.has_lines.then(|| self.text.lines().position(is_key).map(|n| n + 1)).flatten()
    }

    fn place(&self, key: &str) -> String {
        self.line(key).map_or(self.origin.to_owned(), |line| format!("{}:{line}", self.origin))
    }

    fn bad(&self, key: &str, message: &str) -> Error {
        let shown = if key.contains("://") { without_password(key) } else { key.to_owned() };
        Error::Config { origin: self.place(key), message: format!("{shown}: {message}") }
    }

    fn fail(&self, message: &str) -> Error {
        Error::Config { origin: self.origin.to_owned(), message: message.to_owned() }
    }

    fn refuse_later(&self) -> Result<()> {
        for (key, what) in LATER {
            if let Some(value) = self.values.get(key) {
                let default = KEYS.iter().find(|row| row.0 == key).map_or("", |row| row.1);
                let same = serde_yaml::from_str::<Value>(default).is_ok_and(|default| default == *value);
                if !same {
                    return Err(self.bad(key, &format!("{what} is not in this version; leave the key out")));
                }
            }
        }
        Ok(())
    }

    fn text_of(&self, key: &str) -> Result<Option<String>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) if SECRET.contains(&key) => Err(self.bad(key, "expected text")),
            Some(other) => Err(self.bad(key, &format!("expected text, found {}", shown(other)))),
        }
    }

    /// What is accepted and has no effect.
    fn notes(&self) -> Vec<String> {
        let given = |key: &str| self.values.contains_key(key);
        let mut notes = Vec::new();
        let files = self.values.get("INDEX").and_then(Value::as_str) == Some("files");
        for key in SECRET.iter().filter(|key| files && given(key)) {
            notes.push(format!("{key} is not used: INDEX is files"));
        }
        if given("MONGOURI") && given("PORT") {
            notes.push("PORT is not used: MONGOURI names the port".to_owned());
        }
        notes
    }

    fn index(&self) -> Result<IndexPlace> {
        let (host, uri) = (self.text_of("MONGOHOST")?, self.text_of("MONGOURI")?);
        let port = self.whole("PORT", 1, 65_535)?.unwrap_or(27_017);
        let counters = self.text_of("COUNTER_COLLECTION")?.unwrap_or_else(|| "counter".to_owned());
        let wanted = self.text_of("INDEX")?;
        match wanted.as_deref() {
            Some("files") => return Ok(IndexPlace::Files),
            None if host.is_none() && uri.is_none() => return Ok(IndexPlace::Files),
            None | Some("mongodb") => {}
            Some(other) => {
                let near = nearest(other, ["files", "mongodb"].into_iter());
                return Err(self.bad("INDEX", &format!("expected files or mongodb, found {}{near}", quoted(other))));
            }
        }
        let uri = match (host, uri) {
            (Some(_), Some(_)) => return Err(self.bad("MONGOURI", "MONGOHOST is given too: leave one of them out")),
            (None, None) => return Err(self.bad("INDEX", "mongodb needs MONGOHOST (and PORT), or MONGOURI")),
            (Some(host), None) if host.contains(['/', ' ']) => {
                return Err(
                    self.bad("MONGOHOST", "expected a host name; a whole connection string belongs into MONGOURI")
                );
            }
            (Some(host), None)
                if host.rsplit('@').next().is_some_and(|host| host.contains(':') && !host.contains(']')) =>
            {
                let hint =
                    "expected a host name; a port belongs into PORT, and an IPv6 address is written as \"[::1]\"";
                return Err(self.bad("MONGOHOST", hint));
            }
            // As Wirehead puts it together.
            (Some(host), None) => format!("mongodb://{host}:{port}"),
            (None, Some(uri)) if ["mongodb://", "mongodb+srv://"].iter().any(|scheme| uri.starts_with(scheme)) => uri,
            (None, Some(_)) => return Err(self.bad("MONGOURI", "expected mongodb://... or mongodb+srv://...")),
        };
        let Some(database) = self.text_of("DBNAME")? else {
            return Err(self.fail("INDEX: mongodb needs DBNAME, the name of the database"));
        };
        if database.len() > 63 || database.contains(['/', '\\', '.', ' ', '"', '$', '*', '<', '>', ':', '|', '?', '\0'])
        {
            return Err(
                self.bad("DBNAME", &format!("{} cannot be the name of a database in MongoDB", quoted(&database)))
            );
        }
        if counters == STATUS_COLLECTION || !is_collection(&counters) {
            return Err(self.bad(
                "COUNTER_COLLECTION",
                &format!("{} cannot be the collection of the counters", quoted(&counters)),
            ));
        }
        Ok(IndexPlace::MongoDb(MongoPlace::new(uri, database, counters)))
    }

    fn whole(&self, key: &str, min: u64, max: u64) -> Result<Option<u64>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(n) if (min..=max).contains(&n) => Ok(Some(n)),
            _ => {
                let range = if max == u64::MAX { format!("{min} or more") } else { format!("{min} to {max}") };
                Err(self.bad(key, &format!("expected a whole number, {range}, found {}", shown(value))))
            }
        }
    }

    fn seconds(&self, key: &str) -> Result<Option<Duration>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(s) if (0.001..=86_400.0).contains(&s) => Ok(Some(Duration::from_secs_f64(s))),
            _ => Err(self.bad(key, &format!("expected seconds, 0.001 to 86400, found {}", shown(value)))),
        }
    }

    fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T> {
        let names = || choices.iter().map(|choice| choice.0).collect::<Vec<_>>();
        let Some(value) = self.values.get(key) else { return Ok(choices[0].1) };
        let found = value.as_str().and_then(|text| choices.iter().find(|choice| choice.0 == text));
        found.map(|choice| choice.1).ok_or_else(|| {
            let near = value.as_str().map(|text| nearest(text, names().into_iter())).unwrap_or_default();
            self.bad(key, &format!("expected one of {}, found {}{near}", names().join(", "), shown(value)))
        })
    }

    fn sample(&self) -> Result<Option<Vec<String>>> {
        let Some(value) = self.values.get("SAMPLE") else { return Ok(None) };
        let names: Option<Vec<String>> =
            value.as_sequence().map(|list| list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect());
        match names {
            Some(names) if value.as_sequence().is_some_and(|list| list.len() == names.len()) => {
                check_names(&names).map_err(|why| self.bad("SAMPLE", &why))?;
                Ok(Some(names))
            }
            _ => {
                let why = format!("expected a list of names, as in [data, label], found {}", shown(value));
                Err(self.bad("SAMPLE", &why))
            }
        }
    }

    fn compress(&self) -> Result<(BTreeMap<String, i32>, Option<i32>)> {
        let level = |value: &Value| value.as_i64().filter(|n| (-7..=19).contains(n)).map(|n| n as i32);
        let bad = |value: &Value| {
            self.bad(
                "COMPRESS",
                &format!("expected none, a level from -7 to 19, or {{part: level}}, found {}", shown(value)),
            )
        };
        match self.values.get("COMPRESS") {
            None => Ok((BTreeMap::new(), None)),
            Some(Value::String(text)) if text == "none" => Ok((BTreeMap::new(), None)),
            Some(Value::String(text)) if text == "auto" => Err(self.bad("COMPRESS", "auto is not in this version")),
            Some(Value::Mapping(map)) => {
                let mut levels = BTreeMap::new();
                for (name, value) in map {
                    let name = name.as_str().ok_or_else(|| bad(value))?;
                    if value.as_str() != Some("none") {
                        levels.insert(name.to_owned(), level(value).ok_or_else(|| bad(value))?);
                    }
                }
                Ok((levels, None))
            }
            Some(value) => level(value).map(|level| (BTreeMap::new(), Some(level))).ok_or_else(|| bad(value)),
        }
    }

    fn effective(&self, config: &Config) -> Vec<Effective> {
        let ring = &config.ring;
        let row = |&(key, default): &(&'static str, &str)| match self.values.get(key) {
            Some(_) if key == "RING" => Effective { key, value: ring.display().to_string(), origin: self.place(key) },
            Some(value) if SECRET.contains(&key) => {
                let value = shown(&Value::String(without_password(value.as_str().unwrap_or_default())));
                Effective { key, value, origin: self.place(key) }
            }
            Some(value) => Effective { key, value: shown(value), origin: self.place(key) },
            None if key == "INDEX" && config.index != IndexPlace::Files => {
                Effective { key, value: "mongodb".into(), origin: "default, where a server is named".into() }
            }
            None if key == "RING" => Effective { key, value: ring.display().to_string(), origin: "default".into() },
            None => Effective { key, value: default.to_owned(), origin: "default".to_owned() },
        };
        KEYS.iter().map(row).collect()
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

fn is_collection(name: &str) -> bool {
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    !dots && !name.starts_with("system.") && !name.contains(['$', '\0']) && name.len() <= 120
}

fn is_plain_name(name: &str) -> bool {
    !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// A value in a message. A connection string may stand where it does not belong.
fn shown(value: &Value) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "something else".to_owned());
    if json.contains("://") { without_password(&json) } else { json }
}

fn quoted(text: &str) -> String {
    shown(&Value::String(text.to_owned()))
}

fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> String {
    const LONGEST: usize = 64; // no key comes near; the comparison takes memory for length times length
    let scored = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    match if word.len() > LONGEST { None } else { scored.min() } {
        Some((distance, name)) if distance <= 1 + name.len() / 3 => format!(" (did you mean {name}?)"),
        _ => String::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, "config.yaml", Path::new("/base"), true)
    }

    #[test]
    fn a_wirehead_config_works_as_it_is() {
        let text = "MONGOHOST: \"localhost\" # host\nDBNAME: \"unit-test\"\nSWAP_CAP: 100\n\nSAMPLE: [\"data\", \"label\"]\n\
            WRITE_COLLECTION: \"write\"\nREAD_COLLECTION: \"read\"\nCOUNTER_COLLECTION: \"counter\"\n\
            TEMP_COLLECTION: \"temp\"\nCHUNKSIZE: 10\n";
        let config = parse(text).unwrap();
        assert_eq!(config.ring, Path::new("/base/unit-test.ring"));
        assert_eq!((config.swap_cap, config.write_buffer), (Some(100), 10 << 20));
        let IndexPlace::MongoDb(place) = &config.index else { panic!("{:?}", config.index) };
        assert_eq!(place.uri(), "mongodb://localhost:27017");
        assert_eq!((place.database.as_str(), place.counters.as_str()), ("unit-test", "counter"));
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let notes = |text| parse(text).unwrap().notes;
        assert_eq!(notes("DBNAME: x\nINDEX: files\nMONGOHOST: a"), ["MONGOHOST is not used: INDEX is files"]);
        assert_eq!(notes("DBNAME: x\nPORT: 1\nMONGOURI: mongodb://a"), ["PORT is not used: MONGOURI names the port"]);
        assert!(notes("DBNAME: x\nPORT: 1\nMONGOHOST: a").is_empty());
    }

    #[test]
    fn errors_name_the_key_the_line_and_the_nearest_known_key() {
        for (text, want) in [
            ("DBNAME: x\nSWAP_CAPP: 3", "config.yaml:2: SWAP_CAPP: unknown key (did you mean SWAP_CAP?)"),
            ("DBNAME: x\nswap_cap: 3", "config.yaml:2: swap_cap: unknown key (did you mean SWAP_CAP?)"),
            (
                "DBNAME: x\n\nSWAP_CAP: -1",
                "config.yaml:3: SWAP_CAP: expected a whole number, 1 to 1099511627776, found -1",
            ),
            (
                "DBNAME: x\nVERIFY: allways",
                "config.yaml:2: VERIFY: expected one of first, always, never, found \"allways\" (did you mean always?)",
            ),
            ("DBNAME: x\nSAMPLE: [data, data]", "config.yaml:2: SAMPLE: a part is named twice"),
            (
                "DBNAME: x\nSAMPLE: [data]\nCOMPRESS: {dat: 3}",
                "config.yaml:3: COMPRESS: \"dat\" is no part of SAMPLE (did you mean data?)",
            ),
            ("SWAP_CAP: 3", "config.yaml: neither RING nor DBNAME is given: say where the ring is"),
            ("DBNAME: a/b", "config.yaml:1: DBNAME: \"a/b\" cannot be part of a file name; give RING"),
            (
                "DBNAME: x\nVALIDATION: 5",
                "config.yaml:2: VALIDATION: the held-out slice is not in this version; leave the key out",
            ),
            ("DBNAME: x\nPORT: 70000", "config.yaml:2: PORT: expected a whole number, 1 to 65535, found 70000"),
            ("", "config.yaml: the configuration is empty"),
            ("DBNAME: x\nINDEX: mongodb", "config.yaml:2: INDEX: mongodb needs MONGOHOST (and PORT), or MONGOURI"),
            (
                "DBNAME: x\nINDEX: mongdb",
                "config.yaml:2: INDEX: expected files or mongodb, found \"mongdb\" (did you mean mongodb?)",
            ),
            (
                "DBNAME: x\nMONGOHOST: a\nMONGOURI: mongodb://b",
                "config.yaml:3: MONGOURI: MONGOHOST is given too: leave one of them out",
            ),
            ("DBNAME: x\nMONGOURI: b", "config.yaml:2: MONGOURI: expected mongodb://... or mongodb+srv://..."),
            ("RING: x\nMONGOHOST: a", "config.yaml: INDEX: mongodb needs DBNAME, the name of the database"),
            ("DBNAME: a.b\nMONGOHOST: a", "config.yaml:1: DBNAME: \"a.b\" cannot be the name of a database in MongoDB"),
            (
                "DBNAME: a\nMONGOHOST: a\nCOUNTER_COLLECTION: status",
                "config.yaml:3: COUNTER_COLLECTION: \"status\" cannot be the collection of the counters",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), want);
        }
        assert!(parse("a: [").unwrap_err().to_string().contains("not valid YAML"));
        let missing = Config::load(Path::new("/nonexistent/c.yaml")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/c.yaml: cannot read"), "{missing}");
    }

    #[test]
    fn no_password_is_shown_whatever_it_holds() {
        for (uri, want) in [
            ("mongodb://me:s3cr3t@db1,db2:27018/admin?tls=true", "mongodb://me:***@db1,db2:27018/admin?tls=true"),
            ("mongodb://me:s3cr3t/@s3cr3t?s3cr3t@db", "mongodb://me:***@db"),
            ("mongodb://s3cr3t@db", "mongodb://***@db"),
            ("mongodb+srv://me:s3cr3t@db/?tlsCertificateKeyFilePassword=s3cr3t", ""),
            ("mongodb://db/?authMechanismProperties=AWS_SESSION_TOKEN:s3cr3t&s3cr3t", ""),
        ] {
            let config = parse(&format!("DBNAME: x\nMONGOURI: '{uri}'")).unwrap();
            let IndexPlace::MongoDb(place) = &config.index else { panic!("{:?}", config.index) };
            assert!(want.is_empty() || place.shown() == want, "{}", place.shown());
            let everything = format!("{config:?} {place:?} {}", place.scrub(&format!("said {uri} no s3cr3t")));
            assert!(!everything.contains("s3cr3t"), "{everything}");
        }
        let config = parse("DBNAME: x\nMONGOHOST: 'me:s3cr3t@db'").unwrap();
        assert!(!format!("{config:?}").contains("s3cr3t"), "{config:?}");
        let misplaced = "mongodb://me:s3cr3t@db";
        for key in
            ["INDEX", "DBNAME", "PORT", "COUNTER_COLLECTION", "SAMPLE", "VERIFY", "COMPRESS", "KEEP", "RING_MODE", "X"]
        {
            for value in [misplaced.to_owned(), format!("[{misplaced}]"), format!("{{a: {misplaced}}}")] {
                let text = match key {
                    "DBNAME" => format!("DBNAME: {value}\nMONGOHOST: a"),
                    _ => format!("DBNAME: x\nMONGOHOST: a\n{key}: {value}"),
                };
                match parse(&text) {
                    Err(error) => assert!(!error.to_string().contains("s3cr3t"), "{error}"),
                    Ok(config) => assert!(!format!("{:?}", config.effective).contains("s3cr3t"), "{text}"),
                }
            }
        }
        assert!(!parse(&format!("DBNAME: x\n'{misplaced}': 1")).unwrap_err().to_string().contains("s3cr3t"));
        for text in [
            "DBNAME: x\nMONGOURI: [s3cr3t]",
            "DBNAME: x\nMONGOHOST: {s3cr3t: 1}",
            "MONGOURI: 'mongodb:/s3cr3t'\nRING: a",
        ] {
            assert!(!parse(text).unwrap_err().to_string().contains("s3cr3t"), "{text}");
        }
    }

    #[test]
    fn a_default_that_is_written_out_is_accepted() {
        parse("DBNAME: x\nREUSE: {min: 0, max: 0}\nON_STALE: warn\nVALIDATION: 0\nSTALE_AFTER: 300").unwrap();
    }
}
