//! Directories that a manager watches, as `/proc` lists them for this process.

use ringreel::Generator;
use ringreel::swap::manager::Manager;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::scope;
use testkit::process::{alone, is_watched};
use testkit::ring::manage;
use testkit::stream::{World, eventually, patience, put};

const SAMPLES: u64 = 6;

#[test]
fn managers_watch_no_directory_behind_a_linked_note() {
    let _alone = alone();
    let place = World::new(&format!("SWAP_CAP: {SAMPLES}\nREUSE: {{min: 1}}\n"));
    let (manager, stop) = (Manager::open(&place.config()).unwrap(), AtomicBool::new(false));
    let notes = place.path().join("index/notes");
    let (ours, elsewhere) = (notes.join("run.r"), place.path().with_file_name("elsewhere"));
    fs::create_dir_all(&ours).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, notes.join("run.x")).unwrap();
    scope(|scope| {
        scope.spawn(|| {
            let late = patience();
            manage(manager, || stop.load(SeqCst) || late());
        });
        let mut generator = Generator::open(&place.config()).unwrap();
        (0..2 * SAMPLES).for_each(|n| put(&mut generator, n));
        eventually("the manager waits", || is_watched(&notes));
        eventually("the manager watches the notes of runs", || is_watched(&ours));
        assert!(!is_watched(&elsewhere));
        stop.store(true, SeqCst);
    });
}
