//! Warnings, and how often they are logged.

use super::steps::on_its_way;
use ringreel::commit::CommitOutcome;
use ringreel::layout::segment_name;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use std::fs;
use std::time::Duration;
use testkit::log::warnings;
use testkit::ring::{Action, EIO, another, config, hooked, linked, scratch, staged};

/// Counts the warnings with these words that `call` logs.
fn told(words: &str, call: impl FnOnce()) -> usize {
    let ((), all) = warnings(call);
    all.lines().filter(|warning| warning.contains(words)).count()
}

#[test]
fn unreadable_segments_are_reported_once_after_some_polls() {
    let dir = scratch();
    let ring = another(&config(dir.path(), 8, ""));
    fs::write(ring.layout.write(1).join(segment_name(3, 1)), "damaged").unwrap();
    let looks = |many| {
        told("cannot read a segment; it is not counted", || {
            (0..many).for_each(|_| assert_eq!(ring.look_at(1, &ring.layout.write(1)).unwrap().damaged, 1));
        })
    };
    assert_eq!([looks(4), looks(1), looks(7)], [0, 1, 0]);
}

#[test]
fn unreadable_segments_of_dead_owners_are_reported() {
    const ENOENT: i32 = 2;
    for (errno, is_told) in [(EIO, true), (ENOENT, false)] {
        let dir = scratch();
        let config = config(dir.path(), 8, "");
        let (_, file) = staged(&config, 7);
        let (ring, hooks) = hooked(&config);
        hooks.hook(move |_, op, path| if op == "open" && path == file { Action::Refuse(errno) } else { Action::Pass });
        let mut watch = FailureDetector::new(Duration::ZERO);
        let times = told("cannot read a segment of a dead owner", || {
            for _ in 0..3 {
                ring.recover(&mut watch).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(times > 0, is_told, "{errno}");
    }
}

#[test]
fn repeating_counter_is_logged_once_per_process() {
    let dir = scratch();
    let config = config(dir.path(), 32, "");
    (0..14).for_each(|index| drop(linked(&config, index)));
    let ways = [21, 22, 23].map(|n| staged(&config, n));
    let commit = |ring: &Ring, n: usize| {
        ring.coordination.clear().unwrap(); // the next index that it hands out is taken
        let mut commit = on_its_way(ring, ways[n].0, &ways[n].1);
        told("repeats itself", || assert_eq!(ring.commit_step(&mut commit, true).unwrap(), CommitOutcome::Linked(1)))
    };
    let ring = another(&config);
    assert_eq!([commit(&ring, 0), commit(&ring, 1), commit(&another(&config), 2)], [1, 0, 1], "once per process");
}
