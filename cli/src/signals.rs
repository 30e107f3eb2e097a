//! Handles Ctrl-C and SIGTERM: the command stops after the current sample.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A flag that is set by a signal.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Starts to listen for SIGINT and SIGTERM.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn on_signals() -> anyhow::Result<Stop> {
        Stop::on([SignalKind::interrupt(), SignalKind::terminate()])
    }

    /// Starts to listen for SIGHUP and SIGQUIT too, for a command that must restore the terminal.
    ///
    /// # Errors
    /// As [`Stop::on_signals`].
    pub fn on_all_signals() -> anyhow::Result<Stop> {
        Stop::on([SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()])
    }

    fn on<const N: usize>(kinds: [SignalKind; N]) -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _inside = runtime.enter();
            kinds.into_iter().map(signal).collect::<std::io::Result<Vec<_>>>()?
        };
        let set = stop.clone();
        std::thread::Builder::new().name("ringreel-signals".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    poll_fn(|context| {
                        let came = |signal: &mut Signal| signal.poll_recv(context).is_ready();
                        if signals.iter_mut().any(came) { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    set.0.store(true, Ordering::SeqCst);
                }
            });
        })?;
        Ok(stop)
    }

    /// Sleeps for `time` or until a signal. Returns whether the flag is set.
    pub fn sleep(&self, time: Duration) -> bool {
        let started = Instant::now();
        while !self.is_set() {
            let left = time.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        self.is_set()
    }

    /// Returns whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Parses an interval in seconds.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| "expected seconds (give the ring's path before this option)".to_owned())?;
    match seconds {
        s if (0.05..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("expected 0.05 to 86400 seconds".to_owned()),
    }
}
