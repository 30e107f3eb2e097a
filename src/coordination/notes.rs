//! Notes: small texts that are written once.

use crate::error::Result;
use std::fmt;

/// Stores small texts under names in folders; the first text of a name stays. Used for run logs,
/// readers' progress and last errors. Folders and names consist of letters, digits, `.`, `-` and
/// `_`.
///
/// The delivery of samples does not depend on notes. Workers of a run that lose their notes may
/// disagree about the generation of an epoch, and a generation may be reclaimed too soon for a
/// reader or kept too long.
pub trait Notes: Send + Sync + fmt::Debug {
    /// Writes `text` as note `name` of `folder`, unless the note exists. Returns the text of the
    /// existing note.
    ///
    /// Atomic: one of all writers of a note succeeds, and all get its text.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors). Also
    /// [`Error::Coordination`](crate::Error::Coordination) if another process wrote the note and it
    /// is not visible yet.
    fn add_note(&self, folder: &str, name: &str, text: &str) -> Result<String>;

    /// Returns the text of note `name` of `folder`, or `None` if it does not exist.
    ///
    /// A text never changes. `None` is a hint: another process may be writing the note.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>>;

    /// Returns the names of all notes in `folder`, in any order.
    ///
    /// A hint: a note that is written or removed at the same time may be missing or listed.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn note_names(&self, folder: &str) -> Result<Vec<String>>;

    /// Removes note `name` of `folder`. Does nothing if it does not exist.
    ///
    /// A hint: another process may write the note again.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn remove_note(&self, folder: &str, name: &str) -> Result<()>;
}
