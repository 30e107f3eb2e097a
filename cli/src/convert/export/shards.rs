//! Exports to a sequence of RecordIO or tar files.
//!
//! RecordIO: `OUT.rec`, or `OUT-000000.rec` and so on with a limit; for samples of several parts, one `OUT.<part>.rec` per
//! part. The key in the `.idx` file is the sample's position. Tar: `OUT-000000.tar` and so on, with `<key>.<part>.npy` and
//! `<key>.json` for each sample, for <https://github.com/webdataset/webdataset>. The same samples give the same bytes.

use super::journal::{Journal, Shard};
use super::{Format, Options, Report, Sample, Sink};
use crate::convert::output::{Output, RecFile, with_end};
use ringreel::error::{Error, FsError, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Default size of a tar file in bytes.
const TAR_BYTES: u64 = 1 << 30;

/// The open files, and the finished shards.
pub struct Shards<'a> {
    options: &'a Options,
    report: &'a mut Report,
    journal: Journal,
    open: Files,
    next: u64,
    samples: u64,
    skipped: u64,
}

enum Files {
    Rec(BTreeMap<PathBuf, RecFile>),
    Tar(Option<(PathBuf, tar::Builder<Output>)>),
}

impl<'a> Shards<'a> {
    /// Begins an export, or continues after the last complete shard.
    ///
    /// # Errors
    /// Files of another export; a name that is a directory; the filesystem's errors.
    pub fn open(
        options: &'a Options,
        plan: &serde_json::Value,
        first: u64,
        report: &'a mut Report,
    ) -> Result<Shards<'a>> {
        if options.out.is_dir() || options.out.file_name().is_none() {
            let out = options.out.display();
            return Err(Error::Sample(format!(
                "{out} is a directory: give a prefix of file names, such as {out}/train"
            )));
        }
        if let Some(dir) = options.out.parent() {
            fs::create_dir_all(dir).map_err(|error| FsError::new("create directory", dir, error))?;
        }
        let mut journal = Journal::open(&with_end(&options.out, ".export.jsonl"), plan, options.force)?;
        if !journal.is_ours && !options.force {
            in_the_way(options)?;
        }
        journal.begin(plan)?;
        for shard in &journal.shards {
            report.samples += shard.samples;
            report.kept += shard.samples;
            report.skipped += shard.skipped;
            report.bytes += shard.files.iter().map(|(_, bytes)| bytes).sum::<u64>();
            report.files.extend(shard.files.iter().map(|(name, _)| options.out.with_file_name(name)));
        }
        let next = journal.shards.last().map_or(first, |shard| shard.next);
        let open = match options.format {
            Format::Wds => Files::Tar(None),
            _ => Files::Rec(BTreeMap::new()),
        };
        Ok(Shards { options, report, journal, open, next, samples: 0, skipped: 0 })
    }

    /// Returns the position of the first sample that is not in a finished shard.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns a file's path: `OUT`, the number with a limit, the part if there are several, and the extension.
    fn path(&self, part: Option<&str>, end: &str) -> PathBuf {
        let number = match (self.options.format, self.options.shard_samples, self.options.shard_bytes) {
            (Format::Rec, None, None) => String::new(),
            _ => format!("-{:06}", self.journal.shards.len()),
        };
        let part = part.map_or(String::new(), |part| format!(".{part}"));
        with_end(&self.options.out, &format!("{number}{part}{end}"))
    }

    fn is_full(&self) -> bool {
        let bytes = match &self.open {
            Files::Rec(files) => files.values().map(RecFile::bytes).sum(),
            Files::Tar(tar) => tar.as_ref().map_or(0, |(_, tar)| tar.get_ref().written()),
        };
        let most = self.options.shard_bytes.or((self.options.format == Format::Wds).then_some(TAR_BYTES));
        let most = if self.options.shard_samples.is_some() { self.options.shard_bytes } else { most };
        self.options.shard_samples.is_some_and(|most| self.samples >= most) || most.is_some_and(|most| bytes >= most)
    }

    fn end_shard(&mut self) -> Result<()> {
        let mut files = Vec::new();
        match &mut self.open {
            Files::Rec(open) => {
                for (_, file) in std::mem::take(open) {
                    files.extend(file.finish()?);
                }
            }
            Files::Tar(open) => {
                if let Some((path, tar)) = open.take() {
                    let output = tar.into_inner().map_err(|error| FsError::new("write", &path, error))?;
                    files.push((path, output.finish()?));
                }
            }
        }
        self.report.samples += self.samples;
        self.report.skipped += self.skipped;
        self.report.bytes += files.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let named = |(path, bytes): &(PathBuf, u64)| {
            (path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned()), *bytes)
        };
        let (samples, skipped) = (std::mem::take(&mut self.samples), std::mem::take(&mut self.skipped));
        self.journal.add(Shard { next: self.next, samples, skipped, files: files.iter().map(named).collect() })?;
        self.report.files.extend(files.into_iter().map(|(path, _)| path));
        Ok(())
    }

    fn write(&mut self, position: u64, sample: Sample) -> Result<()> {
        let several = sample.parts.len() > 1;
        let tar_path = self.path(None, ".tar");
        let paths: Vec<_> = sample.parts.iter().map(|part| self.path(several.then_some(&part.name), ".rec")).collect();
        match &mut self.open {
            Files::Rec(files) => {
                for (part, path) in sample.parts.iter().zip(paths) {
                    if !files.contains_key(&path) {
                        files.insert(path.clone(), RecFile::begin(&path)?);
                    }
                    if let Some(file) = files.get_mut(&path) {
                        file.write(position, &part.bytes)?;
                    }
                }
            }
            Files::Tar(open) => {
                if open.is_none() {
                    *open = Some((tar_path.clone(), tar::Builder::new(Output::begin(&tar_path)?)));
                }
                let Some((path, tar)) = open else { return Ok(()) };
                for part in &sample.parts {
                    append(tar, path, &format!("{}.{}.{}", sample.key, part.name, part.end), &part.bytes)?;
                }
                append(tar, path, &format!("{}.json", sample.key), sample.about.to_string().as_bytes())?;
            }
        }
        Ok(())
    }
}

impl Sink for Shards<'_> {
    fn take(&mut self, position: u64, sample: Option<Sample>) -> Result<()> {
        match sample {
            Some(sample) => {
                self.write(position, sample)?;
                self.samples += 1;
            }
            None => self.skipped += 1,
        }
        self.next = position + 1;
        if self.is_full() { self.end_shard() } else { Ok(()) }
    }

    fn keep(&mut self) {}

    fn finish(&mut self) -> Result<()> {
        let nothing = self.samples == 0 && self.skipped == 0;
        if nothing && !self.journal.shards.is_empty() {
            return Ok(());
        }
        // Without any sample, an empty file is written.
        if self.samples == 0 && self.journal.shards.is_empty() {
            let path = self.path(None, ".rec");
            if let Files::Rec(files) = &mut self.open {
                files.insert(path.clone(), RecFile::begin(&path)?);
            }
        }
        self.end_shard()
    }
}

/// Appends a member to a tar file. Its header depends only on name and size, so that the output is reproducible.
fn append(tar: &mut tar::Builder<Output>, path: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    let appended = tar.append_data(&mut header, name, bytes);
    appended.map_err(|error| FsError::new("write", path, error).into())
}

/// Fails if files with the names of this export exist that do not belong to it.
fn in_the_way(options: &Options) -> Result<()> {
    let end = if options.format == Format::Wds { "tar" } else { "rec" };
    let (Some(dir), Some(name)) = (options.out.parent(), options.out.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let entries = fs::read_dir(dir).map_err(|error| FsError::new("list", dir, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| FsError::new("list", dir, error))?.file_name();
        let Some(there) = entry.to_str() else { continue };
        let rest = there.strip_prefix(name).and_then(|rest| rest.strip_suffix(end));
        let rest = rest.or_else(|| there.strip_prefix(name).filter(|_| end == "rec")?.strip_suffix("idx"));
        let number =
            |rest: &str| rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if rest.is_some_and(|rest| rest.starts_with('.') || number(rest)) {
            let path = dir.join(there);
            let why = "exists and is not part of this export: choose another name, or use --force";
            return Err(Error::Sample(format!("{} {why}", path.display())));
        }
    }
    Ok(())
}
