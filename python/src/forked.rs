//! Values with threads, locks and a name in the ring, which belong to the process that created them. A forked child
//! does not touch them: the threads do not exist there, the locks may never be released, and the name is the parent's.

use pyo3::prelude::*;
use std::process;

/// A value that only the process that created it can use.
pub struct OwnProcess<T: Send> {
    pid: u32,
    value: Option<T>,
}

impl<T: Send> OwnProcess<T> {
    /// Wraps a value of this process.
    pub fn new(value: T) -> OwnProcess<T> {
        OwnProcess { pid: process::id(), value: Some(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// Returns an error in any process except the one that created the value.
    pub fn get(&self, what: &str) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.pid == process::id() => Ok(value),
            _ => Err(crate::errors::plain(&format!(
                "this {what} was opened in process {}, not in this one ({}): after a fork, open it again in the child",
                self.pid,
                process::id()
            ))),
        }
    }
}

impl<T: Send> Drop for OwnProcess<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if self.pid != process::id() {
            std::mem::forget(value);
            return;
        }
        // Dropping the value may join its threads, which may be waiting for the GIL.
        Python::try_attach(|py| py.detach(|| drop(value)));
    }
}
