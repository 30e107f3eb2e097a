//! Ids and errors that the next call of a generator returns, because no call has returned them yet.

use crate::error::{Error, Result};
use crate::segment::SampleId;

/// Ids of finished samples, and errors, that no call has returned.
#[derive(Default)]
pub(crate) struct Unreported {
    /// Ids of finished samples that no call has returned, because the call ended with an error.
    ids: Vec<SampleId>,
    /// An error that occurred after samples were finished: their ids are returned first.
    deferred: Option<Error>,
    /// Why unfinished samples were discarded in this call, before the caller's own sample was written.
    discarded: Option<Error>,
}

impl Unreported {
    pub fn add_ids(&mut self, ids: Vec<SampleId>) {
        match self.ids.is_empty() {
            true => self.ids = ids, // moved, not copied: they may be many
            false => self.ids.extend(ids),
        }
    }

    pub fn take_ids(&mut self) -> Vec<SampleId> {
        std::mem::take(&mut self.ids)
    }

    /// Keeps an error for the next call. If one is already kept, returns the new one.
    #[must_use]
    pub fn defer(&mut self, error: Error) -> Option<Error> {
        match self.deferred {
            None => {
                self.deferred = Some(error);
                None
            }
            Some(_) => Some(error),
        }
    }

    /// Replaces the kept error with the result of the steps that follow a seal.
    pub fn replace_deferred(&mut self, done: Result<()>) {
        self.deferred = done.err();
    }

    /// # Errors
    /// The error that was kept for this call.
    pub fn take_deferred(&mut self) -> Result<()> {
        self.deferred.take().map_or(Ok(()), Err)
    }

    /// Notes why a segment was discarded.
    pub fn note_discarded(&mut self, why: Error) {
        self.discarded = Some(why);
    }

    /// Forgets a segment that was discarded before this sample.
    pub fn forget_discarded(&mut self) {
        self.discarded = None;
    }

    /// # Errors
    /// Why a segment was discarded since [`Unreported::forget_discarded`].
    pub fn take_discarded(&mut self) -> Result<()> {
        self.discarded.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringreel_format::SegmentId;

    fn error(message: &str) -> Error {
        Error::Sample(message.to_owned())
    }

    #[test]
    fn ids_are_returned_once_and_in_order() {
        let id = |ordinal| SampleId { segment: SegmentId([1; 16]), ordinal };
        let mut unreported = Unreported::default();
        unreported.add_ids(vec![id(0), id(1)]);
        unreported.add_ids(vec![id(2)]);
        assert_eq!(unreported.take_ids(), [id(0), id(1), id(2)]);
        assert_eq!(unreported.take_ids(), []);
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
