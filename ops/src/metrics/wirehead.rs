//! The fields of Wirehead's logger (`wirehead/log.py` of Wirehead 0.9.3: `SwapLog` and `WireheadSnapshot`), filled from a
//! ring, so that what reads its lines reads ours.
//!
//! Sizes are in MiB, times in seconds since 1970, durations in seconds, as there. Where a ring has no such thing the
//! nearest one is told: each field says which.

use crate::history::Swap;
use crate::monitor::Observation;
use serde::Serialize;

/// Swaps that a snapshot tells.
const RECENT: usize = 10;
const MIB: f64 = 1_048_576.0;

/// One swap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwapLog {
    /// When it was.
    pub swap_timestamp: f64,
    /// When the one before it was; none for the first, and where that one is not known.
    pub prev_swap_timestamp: Option<f64>,
    /// For how long the generation before it was the newest one; none where clocks contradict the order of swaps.
    pub swap_duration: Option<f64>,
    /// Swaps up to and with this one: the generation's number.
    pub swap_count: u64,
    /// The ring's name.
    pub db_name: String,
}

/// These swaps, the oldest first, as logs.
#[must_use]
pub fn logs(swaps: &[Swap], database: &str) -> Vec<SwapLog> {
    let mut before: Option<&Swap> = None;
    let mut logs = Vec::with_capacity(swaps.len());
    for swap in swaps {
        let previous = before.filter(|before| before.generation + 1 == swap.generation);
        logs.push(SwapLog {
            swap_timestamp: seconds(swap.unix_ms),
            prev_swap_timestamp: previous.map(|previous| seconds(previous.unix_ms)),
            swap_duration: swap.seconds,
            swap_count: swap.generation,
            db_name: database.to_owned(),
        });
        before = Some(swap);
    }
    logs
}

fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1e3
}

/// The whole system at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Finished samples for the generation that fills: those in it, and those that are on their way into it.
    pub samples_started: u64,
    /// Samples in the generation that fills.
    pub samples_completed: u64,
    /// Finished samples that are not in it yet. (What is being generated is known to its generator alone.)
    pub in_flight: u64,
    /// Samples in a generation.
    pub swap_cap: u64,
    /// How full the generation is that fills, in percent.
    pub fill_pct: f64,
    /// Whether a generation is being promoted right now.
    pub is_swapping: bool,
    /// Always none: nobody waits for a lock.
    pub swap_lock_duration: Option<f64>,
    /// Swaps so far.
    pub swap_count: u64,
    /// When the last one was.
    pub swap_timestamp: Option<f64>,
    /// For how long the generation before the newest was the newest.
    pub swap_duration: Option<f64>,
    /// Seconds since the last swap.
    pub time_since_last_swap: Option<f64>,
    /// The mean of `swap_duration` over the swaps that are known.
    pub avg_swap_duration: Option<f64>,
    /// Samples finished a second, since the look before; at the first look, over the last swaps; 0 where not known.
    pub samples_per_s: f64,
    /// Swaps a second, in the same way.
    pub swaps_per_s: f64,
    /// MiB that came into generations a second, in the same way.
    pub write_mb_per_s: f64,
    /// Samples in the generation that fills.
    pub write_docs: u64,
    /// MiB of its segments.
    pub write_size_mb: f64,
    /// Samples in the newest generation.
    pub read_docs: u64,
    /// MiB of its segments.
    pub read_size_mb: f64,
    /// Always 0: no sample passes through a server.
    pub mongo_active_ops: u64,
    /// The ring's name.
    pub db_name: String,
    /// Seconds between two looks.
    pub poll_interval: f64,
    /// When this was seen.
    pub timestamp: f64,
    /// The last ten swaps.
    pub recent_swaps: Vec<SwapLog>,
}

impl Snapshot {
    /// What `look` saw.
    #[must_use]
    pub fn of(look: &Observation, database: &str, interval: f64) -> Snapshot {
        let (status, last) = (&look.status, look.swaps.last());
        let (completed, cap) = (status.writing.samples, status.swap_cap);
        let in_flight = status.samples_waiting.saturating_sub(completed);
        let lived: Vec<f64> = look.swaps.iter().filter_map(|swap| swap.seconds).collect();
        let newest = status.generations.iter().find(|generation| generation.generation == status.newest);
        let [samples_per_s, swaps_per_s, bytes_per_second] = match look.speed {
            Some(speed) => [speed.samples_per_second, speed.swaps_per_second, speed.bytes_per_second],
            None => over(&look.swaps).unwrap_or([0.0; 3]),
        };
        Snapshot {
            samples_started: completed.saturating_add(in_flight),
            samples_completed: completed,
            in_flight,
            swap_cap: cap,
            fill_pct: if cap > 0 { completed as f64 / cap as f64 * 100.0 } else { 0.0 },
            is_swapping: status.writing.swapping,
            swap_lock_duration: None,
            swap_count: status.swaps,
            swap_timestamp: last.map(|swap| seconds(swap.unix_ms)),
            swap_duration: last.and_then(|swap| swap.seconds),
            time_since_last_swap: last.map(|swap| seconds(look.unix_ms.saturating_sub(swap.unix_ms))),
            avg_swap_duration: (!lived.is_empty()).then(|| lived.iter().sum::<f64>() / lived.len() as f64),
            samples_per_s,
            swaps_per_s,
            write_mb_per_s: bytes_per_second / MIB,
            write_docs: completed,
            write_size_mb: status.writing.bytes as f64 / MIB,
            read_docs: newest.map_or(0, |newest| newest.samples),
            read_size_mb: newest.map_or(0.0, |newest| newest.bytes as f64 / MIB),
            mongo_active_ops: 0,
            db_name: database.to_owned(),
            poll_interval: interval,
            timestamp: seconds(look.unix_ms),
            recent_swaps: logs(&look.swaps[look.swaps.len().saturating_sub(RECENT)..], database),
        }
    }
}

/// Samples, swaps and bytes a second from the first of these swaps to the last.
fn over(swaps: &[Swap]) -> Option<[f64; 3]> {
    let (first, last) = (swaps.first()?, swaps.last()?);
    let took = last.unix_ms.checked_sub(first.unix_ms).filter(|ms| *ms > 0)? as f64 / 1e3;
    let more = |of: fn(&Swap) -> u64| of(last).saturating_sub(of(first)) as f64 / took;
    Some([more(|swap| swap.total_samples), more(|swap| swap.generation), more(|swap| swap.total_bytes)])
}
