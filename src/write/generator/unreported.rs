//! Ids and errors that the next call of a generator returns, because no call has returned them yet.

use crate::error::{Error, Result};
use crate::segment::SampleId;

/// Ids of finished samples, and errors, that no call has returned.
#[derive(Default)]
pub(crate) struct Unreported {
    /// Ids of finished samples that no call has returned, because the call ended with an error.
    pub ids: Vec<SampleId>,
    /// An error that occurred after samples were finished: their ids are returned first.
    pub deferred: Option<Error>,
    /// Why unfinished samples were discarded in this call, before the caller's own sample was written.
    pub discarded: Option<Error>,
}

impl Unreported {
    pub fn take_ids(&mut self) -> Vec<SampleId> {
        std::mem::take(&mut self.ids)
    }

    /// Keeps an error for the next call. If one is already kept, returns the new one.
    #[must_use]
    pub fn defer(&mut self, error: Error) -> Option<Error> {
        if self.deferred.is_some() {
            return Some(error);
        }
        self.deferred = Some(error);
        None
    }

    /// # Errors
    /// The error that was kept for this call.
    pub fn take_deferred(&mut self) -> Result<()> {
        self.deferred.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: &str) -> Error {
        Error::Sample(message.to_owned())
    }

    #[test]
    fn first_deferred_error_is_kept_and_returned_once() {
        let mut unreported = Unreported::default();
        assert!(unreported.defer(error("first")).is_none());
        assert!(unreported.defer(error("second")).is_some_and(|it| it.to_string().contains("second")));
        assert!(unreported.take_deferred().is_err_and(|it| it.to_string().contains("first")));
        assert!(unreported.take_deferred().is_ok());
    }
}
