//! Measurements of file contents: reading, mapping, syncing, throughput, counting under a lock.

use super::delays::Delays;
use super::{Extra, Subject};
use ringreel::fs::atomic_publish::write_new;
use ringreel::fs::{Fs, FsError, FsResult, MapMode};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of the files that are read and mapped.
const LEN: usize = 256 << 10;
/// Bytes between two checks of the time, and pieces between two syncs.
const PIECE: usize = 1 << 20;
const PIECES_PER_SYNC: u64 = 8;

/// Returns pseudo-random bytes that depend on `seed`.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64, Marsaglia 2003
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns whether a new file reads back correctly, as a whole and in pieces.
///
/// # Errors
/// The system's error.
pub fn reads_back(fs: &dyn Fs, dir: &Path) -> FsResult<bool> {
    let (path, bytes) = (dir.join("pread"), pattern(1, LEN));
    write_new(fs, &path, &bytes, false)?;
    let file = fs.open(&path)?;
    let mut right = file.size()? == LEN as u64;
    for (from, len) in [(0, LEN), (4095, 2), (LEN - 1, 1), (12_345, 65_537)] {
        let mut buffer = vec![0; len];
        file.read_exact_at(&mut buffer, from as u64)?;
        right &= bytes.get(from..from + len) == Some(&buffer[..]);
    }
    Ok(right)
}

/// The result of mapping a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapped {
    /// The map shows the correct bytes.
    Right,
    /// The map shows wrong bytes.
    Wrong,
    /// The file cannot be mapped, for this reason.
    None(String),
}

/// Maps `path`, which should contain `bytes`.
pub fn mapped(fs: &dyn Fs, path: &Path, bytes: &[u8], mode: MapMode) -> Mapped {
    match fs.open(path).and_then(|file| file.map(0..bytes.len() as u64, mode)) {
        Ok(Some(map)) if map[..] == *bytes => Mapped::Right,
        Ok(Some(_)) => Mapped::Wrong,
        Ok(None) => Mapped::None("not supported".to_owned()),
        Err(error) => Mapped::None(error.source.to_string()),
    }
}

/// Maps a new file, shared and private.
///
/// # Errors
/// The file cannot be created.
pub fn maps(fs: &dyn Fs, dir: &Path) -> FsResult<[Mapped; 2]> {
    let (path, bytes) = (dir.join("map"), pattern(2, LEN));
    write_new(fs, &path, &bytes, false)?;
    Ok([MapMode::Shared, MapMode::Private].map(|mode| mapped(fs, &path, &bytes, mode)))
}

/// Measures syncs of small files and of their directory: as many as `limit` allows, 1 to 10.
///
/// # Errors
/// The system's error.
pub fn syncs(fs: &dyn Fs, dir: &Path, limit: Duration) -> FsResult<[Delays; 2]> {
    let (mut files, mut dirs) = (Delays::default(), Delays::default());
    let begun = Instant::now();
    for n in 0..10 {
        if n > 0 && begun.elapsed() > limit {
            break;
        }
        let path = dir.join(format!("sync-{n}"));
        let mut file = fs.create_new(&path)?;
        file.write_all(&pattern(n, 4096)).map_err(|error| FsError::new("write", &path, error))?;
        let before = Instant::now();
        file.sync()?;
        files.seen.push(before.elapsed());
        file.close()?;
        let before = Instant::now();
        fs.sync_dir(dir)?;
        dirs.seen.push(before.elapsed());
    }
    Ok([files, dirs])
}

/// The throughput of a write.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// Written and synced bytes.
    pub bytes: u64,
    /// Duration.
    pub time: Duration,
}

/// Writes and syncs a file until it has `most` bytes or `limit` is over, and removes it.
///
/// # Errors
/// The system's error; the file is removed then too.
pub fn throughput(fs: &dyn Fs, dir: &Path, most: u64, limit: Duration) -> FsResult<Throughput> {
    let path = dir.join("throughput");
    let mut file = fs.create_new(&path)?;
    let begun = Instant::now();
    let mut write = || {
        let (piece, mut pieces) = (pattern(3, PIECE), 0);
        while (pieces + 1) * (PIECE as u64) <= most && begun.elapsed() < limit {
            file.write_all(&piece).map_err(|error| FsError::new("write", &path, error))?;
            pieces += 1;
            if pieces % PIECES_PER_SYNC == 0 {
                file.sync()?;
            }
        }
        file.sync()?;
        Ok(pieces * PIECE as u64)
    };
    let written = write();
    let time = begun.elapsed();
    let closed = file.close();
    let _ = fs.forget_file(&path);
    let bytes = written?;
    closed?;
    Ok(Throughput { bytes, time })
}

/// Counts under flock in several threads, each with its own open files, for at most `limit`. Returns the expected and the
/// counted number.
///
/// # Errors
/// The system's error.
pub fn count_under_lock(subject: &Subject, dir: &Path, limit: Duration) -> FsResult<(u64, u64)> {
    const THREADS: u64 = 4;
    const EACH: u64 = 25;
    let path = dir.join("counter");
    write_new(&*subject.fs, &path, format!("{:020}", 0).as_bytes(), false)?;
    let extra: &dyn Extra = &*subject.extra;
    let begun = Instant::now();
    let done: Vec<FsResult<u64>> = std::thread::scope(|scope| {
        let count = || {
            let in_time = (0..EACH).take_while(|_| begun.elapsed() < limit);
            in_time.map(|_| extra.add_under_lock(&path).map(|()| 1)).sum::<FsResult<u64>>()
        };
        let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        all.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let expected = done.into_iter().sum::<FsResult<u64>>()?;
    let text = subject.fs.read(&path, 64)?;
    Ok((expected, String::from_utf8_lossy(&text).trim().parse().unwrap_or(0)))
}
