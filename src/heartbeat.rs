//! The heartbeat of a role: a thread that publishes an increasing number, with a report, while the
//! role runs.

use crate::coordination::{BEATS_PER_LEASE, Membership, Report};
use crate::role::Role;
use crate::unix_ms;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Number of attempts per lease while the store accepts no heartbeat.
const TRIES_PER_LEASE: u32 = 16;

struct Shared {
    report: Mutex<Report>,
    /// Completes each report before it is published.
    refresh: Box<dyn Fn(&mut Report) + Send + Sync>,
}

/// The heartbeat of a running role. Dropping it stops the thread and removes the member from the
/// store; the heartbeat of a killed process just stops.
pub struct Heartbeat {
    store: Arc<dyn Membership>,
    member: String,
    shared: Arc<Shared>,
    /// The thread, which ends when the sender is dropped.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Heartbeat {
    /// Starts the heartbeat of `member` in `role`. Publishes the first heartbeat before it returns.
    pub fn start(store: Arc<dyn Membership>, member: &str, role: Role, lease: Duration) -> Heartbeat {
        Heartbeat::start_with(store, member, role, lease, |_| (), |_| ())
    }

    /// Like [`Heartbeat::start`]. Calls `refresh` with each report before it is published, and `also`
    /// in its thread after each heartbeat.
    pub fn start_with(
        store: Arc<dyn Membership>,
        member: &str,
        role: Role,
        lease: Duration,
        refresh: impl Fn(&mut Report) + Send + Sync + 'static,
        mut also: impl FnMut(&dyn Membership) + Send + 'static,
    ) -> Heartbeat {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let started_unix_ms = unix_ms();
        let (role, pid, lease_seconds) = (role.to_string(), std::process::id(), lease.as_secs_f64());
        let report = Report { role, host, pid, started_unix_ms, lease_seconds, ..Report::default() };
        let shared = Arc::new(Shared { report: Mutex::new(report), refresh: Box::new(refresh) });
        let (stop, stopped) = channel();
        let mut heard = beat(&*store, member, 1, &shared);
        let thread = std::thread::Builder::new().name("ringreel-heartbeat".into()).spawn({
            let (store, member, shared) = (store.clone(), member.to_owned(), shared.clone());
            move || {
                also(&*store);
                for number in 2.. {
                    // After a failure it tries again soon, so that a store that is reachable again
                    // soon lists all members as alive.
                    let pause = lease / if heard { BEATS_PER_LEASE } else { TRIES_PER_LEASE };
                    if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                    heard = beat(&*store, &member, number, &shared);
                    also(&*store);
                }
            }
        });
        let thread = thread.ok().map(|thread| (stop, thread));
        Heartbeat { store, member: member.to_owned(), shared, thread }
    }

    /// Changes the report that the next heartbeat publishes.
    pub fn report(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.shared.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Publishes one heartbeat. Returns whether the store accepted it.
fn beat(store: &dyn Membership, member: &str, number: u64, shared: &Shared) -> bool {
    let report = {
        let mut report = shared.report.lock().unwrap_or_else(PoisonError::into_inner);
        (shared.refresh)(&mut report);
        report.set_time(unix_ms());
        report.clone()
    };
    let taken = store.beat(member, number, &report);
    if let Err(error) = &taken {
        // A reader may have no permission to write here. If other processes then consider it dead,
        // that costs only work.
        tracing::debug!(%error, member, "cannot publish a heartbeat");
    }
    taken.is_ok()
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
        if let Err(error) = self.store.leave(&self.member) {
            tracing::debug!(%error, member = self.member, "cannot remove a member from the list");
        }
    }
}
