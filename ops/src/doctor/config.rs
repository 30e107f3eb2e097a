//! The configuration, and the ring that it names.

use super::{CannotLook, Doctor, Outcome, Verdict};
use crate::probe::Subject;
use crate::probe::delays::Delays;
use ringreel::config::{Config, ReadMode};
use ringreel::error::Error;
use ringreel::fs::Kind;
use ringreel::layout::Layout;
use ringreel::ring::Ring;
use ringreel::ring::descriptor::{self, RingDescriptor, is_of_a_birth};
use std::path::PathBuf;
use std::time::Duration;

const GROUP: &str = "configuration";

/// What is known of the place of the ring.
#[derive(Clone, Debug)]
pub struct Known {
    /// Where to measure.
    pub place: PathBuf,
    /// Which kind of filesystem that is.
    pub kind: Kind,
    /// What the ring is, where there is one.
    pub descriptor: Option<RingDescriptor>,
    /// Of its newest generation, bytes and files; and those of all that the ring holds now.
    pub size: Option<Size>,
    /// Shortest and longest LEASE_SECONDS that members publish, where the index is in files.
    pub leases: Option<(f64, f64)>,
}

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes and files of its newest generation.
    pub generation: (u64, u64),
    /// Bytes and files of its segments.
    pub ring: (u64, u64),
}

/// Looks at the ring and at what was configured. None: no place to measure in.
pub(super) fn examine(doctor: &mut Doctor<'_>, config: &Config) -> Result<Option<Known>, CannotLook> {
    const WHY: &str = "a wrong key is better noticed now than in the queue";
    let notes = config.notes.join("; ");
    let loads = if notes.is_empty() { "it loads".to_owned() } else { format!("it loads: {notes}") };
    doctor.say(GROUP, "loads", WHY, Outcome::ok(loads));
    let (subject, configured) = (doctor.subject.clone(), config.clone());
    let why = "a ring that does not fit its configuration is refused by every role";
    let Some((outcome, known)) = doctor.measure(GROUP, "ring", why, move || ring(&subject, &configured))? else {
        return Ok(None);
    };
    doctor.say(GROUP, "ring", why, outcome);
    if let Some(known) = &known {
        doctor.say(
            GROUP,
            "READ",
            "who maps a file that somebody changes sees the change, zeros where it was cut off",
            read(config, known),
        );
        let why = "a role counts as dead that was silent for LEASE_SECONDS; each looks every POLL_SECONDS";
        doctor.say(GROUP, "POLL_SECONDS", why, poll(config));
        if let Some(outcome) = leases(config, known) {
            doctor.say(
                GROUP,
                "LEASE_SECONDS",
                "a member is dead after the longer of its lease and the observer's",
                outcome,
            );
        }
    }
    Ok(known)
}

fn ring(subject: &Subject, config: &Config) -> (Outcome, Option<Known>) {
    let layout = Layout::new(&config.ring);
    let place = super::place_of(subject, &config.ring);
    let at = config.ring.display();
    let kind = match subject.fs.kind(&place) {
        Ok(kind) => kind,
        Err(error) => {
            let advice = "make the directory that is to hold the ring, or change RING";
            return (Outcome::failure(format!("there is no {} ({})", place.display(), error.source), advice), None);
        }
    };
    let mut known = Known { place, kind, descriptor: None, size: None, leases: None };
    let outcome = match descriptor::read(&*subject.fs, &layout) {
        Err(error) => Outcome::failure(error.to_string(), "use another RING"),
        Ok(Some(descriptor)) => {
            let fits = descriptor::check(&descriptor, config);
            let version = descriptor.ringreel;
            let about =
                format!("{at}: version {version}, SWAP_CAP {}, SAMPLE {:?}", descriptor.swap_cap, descriptor.sample);
            (known.size, known.leases) = (size(subject, config), published_leases(subject, config));
            known.descriptor = Some(descriptor);
            match fits {
                Ok(()) => Outcome::ok(about),
                Err(error) => Outcome::failure(error.to_string(), "change config.yaml, or use another RING"),
            }
        }
        Ok(None) => missing(subject, config),
    };
    (outcome, Some(known))
}

/// No ring is there: whether one can be made.
fn missing(subject: &Subject, config: &Config) -> Outcome {
    let at = config.ring.display();
    if config.swap_cap.is_none() || config.sample.is_none() {
        let advice = "give SWAP_CAP and SAMPLE, or check RING and DBNAME where there should be a ring";
        return Outcome::warning(
            format!("there is no ring at {at}, and to make one SWAP_CAP and SAMPLE are needed"),
            advice,
        );
    }
    match subject.fs.list(&config.ring) {
        Err(error) if error.is_gone() => Outcome::ok(format!("there is no ring at {at} yet: the first role makes it")),
        Err(error) => Outcome::refused(&error, "choose another directory for RING"),
        Ok(names) => match names.iter().find(|name| !is_of_a_birth(name)) {
            Some(stray) => Outcome::failure(
                format!("{at} is no ring, and holds other things ({stray:?})"),
                "choose an empty or a new directory for RING",
            ),
            None => Outcome::ok(format!("{at} is empty: the first role makes a ring of it")),
        },
    }
}

/// Of a ring that has a generation. Whatever cannot be read, `ringreel verify` tells.
fn size(subject: &Subject, config: &Config) -> Option<Size> {
    let own = Config::of_ring(&config.ring).ok()?; // without a server
    let ring = Ring::find(subject.fs.clone(), &Config { keep: config.keep, ..own }).ok()?;
    let newest = ring.manifests.newest_listed().ok().filter(|newest| *newest > 0)?;
    let manifest = ring.manifests.get(newest).ok()??;
    Some(Size { generation: (manifest.summary.bytes, manifest.segments.len() as u64), ring: ring.usage().ok()? })
}

fn published_leases(subject: &Subject, config: &Config) -> Option<(f64, f64)> {
    let ring = Ring::find(subject.fs.clone(), &Config::of_ring(&config.ring).ok()?).ok()?;
    let members = ring.coordination.members().ok()?;
    let reports = members.iter().filter_map(|(name, beat)| ring.coordination.report(name, *beat).ok().flatten());
    let leases = reports.map(|report| report.lease().as_secs_f64()).filter(|lease| *lease > 0.0);
    leases.map(|lease| (lease, lease)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Compares LEASE_SECONDS with what the members of the ring publish; none where there are none.
fn leases(config: &Config, known: &Known) -> Option<Outcome> {
    let (ours, (shortest, longest)) = (config.lease.as_secs_f64(), known.leases?);
    Some(if shortest == ours && longest == ours {
        Outcome::ok(format!("all members of the ring use {ours}"))
    } else {
        let advice = "give all processes of a ring the same LEASE_SECONDS: a dead one is noticed after the longest";
        Outcome::warning(format!("{ours} here; members of the ring use {shortest} to {longest}"), advice)
    })
}

fn read(config: &Config, known: &Known) -> Outcome {
    let (name, local) = (known.kind.name, known.kind.local);
    match config.read {
        ReadMode::Mmap if !local => Outcome::warning(
            format!("READ is mmap, on {name}"),
            "use READ: auto or pread, unless nobody ever removes or cuts files on the server",
        ),
        ReadMode::Auto if local => Outcome::ok(format!("auto: files are mapped, on {name}")),
        ReadMode::Auto => Outcome::ok(format!("auto: files are read, not mapped, on {name}")),
        ReadMode::Mmap => Outcome::ok(format!("mmap, on {name}")),
        ReadMode::Pread => Outcome::ok("pread: files are read, never mapped"),
    }
}

fn poll(config: &Config) -> Outcome {
    let lease = config.lease.as_secs_f64();
    match config.poll.map(|poll| poll.as_secs_f64()) {
        Some(poll) if poll > lease / 4.0 => Outcome::warning(
            format!("POLL_SECONDS {poll} is more than a quarter of LEASE_SECONDS {lease}: the quarter is used"),
            "lower POLL_SECONDS or raise LEASE_SECONDS",
        ),
        Some(poll) => Outcome::ok(format!("POLL_SECONDS {poll}, LEASE_SECONDS {lease}")),
        None => Outcome::ok(format!("POLL_SECONDS is the default, LEASE_SECONDS {lease}")),
    }
}

/// What a delay with which names are seen means for the configured times.
pub(super) fn against_lease(delays: &Delays, lease: Duration) -> (Verdict, String) {
    let late = delays.max();
    if delays.never > 0 || late >= lease {
        let why = "living roles would be taken for dead, which costs work and no sample: raise LEASE_SECONDS to four times \
                   the longest delay";
        return (Verdict::Warning, why.to_owned());
    }
    if late * 4 > lease {
        let enough = (late.as_secs_f64() * 4.0).ceil();
        return (Verdict::Warning, format!("raise LEASE_SECONDS to {enough} at least: four times the longest delay"));
    }
    (Verdict::Ok, String::new())
}

/// How an error of loading is told: the only check that there is then.
pub fn does_not_load(error: &Error) -> super::Check {
    super::Check {
        group: GROUP.to_owned(),
        check: "loads".to_owned(),
        verdict: Verdict::Failure,
        measured: error.to_string(),
        why: "a wrong key is better noticed now than in the queue".to_owned(),
        advice: "mend config.yaml: `ringreel config` shows the values in effect".to_owned(),
    }
}
