//! Where the index is stored, and how that place is displayed: never with a password.

use std::fmt;

/// The collection that holds everything but the counters, as in Wirehead.
pub const STATUS_COLLECTION: &str = "status";

/// Options of a connection string that hold no secret, in lower case.
const SHOWN_OPTIONS: [&str; 14] = [
    "authmechanism",
    "authsource",
    "connecttimeoutms",
    "directconnection",
    "loadbalanced",
    "readpreference",
    "replicaset",
    "retrywrites",
    "serverselectiontimeoutms",
    "ssl",
    "tls",
    "tlscafile",
    "tlscertificatekeyfile",
    "w",
];
/// Characters that separate the words of a connection string.
const BETWEEN_WORDS: [char; 9] = [':', '/', '@', '?', '&', '=', '#', ',', ';'];

/// Where the index is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexPlace {
    /// In files in the ring.
    Files,
    /// In MongoDB.
    MongoDb(MongoPlace),
}

/// A place for the index in MongoDB. `Debug` and [`MongoPlace::shown`] leave its password out.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoPlace {
    uri: String,
    /// DBNAME: the database.
    pub database: String,
    /// COUNTER_COLLECTION: the collection of the counters. It also distinguishes the rings in one database.
    pub counters: String,
}

impl MongoPlace {
    /// Creates the place in `database` of the server at `uri`, with the collection `counters`.
    pub(super) fn new(uri: String, database: String, counters: String) -> MongoPlace {
        MongoPlace { uri, database, counters }
    }

    /// Returns the connection string with its password. Pass it only to the driver.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns the connection string without its password.
    pub fn shown(&self) -> String {
        without_password(&self.uri)
    }

    /// Returns `text` with every secret of this place replaced.
    pub fn scrub(&self, text: &str) -> String {
        let mut scrubbed = text.replace(&self.uri, &self.shown());
        for secret in self.secrets().filter(|secret| secret.len() > 2) {
            scrubbed = scrubbed.replace(secret, "***");
        }
        scrubbed
    }

    /// Returns `text`, a message about the connection string, or a fixed message if `text` contains a secret.
    pub fn without_secrets(&self, text: &str) -> String {
        if self.secrets().all(|secret| !text.contains(secret)) {
            return text.to_owned();
        }
        "the connection string cannot be parsed. Expected mongodb://user:password@host:port/?option=value, with @ : / \
         ? # % in user and password written as %40 %3A %2F %3F %23 %25"
            .to_owned()
    }

    /// Returns the words of the connection string that must not be displayed.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        let words = |text: &str| -> Vec<String> { text.split(BETWEEN_WORDS).map(str::to_owned).collect() };
        let shown = words(&self.shown());
        self.uri.split(BETWEEN_WORDS).filter(move |word| !word.is_empty() && !shown.iter().any(|other| other == word))
    }
}

impl fmt::Debug for MongoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = (self.shown(), &self.database, &self.counters);
        f.debug_tuple("MongoPlace").field(&place.0).field(place.1).field(place.2).finish()
    }
}

/// Returns a connection string (or its part from the user's name on) without its secrets. Treats all text before the
/// last `@` as credentials, since a password may contain any character if it was not percent-encoded.
pub(super) fn without_password(uri: &str) -> String {
    let (scheme, rest) = uri.split_once("://").map_or(("", uri), |(scheme, rest)| (scheme, rest));
    let (credentials, place) = rest.rsplit_once('@').map_or((None, rest), |(front, back)| (Some(front), back));
    let mut shown = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    match credentials.map(|both| both.split_once(':')) {
        Some(Some((user, _))) => shown += &format!("{user}:***@"),
        Some(None) => shown += "***@",
        None => {}
    }
    let (hosts, options) = place.split_once('?').map_or((place, None), |(hosts, options)| (hosts, Some(options)));
    let (hosts, path) = hosts.split_once('/').map_or((hosts, None), |(hosts, path)| (hosts, Some(path)));
    shown += &hosts.split(',').map(host_without_secret).collect::<Vec<_>>().join(",");
    shown += &path.map(|path| format!("/{path}")).unwrap_or_default();
    let safe = |option: &str| match option.split_once('=') {
        Some((name, _)) if SHOWN_OPTIONS.contains(&name.to_lowercase().as_str()) => option.to_owned(),
        Some((name, _)) => format!("{name}=***"),
        None => "***".to_owned(),
    };
    match options.map(|options| options.split('&').map(safe).collect::<Vec<_>>().join("&")) {
        Some(options) => format!("{shown}?{options}"),
        None => shown,
    }
}

/// Returns `host:port`. A port that is not a number may be a password without its `@`, and is replaced.
fn host_without_secret(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with([']', '"']) && !port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{}:***", name.split(':').next().unwrap_or_default())
        }
        _ => host.to_owned(),
    }
}
