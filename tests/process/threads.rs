//! Dropped streams leave no thread in this process.

use ringreel::{Stream, StreamOptions};
use std::sync::Arc;
use testkit::process::alone;
use testkit::stream::{World, drain, eventually, one, worker};

/// Counts the prefetch threads of this process.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm")).unwrap_or_default();
    tasks.filter(|task| name(task.as_ref().unwrap().path()).starts_with("read-ahead")).count()
}

#[test]
fn stream_dropped_in_mid_epoch_leaves_no_thread() {
    let _alone = alone();
    let place = World::new("SWAP_CAP: 40\n");
    place.generation(0..40);
    let reader = place.reader();
    for given in [0, 1, 7, 40] {
        let options = StreamOptions { prefetch_bytes: 1 << 30, threads: 8, epochs: Some(1), ..worker(0, 1) };
        let mut stream = Stream::new(reader.clone(), options).unwrap();
        (0..given).for_each(|n| assert_eq!(one(&mut stream).position, n));
        eventually("the threads have started", || threads() == if given == 0 { 0 } else { 8 });
        if given == 40 {
            assert!(drain(&mut stream).is_empty());
        }
        drop(stream);
        eventually(&format!("no thread is left after {given}"), || threads() == 0);
    }
    assert_eq!(Arc::strong_count(&reader), 1, "a reference to the reader is left");
}
