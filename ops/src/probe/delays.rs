//! Measures how late other threads see a change, on one node.

use super::Subject;
use ringreel::fs::atomic_publish::write_new;
use ringreel::fs::{Fs, FsResult};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Measured delays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Delays of the events that were observed.
    pub seen: Vec<Duration>,
    /// Number of events that were not observed before the time limit.
    pub never: usize,
}

impl Delays {
    /// Returns the median; zero if there is no delay.
    pub fn median(&self) -> Duration {
        let mut sorted = self.seen.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// Returns the longest delay; zero if there is none.
    pub fn max(&self) -> Duration {
        self.seen.iter().max().copied().unwrap_or_default()
    }

    /// Adds a delay, or `None` for an event that was not observed.
    pub fn add(&mut self, delay: Option<Duration>) {
        match delay {
            Some(delay) => self.seen.push(delay),
            None => self.never += 1,
        }
    }
}

/// Time between two polls.
pub const LOOK: Duration = Duration::from_millis(1);

/// Polls until `seen` returns true or `limit` is over. Returns when it was seen; `None` if never.
pub fn until(limit: Duration, mut seen: impl FnMut() -> bool) -> Option<Instant> {
    let begun = Instant::now();
    loop {
        if seen() {
            return Some(Instant::now());
        }
        if begun.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Links files in one thread, and measures when another one, which has looked before, lists and opens them.
///
/// # Errors
/// The files cannot be created.
pub fn visibility(fs: &Arc<dyn Fs>, dir: &Path, rounds: usize, limit: Duration) -> FsResult<[Delays; 2]> {
    let dir = dir.join("seen");
    fs.make_dir(&dir)?;
    let staged = dir.join("staged");
    write_new(&**fs, &staged, b"x", false)?;
    let (mut listed, mut opened) = (Delays::default(), Delays::default());
    let begun = Instant::now();
    for round in 0..rounds {
        let name = format!("{round:06}.rec");
        let (looking, looked) = mpsc::channel();
        let (linked, seen) = std::thread::scope(|scope| {
            let look = scope.spawn(|| {
                let lists = || fs.list(&dir).is_ok_and(|names| names.contains(&name));
                let opens = || fs.open(&dir.join(&name)).is_ok();
                lists();
                opens();
                let _ = looking.send(());
                let open = until(limit, opens);
                (until(limit, lists), open)
            });
            let _ = looked.recv();
            let linked = fs.link(&staged, &dir.join(&name)).map(|()| Instant::now());
            (linked, look.join().unwrap_or_default())
        });
        let linked = linked?;
        listed.add(seen.0.map(|at| at.saturating_duration_since(linked)));
        opened.add(seen.1.map(|at| at.saturating_duration_since(linked)));
        if listed.never + opened.never > 0 || begun.elapsed() > limit {
            break; // a slow filesystem gets fewer rounds
        }
    }
    Ok([listed, opened])
}

/// Measures the delay until inotify reports a new file; `None` if it does not within `limit`.
///
/// # Errors
/// inotify is not available, or a file cannot be created.
pub fn inotify(subject: &Subject, dir: &Path, limit: Duration) -> Result<Option<Duration>, String> {
    let dir = dir.join("watched");
    subject.fs.make_dir(&dir).map_err(|error| error.to_string())?;
    let (rings, bell) = mpsc::channel();
    let watch = subject.extra.watch(&dir, Box::new(move || rings.send(()).unwrap_or_default()))?;
    let begun = Instant::now();
    write_new(&*subject.fs, &dir.join("file"), b"x", false).map_err(|error| error.to_string())?;
    let told = bell.recv_timeout(limit).ok().map(|()| begun.elapsed());
    drop(watch);
    Ok(told)
}
