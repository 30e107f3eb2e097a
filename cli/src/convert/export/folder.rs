//! Exports to a folder of `.npy` files: `<position>.<part>.npy` (`.bin` for bytes), and `<position>.meta.json` for each
//! sample. The latter is written last, so a sample with it is complete.

use super::journal::{Journal, remove};
use super::{Options, Report, Sample, Sink};
use crate::convert::output::put;
use ringreel::error::{Error, FsError, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the folder's journal.
const JOURNAL: &str = "export.jsonl";

/// The folder.
pub struct Folder<'a> {
    out: &'a Path,
    report: &'a mut Report,
}

/// Returns whether the sample at `position` is complete.
pub fn is_there(out: &Path, position: u64) -> bool {
    meta_path(out, position).symlink_metadata().is_ok()
}

fn meta_path(out: &Path, position: u64) -> PathBuf {
    out.join(format!("{position:09}.meta.json"))
}

impl<'a> Folder<'a> {
    /// Creates the folder, or resumes in it.
    ///
    /// # Errors
    /// A folder with other contents or of another export; the filesystem's errors.
    pub fn open(options: &'a Options, plan: &serde_json::Value, report: &'a mut Report) -> Result<Folder<'a>> {
        let out = options.out.as_path();
        fs::create_dir_all(out).map_err(|error| FsError::new("create directory", out, error))?;
        let mut journal = Journal::open(&out.join(JOURNAL), plan, options.force)?;
        let entries = fs::read_dir(out).map_err(|error| FsError::new("list", out, error))?;
        for entry in entries {
            let path = entry.map_err(|error| FsError::new("list", out, error))?.path();
            if !journal.is_ours && !options.force {
                let why = "exists and is not part of this export: choose another folder, or use --force";
                return Err(Error::Sample(format!("{} {why}", path.display())));
            }
            // Files of an older export must not count as samples of this one.
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if options.force && name.ends_with(".meta.json") && name.starts_with(|c: char| c.is_ascii_digit()) {
                remove(&path)?;
            }
        }
        journal.begin(plan)?;
        Ok(Folder { out, report })
    }
}

impl Sink for Folder<'_> {
    fn take(&mut self, position: u64, sample: Option<Sample>) -> Result<()> {
        let Some(sample) = sample else {
            self.report.skipped += 1;
            return Ok(());
        };
        for part in &sample.parts {
            put(&self.out.join(format!("{position:09}.{}.{}", part.name, part.end)), &part.bytes)?;
            self.report.bytes += part.bytes.len() as u64;
        }
        let about = format!("{}\n", sample.about);
        put(&meta_path(self.out, position), about.as_bytes())?;
        self.report.bytes += about.len() as u64;
        self.report.samples += 1;
        Ok(())
    }

    fn keep(&mut self) {
        self.report.samples += 1;
        self.report.kept += 1;
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
