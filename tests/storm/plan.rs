//! What befalls whom, and when: drawn from a seed, so that a seed repeats the plan. (What the processes are doing at that
//! moment, the machine decides.)

use std::time::Duration;
use testkit::ring::splitmix;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGKILL to everybody.
    KillAll,
    /// SIGSTOP, and SIGCONT after a while: mostly past the lease, sometimes past the time after which what it had begun
    /// is removed.
    Stop,
    /// SIGTERM.
    Terminate,
    /// No byte is free for a while.
    FullDisk,
    /// No inode is.
    NoInodes,
    /// The index is removed.
    LoseIndex,
    /// A file of the index is cut off. In a MongoDB: counters that make no sense.
    SpoilIndex,
    /// What the dead left unfinished in staging is removed.
    SweepStaging,
    /// Somebody passes by: status, verify, repair, gc, seal, read.
    Passer,
}

/// How often each one comes, of 100.
const SHARES: [(Blow, u64); 10] = [
    (Blow::Kill, 61),
    (Blow::KillAll, 1),
    (Blow::Stop, 9),
    (Blow::Terminate, 5),
    (Blow::FullDisk, 4),
    (Blow::NoInodes, 2),
    (Blow::LoseIndex, 3),
    (Blow::SpoilIndex, 5),
    (Blow::SweepStaging, 3),
    (Blow::Passer, 7),
];

/// Longest time between two blows.
const PAUSE: Duration = Duration::from_millis(400);

/// One of them: so long after the one before.
pub struct Event {
    pub after: Duration,
    pub blow: Blow,
    /// Whom, and which one.
    pub whom: usize,
    pub which: u64,
    /// From 0 to 1: for how long, or how much.
    pub much: f64,
}

/// What a seed draws.
pub struct Plan(u64);

impl Plan {
    pub fn of(seed: u64) -> Plan {
        Plan(seed)
    }

    fn random(&mut self) -> u64 {
        splitmix(&mut self.0)
    }

    fn fraction(&mut self) -> f64 {
        (self.random() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The next one. Each takes as many random numbers, whatever becomes of it.
    pub fn next(&mut self) -> Event {
        let after = PAUSE.mul_f64(self.fraction());
        let mut share = self.random() % SHARES.iter().map(|(_, share)| share).sum::<u64>();
        let drawn = SHARES.iter().find(|(_, of)| {
            let here = share < *of;
            share = share.saturating_sub(*of);
            here
        });
        let blow = drawn.map_or(Blow::Kill, |(blow, _)| *blow);
        Event { after, blow, whom: self.random() as usize, which: self.random(), much: self.fraction() }
    }
}
