//! Ctrl-C and SIGTERM: a wish to stop, which is fulfilled at the next sample's end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Set when somebody asked us to stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for both signals from now on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn on_signals() -> anyhow::Result<Stop> {
        Stop::on([SignalKind::interrupt(), SignalKind::terminate()])
    }

    /// Listens for whatever else ends a process, too: for one that has to leave its terminal in order.
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

    /// Waits for so long, or until it is time. True: it is.
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

    /// Whether it is time.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Seconds between two looks, as a user gives them.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds (write the ring before this option)".to_owned())?;
    match seconds {
        s if (0.05..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("expected 0.05 to 86400 seconds".to_owned()),
    }
}
