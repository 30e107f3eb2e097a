//! The connection: made by the process that uses it, with time-outs of seconds, and quick to say that nobody answers.
//!
//! The rest of the crate is synchronous. A thread of the connection's own drives the driver, so that it can be used from
//! anywhere, be it from inside another runtime.

use super::diagnosis::{self, Finding};
use super::documents::{OtherRing, RingName, Tables};
use crate::config::MongoPlace;
use crate::error::{Error, Result};
use crate::fs::watch::jittered;
use crate::index::{Absence, Claim};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};

/// Longest time for an operation.
const LIMIT: Duration = Duration::from_secs(2);
/// Longest time for a connection to come about, TLS included, and for finding a server that takes it; unless the
/// connection string says otherwise.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// What fails within this time was not waited for.
const AT_ONCE: Duration = Duration::from_millis(300);
/// Longest time until somebody who opens an index knows what is the matter.
const OPENING_LIMIT: Duration = Duration::from_millis(4800);
/// Time between two tries to reach a server that fell silent.
const PROBE: Duration = Duration::from_millis(500);
/// For so long, what was logged is not logged again.
const QUIET: Duration = Duration::from_secs(60);
/// A process needs few connections, and a server of many processes has no more to spare.
const POOL: u32 = 4;

/// A server, and a place on it.
pub struct Connection {
    place: MongoPlace,
    shown: String,
    owner: OnceLock<(RingName, Claim)>,
    first: Link,
}

/// What belongs to one process. A forked child never touches its parent's, whose locks may be held for ever and whose
/// threads it does not have: it makes its own, behind it. No lock is taken on the way there.
struct Link {
    pid: u32,
    here: Arc<Here>,
    next: OnceLock<Box<Link>>,
}

struct Here {
    options: ClientOptions,
    database: Mutex<Database>,
    away: AtomicBool,
    log: Mutex<Log>,
    background: Background,
}

/// Why the server is silent, and what was logged of that.
#[derive(Default)]
struct Log {
    why: String,
    told: Option<(String, Instant)>,
    /// Outages that were not logged, since the last that was.
    untold: u32,
    /// Whether the present one was.
    this_one: bool,
}

/// A runtime that may be dropped anywhere, inside another one too.
struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Background {
    /// Begins `future`. None will be received when it took too long.
    fn start<T: Send + 'static>(
        &self,
        limit: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> mpsc::Receiver<Option<T>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move { drop(sender.send(tokio::time::timeout(limit, future).await.ok())) });
        receiver
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.here.clone()); // never dropped here: its threads are the parent's
        }
    }
}

impl Connection {
    /// Finds the server at `place`, or what is the matter with it. Takes less than five seconds.
    ///
    /// # Errors
    /// [`Error::Config`] for a connection string that is none; [`Error::IndexRefused`] for a wrong user or password, or
    /// where the two sides do not agree upon TLS; [`Error::IndexAway`] for nobody there, unless that is borne.
    pub fn open(place: &MongoPlace, absence: Absence) -> Result<Connection> {
        let begun = Instant::now();
        let first = Link::make(place)?;
        let hosts: Vec<_> = first.here.options.hosts.iter().map(ToString::to_string).collect();
        let (at, database, counters) = (hosts.join(","), &place.database, &place.counters);
        let shown = format!("MongoDB at {at} (database {database}, collection {counters})");
        let connection = Connection { place: place.clone(), shown, owner: OnceLock::new(), first };
        let here = &connection.first.here;
        let limit = OPENING_LIMIT.saturating_sub(begun.elapsed());
        let may_write = absence == Absence::Fatal;
        let asked = diagnosis::ask(here.options.clone(), here.database().collection(counters), may_write);
        let found = here.background.start(limit, asked).recv().unwrap_or_default();
        match found.unwrap_or_else(|| Err(diagnosis::silence(OPENING_LIMIT))) {
            Ok(()) => {}
            Err(Finding::Away(why)) if absence == Absence::Borne => {
                connection.fell_silent(here, &Finding::Away(why));
            }
            Err(finding) => return Err(connection.error(finding)),
        }
        Ok(connection)
    }

    /// Where it is, without its password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns which server does not answer, and why, while that is so. A search for it goes on
    /// meanwhile.
    pub fn silence(&self) -> Option<String> {
        let here = self.here().ok()?;
        let away = here.away.load(Ordering::Acquire);
        away.then(|| self.error(Finding::Away(here.log().why.clone())).to_string())
    }

    /// Says whose index it is to be, and how that is to be claimed. A server that is silent is no error: it will be told.
    ///
    /// # Errors
    /// When it is another ring's already, and not to be taken over; when the server does not let us write.
    pub fn belongs_to(&self, owner: RingName, claim: Claim) -> Result<()> {
        let _ = self.owner.set((owner, claim));
        let held = self.ask(move |tables| async move {
            match tables.hold().await {
                Err(error) if claim == Claim::TakeOver && error.get_custom::<OtherRing>().is_some() => {
                    tables.clear_others().await?;
                    tables.hold().await
                }
                other => other,
            }
        });
        match held {
            Ok(Err(Finding::Failed(why)) | Err(Finding::Refused(why))) => Err(self.error(Finding::Refused(why))),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Does `op`; where the connection breaks in the middle of it, perhaps twice, which no operation of ours minds. While
    /// the server is known to be silent, fails at once.
    ///
    /// # Errors
    /// [`Error::IndexAway`] or [`Error::IndexRefused`] when it cannot be done; [`Error::WrongRing`] when the place is
    /// another ring's.
    pub fn call<T, F>(&self, op: impl FnOnce(Tables) -> F + Clone) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
    {
        self.ask(op)?.map_err(|finding| self.error(finding))
    }

    fn ask<T, F>(&self, op: impl FnOnce(Tables) -> F + Clone) -> Result<std::result::Result<T, Finding>>
    where
        T: Send + 'static,
        F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
    {
        let here = self.here()?;
        if here.away.load(Ordering::Acquire) {
            return Ok(Err(Finding::Away(here.log().why.clone())));
        }
        let attempt = |op| here.background.start(LIMIT, op).recv().unwrap_or_default();
        let begun = Instant::now();
        let mut done = attempt((op.clone())(self.tables(&here.database())));
        // The driver may have tried again by itself; then there is no third time.
        let broken = matches!(&done, Some(Err(error)) if diagnosis::is_broken_connection(error));
        if broken && begun.elapsed() < AT_ONCE {
            done = attempt(op(self.tables(&here.database())));
        }
        let finding = match done {
            Some(Ok(value)) => return Ok(Ok(value)),
            Some(Err(error)) => match error.get_custom() {
                Some(OtherRing(other)) => return Err(self.other_ring(other)),
                None => diagnosis::of_error(&error),
            },
            None => diagnosis::silence(LIMIT),
        };
        self.fell_silent(here, &finding);
        Ok(Err(finding))
    }

    /// What belongs to this process.
    fn here(&self) -> Result<&Arc<Here>> {
        let mut link = &self.first;
        while link.pid != std::process::id() {
            link = match link.next.get() {
                Some(next) => next,
                None => {
                    let made = Box::new(Link::make(&self.place)?);
                    link.next.get_or_init(|| made)
                }
            };
        }
        Ok(&link.here)
    }

    fn tables(&self, database: &Database) -> Tables {
        let (owner, claim) = self.owner.get().cloned().unwrap_or((RingName::default(), Claim::Look));
        Tables::new(database, &self.place, &owner, claim != Claim::Look)
    }

    fn error(&self, finding: Finding) -> Error {
        let place = self.shown.clone();
        match finding {
            Finding::Away(message) | Finding::Failed(message) => {
                Error::IndexAway { place, message: self.place.scrub(&message) }
            }
            Finding::Refused(message) => Error::IndexRefused { place, message: self.place.scrub(&message) },
        }
    }

    fn other_ring(&self, other: &RingName) -> Error {
        let path = self.owner.get().map(|(owner, _)| Path::new(&owner.path).to_owned()).unwrap_or_default();
        let message = format!(
            "{} holds the index of another ring (id {}, at {}): use another DBNAME or COUNTER_COLLECTION, or, if that \
             ring is gone, `ringreel repair --apply --take-over`",
            self.shown, other.id, other.path
        );
        Error::WrongRing { path, message }
    }

    /// An operation was not done. When that is for the server's silence, nobody waits for it from now on, and somebody
    /// looks for it.
    fn fell_silent(&self, here: &Arc<Here>, finding: &Finding) {
        let why = self.place.scrub(finding.words());
        let silent = !matches!(finding, Finding::Failed(_));
        if silent && here.away.swap(true, Ordering::AcqRel) {
            return; // several found it out at once
        }
        here.log().outage(&self.shown, &why, silent);
        if silent {
            let looking = Looking {
                here: Arc::downgrade(here),
                tables: self.owner.get().is_some().then(|| self.tables(&here.database())),
                place: self.place.clone(),
                shown: self.shown.clone(),
            };
            here.background.handle.spawn(looking.go_on());
        }
    }
}

/// The search for a server that fell silent.
struct Looking {
    here: Weak<Here>,
    /// None: whose index it is was not known yet.
    tables: Option<Tables>,
    place: MongoPlace,
    shown: String,
}

impl Looking {
    async fn go_on(self) {
        let mut fresh = false;
        loop {
            tokio::time::sleep(jittered(PROBE)).await;
            let Some(here) = self.here.upgrade() else { return };
            // After a time-out, connections that look well may be dead: on the next try they are left behind.
            let database = match fresh.then(|| Client::with_options(here.options.clone())) {
                Some(Ok(client)) => client.database(&self.place.database),
                _ => here.database(),
            };
            drop(here);
            let asked = async {
                match &self.tables {
                    Some(tables) => tables.on(&database, &self.place).hold().await,
                    None => database.run_command(mongodb::bson::doc! { "ping": 1 }).await.map(drop),
                }
            };
            let asked = tokio::time::timeout(LIMIT, asked).await;
            let Some(here) = self.here.upgrade() else { return };
            match asked {
                Ok(Ok(())) => {
                    *here.database.lock().unwrap_or_else(PoisonError::into_inner) = database;
                    here.away.store(false, Ordering::Release);
                    if here.log().this_one {
                        tracing::info!("{} answers again", self.shown);
                    }
                    return;
                }
                Ok(Err(error)) => {
                    let why = match error.get_custom() {
                        Some(OtherRing(other)) => format!("it holds the index of another ring (id {})", other.id),
                        None => self.place.scrub(diagnosis::of_error(&error).words()),
                    };
                    here.log().why = why;
                    fresh = false;
                }
                Err(_) => fresh = true,
            }
        }
    }
}

impl Here {
    fn database(&self) -> Database {
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// Tells of an outage, or of an operation that failed: the first, and then at most one a minute of the same kind.
    fn outage(&mut self, shown: &str, why: &str, silent: bool) {
        why.clone_into(&mut self.why);
        let due = self
            .told
            .as_ref()
            .is_none_or(|(last, when)| when.elapsed() > QUIET || last.split('(').next() != why.split('(').next());
        if silent {
            self.this_one = due;
        }
        if !due {
            self.untold += 1;
            return;
        }
        let more = if self.untold > 0 {
            format!(" ({} times more since that was told last)", self.untold)
        } else {
            String::new()
        };
        if silent {
            tracing::warn!("{shown}: {why}{more}. The ring goes on without its index until it answers");
        } else {
            tracing::warn!("{shown}: {why}{more}. The ring goes on without that");
        }
        (self.told, self.untold) = (Some((why.to_owned(), Instant::now())), 0);
    }
}

impl Link {
    fn make(place: &MongoPlace) -> Result<Link> {
        let origin = || format!("MONGOURI or MONGOHOST ({})", place.shown());
        let broken = |message: &str| Error::Config { origin: origin(), message: place.without_secrets(message) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringreel-mongodb")
            .enable_all()
            .build()
            .map_err(|error| Error::Index(format!("no thread for the MongoDB driver: {error}")))?;
        let background = Background { handle: runtime.handle().clone(), runtime: Some(runtime) };
        let uri = place.uri().to_owned();
        let parsed = background.start(LIMIT, async move { ClientOptions::parse(uri).await }).recv();
        let mut options = match parsed.unwrap_or_default() {
            Some(Ok(options)) => options,
            Some(Err(error)) if !diagnosis::is_of_names(&error) => {
                return Err(broken(diagnosis::of_error(&error).words()));
            }
            unknown => {
                let why =
                    unknown.and_then(|parsed| parsed.err()).map(|error| diagnosis::of_error(&error).words().to_owned());
                let message = why.unwrap_or_else(|| "the name server does not answer".to_owned());
                return Err(Error::IndexAway { place: origin(), message: place.without_secrets(&message) });
            }
        };
        diagnosis::check_tls_files(&options).map_err(|message| broken(&message))?;
        options.app_name.get_or_insert_with(|| "ringreel".to_owned());
        options.connect_timeout.get_or_insert(CONNECT_LIMIT);
        options.server_selection_timeout.get_or_insert(CONNECT_LIMIT);
        options.max_pool_size.get_or_insert(POOL.max(options.min_pool_size.unwrap_or_default()));
        let client = {
            let _inside = background.handle.enter();
            Client::with_options(options.clone()).map_err(|error| broken(diagnosis::of_error(&error).words()))?
        };
        let database = Mutex::new(client.database(&place.database));
        let (away, log) = (AtomicBool::new(false), Mutex::default());
        let here = Here { options, database, away, log, background };
        Ok(Link { pid: std::process::id(), here: Arc::new(here), next: OnceLock::new() })
    }
}
