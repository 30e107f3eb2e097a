//! A role's sign of life: a thread that publishes a growing beat, with a report, for as long as the role lives.

use crate::index::{BEATS_PER_LEASE, Membership, Report};
use crate::role::Role;
use crate::unix_ms;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Tries in the time of one lease, when the index takes none.
const TRIES_PER_LEASE: u32 = 16;

struct Shared {
    report: Mutex<Report>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

/// A living role. It ends, and is struck off the list, when this is dropped; a killed process just falls silent.
pub struct Presence {
    index: Arc<dyn Membership>,
    member: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Presence {
    /// Begins to beat as `member` in `role`. The first beat is published before this returns.
    pub fn begin(index: Arc<dyn Membership>, member: &str, role: Role, lease: Duration) -> Presence {
        Presence::begin_with(index, member, role, lease, |_| ())
    }

    /// The same; after each beat its thread does `also`.
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
                    // Who was not heard tries again soon: an index that is back finds everybody alive.
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

    /// Changes what the next beat reports.
    pub fn report(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.shared.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// True: the index took it.
fn beat(index: &dyn Membership, member: &str, number: u64, shared: &Shared) -> bool {
    let report = {
        let mut report = shared.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.set_time(unix_ms());
        report.clone()
    };
    let taken = index.beat(member, number, &report);
    if let Err(error) = &taken {
        // A reader may have no right to write here. Others only lose work: they may be taken for dead.
        tracing::debug!(%error, member, "no sign of life could be given");
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
            tracing::debug!(%error, member = self.member, "could not be struck off the list");
        }
    }
}
