//! The heartbeat of a role: a thread that publishes a growing number, with a report, while the role
//! runs.

use crate::index::{BEATS_PER_LEASE, Membership, Report};
use crate::role::Role;
use crate::unix_ms;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Tries in the time of one lease, while the store accepts none.
const TRIES_PER_LEASE: u32 = 16;

struct Shared {
    report: Mutex<Report>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

/// The heartbeat of a running role. Dropping it stops the thread and removes the member from the
/// store; a killed process just falls silent.
pub struct Presence {
    index: Arc<dyn Membership>,
    member: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Presence {
    /// Starts to beat as `member` in `role`. Publishes the first beat before it returns.
    pub fn begin(index: Arc<dyn Membership>, member: &str, role: Role, lease: Duration) -> Presence {
        Presence::begin_with(index, member, role, lease, |_| ())
    }

    /// Like [`Presence::begin`], and calls `also` in its thread after each beat.
    pub fn begin_with(
        index: Arc<dyn Membership>,
        member: &str,
        role: Role,
        lease: Duration,
        mut also: impl FnMut(&dyn Membership) + Send + 'static,
    ) -> Presence {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let started_unix_ms = unix_ms();
        let (role, pid, lease_seconds) = (role.to_string(), std::process::id(), lease.as_secs_f64());
        let report = Report { role, host, pid, started_unix_ms, lease_seconds, ..Report::default() };
        let (report, stopped) = (Mutex::new(report), Mutex::new(false));
        let shared = Arc::new(Shared { report, stopped, wake: Condvar::new() });
        let mut heard = beat(&*index, member, 1, &shared);
        let thread = std::thread::Builder::new().name("ringreel-presence".into()).spawn({
            let (index, member, shared) = (index.clone(), member.to_owned(), shared.clone());
            move || {
                let mut number = 1;
                also(&*index);
                let mut stopped = shared.stopped.lock().unwrap_or_else(PoisonError::into_inner);
                while !*stopped {
                    // After a failure it tries again soon, so that a store that is back sees all members alive.
                    let pause = lease / if heard { BEATS_PER_LEASE } else { TRIES_PER_LEASE };
                    let waited = shared.wake.wait_timeout(stopped, pause).unwrap_or_else(PoisonError::into_inner);
                    stopped = waited.0;
                    if !*stopped && waited.1.timed_out() {
                        drop(stopped);
                        number += 1;
                        heard = beat(&*index, &member, number, &shared);
                        also(&*index);
                        stopped = shared.stopped.lock().unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        });
        Presence { index, member: member.to_owned(), shared, thread: thread.ok() }
    }

    /// Changes the report that the next beat publishes.
    pub fn report(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.shared.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Publishes one beat. Returns whether the store took it.
fn beat(index: &dyn Membership, member: &str, number: u64, shared: &Shared) -> bool {
    let report = {
        let mut report = shared.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.set_time(unix_ms());
        report.clone()
    };
    let taken = index.beat(member, number, &report);
    if let Err(error) = &taken {
        // A reader may have no right to write here. The others may be taken for dead, which costs work only.
        tracing::debug!(%error, member, "a heartbeat could not be published");
    }
    taken.is_ok()
}

impl Drop for Presence {
    fn drop(&mut self) {
        *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Err(error) = self.index.leave(&self.member) {
            tracing::debug!(%error, member = self.member, "a member could not be removed from the list");
        }
    }
}
