//! The failure log: the errors that ended generators and managers, kept in the coordination store
//! so that they outlive their processes.
//!
//! Each failure is a note in the folder `failures`, under the owner name of the process that
//! failed; the first note of a process stays. The log is only for people: no decision depends on
//! it, and an error of writing it is ignored.

use crate::coordination::{Notes, if_available};
use crate::error::Result;
use crate::role::Role;
use crate::unix_ms;
use serde::{Deserialize, Serialize};

/// Number of failures that are kept; the newest ones.
pub const FAILURES_KEPT: usize = 16;
/// Maximum length of a message in bytes; the rest is cut off.
pub const MAX_MESSAGE: usize = 4096;
const FOLDER: &str = "failures";

/// A process of the ring that ended with an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The owner name of the process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name of its role: `generator` or `manager`.
    pub role: String,
    /// The name of its host.
    pub host: String,
    /// Its process id on that host.
    pub pid: u32,
    /// Time of the failure by the process's clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The error.
    pub message: String,
}

/// Records that `member`, which is this process in `role`, ends with the error `message`. If it
/// cannot be recorded, this is only logged.
pub fn record(notes: &dyn Notes, member: &str, role: Role, message: &str) {
    let failure = Failure {
        name: String::new(), // the name of the note
        role: role.to_string(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        unix_ms: unix_ms(),
        message: cut(message),
    };
    if let Err(error) = write(notes, member, &failure) {
        tracing::debug!(%error, "cannot record a failure in the index");
    }
}

fn write(notes: &dyn Notes, member: &str, failure: &Failure) -> Result<()> {
    let text = serde_json::to_string(failure).map_err(|error| crate::Error::Coordination(error.to_string()))?;
    notes.add_note(FOLDER, member, &text)?;
    let names = notes.note_names(FOLDER)?;
    if names.len() > FAILURES_KEPT {
        let newest = read(notes, names.clone())?;
        for old in names.iter().filter(|name| !newest.iter().take(FAILURES_KEPT).any(|failure| failure.name == **name))
        {
            notes.remove_note(FOLDER, old)?;
        }
    }
    Ok(())
}

/// Returns the recorded failures, the newest first; none while the server of the store is
/// unreachable.
///
/// # Errors
/// All other errors of the store.
pub fn failures(notes: &dyn Notes) -> Result<Vec<Failure>> {
    let found = notes.note_names(FOLDER).and_then(|names| read(notes, names));
    let mut found = if_available(found)?.unwrap_or_default();
    found.truncate(FAILURES_KEPT); // two processes that write at once may leave a few more
    Ok(found)
}

/// Reads those of these notes that can be decoded, the newest first.
fn read(notes: &dyn Notes, names: Vec<String>) -> Result<Vec<Failure>> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let Some(text) = notes.read_note(FOLDER, &name)? else { continue };
        match serde_json::from_str::<Failure>(&text) {
            Ok(failure) => found.push(Failure { name, ..failure }),
            Err(error) => tracing::debug!(%error, name, "cannot decode a recorded failure"),
        }
    }
    found.sort_by(|a, b| b.unix_ms.cmp(&a.unix_ms).then_with(|| b.name.cmp(&a.name)));
    Ok(found)
}

/// Returns the message, truncated to [`MAX_MESSAGE`] bytes.
fn cut(message: &str) -> String {
    const MORE: &str = " ...";
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let end = (0..=MAX_MESSAGE - MORE.len()).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{MORE}", &message[..end])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::coordination::FileStore;
    use crate::fs::Posix;
    use std::sync::Arc;
    use tempfile::TempDir;

    fn store() -> (TempDir, FileStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(Posix), dir.path().to_owned(), "me", 1);
        (dir, store)
    }

    fn at(n: u64) -> Failure {
        let (role, host, message) = ("generator".to_owned(), "node".to_owned(), format!("failure {n}"));
        Failure { name: String::new(), role, host, pid: 1, unix_ms: n, message }
    }

    #[test]
    fn newest_failures_are_kept_in_any_order_of_writing() {
        let (_dir, notes) = store();
        for n in (0..40).map(|n| n * 7 % 40) {
            write(&notes, &format!("member-{n}"), &at(n)).unwrap();
            assert!(notes.note_names(FOLDER).unwrap().len() <= FAILURES_KEPT);
        }
        let found = failures(&notes).unwrap();
        assert_eq!(found.iter().map(|failure| failure.unix_ms).collect::<Vec<_>>(), (24..40).rev().collect::<Vec<_>>());
        assert_eq!((found[0].name.as_str(), found[0].message.as_str()), ("member-39", "failure 39"));
    }

    /// The failure that ended a process stays recorded; failures that follow from it do not replace
    /// it.
    #[test]
    fn first_failure_of_a_process_is_kept_over_later_ones() {
        let (_dir, notes) = store();
        record(&notes, "me", Role::Generator, "the cause");
        record(&notes, "me", Role::Generator, "a consequence");
        record(&notes, "other", Role::Manager, "another's");
        let found = failures(&notes).unwrap();
        let mut all: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.role.as_str(), f.message.as_str())).collect();
        all.sort_unstable();
        assert_eq!(all, [("me", "generator", "the cause"), ("other", "manager", "another's")]);
        assert!(found[0].pid == std::process::id() && !found[0].host.is_empty() && found[0].unix_ms > 1 << 40);
    }

    #[test]
    fn invalid_note_is_skipped_and_removed_first() {
        let (_dir, notes) = store();
        notes.add_note(FOLDER, "zzz", "{").unwrap();
        (0..3).for_each(|n| write(&notes, &format!("member-{n}"), &at(n)).unwrap());
        assert_eq!(failures(&notes).unwrap().len(), 3);
        (3..16).for_each(|n| write(&notes, &format!("member-{n}"), &at(n)).unwrap());
        assert!(
            failures(&notes).unwrap().len() == FAILURES_KEPT
                && !notes.note_names(FOLDER).unwrap().contains(&"zzz".into())
        );
    }

    #[test]
    fn long_message_is_cut_between_characters() {
        for message in ["x".repeat(10_000), "ü".repeat(5_000), format!("y{}", "€".repeat(3_000))] {
            let kept = cut(&message);
            let (begin, end) = kept.split_at(kept.len() - 4);
            assert!(
                (MAX_MESSAGE - 3..=MAX_MESSAGE).contains(&kept.len()) && message.starts_with(begin) && end == " ..."
            );
        }
        assert_eq!(cut(&"x".repeat(MAX_MESSAGE)).len(), MAX_MESSAGE);
        assert!(!cut(&"x".repeat(MAX_MESSAGE)).contains('.'));
    }
}
