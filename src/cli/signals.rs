//! Ctrl-C and SIGTERM: a wish to stop, which is fulfilled at the next sample's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Set when somebody asked us to stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for both signals from now on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn on_signals() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let set = stop.clone();
        std::thread::Builder::new().name("ringreel-signals".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    set.0.store(true, Ordering::SeqCst);
                }
            });
        })?;
        Ok(stop)
    }

    /// Whether it is time.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
