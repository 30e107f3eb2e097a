//! Measures a server for [`crate::doctor`], in a temporary collection that is dropped afterwards.
//! The documents of the ring are only read.

use super::delays::Delays;
use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Acknowledgment, ReturnDocument};
use ringreel::config::MongoPlace;
use ringreel::coordination::mongo::RingName;
use ringreel::coordination::{Claim, IfUnreachable, MongoStore};
use ringreel::error::Result;
use ringreel::random::random_u32;
use ringreel::unix_ms;
use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

const ROUND_TRIPS: usize = 10;
const THREADS: usize = 8;
const EACH: usize = 16;

/// The measurements.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The address of the server, without passwords.
    pub place: String,
    /// Its version, as it reports it.
    pub version: String,
    /// Which ring owns the store, in words.
    pub whose: &'static str,
    /// Round-trip times of a ping.
    pub round_trips: Delays,
    /// How many numbers many threads requested at the same time.
    pub asked: usize,
    /// How many different numbers they got.
    pub distinct: usize,
    /// The write concern that was configured.
    pub write_concern: Option<String>,
    /// Whether the server acknowledges writes with that write concern.
    pub acknowledged: bool,
    /// How far its clock is ahead of ours, in seconds; `None` if it does not report its time.
    pub clock_ahead_seconds: Option<f64>,
}

/// A server that answers.
pub struct ServerProbe {
    store: MongoStore,
    scratch: String,
    whose: &'static str,
}

impl ServerProbe {
    /// Connects to `place`, and finds out which ring owns it. `ring_id` and `path` are those of the
    /// ring, if it exists.
    ///
    /// # Errors
    /// The same as for a role of the ring: a server that does not answer or refuses access, the
    /// store of another ring.
    pub fn open(place: &MongoPlace, ring_id: Option<&str>, path: &Path) -> Result<ServerProbe> {
        // The first call reports a server that does not answer.
        let store = MongoStore::open(place, IfUnreachable::Continue)?;
        if let Some(id) = ring_id {
            let ring = RingName { id: id.to_owned(), path: path.display().to_string() };
            store.belongs_to(ring, Claim::Never)?;
        }
        let holder = store.call(|collections| async move { collections.status.find_one(collections.swap()).await })?;
        let whose = match (holder, ring_id) {
            (None, _) => "not used by any ring yet",
            (Some(_), Some(_)) => "used by this ring",
            (Some(_), None) => "used by a ring (run doctor again when this ring exists, to see whose it is)",
        };
        let scratch = format!("{}.doctor-{:08x}", place.counters, random_u32());
        Ok(ServerProbe { store, scratch, whose })
    }

    /// Measures the server, and removes what it wrote, also after an error.
    ///
    /// # Errors
    /// Those of the server.
    pub fn measure(&self) -> Result<Probe> {
        let measured = self.all();
        if measured.as_ref().is_ok_and(|probe| !probe.acknowledged) {
            return measured; // nothing was written
        }
        let scratch = self.scratch.clone();
        let dropped = self.store.call(move |collections| async move {
            let counters: Collection<Document> = beside(&collections.counters, &scratch);
            counters.drop().await
        });
        let probe = measured?;
        dropped.map(|()| probe)
    }

    fn all(&self) -> Result<Probe> {
        let mut round_trips = Delays::default();
        for _ in 0..ROUND_TRIPS {
            let begun = Instant::now();
            self.command(doc! { "ping": 1 })?;
            round_trips.add(Some(begun.elapsed()));
        }
        let version = self.command(doc! { "buildInfo": 1 });
        let version = version.ok().and_then(|info| info.get_str("version").ok().map(str::to_owned));
        let before = unix_ms();
        let hello = self.command(doc! { "isMaster": 1 }).or_else(|_| self.command(doc! { "hello": 1 }));
        let middle = (before + unix_ms()) / 2;
        let clock = hello.ok().and_then(|hello| hello.get_datetime("localTime").ok().map(|at| at.timestamp_millis()));
        let clock_ahead_seconds = clock.map(|clock| (clock as f64 - middle as f64) / 1e3);
        let concern =
            self.store.call(|collections| async move { Ok(collections.counters.write_concern().cloned()) })?;
        let acknowledged = concern.as_ref().is_none_or(|concern| concern.w != Some(Acknowledgment::Nodes(0)));
        // Writes that are not acknowledged cannot be counted.
        let (asked, distinct) = if acknowledged { self.count()? } else { (0, 0) };
        let write_concern = concern.map(|concern| match (&concern.w, concern.journal) {
            (w, Some(journal)) => format!("w={}, journal={journal}", words(w.as_ref())),
            (w, None) => format!("w={}", words(w.as_ref())),
        });
        Ok(Probe {
            place: self.store.shown().to_owned(),
            version: version.unwrap_or_else(|| "unknown".to_owned()),
            whose: self.whose,
            round_trips,
            asked,
            distinct,
            write_concern,
            acknowledged,
            clock_ahead_seconds,
        })
    }

    fn command(&self, command: Document) -> Result<Document> {
        self.store.call(move |collections| async move {
            let database = collections.counters.client().database(&collections.counters.namespace().db);
            database.run_command(command).await
        })
    }

    /// Takes numbers in many threads, as generators do. Returns how many numbers they got, and how
    /// many different ones.
    fn count(&self) -> Result<(usize, usize)> {
        // The first call creates the document. Whether two processes could create it at once is not
        // tested here.
        self.next()?;
        let took: Vec<Result<Vec<i64>>> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| (0..EACH).map(|_| self.next()).collect())).collect();
            all.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let numbers = took.into_iter().collect::<Result<Vec<_>>>()?.concat();
        Ok((numbers.len(), numbers.iter().collect::<HashSet<_>>().len()))
    }

    fn next(&self) -> Result<i64> {
        let scratch = self.scratch.clone();
        self.store.call(move |collections| async move {
            let counters: Collection<Document> = beside(&collections.counters, &scratch);
            let change = doc! { "$inc": { "next": 1_i64 } };
            let changed = counters.find_one_and_update(doc! { "_id": 0_i64 }, change).upsert(true);
            let counter = changed.return_document(ReturnDocument::After).await?;
            Ok(match counter.as_ref().and_then(|counter| counter.get("next")) {
                Some(Bson::Int64(n)) => *n,
                Some(Bson::Int32(n)) => i64::from(*n),
                _ => 0,
            })
        })
    }
}

/// Returns another collection of the same database.
fn beside(counters: &Collection<Document>, name: &str) -> Collection<Document> {
    counters.client().database(&counters.namespace().db).collection(name)
}

fn words(w: Option<&Acknowledgment>) -> String {
    match w {
        Some(Acknowledgment::Nodes(n)) => n.to_string(),
        Some(Acknowledgment::Majority) => "majority".to_owned(),
        Some(Acknowledgment::Custom(name)) => name.clone(),
        _ => "default".to_owned(),
    }
}
