//! A server that is away for a few calls: nobody ends because of it, and nothing is lost or doubled.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Action, HookFs, another, config, listed, never, scratch, write};
use ringreel::Generator;
use ringreel::ring::liveness::Watch;
use ringreel::ring::promote::When;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CAP: u64 = 4;
const SAMPLES: u64 = 10;
const ENOTCONN: i32 = 107;

#[test]
fn a_server_that_is_away_for_one_call_ends_no_generator() {
    const EBADFD: i32 = 77; // GlusterFS, of a directory that was open when the connection was lost
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
                break; // all calls of a run were refused once
            }
        }
    }
}

#[test]
fn a_server_that_is_lost_while_a_segment_gets_its_name_doubles_no_sample() {
    for (happens, away) in [(true, 1), (true, 2), (true, 5), (false, 1), (false, 5)] {
        let dir = scratch();
        let fs = Arc::new(HookFs::default());
        let config = config(dir.path(), CAP, "");
        let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
        let lost = Mutex::new(0);
        // The fifth segment's rename, and the calls after it: but for those by which it is thrown away.
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
        let heir = another(&config); // brings in what was thrown away, and had got its name after all
        for _ in 0..3 {
            heir.recover(&mut Watch::new(Duration::ZERO)).unwrap();
            heir.promote(When::NotEmpty).unwrap();
        }
        let there = listed(&config.ring).len() as u64;
        assert_eq!((summary.finished, there), (SAMPLES, SAMPLES), "happens {happens}, away for {away} more calls");
    }
}
