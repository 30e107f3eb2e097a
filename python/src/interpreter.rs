//! Python's end. A thread that asks for the GIL while the interpreter ends is killed by it, in the middle of Rust's
//! frames. So whoever calls Python from a wait asks here, and after the end has begun only the thread that ends goes on.

use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The thread that ends the interpreter, once it has begun to.
static ENDING: OnceLock<ThreadId> = OnceLock::new();
/// Calls of [`with_python`] that are under way.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The end waits no longer for calls that are under way.
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

/// Whether another thread ends the interpreter.
fn ends_elsewhere() -> bool {
    ENDING.get().is_some_and(|ending| *ending != thread::current().id())
}

/// Does `work` with the GIL; none when there is no interpreter any more. Once the interpreter ends, other threads than
/// the one that ends it stay here for ever: that is, until the process is gone.
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

/// Does `work` with the GIL; none when there is no interpreter any more, and none in other threads than the one that
/// ends it. For threads that the ending thread may join.
pub fn with_living_python<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _inside = Inside::enter();
    if ends_elsewhere() {
        return None;
    }
    Python::try_attach(work)
}

/// Sees to it that the end is noticed when it begins.
///
/// # Errors
/// When Python cannot be asked for that.
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
