//! The connection to a MongoDB: created by the process that uses it, with time-outs of seconds.
//! While the server does not answer, calls fail immediately.
//!
//! The rest of the crate is synchronous. The driver runs on a separate thread, so a connection can
//! be used from anywhere, even from inside another runtime.

use super::diagnosis::{self, MongoFailure};
use super::documents::{Collections, OtherRing, RingName};
use super::process::{LIMIT, ProcessLink, ProcessState};
use super::reconnect::Reconnect;
use crate::config::MongoPlace;
use crate::coordination::allocator::NumberAllocator;
use crate::coordination::{Claim, IfUnreachable};
use crate::error::{Error, Result};
use mongodb::Database;
use mongodb::bson::doc;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// An operation that fails within this time did not wait for the server, and is tried once more.
const AT_ONCE: Duration = Duration::from_millis(300);
/// Time limit for opening a store.
const OPENING_LIMIT: Duration = Duration::from_millis(4800);

/// The coordination store in a MongoDB: a connection to a server, and a place on it; see the module.
pub struct MongoStore {
    place: MongoPlace,
    shown: String,
    owner: OnceLock<(RingName, Claim)>,
    process: ProcessLink,
    pub(super) numbers: NumberAllocator,
    /// Number of numbers that are taken at a time.
    pub(in crate::coordination) block: u64,
}

impl fmt::Debug for MongoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MongoStore").field(&self.shown).finish()
    }
}

impl MongoStore {
    /// Connects to the server at `place`, or diagnoses why it cannot. Takes less than five seconds.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid connection string; [`Error::CoordinationDenied`] for a
    /// wrong user or password, or a failed TLS handshake; [`Error::CoordinationUnavailable`] for a
    /// server that does not answer, with [`IfUnreachable::Fail`].
    pub fn open(place: &MongoPlace, if_unreachable: IfUnreachable) -> Result<MongoStore> {
        let begun = Instant::now();
        let process = ProcessLink::make(place)?;
        let here = process.here(place)?.clone();
        let hosts: Vec<_> = here.options.hosts.iter().map(ToString::to_string).collect();
        let (at, database, counters) = (hosts.join(","), &place.database, &place.counters);
        let shown = format!("MongoDB at {at} (database {database}, collection {counters})");
        let (owner, numbers) = (OnceLock::new(), NumberAllocator::default());
        let store = MongoStore { place: place.clone(), shown, owner, process, numbers, block: 1 };
        let limit = OPENING_LIMIT.saturating_sub(begun.elapsed());
        let may_write = if_unreachable == IfUnreachable::Fail;
        let asked = diagnosis::ask(here.options.clone(), here.database().collection(counters), may_write);
        let found = here.driver.start(limit, asked).recv().unwrap_or_default();
        match found.unwrap_or_else(|| Err(diagnosis::silence(OPENING_LIMIT))) {
            Ok(()) => {}
            Err(MongoFailure::Away(why)) if if_unreachable == IfUnreachable::Continue => {
                store.fell_silent(&here, &MongoFailure::Away(why));
            }
            Err(finding) => return Err(store.error(finding)),
        }
        Ok(store)
    }

    /// Returns the address of the server, without its password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns which server does not answer and why, or `None` if the server answers a ping. While the server is
    /// known not to answer, no ping is sent; a background task tries to reconnect.
    pub fn silence(&self) -> Option<String> {
        let pinged = self.call(|collections| async move {
            let database = collections.status.client().database(&collections.status.namespace().db);
            database.run_command(doc! { "ping": 1 }).await
        });
        pinged.err().map(|error| error.to_string())
    }

    /// Sets the ring that the store belongs to, and claims the place for it. A server that does not
    /// answer is not an error: the claim is made once it answers.
    ///
    /// # Errors
    /// [`Error::RingMismatch`] if the place belongs to another ring and is not to be taken over;
    /// [`Error::CoordinationDenied`] if the server does not let this process write.
    pub fn belongs_to(&self, owner: RingName, claim: Claim) -> Result<()> {
        let _ = self.owner.set((owner, claim));
        let held = self.ask(move |collections| async move {
            match collections.hold().await {
                Err(error) if claim == Claim::TakeOver && error.get_custom::<OtherRing>().is_some() => {
                    collections.clear_others().await?;
                    collections.hold().await
                }
                other => other,
            }
        });
        match held {
            Ok(Err(MongoFailure::Failed(why)) | Err(MongoFailure::Refused(why))) => {
                Err(self.error(MongoFailure::Refused(why)))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Runs `op`. If the connection breaks during the operation, it may run twice, which is
    /// harmless for all operations of a store. Fails immediately while the server is known not to
    /// answer.
    ///
    /// # Errors
    /// [`Error::CoordinationUnavailable`] or [`Error::CoordinationDenied`] if the operation fails;
    /// [`Error::RingMismatch`] if the place belongs to another ring.
    pub fn call<T, F>(&self, op: impl FnOnce(Collections) -> F + Clone) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
    {
        self.ask(op)?.map_err(|finding| self.error(finding))
    }

    /// Runs `op` like [`MongoStore::call`], and returns the reason if it failed.
    fn ask<T, F>(&self, op: impl FnOnce(Collections) -> F + Clone) -> Result<std::result::Result<T, MongoFailure>>
    where
        T: Send + 'static,
        F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
    {
        let here = self.here()?;
        if here.away.load(Ordering::Acquire) {
            return Ok(Err(MongoFailure::Away(here.log().why.clone())));
        }
        let attempt = |op| here.driver.start(LIMIT, op).recv().unwrap_or_default();
        let begun = Instant::now();
        let mut done = attempt((op.clone())(self.collections(&here.database())));
        // The driver may already have retried; then there is no third attempt.
        let broken = matches!(&done, Some(Err(error)) if diagnosis::is_broken_connection(error));
        if broken && begun.elapsed() < AT_ONCE {
            done = attempt(op(self.collections(&here.database())));
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

    /// Returns the state of this process.
    fn here(&self) -> Result<&Arc<ProcessState>> {
        self.process.here(&self.place)
    }

    /// Returns the collections of the store.
    fn collections(&self, database: &Database) -> Collections {
        let (owner, claim) = self.owner.get().cloned().unwrap_or((RingName::default(), Claim::Never));
        Collections::new(database, &self.place, &owner, claim != Claim::Never)
    }

    fn error(&self, finding: MongoFailure) -> Error {
        let place = self.shown.clone();
        match finding {
            MongoFailure::Away(message) | MongoFailure::Failed(message) => {
                Error::CoordinationUnavailable { place, message: self.place.scrub(&message) }
            }
            MongoFailure::Refused(message) => Error::CoordinationDenied { place, message: self.place.scrub(&message) },
        }
    }

    fn other_ring(&self, other: &RingName) -> Error {
        let path = self.owner.get().map(|(owner, _)| Path::new(&owner.path).to_owned()).unwrap_or_default();
        let message = format!(
            "{} holds the index of another ring (id {}, at {}): use another DBNAME or COUNTER_COLLECTION, or, if that \
             ring is gone, `ringreel repair --apply --take-over`",
            self.shown, other.id, other.path
        );
        Error::RingMismatch { path, message }
    }

    /// Records that an operation failed. If the server is unreachable or refuses access, later
    /// calls fail immediately, and a background task tries to reconnect.
    fn fell_silent(&self, here: &Arc<ProcessState>, finding: &MongoFailure) {
        let why = self.place.scrub(finding.words());
        let silent = !matches!(finding, MongoFailure::Failed(_));
        if silent && here.away.swap(true, Ordering::AcqRel) {
            return; // another thread noticed it first
        }
        here.log().outage(&self.shown, &why, silent);
        if silent {
            let reconnect = Reconnect {
                state: Arc::downgrade(here),
                collections: self.owner.get().is_some().then(|| self.collections(&here.database())),
                place: self.place.clone(),
                shown: self.shown.clone(),
            };
            here.driver.handle.spawn(reconnect.run());
        }
    }
}
