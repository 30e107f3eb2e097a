//! What has threads, locks and a name in the ring belongs to the process that made it. In a forked child it is left
//! alone: its threads do not exist there, its locks may be held for ever, and its name is the parent's.

use pyo3::prelude::*;
use std::process;

/// A value of one process.
pub struct OwnProcess<T: Send> {
    pid: u32,
    value: Option<T>,
}

impl<T: Send> OwnProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> OwnProcess<T> {
        OwnProcess { pid: process::id(), value: Some(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// In another process than the one that made it.
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
        // Its end may wait for its threads, which may be waiting for the GIL.
        Python::try_attach(|py| py.detach(|| drop(value)));
    }
}
