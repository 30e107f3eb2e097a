//! Finds out which processes are alive, by watching heartbeats for a lease.

use super::facts::Blocker;
use ringreel::coordination::if_available;
use ringreel::error::Result;
use ringreel::layout::is_owner;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::role::Role;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Polls per lease.
const LOOKS: u32 = 8;

/// Which processes are alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Heartbeats have not been watched yet: every process may be dead or alive.
    Unknown,
    /// The index is unreachable, so heartbeats cannot be seen.
    Unheard,
    /// These managers, generators and processes of unknown role are alive; all others are silent.
    Living(BTreeSet<String>),
}

impl Liveness {
    /// Returns why a repair that requires that no manager or generator runs is blocked; `None` if it is possible.
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

    /// Returns whether `owner` may be dead.
    pub fn may_be_dead(&self, owner: &str) -> bool {
        match self {
            Liveness::Unknown => true,
            Liveness::Unheard => false,
            Liveness::Living(living) => !living.contains(owner),
        }
    }
}

/// The wait for heartbeats.
#[derive(Clone, Copy, Debug)]
pub struct Survey {
    /// Number of watched processes.
    pub processes: usize,
    /// Duration; longer for processes with longer leases.
    pub time: Duration,
}

/// Watches heartbeats for a lease. Returns at once if there are no members and no owners.
///
/// # Errors
/// The filesystem's or the index's errors.
pub fn who_lives(ring: &Ring, told: &dyn Fn(Survey)) -> Result<Liveness> {
    watch_for(ring, 1, told)
}

/// Watches all members and owners until the heartbeat of each was seen, or was missing for `leases` leases (each the
/// longer of its own and ours).
///
/// # Errors
/// The filesystem's or the index's errors.
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
    // Readers and observers do not block repairs.
    let works = |member: &String| {
        let beat = beats.iter().find(|(name, _)| name == member).map(|(_, beat)| *beat);
        let role =
            beat.and_then(|beat| ring.coordination.report(member, beat).ok().flatten()).map(|report| report.role);
        role.is_none_or(|role| matches!(Role::parse(&role), Some(Role::Manager | Role::Generator)))
    };
    Ok(Liveness::Living(known.into_iter().filter(works).collect()))
}
