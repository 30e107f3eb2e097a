//! The keys as given: each value is converted to its type, or refused with its key, its line and what was expected.

use super::keys::{FROM_UMASK, KEYS};
use super::place::{MongoPlace, STATUS_COLLECTION, without_password};
use super::{Compress, Config, Effective, IndexPlace, OnStale, Reuse, SECRET, check_names};
use crate::error::{Error, Result};
use crate::fs::Modes;
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest duration in seconds: a day. (A year for STALE_AFTER, because queues of a cluster may be long.)
pub(super) const DAY: u32 = 86_400;
pub(super) const YEAR: u32 = 365 * DAY;
/// The key under which users keep their own settings. Keys that begin with `x-` are also left to users.
const USERS_OWN: &str = "USER";
/// Most passes over one generation.
const MAX_PASSES: u64 = 1_000_000;

/// The values as given, with the text that they came from, so that errors can name the line.
pub(super) struct Given<'a> {
    text: &'a str,
    origin: &'a str,
    has_lines: bool,
    pub(super) values: BTreeMap<String, Value>,
}

impl<'a> Given<'a> {
    pub(super) fn new(text: &'a str, origin: &'a str, has_lines: bool) -> Result<Given<'a>> {
        let mut given = Given { text, origin, has_lines, values: BTreeMap::new() };
        let parsed: Value = serde_yaml::from_str(text).map_err(|error| given.not_yaml(&error))?;
        let map = match parsed {
            Value::Mapping(map) => map,
            Value::Null => return Err(given.fail("the configuration is empty")),
            _ => return Err(given.fail("the configuration is not a list of `KEY: value`")),
        };
        for (key, value) in map {
            let Value::String(key) = key else {
                return Err(given.fail(&format!("a key is not text: {key:?}")));
            };
            if key == USERS_OWN || key.starts_with("x-") {
                continue;
            }
            if KEYS.iter().all(|(known, _)| *known != key) {
                let upper = key.to_uppercase();
                let near = nearest(&upper, KEYS.iter().map(|(known, _)| *known));
                let own = format!("; put your own settings under {USERS_OWN} or in keys that begin with x-");
                let advice = if near.is_empty() { &own } else { &near };
                return Err(given.bad(&key, &format!("unknown key{advice}")));
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

    pub(super) fn bad(&self, key: &str, message: &str) -> Error {
        let shown = if key.contains("://") { without_password(key) } else { key.to_owned() };
        Error::Config { origin: self.place(key), message: format!("{shown}: {message}") }
    }

    pub(super) fn fail(&self, message: &str) -> Error {
        Error::Config { origin: self.origin.to_owned(), message: message.to_owned() }
    }

    /// Returns the error for text that the YAML parser refused. Names a tab as the cause, because the parser's
    /// message does not.
    fn not_yaml(&self, error: &serde_yaml::Error) -> Error {
        let is_indented_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
        match self.text.lines().position(is_indented_by_tab) {
            Some(line) if self.has_lines => Error::Config {
                origin: format!("{}:{}", self.origin, line + 1),
                message: "this line is indented with a tab, which YAML forbids: use spaces".to_owned(),
            },
            _ => self.fail(&format!("not valid YAML: {error}")),
        }
    }

    pub(super) fn text_of(&self, key: &str) -> Result<Option<String>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) if SECRET.contains(&key) => Err(self.bad(key, "expected text")),
            Some(other) => Err(self.wrong(key, "text", other)),
        }
    }

    /// Returns notes about keys that have no effect.
    pub(super) fn notes(&self) -> Vec<String> {
        let given = |key: &str| self.values.contains_key(key);
        let mut notes = Vec::new();
        let files = self.values.get("INDEX").and_then(Value::as_str) == Some("files");
        for key in SECRET.iter().filter(|key| files && given(key)) {
            notes.push(format!("{key} is not used: INDEX is files"));
        }
        let is_auto = self.values.get("SEGMENT_SAMPLES").is_none_or(Value::is_string);
        for key in ["SEGMENT_BYTES", "SEGMENT_SECONDS"].iter().filter(|key| !is_auto && given(key)) {
            notes.push(format!("{key} is not used: SEGMENT_SAMPLES is not auto"));
        }
        if given("MONGOURI") && given("PORT") {
            notes.push("PORT is not used: MONGOURI names the port".to_owned());
        }
        notes
    }

    pub(super) fn index(&self) -> Result<IndexPlace> {
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
                return Err(self.bad("MONGOHOST", "expected a host name; put a complete connection string in MONGOURI"));
            }
            (Some(host), None)
                if host.rsplit('@').next().is_some_and(|host| host.contains(':') && !host.contains(']')) =>
            {
                let hint = "expected a host name; put a port in PORT, and write an IPv6 address as \"[::1]\"";
                return Err(self.bad("MONGOHOST", hint));
            }
            // The same connection string as Wirehead's.
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
                &format!("{} cannot be the name of the counters' collection", quoted(&counters)),
            ));
        }
        Ok(IndexPlace::MongoDb(MongoPlace::new(uri, database, counters)))
    }

    /// Returns the error for a value that is not what was `wanted`.
    fn wrong(&self, key: &str, wanted: &str, value: &Value) -> Error {
        self.bad(key, &format!("expected {wanted}, found {}", shown(value)))
    }

    /// Returns the value as `parse` reads it. `wanted` says in errors what the key takes.
    fn parsed<T>(&self, key: &str, wanted: &str, parse: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| self.wrong(key, wanted, value))
    }

    pub(super) fn whole(&self, key: &str, min: u64, max: u64) -> Result<Option<u64>> {
        let wanted = format!("a whole number, {}", range(min, max));
        self.parsed(key, &wanted, |value| value.as_u64().filter(|n| (min..=max).contains(n)))
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.parsed(key, "true or false", Value::as_bool)?.unwrap_or_default())
    }

    /// Returns a number of bytes, given with or without a unit, as in `10GB`.
    pub(super) fn bytes(&self, key: &str, min: u64, max: u64) -> Result<Option<u64>> {
        let wanted = format!("{BYTES_WANTED}, {}", range(min, max));
        self.parsed(key, &wanted, |value| {
            let bytes = value.as_u64().or_else(|| parse_bytes(value.as_str()?));
            bytes.filter(|n| (min..=max).contains(n))
        })
    }

    /// Returns a duration, given in seconds, of at most `most`.
    pub(super) fn seconds(&self, key: &str, most: u32) -> Result<Option<Duration>> {
        let valid = 0.001..=f64::from(most);
        self.parsed(key, &format!("seconds, 0.001 to {most}"), |value| {
            value.as_f64().filter(|seconds| valid.contains(seconds)).map(Duration::from_secs_f64)
        })
    }

    /// Returns `None` for `auto`.
    pub(super) fn segment_samples(&self) -> Result<Option<u64>> {
        const KEY: &str = "SEGMENT_SAMPLES";
        match self.values.get(KEY) {
            Some(Value::String(text)) if text == "auto" => Ok(None),
            Some(value @ Value::String(_)) => Err(self.wrong(KEY, "a whole number or auto", value)),
            _ => self.whole(KEY, 1, 1 << 24),
        }
    }

    pub(super) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T> {
        let names = || choices.iter().map(|choice| choice.0).collect::<Vec<_>>();
        let Some(value) = self.values.get(key) else { return Ok(choices[0].1) };
        let found = value.as_str().and_then(|text| choices.iter().find(|choice| choice.0 == text));
        found.map(|choice| choice.1).ok_or_else(|| {
            let near = value.as_str().map(|text| nearest(text, names().into_iter())).unwrap_or_default();
            self.bad(key, &format!("expected one of {}, found {}{near}", names().join(", "), shown(value)))
        })
    }

    pub(super) fn sample(&self) -> Result<Option<Vec<String>>> {
        let names = self.parsed("SAMPLE", "a list of names, as in [data, label]", |value| {
            value.as_sequence()?.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        })?;
        names.as_deref().map_or(Ok(()), check_names).map_err(|why| self.bad("SAMPLE", &why))?;
        Ok(names)
    }

    /// Returns the compression of each part that COMPRESS names, and of all other parts.
    pub(super) fn compress(&self) -> Result<(BTreeMap<String, Compress>, Compress)> {
        const KEY: &str = "COMPRESS";
        const WANTED: &str = "none, auto, a level from -7 to 19, or {part: one of these}";
        let how = |value: &Value| match value.as_str() {
            Some("none") => Some(Compress::Plain),
            Some("auto") => Some(Compress::Auto),
            _ => value.as_i64().filter(|n| (-7..=19).contains(n)).map(|n| Compress::Level(n as i32)),
        };
        let Some(Value::Mapping(map)) = self.values.get(KEY) else {
            return Ok((BTreeMap::new(), self.parsed(KEY, WANTED, how)?.unwrap_or_default()));
        };
        let one = |(name, value): (&Value, &Value)| match (name.as_str(), how(value)) {
            (Some(name), Some(how)) => Ok((name.to_owned(), how)),
            _ => Err(self.wrong(KEY, WANTED, value)),
        };
        Ok((map.iter().map(one).collect::<Result<_>>()?, Compress::Plain))
    }

    /// Reads octal digits as text, because some YAML parsers read a number with a leading 0 as decimal and others as
    /// octal.
    pub(super) fn modes(&self) -> Result<Option<Modes>> {
        const KEY: &str = "RING_MODE";
        if self.values.get(KEY).and_then(Value::as_str) == Some(FROM_UMASK) {
            return Ok(None);
        }
        let wanted = "octal digits that let the owner read and write, as in 0660 or \"2770\" (quote the value unless \
                      it starts with 0)";
        self.parsed(KEY, wanted, |value| {
            let text = value.as_str()?;
            let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            let mode = u32::from_str_radix(text, 8).ok()?;
            (digits && mode & !0o2777 == 0 && mode & 0o600 == 0o600).then(|| Modes::new(mode))
        })
    }

    pub(super) fn reuse(&self) -> Result<Reuse> {
        let map = match self.values.get("REUSE") {
            None => return Ok(Reuse::default()),
            Some(Value::Mapping(map)) => map,
            Some(value) => return Err(self.wrong("REUSE", "{min: 0, max: 4}", value)),
        };
        let mut reuse = Reuse::default();
        for (key, value) in map {
            let field = match key.as_str() {
                Some("min") => &mut reuse.min,
                Some("max") => &mut reuse.max,
                _ => {
                    let near = key.as_str().map(|key| nearest(key, ["min", "max"].into_iter())).unwrap_or_default();
                    return Err(self.bad("REUSE", &format!("{} is neither min nor max{near}", shown(key))));
                }
            };
            *field = match value.as_u64() {
                Some(passes @ 0..=MAX_PASSES) => passes,
                _ => {
                    let (key, value) = (key.as_str().unwrap_or_default(), shown(value));
                    let message = format!("{key}: expected a whole number, 0 to {MAX_PASSES}, found {value}");
                    return Err(self.bad("REUSE", &message));
                }
            };
        }
        let Reuse { min, max } = reuse;
        if max > 0 && max < min {
            let message = format!(
                "max {max} is below min {min}: readers would wait for a swap that waits for them. Raise max, lower min, \
                 or leave max out (no limit)"
            );
            return Err(self.bad("REUSE", &message));
        }
        Ok(reuse)
    }

    /// Returns ON_STALE. With a maximum in REUSE the default is to wait for the next generation.
    pub(super) fn on_stale(&self, reuse: Reuse) -> Result<OnStale> {
        let choices = [("warn", OnStale::Warn), ("wait", OnStale::Wait), ("stop", OnStale::Stop)];
        let given = self.choice("ON_STALE", &choices)?;
        Ok(if reuse.max > 0 && !self.values.contains_key("ON_STALE") { OnStale::Wait } else { given })
    }

    pub(super) fn effective(&self, config: &Config) -> Vec<Effective> {
        let ring = &config.ring;
        let row = |(key, default): (&'static str, &str)| match self.values.get(key) {
            Some(_) if key == "RING" => Effective { key, value: ring.display().to_string(), origin: self.place(key) },
            Some(value) if SECRET.contains(&key) => {
                let value = shown(&Value::String(without_password(value.as_str().unwrap_or_default())));
                Effective { key, value, origin: self.place(key) }
            }
            Some(_) if key == "REUSE" => {
                let Reuse { min, max } = config.reuse;
                Effective { key, value: format!("{{min: {min}, max: {max}}}"), origin: self.place(key) }
            }
            Some(value) => Effective { key, value: shown(value), origin: self.place(key) },
            None if key == "ON_STALE" && config.on_stale == OnStale::Wait => {
                Effective { key, value: "wait".into(), origin: "default when REUSE has a max".into() }
            }
            None if key == "INDEX" && config.index != IndexPlace::Files => {
                Effective { key, value: "mongodb".into(), origin: "default when MONGOHOST or MONGOURI is set".into() }
            }
            None if key == "RING" => Effective { key, value: ring.display().to_string(), origin: "default".into() },
            None => Effective { key, value: default.to_owned(), origin: "default".to_owned() },
        };
        KEYS.into_iter().map(row).collect()
    }
}

/// Describes a range in an error.
fn range(min: u64, max: u64) -> String {
    if max == u64::MAX { format!("{min} or more") } else { format!("{min} to {max}") }
}

fn is_collection(name: &str) -> bool {
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    !dots && !name.starts_with("system.") && !name.contains(['$', '\0']) && name.len() <= 120
}

pub(super) fn is_plain_name(name: &str) -> bool {
    !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Decimal and binary units.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const BYTES_WANTED: &str = "a number of bytes, with or without a unit, as in 10GB or 512MiB";

/// Parses a number of bytes, 1 or more, from an option of the command.
///
/// # Errors
/// The message that says what is expected.
pub fn bytes_option(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text.trim()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("expected {BYTES_WANTED}, 1 or more"))
}

/// Parses `10GB`, `1.5 TiB` or `4096`; the case of the unit does not matter. Returns `None` for
/// anything else, and for more than 2^64 - 1 bytes.
fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, factor) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let bytes = number.parse::<f64>().ok()? * *factor as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// Formats a value for a message. Removes the password of a connection string, which may be under the wrong key.
fn shown(value: &Value) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "something else".to_owned());
    if json.contains("://") { without_password(&json) } else { json }
}

pub(super) fn quoted(text: &str) -> String {
    shown(&Value::String(text.to_owned()))
}

pub(super) fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> String {
    const LONGEST: usize = 64; // no key is as long; the comparison needs memory for the product of both lengths
    let scored = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    match if word.len() > LONGEST { None } else { scored.min() } {
        Some((distance, name)) if distance <= 1 + name.len() / 3 => format!(" (did you mean {name}?)"),
        _ => String::new(),
    }
}
