//! The fields of Wirehead's logger (`wirehead/log.py` of Wirehead 0.9.3: `SwapLog` and `WireheadSnapshot`), filled from a
//! ring, so that tools for its lines can read ours.
//!
//! As there, sizes are in MiB, times are Unix times in seconds, and durations are in seconds. If a ring has no exact
//! equivalent, the field has the nearest value and says which.

use crate::history::Swap;
use crate::monitor::Observation;
use serde::Serialize;

/// Number of swaps in a snapshot.
const RECENT: usize = 10;
const MIB: f64 = 1_048_576.0;

/// One swap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwapLog {
    /// Time of the swap.
    pub swap_timestamp: f64,
    /// Time of the previous swap; `None` for the first, and if it is unknown.
    pub prev_swap_timestamp: Option<f64>,
    /// Time for which the previous generation was the newest; `None` if clocks contradict the order of swaps.
    pub swap_duration: Option<f64>,
    /// Number of swaps up to this one: the generation's number.
    pub swap_count: u64,
    /// The ring's name.
    pub db_name: String,
}

/// Converts swaps, oldest first.
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

/// The state of the system at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Number of finished samples for the filling generation: those in it, and those to be linked into it.
    pub samples_started: u64,
    /// Number of samples in the filling generation.
    pub samples_completed: u64,
    /// Number of finished samples that are not in it yet. (Only a generator knows what it is generating.)
    pub in_flight: u64,
    /// Number of samples per generation.
    pub swap_cap: u64,
    /// Fill level of the filling generation, in percent.
    pub fill_pct: f64,
    /// Whether a generation is being promoted.
    pub is_swapping: bool,
    /// Always `None`, because a ring has no lock.
    pub swap_lock_duration: Option<f64>,
    /// Number of swaps so far.
    pub swap_count: u64,
    /// Time of the last swap.
    pub swap_timestamp: Option<f64>,
    /// Time for which the generation before the newest was the newest.
    pub swap_duration: Option<f64>,
    /// Seconds since the last swap.
    pub time_since_last_swap: Option<f64>,
    /// Mean of `swap_duration` over the known swaps.
    pub avg_swap_duration: Option<f64>,
    /// Finished samples per second since the previous observation; for the first one, over recent swaps; 0 if unknown.
    pub samples_per_s: f64,
    /// Swaps per second, likewise.
    pub swaps_per_s: f64,
    /// MiB added to generations per second, likewise.
    pub write_mb_per_s: f64,
    /// Number of samples in the filling generation.
    pub write_docs: u64,
    /// Size of its segments in MiB.
    pub write_size_mb: f64,
    /// Number of samples in the newest generation.
    pub read_docs: u64,
    /// Size of its segments in MiB.
    pub read_size_mb: f64,
    /// Always 0, because samples do not pass through a server.
    pub mongo_active_ops: u64,
    /// The ring's name.
    pub db_name: String,
    /// Seconds between two observations.
    pub poll_interval: f64,
    /// Time of the observation.
    pub timestamp: f64,
    /// The ten most recent swaps.
    pub recent_swaps: Vec<SwapLog>,
}

impl Snapshot {
    /// Converts an observation.
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

/// Returns samples, swaps and bytes per second from the first of these swaps to the last.
fn over(swaps: &[Swap]) -> Option<[f64; 3]> {
    let (first, last) = (swaps.first()?, swaps.last()?);
    let took = last.unix_ms.checked_sub(first.unix_ms).filter(|ms| *ms > 0)? as f64 / 1e3;
    let more = |of: fn(&Swap) -> u64| of(last).saturating_sub(of(first)) as f64 / took;
    Some([more(|swap| swap.total_samples), more(|swap| swap.generation), more(|swap| swap.total_bytes)])
}
