//! Checks of the index, in files or in MongoDB.

use super::config::Surroundings;
use super::facts::{Cure, Fact};
use super::{CannotMeasure, Doctor, Outcome, Verdict};
use ringreel::config::{Config, IndexPlace};
use ringreel::coordination::{Counter, FileStore, Leases};
use ringreel::error::{Error, Result};
use ringreel::fs::Fs;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: &str = "index";
const THREADS: usize = 4;
const EACH: usize = 8;
/// Threads stop claiming numbers after this time.
const CLAIM_FOR: Duration = Duration::from_millis(1500);

/// Claims numbers and a lease in an index in files, in the scratch directory.
pub(super) fn examine_files(
    doctor: &mut Doctor<'_>,
    config: &Config,
    scratch: &Path,
) -> std::result::Result<(), CannotMeasure> {
    if config.index != IndexPlace::Files {
        return Ok(());
    }
    let (fs, dir) = (doctor.subject.fs.clone(), scratch.join("index"));
    let work = move || match claims(&fs, &dir) {
        Ok(outcome) => outcome,
        Err(Error::Fs { source }) => Outcome::refused(&source, Cure::OtherFilesystem),
        Err(error) => Outcome::failure(Fact::Refused { error: error.to_string(), cure: Cure::OtherFilesystem }),
    };
    doctor.check(GROUP, "files", work).map(drop)
}

fn claims(fs: &Arc<dyn Fs>, dir: &Path) -> Result<Outcome> {
    let begun = Instant::now();
    let index = |n: usize| FileStore::new(fs.clone(), dir.to_owned(), &format!("doctor-{n}"), 1);
    let took: Vec<Result<(Vec<u64>, bool)>> = std::thread::scope(|scope| {
        let one = |n: usize| {
            let index = index(n);
            let in_time = (0..EACH).take_while(|n| *n == 0 || begun.elapsed() < CLAIM_FOR);
            let numbers = in_time.map(|_| index.next_index(1)).collect::<Result<Vec<Option<u64>>>>()?;
            let leads = index.claim_lease("doctor", 1, &format!("doctor-{n}"))?;
            Ok((numbers.into_iter().flatten().collect(), leads))
        };
        let all: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || one(n))).collect();
        all.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let took = took.into_iter().collect::<Result<Vec<_>>>()?;
    let took_time = begun.elapsed();
    let holders = took.iter().filter(|(_, leads)| *leads).count();
    let numbers: Vec<u64> = took.into_iter().flat_map(|(numbers, _)| numbers).collect();
    let distinct = numbers.iter().collect::<HashSet<_>>().len();
    let (asked, each) = (numbers.len(), took_time / numbers.len().max(1) as u32);
    let verdict = match (distinct == asked, holders) {
        (true, 1) => Verdict::Ok,
        (true, 0) => Verdict::Warning,
        _ => Verdict::Failure,
    };
    Ok(Outcome { verdict, fact: Fact::Claims { threads: THREADS, distinct, asked, each, holders } })
}

/// Checks the index server, if the index is on one.
pub(super) fn examine_server(
    doctor: &mut Doctor<'_>,
    config: &Config,
    known: &Surroundings,
) -> std::result::Result<(), CannotMeasure> {
    match &config.index {
        IndexPlace::Files => Ok(()),
        #[cfg(feature = "mongodb")]
        IndexPlace::MongoDb(place) => server::examine(doctor, config, place, known),
        #[cfg(not(feature = "mongodb"))]
        IndexPlace::MongoDb(_) => {
            let _ = known;
            doctor.say(GROUP, "MongoDB", Outcome::failure(Fact::NoMongoDb));
            Ok(())
        }
    }
}

#[cfg(feature = "mongodb")]
mod server {
    use super::super::facts::Fact;
    use super::super::{CannotMeasure, Doctor, Outcome};
    use super::{GROUP, Surroundings};
    use crate::probe::server::{Probe, ServerProbe};
    use ringreel::config::{Config, MongoPlace};
    use std::time::Duration;

    /// A slower round trip delays each block of numbers noticeably.
    const SLOW: Duration = Duration::from_millis(100);
    /// Clocks that differ by more seconds make times in `ringreel status` misleading.
    const OFF: f64 = 5.0;

    pub fn examine(
        doctor: &mut Doctor<'_>,
        config: &Config,
        place: &MongoPlace,
        known: &Surroundings,
    ) -> Result<(), CannotMeasure> {
        let (place, ring) = (place.clone(), config.ring.clone());
        let id = known.descriptor.as_ref().map(|descriptor| descriptor.ring_id.clone());
        let Some(opened) = doctor.measure(GROUP, "MongoDB", move || ServerProbe::open(&place, id.as_deref(), &ring))?
        else {
            return Ok(());
        };
        let server = match opened {
            Ok(server) => server,
            Err(error) => {
                doctor.say(GROUP, "MongoDB", Outcome::failure(Fact::ServerAway { why: error.to_string() }));
                return Ok(());
            }
        };
        let Some(probe) = doctor.measure(GROUP, "MongoDB", move || server.measure())? else { return Ok(()) };
        match probe {
            Ok(probe) => lines(doctor, &probe),
            Err(error) => {
                doctor.say(GROUP, "MongoDB", Outcome::failure(Fact::ServerRefused { why: error.to_string() }));
            }
        }
        Ok(())
    }

    fn lines(doctor: &mut Doctor<'_>, probe: &Probe) {
        let (place, version, whose) = (probe.place.clone(), probe.version.clone(), probe.whose.to_owned());
        doctor.say(GROUP, "MongoDB", Outcome::ok(Fact::Server { place, version, whose }));
        let is_near = probe.round_trips.median() <= SLOW;
        let trips = Fact::ServerTrips((&probe.round_trips).into());
        doctor.say(GROUP, "round trip", Outcome::ok_if(is_near, trips));
        let (distinct, asked) = (probe.distinct, probe.asked);
        let numbers = Fact::Numbers { distinct, asked };
        doctor.say(GROUP, "atomic counter", Outcome::ok_if(distinct == asked, numbers));
        let is_acknowledged = probe.acknowledged || probe.write_concern.is_none();
        let concern = Fact::WriteConcern { words: probe.write_concern.clone(), is_acknowledged };
        let outcome = if is_acknowledged { Outcome::ok(concern) } else { Outcome::failure(concern) };
        doctor.say(GROUP, "write concern", outcome);
        let ahead = probe.clock_ahead_seconds;
        let clock = Fact::ServerClock { ahead, within: probe.round_trips.max() / 2 };
        let is_right = ahead.is_none_or(|ahead| ahead.abs() <= OFF);
        doctor.say(GROUP, "clock of the server", Outcome::ok_if(is_right, clock));
    }
}
