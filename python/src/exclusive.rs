//! A value that one call at a time uses, with a snapshot that any thread can read without waiting.
//!
//! A signal handler runs in the thread that it interrupts, in the middle of a call that waits. It can read the
//! snapshot. Another call of the same value from there would deadlock, so it is an error.

use crate::detached::{Listeners, Stop, Tell, detached};
use crate::errors;
use pyo3::prelude::*;
use ringreel::Error;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Interval at which a thread that waits for its turn lets Python's signal handlers run.
const SLICE: Duration = Duration::from_millis(50);

/// A value of type `T` with a snapshot of type `S`.
pub struct Exclusive<T, S> {
    name: &'static str,
    /// What a handler that runs in the middle of a call can do, for the error message.
    advice: &'static str,
    value: Mutex<T>,
    user: Mutex<Option<ThreadId>>,
    freed: Condvar,
    snapshot: Mutex<S>,
    take_snapshot: fn(&T) -> S,
}

impl<T: Send, S: Clone + Send> Exclusive<T, S> {
    /// Wraps a value. `name` and `advice` are parts of error messages. `take_snapshot` runs after each call, so it has
    /// to be cheap.
    pub fn new(name: &'static str, advice: &'static str, value: T, take_snapshot: fn(&T) -> S) -> Self {
        let snapshot = Mutex::new(take_snapshot(&value));
        let (value, user) = (Mutex::new(value), Mutex::new(None));
        Exclusive { name, advice, value, user, freed: Condvar::new(), snapshot, take_snapshot }
    }

    /// Returns the snapshot that the last completed call left. Never waits for a running call.
    pub fn snapshot(&self) -> S {
        lock(&self.snapshot).clone()
    }

    /// Returns whether a call is running.
    pub fn is_used(&self) -> bool {
        lock(&self.user).is_some()
    }

    /// Returns whether a call is running in this thread.
    pub fn is_used_here(&self) -> bool {
        *lock(&self.user) == Some(thread::current().id())
    }

    /// Runs `work` on the value by [`detached`], after all other calls have returned.
    ///
    /// # Errors
    /// Returns an error if a call is running in this thread, and the errors of [`detached`].
    pub fn call<R: Send>(
        &self,
        py: Python<'_>,
        listeners: &Listeners,
        work: impl FnOnce(&mut T, Stop<'_>, Tell<'_>) -> ringreel::Result<R> + Send,
    ) -> PyResult<R> {
        if self.is_used_here() {
            return Err(errors::plain(&format!(
                "a call of this {} is running in this thread: a signal handler, a logging handler or a callback that \
                 interrupts it {}",
                self.name, self.advice
            )));
        }
        detached(py, listeners, |stop, tell| {
            let _turn = self.turn(stop)?;
            let mut value = lock(&self.value);
            let done = work(&mut value, stop, tell);
            *lock(&self.snapshot) = (self.take_snapshot)(&value);
            done
        })
    }

    /// Waits until no other thread uses the value. Holds no lock while `stop` runs signal handlers.
    fn turn(&self, stop: Stop<'_>) -> ringreel::Result<Turn<'_>> {
        loop {
            let waited = self.freed.wait_timeout_while(lock(&self.user), SLICE, |user| user.is_some());
            let (mut user, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if user.is_none() {
                *user = Some(thread::current().id());
                return Ok(Turn { user: &self.user, freed: &self.freed });
            }
            drop(user);
            if stop() {
                return Err(Error::Interrupted { what: format!("another call of this {}", self.name) });
            }
        }
    }
}

/// The right to use a value, until it is dropped.
struct Turn<'a> {
    user: &'a Mutex<Option<ThreadId>>,
    freed: &'a Condvar,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(self.user) = None;
        self.freed.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
