//! Finalization of the interpreter. A thread that requests the GIL during finalization is killed in the middle of
//! Rust's frames. So all code that calls Python from a wait does it through this module, which lets only the
//! finalizing thread continue once finalization has started.

use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The thread that finalizes the interpreter, once it has started.
static ENDING: OnceLock<ThreadId> = OnceLock::new();
/// Number of calls of [`with_python`] that are running.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Longest time that finalization waits for running calls.
const PATIENCE: Duration = Duration::from_secs(1);

struct Inside;

impl Inside {
    fn enter() -> Inside {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns whether another thread is finalizing the interpreter.
fn ends_elsewhere() -> bool {
    ENDING.get().is_some_and(|ending| *ending != thread::current().id())
}

/// Runs `work` with the GIL. Returns None if the interpreter no longer exists. During finalization, every thread except
/// the finalizing one blocks here until the process exits.
pub fn with_python<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let inside = Inside::enter();
    if ends_elsewhere() {
        drop(inside);
        loop {
            thread::park();
        }
    }
    Python::try_attach(work)
}

/// Runs `work` with the GIL. Returns None if the interpreter no longer exists and, during finalization, in every thread
/// except the finalizing one. For threads that the finalizing thread may join.
pub fn with_living_python<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _inside = Inside::enter();
    if ends_elsewhere() {
        return None;
    }
    Python::try_attach(work)
}

/// Registers a function with Python's `atexit` that records the start of finalization.
///
/// # Errors
/// Returns an error if the registration fails.
pub fn watch_end(py: Python<'_>) -> PyResult<()> {
    let begin = PyCFunction::new_closure(py, None, None, |args, _| {
        if ENDING.set(thread::current().id()).is_ok() {
            args.py().detach(await_others);
        }
    })?;
    py.import("atexit")?.call_method1("register", (begin,))?;
    Ok(())
}

fn await_others() {
    let begun = Instant::now();
    while INSIDE.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
}
