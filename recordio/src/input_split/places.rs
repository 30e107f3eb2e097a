//! Where the records of a part begin and end, for access in any order.
//!
//! Parts are cut as dmlc-core cuts them, to the byte: with an index into runs of `ceil(records / parts)` records, without
//! one into runs of `ceil(bytes / parts)` bytes, rounded up to a multiple of 4. A record belongs to the part in which it
//! begins. Equal parts have `records / parts` records each, rounded down: the last records of all belong to no part.

use super::count::IndexLines;
use super::files::{self, Source};
use super::window::{Trouble, Window};
use ringreel::error::{Error, FsError, Result};
use ringreel::fs::{FileReader, Fs, Posix};
use ringreel::read::shard::Share;
use std::path::{Path, PathBuf};

/// Where one record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which file: an index into [`Places::files`].
    pub(crate) file: usize,
    /// Byte offset of its first frame.
    pub(crate) at: u64,
    /// Byte offset of the next record that is known, or of the end of the file.
    pub(crate) end: u64,
}

/// The records of one part.
pub(crate) struct Places {
    pub(crate) files: Vec<(PathBuf, Box<dyn FileReader>)>,
    pub(crate) records: Vec<Place>,
}

impl Places {
    /// The records of part `part` of the files that `paths` name, in the order of the files. `index`: the `.idx` file of
    /// the only file; none: the headers of all frames of the part are read. `is_equal`: whether all parts have the same
    /// number of records.
    ///
    /// # Errors
    /// As [`super::InputSplit::open`]; an index beside several files; an index with places behind the end of the file.
    pub(crate) fn list(paths: &[PathBuf], index: Option<&Path>, part: Share, is_equal: bool) -> Result<Places> {
        let fs = Posix;
        let part = Share::new(part.rank, part.world)?;
        let resolve = |path: &Path| std::fs::canonicalize(path).map_err(|source| FsError::new("look at", path, source));
        let sources = files::list(&fs, paths, resolve)?;
        let listed = if is_equal { Share::ALL } else { part };
        let mut records = match index {
            Some(index) => from_index(&fs, &sources, index, listed)?,
            None => from_headers(&fs, &sources, listed)?,
        };
        if is_equal {
            let each = records.len() / part.world as usize;
            records.truncate(each * (part.rank as usize + 1));
            records.drain(..each * part.rank as usize);
        }
        let open = |source: Source| Ok((source.path, fs.open(&source.real)?));
        Ok(Places { files: sources.into_iter().map(open).collect::<Result<_>>()?, records })
    }
}

fn from_index(fs: &dyn Fs, sources: &[Source], index: &Path, part: Share) -> Result<Vec<Place>> {
    let [source] = sources else {
        let message = format!("{}: an index belongs to one file of records, not to {}", index.display(), sources.len());
        return Err(Error::Sample(message));
    };
    let (mut lines, mut offsets) = (IndexLines::open(fs, index)?, Vec::new());
    while let Some(entry) = lines.next()? {
        offsets.push(entry.offset);
    }
    offsets.sort_unstable();
    if let Some(last) = offsets.last().filter(|last| **last >= source.len) {
        let (index, path) = (index.display(), source.path.display());
        return Err(Error::Sample(format!("{index}: lists byte {last}, but {path} has {} bytes", source.len)));
    }
    let step = (offsets.len() as u64).div_ceil(part.world);
    let bound = |rank: u64| (step.saturating_mul(rank).min(offsets.len() as u64)) as usize;
    let place = |n: usize| Place { file: 0, at: offsets[n], end: offsets.get(n + 1).copied().unwrap_or(source.len) };
    Ok((bound(part.rank)..bound(part.rank + 1)).map(place).collect())
}

fn from_headers(fs: &dyn Fs, sources: &[Source], part: Share) -> Result<Vec<Place>> {
    let total: u64 = sources.iter().map(|source| source.len).sum();
    let step = total.div_ceil(part.world).next_multiple_of(4);
    let (from, to) = (step.saturating_mul(part.rank).min(total), step.saturating_mul(part.rank + 1).min(total));
    let (mut records, mut begin) = (Vec::new(), 0);
    for (file, source) in sources.iter().enumerate() {
        let (first, limit) = (from.saturating_sub(begin), to.saturating_sub(begin).min(source.len));
        begin += source.len;
        if first >= limit {
            continue;
        }
        let mut window = Window::new(fs.open(&source.real)?, source.len);
        // Cuts within a later file need not be multiples of 4 of its offsets.
        let mut at = first.next_multiple_of(4);
        if at > 0 {
            at = window.candidate(&mut at, limit)?.unwrap_or(limit);
        }
        while at < limit {
            let end = window.leap(at).map_err(|trouble| match trouble {
                Trouble::Fs(error) => error.into(),
                Trouble::Bad(error) => Error::Format { path: source.path.clone(), source: error },
            })?;
            records.push(Place { file, at, end });
            at = end;
        }
    }
    Ok(records)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ringreel_format::recordio::{RecordWriter, index};

    #[test]
    fn parts_have_all_records_once_with_and_without_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let (path, idx) = (dir.path().join("x.rec"), dir.path().join("x.idx"));
        let mut writer = RecordWriter::new(std::fs::File::create(&path).unwrap());
        let (mut want, mut lines) = (Vec::new(), Vec::new());
        for n in 0..23_u8 {
            let at = writer.write(&vec![n; 7 * usize::from(n % 5)]).unwrap();
            index::write_entry(&mut lines, index::Entry { key: &n.to_string(), offset: at }).unwrap();
            want.push(at);
        }
        drop(writer);
        std::fs::write(&idx, lines).unwrap();
        for parts in 1..8 {
            for index in [None, Some(&*idx)] {
                let of = |rank| {
                    Places::list(std::slice::from_ref(&path), index, Share::new(rank, parts).unwrap(), false)
                        .unwrap()
                        .records
                };
                let all: Vec<Place> = (0..parts).flat_map(of).collect();
                assert_eq!(all.iter().map(|place| place.at).collect::<Vec<_>>(), want);
                assert!(all.windows(2).all(|pair| pair[0].end == pair[1].at));
                for rank in 0..parts {
                    let share = Share::new(rank, parts).unwrap();
                    let part = Places::list(std::slice::from_ref(&path), index, share, true).unwrap().records;
                    let each = 23 / parts as usize;
                    assert_eq!(part, all[each * rank as usize..][..each]);
                }
            }
        }
    }
}
