//! The swaps that a manager makes, as the log tells them.

use crate::minutely::Minutely;
use crate::swap::promote::Promotion;
use std::time::Instant;

/// One swap, as the log tells it: Wirehead's three figures and the rate.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The generation that became readable.
    pub generation: u64,
    /// When: milliseconds since 1970.
    pub unix_ms: u64,
    /// Samples in it.
    pub samples: u64,
    /// Samples in all generations so far.
    pub generated: u64,
    /// Samples deleted with the generations that were reclaimed at this swap.
    pub deleted: u64,
    /// Samples per second since the swap before.
    pub per_second: f64,
    /// For how long no generator could commit, in milliseconds: until the next generation was open.
    pub swap_ms: f64,
}

/// Swaps that this process made, and the limit on log lines about them.
pub(crate) struct SwapLog {
    count: u64,
    /// When the last one was made.
    last: Instant,
    lines: Minutely,
}

impl SwapLog {
    pub(crate) fn new() -> SwapLog {
        SwapLog { count: 0, last: Instant::now(), lines: Minutely::at_once() }
    }

    /// Swaps so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Counts a promotion and logs it. `deleted`: samples of the generations that were reclaimed with it.
    pub(crate) fn record(&mut self, promotion: &Promotion, deleted: u64) -> Swap {
        let summary = &promotion.manifest.summary;
        let elapsed = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let swap = Swap {
            generation: summary.generation,
            unix_ms: summary.unix_ms,
            samples: summary.samples,
            generated: summary.total_samples,
            deleted,
            per_second: summary.samples as f64 / elapsed.max(1e-9),
            swap_ms: promotion.swap_ms,
        };
        self.count += 1;
        let words = format!(
            "swap: generation {} is readable: time {:.3}, generated so far {}, deleted {}, {:.2} samples/s (generators waited {:.1} ms)",
            swap.generation,
            swap.unix_ms as f64 / 1e3,
            swap.generated,
            swap.deleted,
            swap.per_second,
            swap.swap_ms,
        );
        if self.lines.is_due() {
            tracing::info!("{words}");
        } else {
            tracing::debug!("{words}");
        }
        swap
    }
}
