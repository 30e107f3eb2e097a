//! The index is a hint and may be wrong: with any names and values in it, every step of the ring terminates, and every
//! sample is delivered once.

use ringreel::coordination::{CoordinationStore, Report, SwapStatus};
use ringreel::fs::Posix;
use ringreel::run_log::Epoch;
use ringreel::swap::promote::PromoteWhen;
use ringreel::times::StreamStats;
use ringreel::{Generator, NamedPart, Reader, Ring, StreamOptions};
use ringreel_format::{DType, Meta};
use ringreel_ops::status::status;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::memory_store::MemoryStore;
use testkit::ring::assert_delivered_once;
use testkit::stream::{self, Dice, SHAPE, World, data, next, one, worker};

/// A timeout that only catches hangs.
const LIMIT: Duration = Duration::from_secs(60);

const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "2",
    "64",
    "17179869183", // the last block of 64 numbers below 2^40
    "1099511627776",
    "1000000000000000000",
    "4611686018427387903",
    "4611686018427387904",
    "18446744073709551615",
    "007",
    "-1",
];
const RUNS: [&str; 5] = ["r", "own-0123456789abcdef", ".hidden", "a b", "ü"];
const MEMBERS: [&str; 4] = ["x", "_left", "host-1-aa", "a.b.c"];

/// Fails the test if `work` does not end in time.
fn within_limit(what: &str, work: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel::<()>();
    let worker = std::thread::spawn(move || {
        let _done = done; // dropped at the end, and by a panic
        work();
    });
    assert!(ended.recv_timeout(LIMIT) != Err(std::sync::mpsc::RecvTimeoutError::Timeout), "{what} hangs");
    if let Err(panic) = worker.join() {
        println!("{what}");
        std::panic::resume_unwind(panic);
    }
}

fn number(dice: &mut Dice) -> u64 {
    let parsed = dice.one_of(&NUMBERS).parse();
    parsed.unwrap_or(u64::MAX)
}

fn epoch(dice: &mut Dice) -> Epoch {
    Epoch {
        generation: number(dice),
        samples: number(dice),
        workers: number(dice),
        shuffle: dice.yes(),
        seed: number(dice),
        repeats: number(dice),
        unix_ms: number(dice),
    }
}

fn stats(dice: &mut Dice) -> StreamStats {
    const SECONDS: [f64; 4] = [0.0, -1.0, 1e300, 2.5];
    StreamStats {
        waited_seconds: dice.one_of(&SECONDS),
        step_seconds: dice.one_of(&SECONDS),
        offered: number(dice),
        share_read: Some(dice.one_of(&SECONDS)),
        reads_per_sample: Some(dice.one_of(&SECONDS)),
        age_seconds: Some(dice.one_of(&SECONDS)),
        now: dice.one_of(&["waited", "step", "", "\u{1b}"]).to_owned(),
        ..StreamStats::default()
    }
}

fn report(dice: &mut Dice) -> Report {
    Report {
        role: dice.one_of(&["generator", "manager", "reader", ""]).to_owned(),
        unix_ms: number(dice),
        lease_seconds: dice.one_of(&[0.0, -1.0, 1e300, 0.1]),
        samples: number(dice),
        bytes: number(dice),
        per_second: dice.one_of(&[0.0, -1.0, 1e300]),
        epochs: number(dice),
        generation: Some(number(dice)),
        reading: dice.yes().then(|| stats(dice)),
        ..Report::default()
    }
}

/// The folder, name and text of a random note.
fn note(dice: &mut Dice) -> (String, String, String) {
    let [a, b, c] = [(); 3].map(|()| dice.one_of(&NUMBERS));
    let (run, member) = (dice.one_of(&RUNS), dice.one_of(&MEMBERS));
    let (folder, name) = match dice.below(9) {
        0 => ("runs".to_owned(), run.to_owned()),
        1 => ("logs".to_owned(), format!("{a}.{run}")),
        2 => ("failures".to_owned(), member.to_owned()),
        3 => ("passes".to_owned(), format!("{a}.{b}")),
        4 => (format!("epochs.{run}"), a.to_owned()),
        5 => (format!("run.{run}"), format!("turn.{a}.{b}.{c}")),
        6 => (format!("run.{run}"), format!("pass.{a}.{b}")),
        _ => (format!("run.{run}"), format!("at.{a}.{b}.{member}")),
    };
    let text = match dice.below(4) {
        0 => String::new(),
        1 => "{".to_owned(),
        2 => dice.one_of(&NUMBERS).to_owned(),
        _ => serde_json::to_string(&epoch(dice)).unwrap(),
    };
    (folder, name, text)
}

/// Writes values through the index that no process of a ring would write.
fn tell(index: &dyn CoordinationStore, dice: &mut Dice) {
    let generation = dice.below(6);
    let n = number(dice);
    // The index refuses to write where a directory was planted.
    match dice.below(8) {
        0 => drop(index.skip_to(generation, n)),
        1 => drop(index.close_generation(generation)),
        2 => drop(index.publish_status(&SwapStatus { generation: n, unix_ms: n, total_samples: n })),
        3 => drop(index.claim_lease("manager", n, dice.one_of(&MEMBERS))),
        4 => drop(index.beat(dice.one_of(&MEMBERS), n, &report(dice))),
        _ => {
            let (folder, name, text) = note(dice);
            drop(index.add_note(&folder, &name, &text));
        }
    }
}

/// Adds a file, a directory or a link with a random name to an index in files.
fn plant(root: &Path, dice: &mut Dice) {
    let n = dice.one_of(&NUMBERS);
    let path = match dice.below(6) {
        0 => root.join(format!("counter/{}/{n}", dice.below(6))),
        1 => root.join(format!("status/{n}")),
        2 => root.join(format!("leases/manager.{n}{}", dice.one_of(&["", ".free"]))),
        3 => root.join(format!("members/{}.{n}", dice.one_of(&MEMBERS))),
        _ => {
            let (folder, name, _) = note(dice);
            root.join("notes").join(folder).join(dice.one_of(&[&*name, ""]))
        }
    };
    let text = match dice.below(3) {
        0 => n.to_owned(),
        1 => serde_json::to_string(&report(dice)).unwrap(),
        _ => format!(r#"{{"generation":{n},"unix_ms":{n},"total_samples":{n}}}"#),
    };
    let _ = std::fs::create_dir_all(path.parent().unwrap());
    let _ = match dice.below(4) {
        0 => std::fs::create_dir(path), // fails if a file of this name exists
        1 => std::os::unix::fs::symlink("nowhere", path),
        _ => std::fs::write(path, text),
    };
}

fn round(seed: u64, in_memory: bool) {
    let place = World::new("SWAP_CAP: 2\nLEASE_SECONDS: 0.1\n");
    let memory: Arc<dyn CoordinationStore> = Arc::new(MemoryStore::default());
    let open = || {
        let mut ring = Ring::find_or_make(Arc::new(Posix), &place.config()).unwrap();
        if in_memory {
            ring.coordination = memory.clone();
        }
        Arc::new(ring)
    };
    let mut generator = Generator::on_ring(open(), &place.config());
    let mut ids = Vec::new();
    let mut put = |generator: &mut Generator, n: u64| {
        let bytes = data(n);
        let part = NamedPart::new("data", DType::F32, &SHAPE, &bytes);
        let mut meta = Meta::new();
        meta.set("n", n);
        ids.extend(generator.write(&[part], &meta, &|| false).unwrap());
    };
    (0..3).for_each(|n| put(&mut generator, n));
    let mut followed = place.stream(StreamOptions { run: Some("r".into()), ..worker(0, 2) });
    if !in_memory {
        one(&mut followed);
    }
    let mut dice = Dice(seed << 32);
    let ring = open();
    for _ in 0..dice.below(40) + 1 {
        if in_memory || dice.yes() {
            tell(&*ring.coordination, &mut dice);
        } else {
            plant(&place.path().join("index"), &mut dice);
        }
    }
    for n in 3..9 {
        put(&mut generator, n);
        let ring = open();
        // A step may return an error, but it has to return.
        let _ = (ring.promote(PromoteWhen::Full), ring.reclaim());
        let _ = ring.recover(&mut ring.failure_detector());
        let _ = (status(&ring), ring.pinned(), ring.passes(1), ring.reads(), ring.has_readers());
        ring.run_names().unwrap().iter().for_each(|name| drop(ring.run(name).unwrap().epochs()));
    }
    let left = generator.finish(true, &|| false).unwrap();
    assert_eq!((left.waiting, left.finished), (0, ids.len() as u64), "{left:?}");
    assert_delivered_once(&place.path(), &ids, "planted hints");
    let reader = Arc::new(Reader::open(&place.config()).unwrap());
    let mut unnamed = ringreel::Stream::new(reader.clone(), worker(0, 1)).unwrap();
    assert!(next(&mut unnamed).unwrap().is_some());
    let timeout = Some(Duration::from_millis(200));
    let named = StreamOptions { run: Some("r".into()), timeout, goes_on: stream::turn(0), ..worker(0, 1) };
    let _ = ringreel::Stream::new(reader, named).and_then(|mut stream| next(&mut stream));
}

#[test]
fn planted_hints_cause_no_hang_and_lose_no_sample() {
    for seed in 0..30 {
        within_limit(&format!("seed {seed}"), move || round(seed, false));
        within_limit(&format!("seed {seed}, in memory"), move || round(seed, true));
    }
}

#[test]
fn unlisted_epochs_are_ignored() {
    let place = World::new("SWAP_CAP: 2\nREUSE: {min: 1}\n");
    place.generation(0..2);
    let mut stream = place.stream(StreamOptions { run: Some("r".into()), ..worker(0, 2) });
    one(&mut stream);
    let ring = place.ring();
    ring.coordination.add_note("run.r", "at.1.1000000000000000000.x", "").unwrap();
    ring.coordination.add_note("runs", ".no run's name", "").unwrap();
    within_limit("pins and passes", move || {
        assert_eq!(ring.pinned().unwrap(), [1].into());
        assert_eq!((ring.passes(1).unwrap(), ring.run_names().unwrap()), (0, vec!["r".to_owned()]));
        let turn = ringreel::run_log::Turn { rank: 1, token: "t".into() };
        assert_eq!(ring.run("r").unwrap().join_pass(1, 2, &turn, 1, None).unwrap(), 1, "the next epoch is 1");
    });
}
