//! Which fault happens to which process, and when: drawn from a seed, so that a seed repeats the plan. (What the
//! processes do at that moment depends on the machine.)

use std::time::Duration;
use testkit::ring::splitmix;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGKILL to all processes.
    KillAll,
    /// SIGSTOP, and SIGCONT after a while: mostly longer than the lease, sometimes longer than the time after which
    /// unfinished files are removed.
    Stop,
    /// SIGTERM.
    Terminate,
    /// The disk has no free byte for a while.
    FullDisk,
    /// The disk has no free inode for a while.
    NoInodes,
    /// The index is removed.
    LoseIndex,
    /// A file of the index is truncated. In MongoDB: counters are overwritten with words.
    CorruptIndex,
    /// Unfinished files of dead processes in staging are removed.
    SweepStaging,
    /// A one-off command runs: status, verify, repair, gc, promote, read.
    OneOff,
}

/// How often each fault happens, per 100.
const SHARES: [(Fault, u64); 10] = [
    (Fault::Kill, 61),
    (Fault::KillAll, 1),
    (Fault::Stop, 9),
    (Fault::Terminate, 5),
    (Fault::FullDisk, 4),
    (Fault::NoInodes, 2),
    (Fault::LoseIndex, 3),
    (Fault::CorruptIndex, 5),
    (Fault::SweepStaging, 3),
    (Fault::OneOff, 7),
];

/// The longest time between two faults.
const PAUSE: Duration = Duration::from_millis(400);

/// A fault, and the time since the previous one.
pub struct Event {
    pub after: Duration,
    pub fault: Fault,
    /// Selects the process and the variant.
    pub target: usize,
    pub which: u64,
    /// From 0 to 1: the duration, or the amount.
    pub much: f64,
}

/// A sequence of faults, drawn from a seed.
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

    /// Draws the next fault. Each uses the same number of random numbers, whatever its effect.
    pub fn next(&mut self) -> Event {
        let after = PAUSE.mul_f64(self.fraction());
        let mut share = self.random() % SHARES.iter().map(|(_, share)| share).sum::<u64>();
        let drawn = SHARES.iter().find(|(_, of)| {
            let here = share < *of;
            share = share.saturating_sub(*of);
            here
        });
        let fault = drawn.map_or(Fault::Kill, |(fault, _)| *fault);
        Event { after, fault, target: self.random() as usize, which: self.random(), much: self.fraction() }
    }
}
