//! Records and logs the swaps of a manager.

use crate::humanize::counted;
use crate::minutely::Minutely;
use crate::swap::promote::Promotion;
use crate::swap::reclaim::Reclaimed;
use std::time::Instant;

/// One swap as it is logged.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The generation that became readable.
    pub generation: u64,
    /// Time of the promotion, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Number of samples in the generation.
    pub samples: u64,
    /// Number of samples in all generations so far.
    pub generated: u64,
    /// Number of old generations, no longer covered by KEEP, that were removed in the round of this swap.
    pub removed_generations: u64,
    /// Number of samples in them.
    pub removed_samples: u64,
    /// Samples per second since the previous swap.
    pub per_second: f64,
    /// Milliseconds for which no generator could commit, until the next generation was open.
    pub swap_ms: f64,
}

impl Swap {
    /// Returns the end of the log line: which old generations were removed. Names samples and the reason, so that the
    /// count is not read as that of lost samples.
    fn removed(&self) -> String {
        match self.removed_generations {
            0 => String::new(),
            n => format!(
                "; removed {} ({}), which KEEP no longer covers",
                counted(n, "old generation"),
                counted(self.removed_samples, "sample")
            ),
        }
    }
}

/// The swaps that this process has made, and the rate limit of log lines about them.
pub(crate) struct SwapLog {
    /// The number of swaps so far.
    pub(super) count: u64,
    /// Time of the last swap.
    last: Instant,
    lines: Minutely,
}

impl SwapLog {
    pub(crate) fn new() -> SwapLog {
        SwapLog { count: 0, last: Instant::now(), lines: Minutely::at_once() }
    }

    /// Counts and logs a promotion, and what was reclaimed with it.
    pub(crate) fn record(&mut self, promotion: &Promotion, reclaimed: Reclaimed) -> Swap {
        let summary = &promotion.manifest.summary;
        let elapsed = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let swap = Swap {
            generation: summary.generation,
            unix_ms: summary.unix_ms,
            samples: summary.samples,
            generated: summary.total_samples,
            removed_generations: reclaimed.generations,
            removed_samples: reclaimed.samples,
            per_second: summary.samples as f64 / elapsed.max(1e-9),
            swap_ms: promotion.swap_ms,
        };
        self.count += 1;
        let words = format!(
            "swap: generation {} is readable: time {:.3}, generated so far {}, {:.2} samples/s \
             (generators waited {:.1} ms){}",
            swap.generation,
            swap.unix_ms as f64 / 1e3,
            swap.generated,
            swap.per_second,
            swap.swap_ms,
            swap.removed(),
        );
        if self.lines.is_due() {
            tracing::info!("{words}");
        } else {
            tracing::debug!("{words}");
        }
        swap
    }
}
