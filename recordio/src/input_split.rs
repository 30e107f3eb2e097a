//! One rank's split of many plain `.rec` files, like dmlc-core's `InputSplit`: each record is in exactly one split.
//!
//! | file | contents |
//! |---|---|
//! | here | [`InputSplit`]: the records of one split, in order |
//! | `chunk` | several records at once, and prefetch |
//! | `files` | which files, in which order, and where their concatenation is cut |
//! | `count` | equal numbers of records: from indexes, or by a pass over the headers |
//! | `places` | where the records of a part are, for access in any order |
//! | `window` | frames and records of one file, and the search for the next record |
//!
//! `format/RECORDIO.md` has the rules: which split a record belongs to, what counts as damage, and which split
//! reports it. In short, a payload never contains the magic at a multiple of 4, so the first magic after a cut whose
//! flag is 0 or 1 begins a record. In damaged files, the same records are found for any number of splits.
//!
//! All ranks must see the same files with the same lengths: make the splits after the files are complete.

mod chunk;
mod count;
mod files;
#[cfg(feature = "images")]
pub(crate) mod places;
mod window;

pub use chunk::Chunk;
use count::Comparison;
use files::{Resolve, Source};
use ringreel::error::{Error, FsError, Result};
use ringreel::fs::{Fs, Posix};
use ringreel::read::shard::Share;
use ringreel_format::FormatError;
use ringreel_format::recordio::Region;
use std::path::Path;
use std::sync::Arc;
use window::{Parsed, Window};

/// What is divided equally among the splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitBy {
    /// The bytes of all files. Nothing is read in advance, and the number of records of a split is unknown.
    #[default]
    Bytes,
    /// The records: shares differ by at most one. Without an index, each rank first reads the headers of all frames,
    /// and with [`OnDamage::Skip`] all bytes.
    Records,
}

/// How damage is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// As an error that names the file and the byte. The next call continues after the damage.
    #[default]
    Fail,
    /// As [`SplitItem::Skipped`], with the region and the reason.
    Skip,
}

/// Options of a split.
#[derive(Clone, Copy, Debug)]
pub struct SplitOptions {
    /// What is divided equally.
    pub by: SplitBy,
    /// How damage is handled.
    pub on_damage: OnDamage,
    /// When splitting by records: whether to use `x.idx` beside `x.rec`, if it exists and is not empty.
    pub use_index: bool,
}

impl Default for SplitOptions {
    fn default() -> SplitOptions {
        SplitOptions { by: SplitBy::default(), on_damage: OnDamage::default(), use_index: true }
    }
}

/// A position in the files of a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the file: see [`InputSplit::path`].
    pub file: usize,
    /// Byte offset in the file.
    pub at: u64,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordSpan {
    /// Number of the file: see [`InputSplit::path`].
    pub file: usize,
    /// Byte offset of its first frame in the file.
    pub at: u64,
    /// Byte offset of the first byte after it and its padding.
    pub end: u64,
    /// How often the framing split it.
    pub splits: u64,
}

/// The next item of a split.
#[derive(Debug)]
pub enum SplitItem {
    /// A record.
    Record(RecordSpan),
    /// A region of a file without a record.
    Skipped {
        /// Number of the file: see [`InputSplit::path`].
        file: usize,
        /// The region, and the error at its beginning.
        region: Region,
    },
}

/// Damage that was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageCount {
    /// Number of regions. A region ends where a split ends, so several ranks may each report a piece of one.
    pub regions: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// State at the position.
enum State {
    /// The split is empty.
    Nothing,
    /// The middle of a record of another split: continue at the first offset at which a record may begin.
    Search { scan: u64 },
    /// A record, damage, or an end.
    Here,
    /// A damaged region in which a record is being searched; `why` until it was reported.
    Damage { scan: u64, why: Option<FormatError> },
}

/// The index of the open file.
enum Index {
    /// Not opened yet.
    Unopened,
    Open(Comparison),
    /// There is no index, or it was wrong, which was reported.
    Off,
}

/// Constants of a split.
struct Plan {
    fs: Arc<dyn Fs>,
    sources: Vec<Source>,
    begin: Position,
    end: Position,
    on_damage: OnDamage,
    records: Option<u64>,
}

/// The records of one split.
///
/// Uses one open file, one window of 256 KiB, and the caller's buffer, which grows to at most the largest record and
/// an eighth of it, or up to 256 KiB.
///
/// ```
/// use ringreel::format::recordio::RecordWriter;
/// use ringreel_recordio::input_split::{InputSplit, SplitOptions};
/// use ringreel::read::shard::Share;
///
/// # fn main() -> ringreel::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("train.rec");
/// # let mut writer = RecordWriter::new(std::fs::File::create(&path).unwrap());
/// for text in ["one", "two", "three"] {
///     writer.write(text.as_bytes()).unwrap();
/// }
/// let mut seen = Vec::new();
/// for rank in 0..2 {
///     let mut split = InputSplit::open(&[dir.path()], Share::new(rank, 2)?, SplitOptions::default())?;
///     while let Some((place, payload)) = split.next()? {
///         seen.push((place.at, payload.to_vec()));
///     }
/// }
/// assert_eq!(seen, [(0, b"one".to_vec()), (12, b"two".to_vec()), (24, b"three".to_vec())]);
/// # Ok(())
/// # }
/// ```
pub struct InputSplit {
    plan: Arc<Plan>,
    at: Position,
    state: State,
    open: Option<(usize, Window)>,
    index: Index,
    passed: DamageCount,
    /// An error to return after the records of a chunk.
    pending: Option<Error>,
    buffer: Vec<u8>,
}

/// `total × rank / world`, rounded down.
fn share_of(total: u64, rank: u64, world: u64) -> u64 {
    (u128::from(total) * u128::from(rank) / u128::from(world)) as u64
}

impl InputSplit {
    /// Opens the split `share` of the files that `paths` name: files, or directories, of which all `*.rec` files are
    /// used (names that are not UTF-8 are ignored there). The files are sorted by the bytes of their paths. Links are
    /// followed.
    ///
    /// # Errors
    /// No path; a directory without `.rec` files; a file that is named twice; an index that does not match its file;
    /// by records and with [`OnDamage::Fail`], damage in the headers; filesystem errors.
    pub fn open<P: AsRef<Path>>(paths: &[P], share: Share, options: SplitOptions) -> Result<InputSplit> {
        let resolve: Resolve = |path| std::fs::canonicalize(path).map_err(|source| FsError::new("stat", path, source));
        InputSplit::open_with(Arc::new(Posix), paths, share, options, resolve)
    }

    /// Opens a split on another filesystem, where links are not followed.
    ///
    /// # Errors
    /// As [`InputSplit::open`].
    pub fn open_on<P: AsRef<Path>>(
        fs: Arc<dyn Fs>,
        paths: &[P],
        share: Share,
        options: SplitOptions,
    ) -> Result<InputSplit> {
        InputSplit::open_with(fs, paths, share, options, |path| Ok(path.to_owned()))
    }

    fn open_with<P: AsRef<Path>>(
        fs: Arc<dyn Fs>,
        paths: &[P],
        share: Share,
        options: SplitOptions,
        resolve: Resolve,
    ) -> Result<InputSplit> {
        let share = Share::new(share.rank, share.world)?;
        let mut sources = files::list(&*fs, paths, resolve)?;
        let SplitOptions { by, on_damage, use_index } = options;
        let (begin, end, records) = match by {
            SplitBy::Bytes => {
                (files::cut(&sources, share.rank, share.world), files::cut(&sources, share.rank + 1, share.world), None)
            }
            SplitBy::Records => {
                let (begin, end, records) =
                    count::share(&*fs, &mut sources, share, on_damage, use_index.then_some(resolve))?;
                (begin, end, Some(records))
            }
        };
        let mut split = InputSplit::of(Arc::new(Plan { fs, sources, begin, end, on_damage, records }));
        split.before_first();
        Ok(split)
    }

    fn of(plan: Arc<Plan>) -> InputSplit {
        let (at, passed) = (plan.begin, DamageCount::default());
        let (state, open, index, pending, buffer) = (State::Nothing, None, Index::Unopened, None, Vec::new());
        InputSplit { plan, at, state, open, index, passed, pending, buffer }
    }

    /// Returns to the beginning of the split, and resets the count of skipped damage.
    pub fn before_first(&mut self) {
        let Plan { begin, end, .. } = *self.plan;
        self.go_to(begin);
        self.passed = DamageCount::default();
        self.state = match (begin < end, begin.at) {
            (false, _) => State::Nothing,
            (true, 0) => State::Here,
            (true, scan) => State::Search { scan },
        };
    }

    fn go_to(&mut self, at: Position) {
        (self.at, self.state, self.index, self.pending) = (at, State::Here, Index::Unopened, None);
        if self.open.as_ref().is_some_and(|open| open.0 != at.file) {
            self.open = None;
        }
    }

    /// Returns the position of the next record or damage. Another reader can continue here with [`InputSplit::seek`].
    pub fn position(&self) -> Position {
        self.at
    }

    /// Continues at a position that [`InputSplit::position`] returned for this split: same files, same share, same
    /// options.
    ///
    /// # Errors
    /// A position outside this split.
    pub fn seek(&mut self, position: Position) -> Result<()> {
        let Plan { begin, end, .. } = *self.plan;
        if position == begin {
            self.before_first();
            return Ok(());
        }
        let len = self.plan.sources.get(position.file).map_or(0, |source| source.len);
        let aligned = position.at.is_multiple_of(4) || position.at == len;
        let end = if end.at == 0 { end } else { Position { at: u64::MAX, ..end } };
        if position < begin || position > end || position.at > len || !aligned {
            let Position { file, at } = position;
            return Err(Error::Sample(format!("file {file}, byte {at} is not a position of this split")));
        }
        self.go_to(position);
        Ok(())
    }

    /// Returns the files of all splits, in order.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.plan.sources.iter().map(|source| &*source.path)
    }

    /// Returns the path of the file with this number, as the caller named it.
    pub fn path(&self, file: usize) -> Option<&Path> {
        self.plan.sources.get(file).map(|source| &*source.path)
    }

    /// Returns the bytes of all files, including those of other splits.
    pub fn total_bytes(&self) -> u64 {
        self.plan.sources.iter().map(|source| source.len).sum()
    }

    /// Returns the records of this split if it was made by records. There may be fewer, because some damage is only
    /// found when whole payloads are read.
    pub fn records(&self) -> Option<u64> {
        self.plan.records
    }

    /// Returns the damage that was skipped since the beginning, up to the current position.
    pub fn passed(&self) -> DamageCount {
        self.passed
    }

    /// Returns the next record, in a buffer that is reused, or `None` at the end of the split. Damaged regions are
    /// skipped and counted in [`InputSplit::passed`].
    ///
    /// # Errors
    /// As [`InputSplit::next_into`].
    #[allow(clippy::should_implement_trait)] // the record borrows from the split
    pub fn next(&mut self) -> Result<Option<(RecordSpan, &[u8])>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let found = loop {
            match self.next_into(&mut buffer) {
                Ok(Some(SplitItem::Skipped { .. })) => {}
                Ok(Some(SplitItem::Record(place))) => break Ok(Some(place)),
                Ok(None) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.buffer = buffer;
        Ok(found?.map(|place| (place, &self.buffer[..])))
    }

    /// Returns the next item: a record, whose payload replaces the contents of `payload`; or a skipped region, with
    /// an empty `payload`; or `None` at the end of the split.
    ///
    /// # Errors
    /// - [`Error::Format`]: damage with [`OnDamage::Fail`]; always for a writer that never escapes the magic or joins
    ///   parts in another way, and for an index that does not match the records. Returned once; the next call
    ///   continues after it.
    /// - [`Error::Fs`]: filesystem errors. The next call tries again.
    pub fn next_into(&mut self, payload: &mut Vec<u8>) -> Result<Option<SplitItem>> {
        payload.clear();
        self.append(payload)
    }

    fn append(&mut self, payload: &mut Vec<u8>) -> Result<Option<SplitItem>> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let (plan, before) = (self.plan.clone(), payload.len());
        loop {
            if matches!(self.state, State::Nothing) || self.is_over()? {
                self.leave_file(plan.end.at)?;
                return Ok(None);
            }
            let Position { file, at } = self.at;
            let len = plan.sources.get(file).map_or(0, |source| source.len);
            if at >= len {
                self.leave_file(len)?;
                self.go_to(Position { file: file + 1, at: 0 });
                continue;
            }
            self.open_file(file)?;
            let Some((_, window)) = self.open.as_mut() else { continue };
            let cut = if plan.end.file == file { plan.end.at } else { u64::MAX };
            match &mut self.state {
                State::Nothing => {}
                State::Search { scan } => {
                    let found = window.candidate(scan, cut)?;
                    (self.at.at, self.state) = (found.unwrap_or(len), State::Here);
                    if found.is_none() && cut != u64::MAX {
                        self.state = State::Nothing;
                    }
                }
                State::Damage { scan, why } => {
                    let (end, why) = (window.resync(scan, cut)?, why.clone());
                    self.compare(|index| index.pass(end))?;
                    self.passed.regions += 1;
                    self.passed.bytes += end - at;
                    (self.at.at, self.state) = (end, State::Here);
                    if let Some(why) = why {
                        return Ok(Some(SplitItem::Skipped { file, region: Region { begin: at, end, why } }));
                    }
                }
                State::Here => {
                    let parsed = window.record(at, Some(payload))?;
                    if let Some(found) = self.take(parsed, payload, before)? {
                        return Ok(Some(found));
                    }
                }
            }
        }
    }

    /// Handles the result of reading at the position. `before` is the length of `payload` before it was read.
    fn take(&mut self, parsed: Parsed, payload: &mut Vec<u8>, before: usize) -> Result<Option<SplitItem>> {
        let Position { file, at } = self.at;
        let source = match parsed {
            Parsed::Record { end, splits } => {
                if let Err(error) = self.compare(|index| index.take(at)) {
                    payload.truncate(before);
                    return Err(error);
                }
                self.at.at = end;
                return Ok(Some(SplitItem::Record(RecordSpan { file, at, end, splits })));
            }
            Parsed::Damaged { why } if self.plan.on_damage == OnDamage::Skip => {
                self.state = State::Damage { scan: at + 4, why: Some(why) };
                return Ok(None);
            }
            Parsed::Damaged { why } => {
                self.state = State::Damage { scan: at + 4, why: None };
                why
            }
            Parsed::Foreign { why, end } => {
                self.state = State::Damage { scan: end, why: None };
                why
            }
        };
        Err(Error::Format { path: self.plan.sources[file].path.clone(), source })
    }

    /// Returns whether the split has ended. Its last record may extend beyond its end. If no record can begin right
    /// after that, the damage there belongs to this split, because the next one begins where a record can begin.
    fn is_over(&mut self) -> Result<bool> {
        let (at, end) = (self.at, self.plan.end);
        if at < end || !matches!(self.state, State::Here) {
            return Ok(at.file > end.file);
        }
        if at.file != end.file || end.at == 0 || at.at >= self.plan.sources[at.file].len {
            return Ok(true);
        }
        self.open_file(at.file)?;
        Ok(match self.open.as_mut() {
            Some((_, window)) => window.is_candidate(at.at)?,
            None => true,
        })
    }

    fn open_file(&mut self, file: usize) -> Result<()> {
        let plan = self.plan.clone();
        let source = &plan.sources[file];
        if self.open.as_ref().is_none_or(|open| open.0 != file) {
            let reader = plan.fs.open(&source.real)?;
            let (need, have) = (source.len, reader.size()?);
            if have != need {
                let what = "the file (its length changed after the split was made)";
                let why = FormatError::Truncated { at: have.min(need), what, need, have };
                return Err(Error::Format { path: source.path.clone(), source: why });
            }
            let mut window = Window::new(reader, need);
            if plan.end.file == file {
                window.ahead = plan.end.at;
            }
            self.open = Some((file, window));
            self.index = Index::Unopened;
        }
        if matches!(self.index, Index::Unopened) {
            self.index = Index::Off;
            let opened = source.index.as_ref().map(|path| Comparison::open(&*plan.fs, path, self.at.at)).transpose();
            self.index = match opened {
                Ok(index) => index.map_or(Index::Off, Index::Open),
                Err(error @ Error::Format { .. }) => return Err(error),
                Err(error) => {
                    self.index = Index::Unopened;
                    return Err(error);
                }
            };
        }
        Ok(())
    }

    /// Compares with the index, and no longer in this file after it was wrong.
    fn compare(&mut self, ask: impl FnOnce(&mut Comparison) -> Result<()>) -> Result<()> {
        let Index::Open(index) = &mut self.index else { return Ok(()) };
        let asked = ask(index);
        if matches!(asked, Err(Error::Format { .. })) {
            self.index = Index::Off;
        }
        asked
    }

    fn leave_file(&mut self, end: u64) -> Result<()> {
        self.compare(|index| index.end(end))
    }
}
