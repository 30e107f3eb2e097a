//! Notes: small texts that are written once.

use crate::error::Result;
use std::fmt;

/// Keeps small texts under names in folders, of which the first one stays: run logs, readers'
/// progress, last errors. Folders and names consist of letters, digits, `.`, `-` and `_`.
///
/// No delivery of a sample depends on a note. Workers of a run that lose their notes may disagree
/// about the generation of an epoch, and a generation may be reclaimed too soon for a reader or
/// kept too long.
pub trait Notes: Send + Sync + fmt::Debug {
    /// Writes `text` as note `name` of `folder`, unless there is one. Returns the text of the note
    /// that is there now.
    ///
    /// Atomic: of all writers of a note one succeeds, and all get its text.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors). One more reason for an
    /// [`Error::Coordination`](crate::Error::Coordination) is a note that another process wrote and that cannot be
    /// seen yet.
    fn add_note(&self, folder: &str, name: &str, text: &str) -> Result<String>;

    /// Returns the text of note `name` of `folder`; `None` when there is no such note.
    ///
    /// A text never changes. `None` is a hint: another process may be writing the note.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>>;

    /// Returns the names of all notes in `folder`, in any order.
    ///
    /// A hint: a note that is written or removed meanwhile may be missing or listed.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn note_names(&self, folder: &str) -> Result<Vec<String>>;

    /// Removes note `name` of `folder`. Does nothing when there is no such note.
    ///
    /// A hint: another process may write the note again.
    ///
    /// # Errors
    /// Those of [`CoordinationStore`](super::CoordinationStore#errors).
    fn remove_note(&self, folder: &str, name: &str) -> Result<()>;
}
