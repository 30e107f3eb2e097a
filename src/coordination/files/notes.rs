//! Notes: one file for each, written once.

use super::{FileStore, MAX_BYTES, is_no_file};
use crate::coordination::Notes;
use crate::error::{Error, Result};
use crate::fs::atomic_publish::publish;
use std::path::PathBuf;

/// The directory of notes, with a subdirectory for each folder.
pub const NOTES: &str = "notes";

impl FileStore {
    /// Returns the directory of the notes of `folder`.
    fn note_dir(&self, folder: &str) -> PathBuf {
        self.dir(NOTES).join(folder)
    }

    /// Removes all notes.
    pub(super) fn clear_notes(&self) -> Result<()> {
        for folder in self.list(&self.dir(NOTES))? {
            for name in self.note_names(&folder)? {
                self.remove_note(&folder, &name)?;
            }
        }
        Ok(())
    }
}

impl Notes for FileStore {
    fn add_note(&self, folder: &str, name: &str, text: &str) -> Result<String> {
        let dir = self.note_dir(folder);
        let target = dir.join(name);
        if text.is_empty() {
            return match self.with_dirs(Some(&dir), || self.fs.create_new(&target)) {
                Ok(file) => file.close().map(|()| String::new()).map_err(Error::from),
                Err(error) if error.is_taken() => Ok(self.read_note(folder, name)?.unwrap_or_default()),
                Err(error) => Err(error.into()),
            };
        }
        let ours = self.with_dirs(Some(&dir), || publish(&*self.fs, &self.temp(), &target, text.as_bytes(), false))?;
        if ours {
            return Ok(text.to_owned());
        }
        let unseen = || {
            Error::Coordination(format!("{} was written by another process and cannot be seen yet", target.display()))
        };
        self.read_note(folder, name)?.ok_or_else(unseen)
    }

    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>> {
        match self.fs.read(&self.note_dir(folder).join(name), MAX_BYTES) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.is_gone() || is_no_file(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn note_names(&self, folder: &str) -> Result<Vec<String>> {
        self.list(&self.note_dir(folder))
    }

    fn remove_note(&self, folder: &str, name: &str) -> Result<()> {
        let dir = self.note_dir(folder);
        self.forget(&dir.join(name))?;
        let _ = self.fs.remove_dir(&dir); // succeeds after the last note was removed
        Ok(())
    }
}
