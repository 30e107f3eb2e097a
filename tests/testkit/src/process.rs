//! Tests that change or measure their whole process: one at a time, or each in a separate process.

use crate::wait::loudly;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The environment variable with the name of the test that a separate process runs.
const ALONE: &str = "RINGREEL_TEST_ALONE";

/// Blocks the other tests of this process that call it.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` in a separate process: starts the running program again with only the test `name`. One such process runs
/// at a time. `name` comes from [`test_name!`](crate::test_name).
pub fn in_own_process(name: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|test| test == name) {
        return body();
    }
    let _alone = alone();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let done = command.args(["--exact", name, "--nocapture"]).env(ALONE, name).output().unwrap();
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(done.status.success(), "{}: {}{}", done.status, said[0], said[1]);
    assert!(said[0].contains("1 passed"), "no test is named {name}: {}", said[0]);
    print!("{}", said[0]);
    said[1].lines().filter(|line| line.starts_with("SKIPPED")).for_each(loudly);
}

/// The name that the harness gives to the test `name` of the module `module`.
pub fn test_name(module: &str, name: &str) -> String {
    module.split_once("::").map_or_else(|| name.to_owned(), |(_, module)| format!("{module}::{name}"))
}

/// The name that the harness gives to a test of the calling module.
#[macro_export]
macro_rules! test_name {
    ($name:expr) => {
        $crate::process::test_name(module_path!(), $name)
    };
}

/// Whether this process watches the directory. (Linux lists watches in /proc.)
pub fn is_watched(dir: &Path) -> bool {
    let inode = format!("ino:{:x} ", fs::metadata(dir).unwrap().ino());
    let all = fs::read_dir("/proc/self/fdinfo").unwrap().map(|entry| entry.unwrap().path());
    all.filter_map(|info| fs::read_to_string(info).ok())
        .any(|text| text.lines().any(|line| line.starts_with("inotify ") && line.contains(&inode)))
}
