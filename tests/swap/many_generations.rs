//! A ring that has been swapped many times: joining it costs no more than joining a new one, no process reads a
//! manifest twice, and the number of manifests is bounded.

use ringreel::fs::{Fs, Posix};
use ringreel::manifest::store::MANIFESTS_KEPT;
use ringreel::read::stream::Item;
use ringreel::ring::Ring;
use ringreel::{Config, Generator, Reader, Stream, StreamOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use testkit::cli::{self, Place, checked, generate, listing, loudly, put};
use testkit::hook::{Action, HookFs};

type Opened = BTreeMap<u64, u32>;

/// Counts how often each manifest was opened.
#[derive(Clone, Default)]
struct Count(Arc<Mutex<Opened>>);

impl Count {
    /// The filesystem with the counter.
    fn fs(&self) -> Arc<dyn Fs> {
        let count = self.0.clone();
        let fs = HookFs::default();
        fs.hook(move |_, op, path| {
            if op == "open" && path.parent().is_some_and(|dir| dir.ends_with("manifests")) {
                let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
                *count.lock().unwrap().entry(number).or_default() += 1;
            }
            Action::Pass
        });
        Arc::new(fs)
    }

    fn take(&self) -> Opened {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn twice(opened: &Opened) -> Vec<(u64, u32)> {
    opened.iter().filter(|(_, times)| **times > 1).map(|(number, times)| (*number, *times)).collect()
}

/// Swaps the ring until generation `newest` is readable; its generations have `cap` samples each.
fn turn_until(generator: &mut Generator, newest: u64, cap: u64) {
    let mut n = generator.ring().manifests.newest().unwrap() * cap;
    while generator.ring().manifests.newest().unwrap() < newest {
        put(generator, n);
        n += 1;
    }
}

/// Prints the duration of the action. It is not checked, because the machine may be busy.
fn timed<T>(what: &str, action: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = action();
    loudly(&format!("{what}: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3));
    result
}

#[test]
fn processes_join_a_ring_of_a_thousand_manifests() {
    let place = Place::new("SWAP_CAP: 1\nSAMPLE: [data, label]\n");
    turn_until(&mut Generator::open(&place.config()).unwrap(), 1000, 1);
    let status = timed("status of a ring of 1,000 manifests", || place.run(&["status", "--json"]).ok());
    assert!(status.json()[0]["newest"].as_u64().unwrap() >= 1000);
    let read = timed("reading its first sample", || place.run(&["read", "--samples", "1", "--json"]).ok());
    assert_eq!(read.json().len(), 1);
    let args = ["generate", "--samples", "1", "--shape", "8", "--promote"];
    timed("writing and promoting a sample", || place.run(&args).ok());
    timed("reading all samples", || place.run(&["read", "--all"]).ok());
}

#[test]
fn late_processes_read_only_the_manifests_they_need() {
    let place = Place::new("SWAP_CAP: 1\nSAMPLE: [data, label]\n");
    turn_until(&mut Generator::open(&place.config()).unwrap(), 300, 1);
    let counting = Count::default();
    let reader = Reader::open_on(counting.fs(), &place.config()).unwrap();
    let newest = reader.newest().unwrap();
    checked(&reader.sample(&newest, 0).unwrap());
    assert_eq!(counting.take().len(), 1, "a reader needs the newest manifest only");
    let mut generator = Generator::open_on(counting.fs(), &place.config()).unwrap();
    put(&mut generator, 300);
    assert!(counting.take().len() <= 3, "a generator needs the newest, the one that it publishes, and one to reclaim");
    generator.finish(true, &|| false).unwrap();
    ringreel_ops::status::status(&Ring::find(counting.fs(), &place.config()).unwrap()).unwrap();
    assert!(counting.take().len() <= 16, "status reads the last few manifests");
}

#[test]
fn running_readers_and_generators_read_each_manifest_once() {
    let place = Place::new("SWAP_CAP: 3\nSAMPLE: [data, label]\nKEEP: 2\n");
    generate(&place.config(), 0..3);
    let (reads, writes) = (Count::default(), Count::default());
    let mut generator = Generator::open_on(writes.fs(), &place.config()).unwrap();
    let mut other = Generator::open(&place.config()).unwrap();
    let reader = Arc::new(Reader::open_on(reads.fs(), &place.config()).unwrap());
    let timeout = Some(cli::PATIENCE);
    let mut stream = Stream::new(reader, StreamOptions { timeout, ..StreamOptions::default() }).unwrap();
    for n in 0..180 {
        put(if n % 2 == 0 { &mut generator } else { &mut other }, n);
        let Some(Item::Sample(_)) = stream.next(&|| false, &mut |_| {}).unwrap() else { panic!("no sample") };
    }
    let (reads, writes) = (reads.take(), writes.take());
    assert!(reads.len() > 40 && writes.len() > 20, "{reads:?} {writes:?}");
    assert!(writes.len() < 40, "it does not read the manifests that it published: {writes:?}");
    assert_eq!((twice(&reads), twice(&writes)), (vec![], vec![]));
}

/// A generator whose segment takes so long that other processes promote many generations meanwhile.
fn slow_generator(place: &Place) -> Generator {
    let mut slow = Generator::open(&place.with("SEGMENT_SAMPLES: 2\n")).unwrap();
    assert!(put(&mut slow, 1_000_000).is_empty(), "begun, not finished");
    slow
}

#[test]
fn segments_begun_long_ago_cause_no_repeated_reads() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\n");
    let mut slow = slow_generator(&place);
    turn_until(&mut Generator::open(&place.config()).unwrap(), 60, 4);
    let finished = put(&mut slow, 1_000_001);
    assert_eq!(finished.len(), 2);
    slow.flush(&|| false).unwrap(); // in the generation that fills, or in the one after it

    let counting = Count::default();
    let ring = Ring::find(counting.fs(), &place.config()).unwrap();
    for _ in 0..5 {
        ring.count_samples(ring.manifests.newest().unwrap() + 1).unwrap();
    }
    let looks = counting.take();
    assert!(looks.len() >= 60, "the segment was begun in the first generation: {looks:?}");
    assert_eq!(twice(&looks), [], "five scans of the generation that fills");

    // The segment is delivered once.
    slow.finish(true, &|| false).unwrap();
    let reader = Reader::open(&place.config()).unwrap();
    let kept = reader.kept().unwrap();
    let delivered: Vec<_> = kept.iter().filter(|manifest| manifest.lists(finished[0].segment)).collect();
    assert_eq!(delivered.len(), 1);
}

/// All samples that a ring ever listed, from its last manifests.
fn listed(config: &Config, id: ringreel_format::SegmentId) -> Vec<u64> {
    let ring = Ring::find(Arc::new(Posix), config).unwrap();
    let numbers = ring.manifests.numbers().unwrap();
    numbers.into_iter().filter(|n| ring.manifests.get(*n).unwrap().unwrap().lists(id)).collect()
}

#[test]
fn old_manifests_are_pruned_and_late_segments_delivered() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\n");
    let mut slow = slow_generator(&place);
    let mut generator = Generator::open(&place.with("SEGMENT_SAMPLES: 2\n")).unwrap();
    turn_until(&mut generator, 2 * MANIFESTS_KEPT - 2, 2);
    let ring = generator.ring().clone();
    let manifests = || {
        let numbers = ring.manifests.numbers().unwrap();
        (numbers.len() as u64, *numbers.iter().min().unwrap(), *numbers.iter().max().unwrap())
    };
    let (count, oldest, newest) = manifests();
    assert_eq!((count, oldest), (newest + 1, 0), "no manifest is pruned up to twice the limit");
    turn_until(&mut generator, 2 * MANIFESTS_KEPT + 70, 2);
    let (count, oldest, newest) = manifests();
    assert_eq!(count, newest - oldest + 1, "the last manifests stay, without a gap");
    assert!(count > MANIFESTS_KEPT && oldest > 0 && count < 2 * MANIFESTS_KEPT, "{count} from {oldest} to {newest}");
    let status = &place.run(&["status", "--json"]).ok().json()[0];
    assert_eq!(status["samples_delivered"], 2 * newest, "the delivered count is unchanged");

    let finished = put(&mut slow, 1_000_001);
    let summary = slow.finish(true, &|| false).unwrap();
    assert_eq!((summary.finished, summary.delivered, summary.quarantined), (2, 2, 0));
    assert_eq!(listed(&place.config(), finished[0].segment).len(), 1, "sealed late, delivered once");
    assert!(listing(&place.ring().join("quarantine")).is_empty());
}
