//! A server that is away for a few calls: no role ends because of it, and no sample is lost or duplicated.

use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Generator, Reader};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::ring::{Action, ESTALE, HookFs, another, config, listed, never, scratch, write};

const CAP: u64 = 4;
const SAMPLES: u64 = 10;
const ENOTCONN: i32 = 107;

#[test]
fn server_absent_for_one_call_ends_no_generator() {
    const EBADFD: i32 = 77; // GlusterFS, for a directory that was open when the connection was lost
    const ESHUTDOWN: i32 = 108;
    for errno in [ENOTCONN, EBADFD, ESHUTDOWN] {
        for at in 0.. {
            let dir = scratch();
            let fs = Arc::new(HookFs::default());
            let config = config(dir.path(), CAP, "");
            let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
            fs.hook(move |n, _, _| if n == at { Action::Refuse(errno) } else { Action::Pass });
            for n in 0..SAMPLES {
                write(&mut generator, n).unwrap();
            }
            let summary = generator.finish(true, &never).unwrap();
            assert_eq!((summary.finished, summary.delivered), (SAMPLES, SAMPLES), "errno {errno} at call {at}");
            if fs.calls() <= at {
                break; // each call of a run has failed once
            }
        }
    }
}

/// Makes the first `calls` calls fail with `errno`.
fn away_for(calls: usize, errno: i32) -> Arc<HookFs> {
    let fs = Arc::new(HookFs::default());
    fs.hook(move |n, _, _| if n < calls { Action::Refuse(errno) } else { Action::Pass });
    fs
}

#[test]
fn roles_started_while_the_server_is_away_wait_for_it() {
    const EBADFD: i32 = 77;
    const ESHUTDOWN: i32 = 108;
    const EHOSTDOWN: i32 = 112;
    for errno in [ENOTCONN, EBADFD, ESHUTDOWN, EHOSTDOWN, ESTALE] {
        for calls in [1, 2, 30] {
            let dir = scratch();
            let config = config(dir.path(), CAP, "");
            let mut generator = Generator::open_on(away_for(calls, errno), &config).unwrap();
            Manager::open_on(away_for(calls, errno), &config).unwrap();
            write(&mut generator, 0).unwrap();
            assert_eq!(generator.finish(true, &never).unwrap().delivered, 1, "errno {errno}, {calls} calls");
        }
    }
}

#[test]
fn absent_servers_fail_after_a_lease_wrong_paths_at_once() {
    let dir = scratch();
    let mut config = config(dir.path(), CAP, "");
    config.lease = Duration::from_secs(1); // time for a second attempt on a busy machine
    for errno in [ENOTCONN, ESTALE] {
        let fs = away_for(usize::MAX, errno);
        let error = Generator::open_on(fs.clone(), &config).map(drop).unwrap_err();
        assert!(error.to_string().contains("file server, which does not answer") && fs.calls() > 1, "{error}");
        assert!(!config.ring.exists());
    }
    config.ring = dir.path().join("not/there");
    let fs = away_for(0, 0);
    let error = Manager::open_on(fs.clone(), &config).map(drop).unwrap_err();
    assert!(error.to_string().contains("does not exist") && fs.calls() < 10, "{error} after {} calls", fs.calls());
}

/// Makes every open file stale (ESTALE) from now on, until it is opened or created again.
fn restart(fs: &HookFs) -> Arc<Mutex<BTreeSet<PathBuf>>> {
    let (fresh, stale) = (Mutex::new(BTreeSet::new()), Arc::new(Mutex::new(BTreeSet::new())));
    let seen = stale.clone();
    fs.hook(move |_, op, path| {
        let mut fresh = fresh.lock().unwrap();
        match op {
            "open" | "create" => drop(fresh.insert(path.to_owned())),
            "size" | "read" | "map" | "write" | "cut" | "sync" | "close" if !fresh.contains(path) => {
                seen.lock().unwrap().insert(path.to_owned());
                return Action::Refuse(ESTALE);
            }
            _ => {}
        }
        Action::Pass
    });
    stale
}

#[test]
fn files_open_across_a_server_restart_are_opened_again() {
    for read in ["mmap", "pread"] {
        let dir = scratch();
        let fs = Arc::new(HookFs::default());
        let config = config(dir.path(), CAP, &format!("READ: {read}\nSEGMENT_SAMPLES: 2"));
        let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
        for n in 0..CAP + 1 {
            write(&mut generator, n).unwrap(); // the last sample is in an unsealed segment
        }
        let reader = Reader::open_on(fs.clone(), &config).unwrap();
        let newest = reader.newest().unwrap();
        let read_all = || (0..CAP).for_each(|n| assert_eq!(reader.sample(&newest, n).unwrap().position, n));
        read_all();
        let stale = restart(&fs);
        for _ in 0..2 {
            read_all();
        }
        assert_eq!(reader.damaged(), 0);
        for n in CAP + 1..CAP * 2 {
            write(&mut generator, n).unwrap();
        }
        generator.finish(true, &never).unwrap();
        let of = |end: &str| stale.lock().unwrap().iter().filter(|path| path.to_string_lossy().ends_with(end)).count();
        assert_eq!((of(".rec"), of(".part")), (2, 1), "{read}: stale files met: {:?}", stale.lock().unwrap());
        // Samples in the unsealed file were never reported as finished.
        let delivered = listed(&config.ring);
        assert!(delivered.values().all(|generations| generations.len() == 1) && delivered.len() as u64 >= CAP * 2 - 1);
    }
}

#[test]
fn lost_server_during_the_seal_duplicates_no_sample() {
    for (happens, away) in [(true, 1), (true, 2), (true, 5), (false, 1), (false, 5)] {
        let dir = scratch();
        let fs = Arc::new(HookFs::default());
        let config = config(dir.path(), CAP, "");
        let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
        let lost = Mutex::new(0);
        // The rename of the fifth segment and the calls after it fail, except those that discard the segment.
        fs.hook(move |_, op, path| {
            let mut lost = lost.lock().unwrap();
            let of_name = op == "rename" && path.extension().is_some_and(|is| is == "rec");
            *lost += usize::from(of_name || *lost >= 5);
            match *lost {
                5 if happens => Action::LoseReply(ENOTCONN),
                n if (5..=5 + away).contains(&n) && op != "remove_file" => Action::Refuse(ENOTCONN),
                _ => Action::Pass,
            }
        });
        for n in 0..SAMPLES {
            write(&mut generator, n).unwrap();
        }
        let summary = generator.finish(true, &never).unwrap();
        let heir = another(&config); // commits the discarded segment, whose rename had succeeded
        for _ in 0..3 {
            heir.recover(&mut FailureDetector::new(Duration::ZERO)).unwrap();
            heir.promote(PromoteWhen::NotEmpty).unwrap();
        }
        let there = listed(&config.ring).len() as u64;
        assert_eq!((summary.finished, there), (SAMPLES, SAMPLES), "happens {happens}, away for {away} more calls");
    }
}
