//! Every call to the filesystem × every fault, for each role: the error names the cause and the path, roles that can
//! continue do, and no sample is lost, duplicated, or read with wrong bytes.
//!
//! For each fault, an eighth of the calls is tested; `RINGREEL_ALL_FAULTS=1 cargo test --test faults -- --nocapture`
//! tests all of them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Error, Generator, Reader, Result, SampleId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use testkit::disk::{Disk, Lie};
#[allow(dead_code)]
use testkit::ring::{Action, EACCES, EINTR, EIO, ESTALE, HookFs, assert_delivered_once_on, bring_in, never, write};

const SAMPLES: u64 = 10;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The call fails with this errno.
    Refused(i32),
    /// Only half of a write is written.
    Short,
    /// The call succeeds, but returns an error.
    DoneButError,
    Slow,
}

const FAULTS: [(&str, Fault); 9] = [
    ("ENOSPC", Fault::Refused(28)),
    ("EDQUOT", Fault::Refused(122)),
    ("EIO", Fault::Refused(EIO)),
    ("ESTALE", Fault::Refused(ESTALE)),
    ("EACCES", Fault::Refused(EACCES)),
    ("EINTR", Fault::Refused(EINTR)),
    ("short write", Fault::Short),
    ("done but error", Fault::DoneButError),
    ("slow", Fault::Slow),
];

impl Fault {
    fn action(self) -> Action {
        match self {
            Fault::Refused(errno) => Action::Refuse(errno),
            Fault::Short => Action::Short,
            Fault::DoneButError => Action::LoseReply(EIO),
            Fault::Slow => {
                std::thread::sleep(Duration::from_millis(2));
                Action::Pass
            }
        }
    }

    /// Whether a role may wait and retry; EACCES needs a person.
    fn passes(self) -> bool {
        self != Fault::Refused(EACCES)
    }
}

fn config(more: &str) -> Config {
    let yaml = "DBNAME: t\nINDEX: files\nSWAP_CAP: 4\nSAMPLE: [data]\nPOLL_SECONDS: 0.001\nLEASE_SECONDS: 60\nREAD: pread\n\
                VERIFY: always\nKEEP: 50\n";
    Config::parse(&format!("{yaml}{more}"), "test", Path::new("/"), true).unwrap()
}

/// A ring on a disk in memory, and a filesystem on which calls `from..from + many` fail.
struct Scene {
    disk: Disk,
    config: Config,
    fs: Arc<HookFs>,
}

impl Scene {
    fn new(more: &str) -> Scene {
        let (disk, config) = (Disk::new(Lie::None), config(more));
        Ring::find_or_make(Arc::new(disk.clone()), &config).unwrap();
        let fs = Arc::new(HookFs::on(disk.clone()));
        Scene { disk, config, fs }
    }

    fn go_wrong(&self, fault: Fault, from: usize, many: usize) {
        self.fs.hook(move |n, _, _| if (from..from + many).contains(&n) { fault.action() } else { Action::Pass });
    }

    /// The ring as another process sees it.
    fn ring(&self) -> Ring {
        Ring::find_or_make(Arc::new(self.disk.clone()), &self.config).unwrap()
    }

    /// Writes ten samples without faults; some of them are not in a generation yet.
    fn filled(&self) -> Vec<SampleId> {
        let mut generator = Generator::open_on(Arc::new(self.disk.clone()), &self.config).unwrap();
        (0..SAMPLES).flat_map(|n| write(&mut generator, n).unwrap()).collect()
    }

    /// Commits and promotes everything, and checks that each of `told` is listed once and that no sample is listed
    /// twice.
    fn assert_delivered_once(&self, told: &[SampleId], what: &str) {
        let ring = self.ring();
        bring_in(&ring);
        assert_delivered_once_on(Arc::new(self.disk.clone()), &self.config.ring, told, what);
        self.assert_each_number_once(&ring, what);
    }

    /// Checks that no two kept samples hold the same number, so that no retry has duplicated one.
    fn assert_each_number_once(&self, ring: &Ring, what: &str) {
        let reader = Reader::open_on(Arc::new(self.disk.clone()), &self.config).unwrap();
        let mut numbers = Vec::new();
        for manifest in reader.kept().unwrap() {
            for position in 0..manifest.summary.samples {
                numbers.push(reader.sample(&manifest, position).unwrap().parts[0].data().unwrap().to_vec());
            }
        }
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "{what}: duplicate contents, at {}", ring.layout.root().display());
    }
}

/// Checks that an error names a file or a generation.
fn assert_tells(error: &Error, what: &str) {
    let text = error.to_string();
    let names = ["t.ring", "generation", "sync_dir /", "sync directory /"]; // the last: the directory above the ring
    assert!(names.iter().any(|name| text.contains(name)), "{what}: {error}");
}

/// The calls at which fault number `fault` begins: all of them, or a subset that differs for each fault.
fn moments(calls: usize, fault: usize) -> impl Iterator<Item = usize> {
    let all = std::env::var_os("RINGREEL_ALL_FAULTS").is_some();
    (0..calls).filter(move |at| all || (at + fault).is_multiple_of(8))
}

/// Returns the samples that a generator reported as finished, and the error that ended it, if any.
fn generate(scene: &Scene) -> (Vec<SampleId>, Option<Error>) {
    let mut told = Vec::new();
    let done = (|| -> Result<()> {
        let mut generator = Generator::open_on(scene.fs.clone(), &scene.config)?;
        for n in 0..SAMPLES {
            told.extend(write(&mut generator, n)?);
        }
        told.extend(generator.seal(&never)?);
        generator.finish(true, &never)?;
        Ok(())
    })();
    (told, done.err())
}

/// Counts the calls of a role without faults.
fn calls_of(more: &str, role: impl Fn(&Scene)) -> usize {
    let scene = Scene::new(more);
    role(&scene);
    scene.fs.calls()
}

fn generators_survive(more: &str) {
    let calls = calls_of(more, |scene| drop(generate(scene)));
    let opening = calls_of(more, |scene| drop(Generator::open_on(scene.fs.clone(), &scene.config).unwrap()));
    let (mut runs, mut ended) = (0, BTreeMap::<&str, usize>::new());
    for (number, (name, fault)) in FAULTS.into_iter().enumerate() {
        for many in [1, 25] {
            for at in moments(calls, number) {
                let what = format!("{name} at calls {at} to {}", at + many - 1);
                let scene = Scene::new(more);
                scene.go_wrong(fault, at, many);
                let (told, error) = generate(&scene);
                scene.assert_delivered_once(&told, &what);
                runs += 1;
                if let Some(error) = error {
                    assert_tells(&error, &what);
                    // A directory whose sync failed stays unsynced.
                    let is_unsynced =
                        more.contains("node") && error.to_string().contains("a second sync would not report it");
                    assert!(!fault.passes() || at < opening || is_unsynced, "{what} ended the generator: {error}");
                    *ended.entry(name).or_default() += 1;
                } else {
                    assert_eq!(told.len() as u64, SAMPLES, "{what}");
                }
            }
        }
    }
    println!("generator: {calls} calls, {runs} runs; ended with an error: {ended:?}");
}

#[test]
fn generators_deliver_what_they_reported_at_any_failing_call() {
    generators_survive("");
}

#[test]
fn durable_generators_deliver_what_they_reported() {
    generators_survive("DURABILITY: node\n");
}

#[test]
fn managers_deliver_everything_at_any_failing_call() {
    let turns = |scene: &Scene, errors: &mut Vec<Error>| {
        let mut manager = loop {
            match Manager::open_on(scene.fs.clone(), &scene.config) {
                Ok(manager) => break manager,
                Err(error) => errors.push(error),
            }
        };
        let mut watch = FailureDetector::new(Duration::ZERO);
        for _ in 0..4 {
            errors.extend(manager.turn().err());
            errors.extend(manager.ring().recover(&mut watch).err());
            errors.extend(manager.ring().promote(PromoteWhen::Full).err());
            errors.extend(manager.ring().reclaim().err());
        }
    };
    let calls = calls_of("", |scene| {
        scene.filled();
        turns(scene, &mut Vec::new());
    });
    let mut runs = 0;
    for (number, (name, fault)) in FAULTS.into_iter().enumerate() {
        for many in [1, 25] {
            for at in moments(calls, number) {
                let what = format!("{name} at calls {at} to {} of a manager", at + many - 1);
                let scene = Scene::new("");
                let told = scene.filled();
                scene.go_wrong(fault, at, many);
                let mut errors = Vec::new();
                turns(&scene, &mut errors);
                errors.iter().for_each(|error| assert_tells(error, &what));
                scene.fs.unhook();
                turns(&scene, &mut Vec::new());
                scene.assert_delivered_once(&told, &what);
                runs += 1;
            }
        }
    }
    println!("manager: {calls} calls, {runs} runs");
}

/// Reads every readable sample and collects the errors. Panics if a sample holds a wrong number.
fn read_all(reader: &Reader, numbers: &BTreeMap<SampleId, u64>, errors: &mut Vec<Error>) -> usize {
    let kept = match reader.kept() {
        Ok(kept) => kept,
        Err(error) => return (errors.push(error), 0).1,
    };
    let mut read = 0;
    for manifest in kept {
        for position in 0..manifest.summary.samples {
            match reader
                .sample(&manifest, position)
                .and_then(|sample| Ok((sample.id, sample.parts[0].data()?.to_vec())))
            {
                Ok((id, bytes)) => {
                    assert_eq!(u64::from_le_bytes(bytes.try_into().unwrap()), numbers[&id], "wrong bytes of {id}");
                    read += 1;
                }
                Err(error) => errors.push(error),
            }
        }
    }
    read
}

#[test]
fn readers_give_right_bytes_or_errors_at_any_failing_call() {
    let scene = Scene::new("");
    let told = scene.filled();
    scene.assert_delivered_once(&told, "nothing");
    let numbers: BTreeMap<SampleId, u64> = told.into_iter().zip(0..).collect();
    let open = || Reader::open_on(scene.fs.clone(), &scene.config);
    scene.fs.hook(|_, _, _| Action::Pass);
    let all = read_all(&open().unwrap(), &numbers, &mut Vec::new());
    let calls = scene.fs.calls();
    assert!(all >= 6, "{all}");
    let mut runs = 0;
    for (number, (name, fault)) in FAULTS.into_iter().enumerate() {
        for many in [1, 5] {
            for at in moments(calls, number) {
                let what = format!("{name} at calls {at} to {} of a reader", at + many - 1);
                scene.go_wrong(fault, at, many);
                let (mut errors, reader) = (Vec::new(), open());
                let reader = reader.or_else(|error| {
                    errors.push(error);
                    scene.fs.unhook();
                    open()
                });
                let reader = reader.unwrap();
                let read = read_all(&reader, &numbers, &mut errors);
                // With stale names a generation may appear to be reclaimed.
                let told = !errors.is_empty() || (fault, many) == (Fault::Refused(ESTALE), 5);
                assert!(read == all || told, "{what}: {read} of {all} were read without an error");
                errors.iter().for_each(|error| assert_tells(error, &what));
                scene.fs.unhook();
                let mut after = Vec::new();
                assert_eq!(read_all(&reader, &numbers, &mut after), all, "{what}, afterwards: {after:?}");
                runs += 1;
            }
        }
    }
    println!("reader: {calls} calls, {runs} runs");
}
