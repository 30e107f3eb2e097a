//! How late others see what one does, on one node.

use super::Subject;
use ringreel::fs::atomic_publish::write_new;
pub use ringreel::fs::delays::Delays;
use ringreel::fs::{Fs, FsResult};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(1);

/// Looks until `seen` or until `limit` is over. What cannot be asked was not seen. None: it never was.
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

/// One thread links files, another one, which looked before, looks for them: how late it lists and opens them.
///
/// # Errors
/// What the system says of making them.
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
            break; // it takes long enough
        }
    }
    Ok([listed, opened])
}

/// How soon inotify tells of a new file; none: not within `limit`.
///
/// # Errors
/// In words: it cannot be asked for, or no file can be made.
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
