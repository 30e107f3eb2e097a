//! Where the index is kept, and how that is shown: never with a password.

use std::fmt;

/// The collection that holds everything but the counters, as in Wirehead.
pub const STATUS_COLLECTION: &str = "status";

/// Options of a connection string that hold no secret, in small letters.
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
/// What stands between the words of a connection string.
const BETWEEN_WORDS: [char; 9] = [':', '/', '@', '?', '&', '=', '#', ',', ';'];

/// Where the index is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexPlace {
    /// In files in the ring.
    Files,
    /// In a MongoDB.
    MongoDb(MongoPlace),
}

/// A place for an index in a MongoDB. Shown, and formatted for debugging, without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoPlace {
    uri: String,
    /// DBNAME: the database.
    pub database: String,
    /// COUNTER_COLLECTION: the collection of the counters; it also tells rings in one database apart.
    pub counters: String,
}

impl MongoPlace {
    /// The place in `database` of the server at `uri`, beside the collection `counters`.
    pub(super) fn new(uri: String, database: String, counters: String) -> MongoPlace {
        MongoPlace { uri, database, counters }
    }

    /// The connection string, with its password: for the driver alone.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The connection string as it may be shown.
    pub fn shown(&self) -> String {
        without_password(&self.uri)
    }

    /// `text` without anything secret of this place, wherever it may stand in it.
    pub fn scrub(&self, text: &str) -> String {
        let mut scrubbed = text.replace(&self.uri, &self.shown());
        for secret in self.secrets().filter(|secret| secret.len() > 2) {
            scrubbed = scrubbed.replace(secret, "***");
        }
        scrubbed
    }

    /// `text`, which is about the connection string itself; fixed words instead when anything secret stands in it.
    pub fn without_secrets(&self, text: &str) -> String {
        if self.secrets().all(|secret| !text.contains(secret)) {
            return text.to_owned();
        }
        "it cannot be understood. Expected mongodb://user:password@host:port/?option=value, with @ : / ? # % in user and \
         password written as %40 %3A %2F %3F %23 %25"
            .to_owned()
    }

    /// The words of the connection string that are not shown.
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

/// A connection string (or its part from the user's name on) as it may be shown. Whatever stands before the last `@` is
/// taken for credentials, since a password may hold any character when somebody forgot to encode it.
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

/// `host:port`. What is no port may be a password whose `@` was forgotten.
fn host_without_secret(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with([']', '"']) && !port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{}:***", name.split(':').next().unwrap_or_default())
        }
        _ => host.to_owned(),
    }
}
