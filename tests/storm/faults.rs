//! Faults of the ring itself: a full disk, a lost or corrupt index, a cleanup of staging.

use crate::members::Role;
use ringreel::Config;
use ringreel::config::IndexPlace;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::cli::{Mount, loudly};

/// Small enough to fill up quickly. A generation has a third of a megabyte.
const DISK: &str = "size=64m,nr_inodes=6000";

/// The filesystem with the ring.
pub struct Disk {
    pub ring: PathBuf,
    mount: Option<Mount>,
    /// The end of the current disk-full fault.
    pub full_until: Option<Instant>,
}

impl Disk {
    /// A small filesystem in memory. If none can be mounted, or the ring is elsewhere, it is never full.
    pub fn new(elsewhere: &Path) -> Disk {
        let mount = Mount::tmpfs("full disks in the storm", DISK);
        let ring = mount.as_ref().map_or(elsewhere, |mount| mount.path()).join("ring");
        Disk { ring, mount, full_until: None }
    }

    /// An existing ring that several mounts share.
    pub fn of(ring: PathBuf) -> Disk {
        loudly("SKIPPED: full disks in the storm: RINGREEL_STORM_DIRS must not be filled up");
        Disk { ring, mount: None, full_until: None }
    }

    /// Uses all bytes but `left` for this time. Returns 0 if it cannot.
    pub fn fill(&mut self, left: u64, time: Duration) -> usize {
        let Some(mount) = self.mount.as_ref().filter(|_| self.full_until.is_none()) else { return 0 };
        let path = mount.path().join("filler");
        let mut file = File::create(&path).unwrap();
        for len in [1 << 20, 4096] {
            while file.write_all(&vec![7; len]).is_ok() {}
        }
        let len = file.metadata().unwrap().len();
        file.set_len(len.saturating_sub(left)).unwrap();
        self.full_until = Some(Instant::now() + time);
        1
    }

    /// The same for inodes.
    pub fn take_inodes(&mut self, left: usize, time: Duration) -> usize {
        let Some(mount) = self.mount.as_ref().filter(|_| self.full_until.is_none()) else { return 0 };
        let dir = mount.path().join("fillers");
        fs::create_dir_all(&dir).unwrap();
        let made: Vec<PathBuf> =
            (0..).map(|n| dir.join(n.to_string())).take_while(|path| File::create(path).is_ok()).collect();
        made.iter().take(left).for_each(|path| fs::remove_file(path).unwrap());
        self.full_until = Some(Instant::now() + time);
        1
    }

    /// Ends the fault when its time is over, or now.
    pub fn tend(&mut self, now: bool) {
        let Some(mount) = &self.mount else { return };
        if self.full_until.is_some_and(|until| now || until <= Instant::now()) {
            let _ = fs::remove_file(mount.path().join("filler"));
            let _ = fs::remove_dir_all(mount.path().join("fillers"));
            self.full_until = None;
        }
    }

    /// Removes unfinished files of dead processes from staging.
    pub fn sweep(&self, alive: &HashMap<u32, Role>) -> usize {
        let mut swept = 0;
        for owner in names(&self.ring.join("staging")) {
            let pid = owner.file_name().and_then(|name| name.to_str()?.rsplit('-').nth(1)?.parse().ok());
            if pid.is_none_or(|pid| alive.contains_key(&pid)) {
                continue;
            }
            let litter = names(&owner).into_iter().filter(|path| path.extension().is_none_or(|end| end != "rec"));
            swept += litter.filter(|path| fs::remove_file(path).is_ok()).count();
            swept += usize::from(fs::remove_dir(&owner).is_ok());
        }
        swept
    }

    /// Removes the index while all roles work.
    pub fn lose_index(&self, config: &Config) -> usize {
        match &config.index {
            IndexPlace::Files => {
                for _ in 0..20 {
                    if fs::remove_dir_all(self.ring.join("index")).is_ok() {
                        break;
                    }
                }
            }
            IndexPlace::MongoDb(place) => server::drop_all(place),
        }
        1
    }

    /// Truncates one or several files of the index.
    pub fn corrupt_index(&self, config: &Config, which: u64, much: f64) -> usize {
        match &config.index {
            IndexPlace::Files => {
                let mut files = Vec::new();
                let mut todo = vec![self.ring.join("index")];
                while let Some(dir) = todo.pop() {
                    let (dirs, more): (Vec<_>, Vec<_>) = names(&dir).into_iter().partition(|path| path.is_dir());
                    todo.extend(dirs);
                    files.extend(more);
                }
                files.retain(|path| path.metadata().is_ok_and(|meta| meta.len() > 0));
                files.sort();
                let of = files.len().max(1);
                for path in files.iter().cycle().skip(which as usize % of).take(of.min(1 + (much * 8.0) as usize)) {
                    let file = OpenOptions::new().write(true).open(path);
                    let _ = file.and_then(|file| file.set_len((file.metadata()?.len() as f64 * much / 2.0) as u64));
                }
            }
            IndexPlace::MongoDb(place) => server::corrupt(place),
        }
        1
    }
}

/// The paths in a directory; none if it does not exist.
pub fn names(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map_or(Vec::new(), |entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

mod server {
    use mongodb::Database;
    use mongodb::bson::{Document, doc};
    use ringreel::config::MongoPlace;

    fn with<F: Future<Output = mongodb::error::Result<()>>>(place: &MongoPlace, action: impl FnOnce(Database) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let done = runtime.block_on(async {
            let client = mongodb::Client::with_uri_str(place.uri()).await?;
            action(client.database(&place.database)).await
        });
        done.unwrap();
    }

    pub fn drop_all(place: &MongoPlace) {
        with(place, |database| async move { database.drop().await });
    }

    /// Overwrites the counters with words.
    pub fn corrupt(place: &MongoPlace) {
        with(place, |database| async move {
            let counters = database.collection::<Document>(&place.counters);
            counters.update_many(doc! {}, doc! { "$set": { "next": "many" } }).await.map(drop)
        });
    }
}
