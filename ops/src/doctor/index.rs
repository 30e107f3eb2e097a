//! The index: names claimed in files, or a MongoDB.

use super::config::Known;
use super::filesystem::millis;
use super::{CannotLook, Doctor, Outcome};
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
/// No thread claims a further number after this time.
const CLAIM_FOR: Duration = Duration::from_millis(1500);

/// Claims numbers and a lease in an index in files, in the scratch directory. (Where the index is on a server too:
/// `ringreel index move` may bring it back.)
pub(super) fn examine_files(
    doctor: &mut Doctor<'_>,
    config: &Config,
    scratch: &Path,
) -> std::result::Result<(), CannotLook> {
    if config.index != IndexPlace::Files {
        return Ok(());
    }
    let (fs, dir) = (doctor.subject.fs.clone(), scratch.join("index"));
    let work = move || match claims(&fs, &dir) {
        Ok(outcome) => outcome,
        Err(Error::Fs { source }) => Outcome::refused(&source, super::ANOTHER),
        Err(error) => Outcome::failure(error.to_string(), super::ANOTHER),
    };
    doctor.check(GROUP, "files", "segments get their numbers from it, and roles their leases", work).map(drop)
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
    let per_number = took_time / numbers.len().max(1) as u32;
    let measured = format!(
        "{THREADS} threads took {distinct} different numbers of {}, {} each; {holders} got the lease",
        numbers.len(),
        millis(per_number)
    );
    Ok(match (distinct == numbers.len(), holders) {
        (true, 1) => Outcome::ok(measured),
        (true, 0) => Outcome::warning(measured, "nothing: who wants a lease tries again"),
        _ => Outcome::failure(measured, "a name had two winners: choose a directory on another filesystem for RING"),
    })
}

/// Looks at the server, where the index is on one.
pub(super) fn examine_server(
    doctor: &mut Doctor<'_>,
    config: &Config,
    known: &Known,
) -> std::result::Result<(), CannotLook> {
    match &config.index {
        IndexPlace::Files => Ok(()),
        #[cfg(feature = "mongodb")]
        IndexPlace::MongoDb(place) => server::examine(doctor, config, place, known),
        #[cfg(not(feature = "mongodb"))]
        IndexPlace::MongoDb(_) => {
            let (_, outcome) =
                (known, Outcome::failure("this build has no MongoDB", "use INDEX: files, or another build"));
            doctor.say(GROUP, "MongoDB", "the index is kept there", outcome);
            Ok(())
        }
    }
}

#[cfg(feature = "mongodb")]
mod server {
    use super::super::{CannotLook, Doctor, Outcome};
    use super::{GROUP, Known, millis};
    use ringreel::config::{Config, MongoPlace};
    use ringreel::coordination::server_probe::{Probe, ServerProbe};
    use std::time::Duration;

    /// A round trip that takes so long is felt at each block of numbers.
    const SLOW: Duration = Duration::from_millis(100);
    /// Clocks that differ so much make times in `ringreel status` misleading.
    const OFF: f64 = 5.0;

    pub fn examine(
        doctor: &mut Doctor<'_>,
        config: &Config,
        place: &MongoPlace,
        known: &Known,
    ) -> Result<(), CannotLook> {
        let why = "without it the ring goes on, and numbers collide, and nobody sees who lives";
        let (place, ring) = (place.clone(), config.ring.clone());
        let id = known.descriptor.as_ref().map(|descriptor| descriptor.ring_id.clone());
        let Some(opened) =
            doctor.measure(GROUP, "MongoDB", why, move || ServerProbe::open(&place, id.as_deref(), &ring))?
        else {
            return Ok(());
        };
        let server = match opened {
            Ok(server) => server,
            Err(error) => {
                let advice = "check MONGOHOST, PORT, MONGOURI, or use INDEX: files, which needs no server";
                doctor.say(GROUP, "MongoDB", why, Outcome::failure(error.to_string(), advice));
                return Ok(());
            }
        };
        let Some(probe) = doctor.measure(GROUP, "MongoDB", why, move || server.measure())? else { return Ok(()) };
        match probe {
            Ok(probe) => lines(doctor, why, &probe),
            Err(error) => doctor.say(GROUP, "MongoDB", why, Outcome::failure(error.to_string(), "see docs/mongodb.md")),
        }
        Ok(())
    }

    fn lines(doctor: &mut Doctor<'_>, why: &str, probe: &Probe) {
        let reached = format!("{} answers, version {}; its place is {}", probe.place, probe.version, probe.whose);
        doctor.say(GROUP, "MongoDB", why, Outcome::ok(reached));
        let times = super::super::filesystem::spread(&probe.round_trips);
        doctor.say(GROUP, "round trip", "each block of numbers and each sign of life takes one", {
            match probe.round_trips.median() > SLOW {
                false => Outcome::ok(times),
                true => Outcome::warning(times, "use INDEX: files, or a server that is nearer"),
            }
        });
        let (distinct, asked) = (probe.distinct, probe.asked);
        let counted = format!("{distinct} different numbers of {asked}");
        doctor.say(GROUP, "atomic counter", "numbers that come twice cost time, and no sample", {
            match distinct == asked {
                true if asked == 0 => Outcome::ok("not measured: see write concern"),
                true => Outcome::ok(counted),
                false => Outcome::warning(
                    format!("{counted}: the server gives numbers twice"),
                    "nothing is lost, but generators collide: use a MongoDB proper, or INDEX: files",
                ),
            }
        });
        doctor.say(GROUP, "write concern", "what the server says it has done, it should have done", {
            match &probe.write_concern {
                None => Outcome::ok("the server's default"),
                Some(words) if probe.acknowledged => Outcome::ok(words.clone()),
                Some(words) => {
                    Outcome::failure(format!("{words}: writes are not acknowledged"), "take w=0 out of MONGOURI")
                }
            }
        });
        let off = probe.clock_ahead_seconds;
        let words = match off {
            None => "the server does not tell its time".to_owned(),
            Some(off) => format!("the server's is {off:+.1} s off ours (± {})", millis(probe.round_trips.max() / 2)),
        };
        doctor.say(GROUP, "clock of the server", "for people who compare times; nothing is decided by it", {
            match off.is_some_and(|off| off.abs() > OFF) {
                false => Outcome::ok(words),
                true => Outcome::warning(words, "let NTP set both clocks"),
            }
        });
    }
}
