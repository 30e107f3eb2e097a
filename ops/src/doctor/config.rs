//! Checks of the configuration and its ring.

use super::facts::{Cure, Fact, LeaseNote, Reading};
use super::{CannotMeasure, Doctor, Outcome, Verdict};
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

/// Facts about the ring's directory.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The directory to measure in.
    pub place: PathBuf,
    /// Its kind of filesystem.
    pub kind: Kind,
    /// The descriptor of an existing ring.
    pub descriptor: Option<RingDescriptor>,
    /// The size of an existing ring.
    pub size: Option<Size>,
    /// Shortest and longest LEASE_SECONDS that members publish, if the index is in files.
    pub leases: Option<(f64, f64)>,
}

/// The size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes and files of its newest generation.
    pub generation: (u64, u64),
    /// Bytes and files of all its segments.
    pub ring: (u64, u64),
}

/// Checks the configuration and the ring. Returns `None` if there is no directory to measure in.
pub(super) fn examine(doctor: &mut Doctor<'_>, config: &Config) -> Result<Option<Surroundings>, CannotMeasure> {
    doctor.say(GROUP, "loads", Outcome::ok(Fact::Loads { notes: config.notes.clone() }));
    let (subject, configured) = (doctor.subject.clone(), config.clone());
    let Some((outcome, known)) = doctor.measure(GROUP, "ring", move || ring(&subject, &configured))? else {
        return Ok(None);
    };
    doctor.say(GROUP, "ring", outcome);
    if let Some(known) = &known {
        doctor.say(GROUP, "READ", read(config, known));
        doctor.say(GROUP, "POLL_SECONDS", poll(config));
        if let Some(outcome) = leases(config, known) {
            doctor.say(GROUP, "LEASE_SECONDS", outcome);
        }
    }
    Ok(known)
}

fn ring(subject: &Subject, config: &Config) -> (Outcome, Option<Surroundings>) {
    let layout = Layout::new(&config.ring);
    let place = super::place_of(subject, &config.ring);
    let kind = match subject.fs.kind(&place) {
        Ok(kind) => kind,
        Err(error) => {
            let why = error.source.to_string();
            return (Outcome::failure(Fact::NoPlace { place, why }), None);
        }
    };
    let mut known = Surroundings { place, kind, descriptor: None, size: None, leases: None };
    let outcome = match descriptor::read(&*subject.fs, &layout) {
        Err(error) => Outcome::failure(Fact::UnusableRing { why: error.to_string() }),
        Ok(Some(descriptor)) => {
            let fits = descriptor::check(&descriptor, config);
            let (path, version, swap_cap) = (config.ring.clone(), descriptor.ringreel, descriptor.swap_cap);
            let about = Fact::Ring { path, version, swap_cap, sample: descriptor.sample.clone() };
            (known.size, known.leases) = (size(subject, config), published_leases(subject, config));
            known.descriptor = Some(descriptor);
            match fits {
                Ok(()) => Outcome::ok(about),
                Err(error) => Outcome::failure(Fact::Mismatch { why: error.to_string() }),
            }
        }
        Ok(None) => missing(subject, config),
    };
    (outcome, Some(known))
}

/// Checks whether a ring can be created, if none exists.
fn missing(subject: &Subject, config: &Config) -> Outcome {
    let path = config.ring.clone();
    if config.swap_cap.is_none() || config.sample.is_none() {
        return Outcome::warning(Fact::NoRingKeys { path });
    }
    match subject.fs.list(&path) {
        Err(error) if error.is_gone() => Outcome::ok(Fact::RingNotFound { path }),
        Err(error) => Outcome::refused(&error, Cure::OtherDirectory),
        Ok(names) => match names.into_iter().find(|name| !is_of_a_birth(name)) {
            Some(name) => Outcome::failure(Fact::NotEmpty { path, name }),
            None => Outcome::ok(Fact::EmptyDirectory { path }),
        },
    }
}

/// Returns the size of a ring with at least one generation. Ignores errors, which `ringreel verify` reports.
fn size(subject: &Subject, config: &Config) -> Option<Size> {
    let own = Config::of_ring(&config.ring).ok()?; // without the index server
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

/// Compares LEASE_SECONDS with those that members publish; `None` without members.
fn leases(config: &Config, known: &Surroundings) -> Option<Outcome> {
    let (ours, (shortest, longest)) = (config.lease.as_secs_f64(), known.leases?);
    Some(Outcome::ok_if(shortest == ours && longest == ours, Fact::Leases { ours, shortest, longest }))
}

fn read(config: &Config, known: &Surroundings) -> Outcome {
    let way = match config.read {
        ReadMode::Mmap if !known.kind.local => Reading::MapsShared,
        ReadMode::Mmap => Reading::Maps,
        ReadMode::Auto if known.kind.local => Reading::AutoMaps,
        ReadMode::Auto => Reading::AutoReads,
        ReadMode::Pread => Reading::Reads,
    };
    Outcome::ok_if(way != Reading::MapsShared, Fact::Reading { way, kind: known.kind.name.to_owned() })
}

fn poll(config: &Config) -> Outcome {
    let (poll, lease) = (config.poll.map(|poll| poll.as_secs_f64()), config.lease.as_secs_f64());
    Outcome::ok_if(poll.is_none_or(|poll| poll <= lease / 4.0), Fact::Poll { poll, lease })
}

/// Judges delays by the configured lease.
pub(super) fn against_lease(delays: &Delays, lease: Duration) -> (Verdict, LeaseNote) {
    let late = delays.max();
    if delays.never > 0 || late >= lease {
        return (Verdict::Warning, LeaseNote::TooShort);
    }
    if late * 4 > lease {
        return (Verdict::Warning, LeaseNote::Raise((late.as_secs_f64() * 4.0).ceil()));
    }
    (Verdict::Ok, LeaseNote::LongEnough)
}

/// Returns the check for a configuration that does not load; it is then the only one.
pub fn does_not_load(error: &Error) -> super::Check {
    super::Check {
        group: GROUP.to_owned(),
        check: "loads".to_owned(),
        verdict: Verdict::Failure,
        fact: Fact::DoesNotLoad { why: error.to_string() },
    }
}
