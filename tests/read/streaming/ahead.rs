//! Prefetching changes when samples are read, and nothing else.

use ringreel::read::shard::Equal;
use ringreel::read::stream::Item;
use ringreel::{Error, Generator, NamedPart, Reader, Stream, StreamOptions};
use ringreel_format::{DType, Meta};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::ring::{Action, HookFs};
use testkit::stream::{Got, MODES, World, eventually, is_segment, next, number, one, patiently, turn, worker};

const BYTES: [u64; 4] = [0, 1, 64 << 10, 1 << 30];

/// What worker 1 of 2 reads in five epochs of three generations, each written during the previous one, with some
/// damaged samples.
fn story(equal: Equal, shuffle: bool, prefetch_bytes: u64, threads: usize) -> Vec<Got> {
    let place = World::new("SWAP_CAP: 21\nKEEP: 9\n");
    let add = |n: u64| {
        place.generation(n * 21..n * 21 + 21);
        place.damage(3 + n);
        place.damage(12);
    };
    add(0);
    let options = StreamOptions { equal, shuffle, prefetch_bytes, threads, epochs: Some(5), ..worker(1, 2) };
    let mut stream = place.stream(options);
    let (mut got, mut made) = (Vec::<Got>::new(), 1);
    while let Some(item) = next(&mut stream).unwrap() {
        got.push(item);
        let here = got.iter().filter(|got| got.generation == made).count() as u64;
        if here == 4 && made < 3 {
            add(made);
            made += 1;
        }
    }
    got
}

#[test]
fn samples_do_not_depend_on_prefetch_and_threads() {
    for (equal, shuffle) in MODES.into_iter().zip([false, true, false, true]) {
        let plain = story(equal, shuffle, 0, 1);
        let steps = if matches!(equal, Equal::Wrap | Equal::Pad) { 11 } else { 10 };
        let generations: Vec<u64> = plain.iter().map(|got| got.generation).collect();
        let wanted = [1, 2, 3, 3, 3].into_iter().flat_map(|generation| vec![generation; steps]);
        assert_eq!(generations, wanted.collect::<Vec<_>>(), "{equal:?}");
        let damaged: Vec<&Got> = plain.iter().filter(|got| got.damaged.is_some()).collect();
        assert!(damaged.len() >= 4, "{equal:?}: {damaged:?}");
        for got in damaged {
            let replaced = got.damaged != Some(got.position);
            assert_eq!((replaced, got.is_padding), (equal != Equal::No, equal == Equal::Pad), "{equal:?}: {got:?}");
        }
        for prefetch_bytes in BYTES {
            for threads in [1, 2, 8] {
                let got = story(equal, shuffle, prefetch_bytes, threads);
                assert_eq!(got, plain, "{equal:?}, {prefetch_bytes} bytes, {threads} threads");
            }
        }
    }
}

/// A filesystem that counts opened segments.
fn counting() -> (HookFs, Arc<AtomicUsize>) {
    let (fs, opened) = (HookFs::default(), Arc::new(AtomicUsize::new(0)));
    let count = opened.clone();
    fs.hook(move |_, op, path| {
        if op == "open" && is_segment(path) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Action::Pass
    });
    (fs, opened)
}

const LEN: u64 = 100_000;

/// Writes samples of LEN zero bytes, one per file.
fn zeros(place: &World, samples: u64) {
    let mut generator = Generator::open(&place.config()).unwrap();
    for n in 0..samples {
        let mut meta = Meta::new();
        meta.set("n", n);
        let parts = [NamedPart::new("data", DType::U8, &[LEN], &[0; LEN as usize])];
        generator.write(&parts, &meta, &|| false).unwrap();
    }
    generator.finish(true, &|| false).unwrap();
}

#[test]
fn prefetch_obeys_its_limit_but_reads_at_least_one_sample() {
    for compress in ["none", "3"] {
        let place = World::new(&format!("SWAP_CAP: 40\nCOMPRESS: {compress}\n"));
        zeros(&place, 40);
        for (prefetch_bytes, least, most) in [(0, 0, 0), (1, 1, 1), (LEN * 5 / 2, 1, 2), (LEN * 21 / 2, 8, 10)] {
            let (fs, opened) = counting();
            let reader = Reader::open_on(Arc::new(fs), &place.config()).unwrap();
            let options = StreamOptions { prefetch_bytes, threads: 8, epochs: Some(1), ..worker(0, 1) };
            let mut stream = Stream::new(Arc::new(reader), options).unwrap();
            let ahead = |given: usize| opened.load(Ordering::SeqCst).saturating_sub(given);
            for given in 1..=40 {
                let Some(Item::Sample(sample)) = stream.next(&|| false, &mut |_| {}).unwrap() else { panic!() };
                assert_eq!(number(&sample), given as u64 - 1);
                if given % 5 == 1 {
                    std::thread::sleep(Duration::from_millis(10));
                }
                assert!(ahead(given) <= most, "{prefetch_bytes} bytes, {compress}: {} after {given}", ahead(given));
                if (3..30).contains(&given) {
                    eventually("the next samples are prefetched", || ahead(given) >= least);
                }
            }
            assert!(stream.next(&|| false, &mut |_| {}).unwrap().is_none());
        }
    }
}

/// If thousands of samples had to be planned first, the first sample would be late.
#[test]
fn prefetch_depth_grows_with_delivered_samples() {
    let place = World::new("SWAP_CAP: 600\n");
    place.generation(0..600);
    let (fs, opened) = counting();
    let options = StreamOptions { prefetch_bytes: 1 << 30, threads: 8, epochs: Some(1), ..worker(0, 1) };
    let mut stream = Stream::new(Arc::new(Reader::open_on(Arc::new(fs), &place.config()).unwrap()), options).unwrap();
    let mut give = || stream.next(&|| false, &mut |_| {}).unwrap().is_some();
    let opened = || opened.load(Ordering::SeqCst);
    assert!(give());
    eventually("some samples are prefetched", || opened() > 50);
    std::thread::sleep(Duration::from_millis(100));
    assert!(opened() < 100, "{}", opened());
    (1..20).for_each(|_| assert!(give()));
    eventually("all samples are prefetched", || opened() == 600);
}

#[test]
fn streams_wait_for_absent_files_and_resume_at_that_sample() {
    const ENOTCONN: i32 = 107;
    for (equal, prefetch_bytes) in MODES.into_iter().flat_map(|equal| [(equal, 0), (equal, 1 << 30)]) {
        let place = World::new("SWAP_CAP: 9\nKEEP: 9\n");
        place.generation(0..9);
        place.damage(5);
        let fs = HookFs::default();
        let reader = Reader::open_on(Arc::new(fs.clone()), &place.config()).unwrap();
        let timeout = Some(Duration::from_millis(40));
        let options = StreamOptions { equal, prefetch_bytes, timeout, epochs: Some(3), ..worker(0, 4) };
        let mut stream = Stream::new(Arc::new(reader), options).unwrap();
        let mut got = Vec::new();
        for n in 0.. {
            if n == 1 {
                place.generation(9..18); // makes the stream plan two epochs
            }
            fs.hook(
                |_, op, path| if op == "open" && is_segment(path) { Action::Refuse(ENOTCONN) } else { Action::Pass },
            );
            let away = next(&mut stream);
            fs.unhook();
            match away {
                Ok(None) => break,
                Ok(Some(item)) => got.push(item), // it was prefetched before the failure
                Err(Error::Timeout { .. }) => {
                    let Some(item) = patiently(&mut stream).unwrap() else { break };
                    got.push(item);
                }
                Err(error) => panic!("{equal:?}: {error}"),
            }
        }
        let steps = if matches!(equal, Equal::Wrap | Equal::Pad | Equal::No) { 3 } else { 2 };
        let wanted: Vec<_> = [(0, 1), (1, 2), (2, 2)].into_iter().flat_map(|epoch| vec![epoch; steps]).collect();
        assert_eq!(got.iter().map(|got| (got.epoch, got.generation)).collect::<Vec<_>>(), wanted, "{equal:?}");
        let positions: Vec<u64> = got.iter().map(|got| got.position).collect();
        assert_eq!(
            positions,
            [0, 4, 8, 0, 4, 8, 0, 4, 8].into_iter().filter(|p| p / 4 < steps as u64).collect::<Vec<_>>()
        );
        assert_eq!(stream.epochs(), 3);
    }
}

#[test]
fn worker_joining_a_run_waits_for_an_absent_index() {
    let place = World::new("SWAP_CAP: 2\n");
    place.generation(0..2);
    let fs = HookFs::default();
    let reader = Arc::new(Reader::open_on(Arc::new(fs.clone()), &place.config()).unwrap());
    let options = || StreamOptions { run: Some("r".into()), goes_on: turn(0), epochs: Some(1), ..worker(0, 2) };
    let mut before = Stream::new(reader.clone(), options()).unwrap();
    assert_eq!((one(&mut before).epoch, before.next(&|| false, &mut |_| {}).unwrap().is_none()), (0, true));
    const ENOTCONN: i32 = 107;
    fs.hook(|_, _, path| {
        let is_note = path.components().any(|name| name.as_os_str() == "notes");
        if is_note { Action::Refuse(ENOTCONN) } else { Action::Pass }
    });
    let mut stream = Stream::new(reader, options()).unwrap();
    let mut told = Vec::new();
    let item = stream.next(&|| false, &mut |what| {
        told.push(what.to_owned());
        fs.unhook();
    });
    let Some(Item::Sample(_)) = item.unwrap() else { panic!("{told:?}") };
    assert!(matches!(&told[..], [what] if what.contains("notes")), "{told:?}");
    assert_eq!(stream.epoch(), 1, "the stream continues the run");
}

#[test]
fn interrupted_wait_for_a_sample_loses_no_sample() {
    for prefetch_bytes in [0, 1 << 20] {
        let place = World::new("SWAP_CAP: 5\nREUSE: {max: 1}\n");
        place.generation(0..5);
        let mut stream = place.stream(StreamOptions { prefetch_bytes, ..worker(0, 1) });
        let mut got = Vec::new();
        for n in 1..4 {
            while got.len() < n * 5 {
                let stop = AtomicUsize::new(0);
                match stream.next(&|| stop.fetch_add(1, Ordering::SeqCst) > 0, &mut |_| {}) {
                    Ok(Some(Item::Sample(sample))) => got.push(number(&sample)),
                    Err(Error::Interrupted { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
            let interrupted = stream.next(&|| true, &mut |_| {});
            assert!(matches!(interrupted, Err(Error::Interrupted { .. })), "{interrupted:?}");
            place.generation(n as u64 * 5..n as u64 * 5 + 5);
        }
        assert_eq!(got, (0..15).collect::<Vec<_>>());
    }
}
