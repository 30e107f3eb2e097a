//! Shares with equal numbers of records: from the `.idx` files beside the files, or from a pass over the headers of
//! all frames.

use super::files::{Resolve, Source};
use super::window::{Parsed, Trouble, Window};
use super::{OnDamage, Position, share_of};
use ringreel::error::{Error, Result};
use ringreel::fs::Fs;
use ringreel::read::shard::Share;
use ringreel_format::FormatError;
use ringreel_format::frame::HEADER_LEN;
use ringreel_format::recordio::index;
use std::path::{Path, PathBuf};

/// Longest line of an index in bytes: far more than a key and an offset need.
const LONGEST_LINE: usize = 64 << 10;
/// Most offsets in a file that a pass remembers.
const MARKS: usize = 1024;

/// The lines of an index, in order.
pub(super) struct IndexLines {
    path: PathBuf,
    window: Window,
    /// The next line: its offset in the index, and its number from 1.
    at: u64,
    line: u64,
}

/// One line of an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Offset of the record.
    pub(super) offset: u64,
    at: u64,
    line: u64,
}

impl IndexLines {
    pub(super) fn open(fs: &dyn Fs, path: &Path) -> Result<IndexLines> {
        let file = fs.open(path)?;
        let len = file.size()?;
        Ok(IndexLines { path: path.to_owned(), window: Window::new(file, len), at: 0, line: 1 })
    }

    /// Returns the next entry, or `None` after the last.
    ///
    /// # Errors
    /// A malformed line; filesystem errors.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        let (at, line) = (self.at, self.line);
        let end_of = |block: &[u8]| block.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        let mut len = end_of(self.window.some(at, LONGEST_LINE as u64)?);
        if len.is_none() {
            let block = self.window.bytes(at, LONGEST_LINE)?;
            len = end_of(block).or((block.len() < LONGEST_LINE).then_some(block.len()));
        }
        let len = len.ok_or_else(|| self.bad(at, line, "is longer than 64 KiB"))?;
        let parsed = index::entries(self.window.bytes(at, len)?).next().map(|entry| entry.map(|entry| entry.offset));
        let entry = match parsed {
            None => return Ok(None),
            Some(Ok(offset)) => Entry { offset, at, line },
            Some(Err(FormatError::BadLine { what, .. })) => return Err(self.bad(at, line, what)),
            Some(Err(source)) => return Err(Error::Format { path: self.path.clone(), source }),
        };
        (self.at, self.line) = (at + len as u64, line + 1);
        Ok(Some(entry))
    }

    fn bad(&self, at: u64, line: u64, what: &'static str) -> Error {
        Error::Format { path: self.path.clone(), source: FormatError::BadLine { at, line, what } }
    }
}

/// Compares records with the index while they are read.
pub(super) struct Comparison {
    lines: IndexLines,
    next: Option<Entry>,
}

impl Comparison {
    /// Begins with the first record at or after byte `from` of the record file.
    pub(super) fn open(fs: &dyn Fs, path: &Path, from: u64) -> Result<Comparison> {
        let mut lines = IndexLines::open(fs, path)?;
        let next = lines.next()?;
        let mut comparison = Comparison { lines, next };
        comparison.pass(from)?;
        Ok(comparison)
    }

    /// Skips the lines of records that begin before `at`.
    pub(super) fn pass(&mut self, at: u64) -> Result<()> {
        while self.next.is_some_and(|next| next.offset < at) {
            self.next = self.lines.next()?;
        }
        Ok(())
    }

    /// Compares the record at `at` with the next line.
    ///
    /// # Errors
    /// The next line names another offset.
    pub(super) fn take(&mut self, at: u64) -> Result<()> {
        let Some(next) = self.next else {
            let (end, line) = (self.lines.at, self.lines.line);
            return Err(self.lines.bad(end, line, "is missing: the record file has more records; recreate the index"));
        };
        self.end(at)?;
        if next.offset > at {
            let what =
                "is not that of the next record: this is not the index of the record file beside it; recreate it";
            return Err(self.lines.bad(next.at, next.line, what));
        }
        self.pass(at + 1)
    }

    /// Checks that no line names a record before `at`.
    ///
    /// # Errors
    /// A line names one.
    pub(super) fn end(&self, at: u64) -> Result<()> {
        match self.next.filter(|next| next.offset < at) {
            Some(next) => Err(self.lines.bad(next.at, next.line, NO_RECORD)),
            None => Ok(()),
        }
    }
}

const NO_RECORD: &str = "is not where a record begins: this is not the index of the record file beside it; recreate it";

/// Number and offsets of the records of a file.
struct Counted {
    count: u64,
    /// Offsets of records 0, `stride`, 2 × `stride`, ...; empty if there is an index.
    marks: Vec<u64>,
    stride: u64,
}

/// Returns where the share begins and ends, and how many records it has. `use_index` is `None` if indexes are not
/// used, else the function that follows links.
///
/// # Errors
/// An index that does not match its file; with [`OnDamage::Fail`], damage in the headers; filesystem errors.
pub(super) fn share(
    fs: &dyn Fs,
    sources: &mut [Source],
    share: Share,
    on_damage: OnDamage,
    use_index: Option<Resolve>,
) -> Result<(Position, Position, u64)> {
    let mut counted = Vec::with_capacity(sources.len());
    for source in sources.iter_mut() {
        counted.push(match use_index.map_or(Ok(None), |resolve| indexed(fs, source, resolve))? {
            Some((path, count)) => {
                source.index = Some(path);
                Counted { count, marks: Vec::new(), stride: 1 }
            }
            None => pass(fs, source, on_damage)?,
        });
    }
    let total: u64 = counted.iter().map(|counted| counted.count).sum();
    let place = |rank: u64| {
        let mut left = share_of(total, rank, share.world);
        if rank == 0 {
            return Ok(Position { file: 0, at: 0 });
        }
        for (file, (source, counted)) in sources.iter().zip(&counted).enumerate() {
            if left < counted.count {
                return Ok(Position { file, at: locate(fs, source, counted, left, on_damage)? });
            }
            left -= counted.count;
        }
        Ok::<_, Error>(Position { file: sources.len(), at: 0 })
    };
    let records = share_of(total, share.rank + 1, share.world) - share_of(total, share.rank, share.world);
    Ok((place(share.rank)?, place(share.rank + 1)?, records))
}

/// Returns the index beside a file and the number of its lines; `None` if it is missing or empty. For a link, the
/// index is beside the link, or else beside its target.
fn indexed(fs: &dyn Fs, source: &Source, resolve: Resolve) -> Result<Option<(PathBuf, u64)>> {
    let mut found = None;
    for beside in [&source.path, &source.real].map(|path| path.with_extension("idx")) {
        match resolve(&beside) {
            Ok(path) if found.is_none() && fs.exists(&path)? => found = Some(path),
            Err(error) if !error.is_gone() => return Err(error.into()),
            _ => {}
        }
    }
    let Some(path) = found.filter(|path| *path != source.real) else { return Ok(None) };
    let (mut lines, mut count, mut before) = (IndexLines::open(fs, &path)?, 0, None);
    while let Some(Entry { offset, at, line }) = lines.next()? {
        let what = match before {
            _ if offset.checked_add(HEADER_LEN).is_none_or(|end| end > source.len) => {
                Some("points beyond the end of the record file: recreate the index")
            }
            None if offset != 0 => Some("is not the first record's: the record file begins at offset 0"),
            Some(before) if offset <= before => {
                Some("does not ascend: an index lists the records in the order of the file")
            }
            _ if !offset.is_multiple_of(4) => Some("has an offset that is not a multiple of 4"),
            _ => None,
        };
        if let Some(what) = what {
            return Err(lines.bad(at, line, what));
        }
        (count, before) = (count + 1, Some(offset));
    }
    Ok((count > 0).then_some((path, count)))
}

fn window(fs: &dyn Fs, source: &Source) -> Result<Window> {
    Ok(Window::new(fs.open(&source.real)?, source.len))
}

/// Counts the records of a file.
fn pass(fs: &dyn Fs, source: &Source, on_damage: OnDamage) -> Result<Counted> {
    let mut counted = Counted { count: 0, marks: Vec::new(), stride: 1 };
    let (mut window, mut at) = (window(fs, source)?, 0);
    while let Some((begin, end)) = following(&mut window, source, at, on_damage)? {
        if counted.count.is_multiple_of(counted.stride) {
            counted.marks.push(begin);
            if counted.marks.len() > MARKS {
                let mut nth = 0;
                counted.marks.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
                counted.stride *= 2;
            }
        }
        (counted.count, at) = (counted.count + 1, end);
    }
    Ok(counted)
}

/// Returns begin and end of the next record from `at` on. With [`OnDamage::Fail`] only the headers are read; else
/// every byte is checked, so that exactly the records are counted that will be read.
fn following(window: &mut Window, source: &Source, mut at: u64, on_damage: OnDamage) -> Result<Option<(u64, u64)>> {
    while at < window.len() {
        if on_damage == OnDamage::Fail {
            let end = window.leap(at).map_err(|trouble| match trouble {
                Trouble::Fs(error) => error.into(),
                Trouble::Bad(why) => Error::Format { path: source.path.clone(), source: why },
            })?;
            return Ok(Some((at, end)));
        }
        let mut scan = match window.record(at, None)? {
            Parsed::Record { end, .. } => return Ok(Some((at, end))),
            Parsed::Damaged { .. } => at + 4,
            Parsed::Foreign { end, .. } => end,
        };
        at = window.resync(&mut scan, u64::MAX)?;
    }
    Ok(None)
}

/// Returns the offset at which record `n` of a file begins. Damage before record 0 belongs to it.
fn locate(fs: &dyn Fs, source: &Source, counted: &Counted, n: u64, on_damage: OnDamage) -> Result<u64> {
    if n == 0 {
        return Ok(0);
    }
    let gone = || Error::Sample(format!("{}: the file changed while its records were counted", source.path.display()));
    let mut window = window(fs, source)?;
    if let Some(path) = &source.index {
        let mut lines = IndexLines::open(fs, path)?;
        for _ in 0..n {
            lines.next()?.ok_or_else(gone)?;
        }
        let Entry { mut offset, at, line } = lines.next()?.ok_or_else(gone)?;
        // If the files may be damaged, both ranks cut at the next line that leads to a record.
        while !window.is_candidate(offset)? {
            if on_damage == OnDamage::Fail {
                return Err(lines.bad(at, line, NO_RECORD));
            }
            offset = lines.next()?.map_or(source.len, |next| next.offset);
            if offset == source.len {
                break;
            }
        }
        return Ok(offset);
    }
    let mark = n / counted.stride;
    let mut at = *counted.marks.get(mark as usize).ok_or_else(gone)?;
    for _ in mark * counted.stride..n {
        at = following(&mut window, source, at, on_damage)?.ok_or_else(gone)?.1;
    }
    // A record that follows damage begins at its own first byte.
    Ok(following(&mut window, source, at, on_damage)?.ok_or_else(gone)?.0)
}
