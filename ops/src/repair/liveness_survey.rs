//! Who lives: everybody who may is watched for a lease.

use super::facts::Blocker;
use ringreel::coordination::if_available;
use ringreel::error::Result;
use ringreel::layout::is_owner;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::role::Role;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Looks in the time of one lease.
const LOOKS: u32 = 8;

/// Who was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Nobody was watched yet: everybody may be dead, and may live.
    Unknown,
    /// It cannot be told: the index does not answer.
    Unheard,
    /// These managers and generators live (and whoever did not say what it is); all others are silent.
    Living(BTreeSet<String>),
}

impl Liveness {
    /// Why what needs that nobody works cannot be done now. None: it can.
    pub fn is_in_the_way(&self) -> Option<Blocker> {
        match self {
            Liveness::Unknown => Some(Blocker::NotWatched),
            Liveness::Unheard => Some(Blocker::Unheard),
            Liveness::Living(living) => {
                let count = living.len();
                living.first().map(|one| Blocker::Living { count, one: one.clone() })
            }
        }
    }

    /// Whether what `owner` left is to be taken for a dead one's, as far as is known.
    pub fn may_be_dead(&self, owner: &str) -> bool {
        match self {
            Liveness::Unknown => true,
            Liveness::Unheard => false,
            Liveness::Living(living) => !living.contains(owner),
        }
    }
}

/// Whose heartbeats are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Survey {
    /// How many processes there are.
    pub processes: usize,
    /// For how long; longer where their leases are longer.
    pub time: Duration,
}

/// Watches, for a lease or two, who gives a sign of life. Nobody is watched for where nobody can be.
///
/// # Errors
/// What the filesystem or the index says.
pub fn who_lives(ring: &Ring, told: &dyn Fn(Survey)) -> Result<Liveness> {
    watch_for(ring, 1, told)
}

/// Watches all members and owners until the heartbeat of each was seen, or was missing for
/// `leases` leases (each the longer of its own and ours).
///
/// # Errors
/// What the filesystem or the index says.
pub fn watch_for(ring: &Ring, leases: u32, told: &dyn Fn(Survey)) -> Result<Liveness> {
    let begun = Instant::now();
    let mut watch = ring.failure_detector();
    if if_available(watch.look(&*ring.coordination))?.is_none() {
        return Ok(Liveness::Unheard);
    }
    for owner in ring.list_or_none(&ring.layout.staging())?.iter().filter(|owner| is_owner(owner)) {
        watch.silence(owner);
    }
    let mut known = watch.known();
    known.retain(|member| *member != ring.me);
    let unclear = |watch: &mut FailureDetector, member: &String| {
        !watch.was_heard_since(member, begun) && !watch.is_silent_for(member, leases)
    };
    if known.iter().any(|member| unclear(&mut watch, member)) {
        told(Survey { processes: known.len(), time: ring.settings.lease.saturating_mul(leases) });
    }
    while known.iter().any(|member| unclear(&mut watch, member)) {
        std::thread::sleep((ring.settings.lease / LOOKS).max(Duration::from_millis(1)));
        if if_available(watch.look(&*ring.coordination))?.is_none() {
            return Ok(Liveness::Unheard);
        }
    }
    known.retain(|member| !watch.is_dead(member));
    drop(watch);
    let Some(beats) = if_available(ring.coordination.members())? else { return Ok(Liveness::Unheard) };
    // Readers and those who only look are in nobody's way.
    let works = |member: &String| {
        let beat = beats.iter().find(|(name, _)| name == member).map(|(_, beat)| *beat);
        let role =
            beat.and_then(|beat| ring.coordination.report(member, beat).ok().flatten()).map(|report| report.role);
        role.is_none_or(|role| matches!(Role::parse(&role), Some(Role::Manager | Role::Generator)))
    };
    Ok(Liveness::Living(known.into_iter().filter(works).collect()))
}
