//! Random schedules of all roles on a filesystem whose clients cache absent names.
//!
//! Each process has a separate client. One thread runs steps of the processes, one after the other; another process may
//! run before any call to the filesystem. The seed decides everything but the random numbers that the product draws.
//! `RINGREEL_STALE_SEEDS=a..b` chooses the seeds.

use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::manifest::store::Manifests;
use ringreel::read::Reader;
use ringreel::read::shard::Share;
use ringreel::read::stream::Item;
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::run_log::Epoch;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::write::generator::Summary;
use ringreel::{Config, Error, Generator, SampleId, Stream, StreamOptions};
use ringreel_ops::promote_partial::promote_partial;
use ringreel_ops::repair::Liveness;
use ringreel_ops::{gc, repair};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use testkit::ring::{self, config, splitmix, write_until};
use testkit::stale::{self, Chances, StaleClient, advance, begin, preempt_by, random};

/// Steps of one schedule before its final phase.
const STEPS: usize = 100;
/// Rounds within which the final phase must complete.
const ROUNDS: usize = 300;
/// Schedules that run at the same time.
const THREADS: usize = 4;
/// Processes that may run within a call of another one.
const DEPTH: usize = 3;

const RUNS: [&str; 2] = ["one", "two"];

/// A process.
#[allow(clippy::large_enum_variant)]
enum Process {
    Generator(Option<Generator>),
    Manager(Manager),
    /// Promotes, reclaims, promotes partially, repairs, or adopts the segments of owners, all of which it considers
    /// dead. The seed decides which of these is next.
    Helper(Box<Ring>, FailureDetector),
    Reader(Reader),
    Stream(Follower),
}

/// A stream of a run, and what it has read.
struct Follower {
    stream: Stream,
    run: &'static str,
    /// The generations of its epochs, with the number of samples that it read of each.
    got: Vec<(u64, u64)>,
}

struct World {
    seed: u64,
    dir: TempDir,
    config: Config,
    layout: Layout,
    reuse: bool,
    processes: Vec<RefCell<Process>>,
    depth: Cell<usize>,
    known: RefCell<Known>,
    lies: RefCell<Vec<Arc<StaleClient>>>,
}

/// Observations of the ring on the real filesystem after each step.
#[derive(Default)]
struct Known {
    newest: u64,
    finished: BTreeSet<SampleId>,
    /// The generation that lists a sample, by the sample's id and by the number that it holds.
    listed: BTreeMap<SampleId, u64>,
    numbers: BTreeMap<u64, u64>,
    next: u64,
    /// Samples of each generation.
    samples: BTreeMap<u64, u64>,
    /// The generation of each epoch of each run, and whether it existed when the epoch was noted.
    epochs: BTreeMap<(&'static str, u64), (u64, bool)>,
}

impl Known {
    /// Finished samples that no manifest lists.
    fn lost(&self) -> Vec<&SampleId> {
        self.finished.iter().filter(|id| !self.listed.contains_key(id)).collect()
    }
}

fn at_once() -> bool {
    true
}

/// Errors that a role retries.
fn passes(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::Interrupted { .. })
}

impl World {
    fn new(seed: u64) -> Rc<World> {
        let dir = ring::scratch();
        let mut state = seed;
        let mut pick = |n: u64| splitmix(&mut state) % n;
        let (cap, keep, segment) = (2 + pick(3), pick(3), 1 + pick(2));
        let reuse = pick(4) == 0;
        let more = format!(
            "KEEP: {keep}\nSEGMENT_SAMPLES: {segment}\nINDEX: files\n{}",
            if reuse { "REUSE: { min: 1 }\n" } else { "" }
        );
        let mut config = config(dir.path(), cap, &more);
        // No process polls because time has passed, except for the helpers.
        config.poll = Some(Duration::from_secs(10));
        let layout = Layout::new(&config.ring);
        let (processes, known, lies) = (Vec::new(), RefCell::default(), RefCell::default());
        let mut world = World { seed, dir, config, layout, reuse, processes, depth: Cell::new(0), known, lies };
        let some = 250 * pick(5);
        begin(seed, Chances { absent: some, old_path: 0, lost_reply: 0, preempt: 0 });
        let mut all = vec![world.helper()];
        all.extend((0..2).map(|_| Process::Generator(Some(world.generator()))));
        all.push(world.helper());
        all.push(Process::Reader(world.reader()));
        all.push(Process::Stream(world.follower("one", 0, 1)));
        if !reuse {
            all.push(Process::Generator(Some(world.generator())));
            all.push(Process::Manager(Manager::open_on(world.client(), &world.config).unwrap()));
            all.push(Process::Reader(world.reader()));
            all.extend((0..2).map(|rank| Process::Stream(world.follower("two", rank, 2))));
        }
        world.processes = all.into_iter().map(RefCell::new).collect();
        let (lost_reply, old_path) = ([0, 0, 50][pick(3) as usize], [0, 500][pick(2) as usize]);
        begin(seed, Chances { absent: some, old_path, lost_reply, preempt: [0, 10, 40][pick(3) as usize] });
        let world = Rc::new(world);
        let others = Rc::downgrade(&world);
        preempt_by(Some(Rc::new(move || {
            if let Some(world) = others.upgrade().filter(|world| world.depth.get() < DEPTH) {
                world.step_of(random() as usize % world.processes.len());
            }
        })));
        world
    }

    fn client(&self) -> Arc<StaleClient> {
        let client = Arc::new(StaleClient::random(self.dir.path()));
        self.lies.borrow_mut().push(client.clone());
        client
    }

    fn helper(&self) -> Process {
        let config = Config { poll: Some(Duration::from_millis(1)), ..self.config.clone() };
        let ring = Ring::find_or_make(self.client(), &config).unwrap();
        Process::Helper(Box::new(ring), FailureDetector::new(Duration::ZERO))
    }

    fn generator(&self) -> Generator {
        Generator::open_on(self.client(), &self.config).unwrap()
    }

    fn reader(&self) -> Reader {
        Reader::open_on(self.client(), &self.config).unwrap()
    }

    fn follower(&self, run: &'static str, rank: u64, world: u64) -> Follower {
        let reader = Arc::new(self.reader());
        let share = Share::new(rank, world).unwrap();
        let options = StreamOptions { share, repeat: false, run: Some(run.to_owned()), ..StreamOptions::default() };
        let mut follower = Follower { stream: Stream::new(reader, options).unwrap(), run, got: Vec::new() };
        self.follow(&mut follower); // the stream takes part from here on
        follower
    }

    fn manifests(&self) -> Manifests {
        Manifests::new(Arc::new(Posix), self.layout.clone())
    }

    /// Runs a step of one process, unless the process is within one.
    fn step_of(self: &Rc<World>, n: usize) {
        let Ok(mut process) = self.processes[n].try_borrow_mut() else { return };
        // Streams of one ring share a lock in this process.
        if matches!(*process, Process::Stream(_)) && self.depth.get() > 0 {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        match &mut *process {
            Process::Generator(generator) => self.generate(generator),
            Process::Manager(manager) => drop(self.bear(manager.turn())),
            Process::Helper(ring, watch) => self.help(ring, watch),
            Process::Reader(reader) => self.read_all(reader),
            Process::Stream(follower) => self.follow(follower),
        }
        self.depth.set(self.depth.get() - 1);
        drop(process);
        self.look();
    }

    /// Returns the result, or none after an error that a role retries.
    fn bear<T>(&self, done: ringreel::Result<T>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) if passes(&error) => None,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn generate(&self, at_work: &mut Option<Generator>) {
        if random().is_multiple_of(16) {
            *at_work = None; // the generator dies; its sealed segments remain
        }
        let generator = at_work.get_or_insert_with(|| self.generator());
        let n = self.known.borrow().next;
        self.known.borrow_mut().next += 1;
        let before = generator.written();
        loop {
            match write_until(generator, n, &at_once) {
                Ok(ids) => {
                    self.known.borrow_mut().finished.extend(ids);
                    return;
                }
                // A helper considered it dead, and removed its directory.
                Err(Error::Fs { source }) if source.is_gone() => return,
                Err(error) => drop(self.bear::<()>(Err(error))),
            }
            if generator.written() <= before {
                return; // the sample was not written
            }
        }
    }

    fn help(&self, ring: &Ring, watch: &mut FailureDetector) {
        match random() % 16 {
            0..6 => drop(self.bear(ring.promote(PromoteWhen::Full))),
            6 => drop(self.bear(ring.promote(PromoteWhen::NotEmpty))),
            7..10 => drop(self.bear(ring.reclaim())),
            10..13 => drop(self.bear(ring.recover(watch))),
            13 => drop(self.bear(gc::gc(ring))),
            14 if !self.reuse => drop(self.bear(promote_partial(ring))),
            _ => self.repair(ring),
        }
    }

    /// An undamaged ring has nothing to repair.
    fn repair(&self, ring: &Ring) {
        let Some(plan) = self.bear(repair::plan_repair(ring, &Liveness::Unknown)) else { return };
        let wrong: Vec<_> =
            plan.open().filter(|action| ["ring", "manifest", "segment", "held-out"].contains(&action.what)).collect();
        // If others may work within the calls of the scan, its findings are not of one moment.
        if !wrong.is_empty() && self.depth.get() == 1 && self.is_calm() {
            panic!("seed {}: {wrong:?}", self.seed);
        }
        self.bear(repair::apply_repair(ring, &plan, &Liveness::Unknown));
    }

    fn is_calm(&self) -> bool {
        stale::chances().is_none_or(|chances| chances.preempt == 0)
    }

    /// Like `read --all`: reads each sample of each kept generation, as this process sees it.
    fn read_all(&self, reader: &Reader) {
        if random().is_multiple_of(2) {
            self.bear(reader.ring().manifests.newest_listed());
        }
        let Some(kept) = self.bear(reader.kept()) else { return };
        let mut unread = Vec::new();
        for manifest in &kept {
            for position in 0..manifest.summary.samples {
                match reader.sample(manifest, position) {
                    Ok(_) => {}
                    Err(error @ (Error::Reclaimed { .. } | Error::Damaged { .. })) => {
                        unread.push((manifest.summary.generation, error.to_string()));
                    }
                    Err(error) => drop(self.bear::<()>(Err(error))),
                }
            }
        }
        let newest = self.manifests().newest_listed().unwrap();
        unread.retain(|(generation, _)| generation + self.config.keep >= newest);
        assert!(unread.is_empty(), "seed {}: left out: {unread:?}", self.seed);
        assert_eq!(reader.damaged(), 0, "seed {}", self.seed);
    }

    /// Reads the next sample of a stream, if available.
    fn follow(&self, follower: &mut Follower) {
        match follower.stream.next(&at_once, &mut |_| ()) {
            Ok(Some(Item::Sample(sample))) => match follower.got.last_mut() {
                Some((generation, samples)) if *generation == sample.generation => *samples += 1,
                _ => follower.got.push((sample.generation, 1)),
            },
            Ok(other) => panic!("seed {}: run {}: {other:?}", self.seed, follower.run),
            Err(error) => drop(self.bear::<()>(Err(error))),
        }
    }

    /// Checks what must hold after each step.
    fn look(&self) {
        let manifests = self.manifests();
        let Ok(newest) = manifests.newest_listed() else { return };
        let mut known = self.known.borrow_mut();
        for n in known.newest + 1..=newest {
            let manifest = manifests.get(n).unwrap().unwrap_or_else(|| panic!("seed {}: no manifest {n}", self.seed));
            known.samples.insert(n, manifest.summary.samples);
            for segment in &manifest.segments {
                for ordinal in 0..segment.samples {
                    let id = SampleId { segment: segment.id, ordinal };
                    let twice = known.listed.insert(id, n);
                    assert!(twice.is_none(), "seed {}: {id:?} is in {twice:?} and {n}", self.seed);
                }
            }
            let reader = Reader::open_on(Arc::new(Posix), &self.config).unwrap();
            for position in 0..manifest.summary.samples {
                let Ok(sample) = reader.sample(&manifest, position) else { continue };
                let number = u64::from_le_bytes((*sample.parts[0].data().unwrap()).as_ref().try_into().unwrap());
                let twice = known.numbers.insert(number, n);
                assert!(twice.is_none(), "seed {}: sample {number} is in {twice:?} and {n}", self.seed);
            }
        }
        known.newest = newest;
        for n in newest.saturating_sub(self.config.keep).max(1)..=newest {
            for entry in &manifests.get(n).unwrap().unwrap().segments {
                let path = self.layout.read(n).join(entry.file());
                assert!(path.exists(), "seed {}: {} is gone", self.seed, path.display());
            }
        }
        let finished = self.finished();
        let new: Vec<_> = RUNS.into_iter().flat_map(|run| self.new_epochs(run, &known)).collect();
        for (run, k, generation) in new {
            known.epochs.insert((run, k), (generation, self.layout.read(generation).exists()));
        }
        for ((run, k), (generation, was_there)) in &known.epochs {
            let is_read = finished.get(run).is_none_or(|finished| k < finished);
            assert!(
                is_read || !was_there || self.layout.read(*generation).exists(),
                "seed {}: read.{generation}, which run {run} reads in epoch {k}, is gone",
                self.seed
            );
        }
    }

    /// Returns the epochs that a run has noted since the last check, with their generations.
    fn new_epochs(&self, run: &'static str, known: &Known) -> Vec<(&'static str, u64, u64)> {
        let dir = self.layout.index().join(format!("notes/epochs.{run}"));
        let names = std::fs::read_dir(&dir).into_iter().flatten();
        let numbers = names.map(|name| name.unwrap().file_name().to_str().unwrap().parse().unwrap());
        let epoch = |k: u64| {
            let epoch: Epoch = serde_json::from_slice(&std::fs::read(dir.join(k.to_string())).unwrap()).unwrap();
            (run, k, epoch.generation)
        };
        numbers.filter(|k| !known.epochs.contains_key(&(run, *k))).map(epoch).collect()
    }

    /// How many epochs the slowest worker of each run has finished, without runs that are within a step.
    fn finished(&self) -> BTreeMap<&'static str, u64> {
        let mut finished = BTreeMap::new();
        let mut busy = BTreeSet::new();
        for process in &self.processes {
            match process.try_borrow().as_deref() {
                Ok(Process::Stream(follower)) => {
                    let epochs = finished.entry(follower.run).or_insert(u64::MAX);
                    *epochs = follower.stream.epoch().min(*epochs);
                }
                Ok(_) => {}
                Err(_) => busy.extend(RUNS),
            }
        }
        finished.retain(|run, _| !busy.contains(run));
        finished
    }

    /// The final phase: processes take turns, and time passes.
    fn end(self: &Rc<World>) {
        preempt_by(None);
        let Chances { absent, .. } = stale::chances().unwrap();
        begin(random(), Chances { absent, old_path: 0, lost_reply: 0, preempt: 0 });
        for process in &self.processes {
            if let Process::Generator(generator) = &mut *process.borrow_mut()
                && let Some(generator) = generator
            {
                let ids = generator.seal(&at_once).unwrap();
                self.known.borrow_mut().finished.extend(ids);
            }
        }
        for round in 0..ROUNDS {
            advance(self.dir.path(), 30);
            for process in &self.processes {
                match &mut *process.borrow_mut() {
                    Process::Generator(Some(generator)) => {
                        let ids = self.bear(generator.flush(&at_once)).unwrap_or_default();
                        self.known.borrow_mut().finished.extend(ids);
                    }
                    Process::Generator(None) | Process::Manager(_) => {}
                    Process::Helper(ring, watch) => {
                        self.bear(ring.recover(watch));
                        self.bear(ring.promote(PromoteWhen::NotEmpty));
                        self.bear(ring.reclaim());
                    }
                    Process::Reader(reader) if round % 8 == 0 => self.read_all(reader),
                    Process::Reader(_) => {}
                    Process::Stream(follower) => (0..8).for_each(|_| self.follow(follower)),
                }
            }
            self.look();
            if self.is_done() {
                break;
            }
        }
        self.judge();
    }

    fn is_done(&self) -> bool {
        self.known.borrow().lost().is_empty() && self.behind().is_none() && self.stuck_generator().is_none()
    }

    /// A generator whose finished samples are not all listed.
    fn stuck_generator(&self) -> Option<Summary> {
        self.processes.iter().find_map(|process| match &*process.borrow() {
            Process::Generator(Some(generator)) => Some(generator.summary()).filter(|summary| summary.waiting > 0),
            _ => None,
        })
    }

    /// A run that has not finished the newest generation.
    fn behind(&self) -> Option<&'static str> {
        let known = self.known.borrow();
        self.finished().into_iter().find_map(|(run, finished)| {
            let last = known.epochs.range((run, 0)..=(run, u64::MAX)).next_back();
            last.is_none_or(|((_, k), (generation, _))| *generation < known.newest || *k >= finished).then_some(run)
        })
    }

    fn judge(&self) {
        let (seed, known) = (self.seed, self.known.borrow());
        let lost = known.lost();
        assert!(lost.is_empty(), "seed {seed}: of {} samples are lost {lost:?}", known.finished.len());
        ring::assert_delivered_once(&self.config.ring, &known.finished.iter().copied().collect::<Vec<_>>(), "all");
        assert!(self.behind().is_none(), "seed {seed}: run {:?} is stuck", self.behind());
        let stuck = self.stuck_generator();
        assert!(stuck.is_none(), "seed {seed}: a generator is stuck: {stuck:?}");
        let mut got: BTreeMap<(&str, u64), u64> = BTreeMap::new();
        for process in &self.processes {
            if let Process::Stream(follower) = &*process.borrow() {
                for (generation, samples) in &follower.got {
                    *got.entry((follower.run, *generation)).or_default() += samples;
                }
            }
        }
        for ((run, k), (generation, was_there)) in &known.epochs {
            let (got, all) = (got.get(&(run, *generation)).copied().unwrap_or(0), known.samples[generation]);
            assert!(!was_there || got == all, "seed {seed}: run {run} got {got} of {all} samples in epoch {k}");
        }
        if self.reuse {
            let read: BTreeSet<u64> = known.epochs.values().map(|(generation, _)| *generation).collect();
            let left_out: Vec<_> = (1..=known.newest).filter(|n| !read.contains(n)).collect();
            assert!(left_out.is_empty(), "seed {seed}: skipped {left_out:?}");
        }
    }
}

fn run(seed: u64) -> u64 {
    let world = World::new(seed);
    for _ in 0..STEPS {
        if random().is_multiple_of(4) {
            advance(world.dir.path(), random() % 20);
        }
        world.step_of(random() as usize % world.processes.len());
    }
    world.end();
    let lies = world.lies.borrow().iter().map(|client| client.lies()).sum();
    preempt_by(None);
    lies
}

#[test]
fn random_schedules_on_stale_clients_keep_all_guarantees() {
    let given = std::env::var("RINGREEL_STALE_SEEDS").ok();
    let (from, to) = given.as_deref().map_or((0, 100), |given| {
        let (from, to) = given.split_once("..").unwrap();
        (from.parse().unwrap(), to.parse().unwrap())
    });
    let next = AtomicU64::new(from);
    let lies = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < to) {
                    lies.fetch_add(run(seed), Ordering::Relaxed);
                }
            });
        }
    });
    let lies = lies.into_inner();
    assert!(lies > 0 || given.is_some(), "no client ever answered from its cache, so the test is void");
}
