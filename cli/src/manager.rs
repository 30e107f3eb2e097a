//! `ringreel manager`

use super::Common;
use super::output::json_line;
use super::signals::Stop;
use ringreel::swap::manager::{Manager, until};
use serde_json::json;

/// Runs a manager until a signal arrives.
pub fn run(common: &Common) -> anyhow::Result<i32> {
    let stop = Stop::on_signals()?; // first, so that an early SIGTERM also ends in an orderly exit
    let config = super::load(common)?;
    let manager = Manager::open(&config)?;
    let json = common.json;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(manager.run(until(|| stop.is_set()), |swap| {
        if json {
            let line = json_line(&json!({
                "generation": swap.generation,
                "time": swap.unix_ms as f64 / 1e3,
                "samples": swap.samples,
                "generated": swap.generated,
                "removed_generations": swap.removed_generations,
                "removed_samples": swap.removed_samples,
                "samples_per_second": swap.per_second,
                "swap_ms": swap.swap_ms,
            }));
            line.unwrap_or_else(|error| tracing::debug!(%error, "cannot write to stdout"));
        }
    }))?;
    Ok(0)
}
