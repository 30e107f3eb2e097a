//! Which worker gets which samples in an epoch.

use ringreel::read::shard::Equal;
use ringreel::{Error, Reader, Stream, StreamOptions};
use std::sync::Arc;
use std::time::Duration;
use testkit::stream::{Got, MODES, World, drain, next, worker};

const WORLDS: [u64; 7] = [1, 2, 3, 4, 8, 16, 32];
const SIZES: [u64; 3] = [1, 7, 100];
const EPOCHS: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum How {
    /// One worker after the other, each to its end.
    InTurn,
    /// One step of each worker in turn, the last worker first.
    StepByStep,
    InThreads,
}

/// Returns what each of `world` workers of run `run` reads.
fn read(place: &World, how: How, run: &str, world: u64, options: &StreamOptions) -> Vec<Vec<Got>> {
    let shared = place.reader();
    let streams = (0..world).map(|rank| {
        let reader = if world.is_multiple_of(2) { shared.clone() } else { place.reader() };
        let run = Some(run.to_owned());
        Stream::new(reader, StreamOptions { share: worker(rank, world).share, run, ..options.clone() }).unwrap()
    });
    let mut streams: Vec<Stream> = streams.collect();
    match how {
        How::InTurn => streams.iter_mut().map(drain).collect(),
        How::InThreads => std::thread::scope(|scope| {
            let threads: Vec<_> = streams.iter_mut().map(|stream| scope.spawn(move || drain(stream))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        }),
        How::StepByStep => {
            let mut got = vec![Vec::new(); streams.len()];
            loop {
                let mut ended = 0;
                for (rank, stream) in streams.iter_mut().enumerate().rev() {
                    match next(stream).unwrap() {
                        Some(item) => got[rank].push(item),
                        None => ended += 1,
                    }
                }
                assert!(ended == 0 || ended == streams.len(), "{ended} of {} ended before the others", streams.len());
                if ended > 0 {
                    return got;
                }
            }
        }
    }
}

/// The expected position at each step of `rank` in an epoch with this order.
fn due(order: &[u64], rank: u64, world: u64, equal: Equal) -> Vec<Option<u64>> {
    let samples = order.len() as u64;
    let steps = match equal {
        Equal::No => (0..samples).filter(|n| n % world == rank).count() as u64,
        Equal::Drop => samples / world,
        Equal::Wrap | Equal::Pad => samples.div_ceil(world),
    };
    let numbers = (0..steps).map(|step| step * world + rank);
    numbers
        .map(|n| match equal {
            Equal::Wrap => Some(order[(n % samples) as usize]),
            _ => order.get(n as usize).copied(),
        })
        .collect()
}

#[test]
fn workers_read_equal_disjoint_and_complete_shares() {
    for samples in SIZES {
        let place = World::new("SWAP_CAP: 100\nSEGMENT_SAMPLES: 9\n");
        place.generation(0..samples);
        for shuffle in [false, true] {
            let options = StreamOptions { shuffle, seed: 5, epochs: Some(EPOCHS), ..worker(0, 1) };
            let alone = read(&place, How::InTurn, &format!("alone-{shuffle}"), 1, &options).remove(0);
            let order = |epoch| alone.iter().filter(move |got| got.epoch == epoch).map(|got| got.position);
            let orders: Vec<Vec<u64>> = (0..EPOCHS).map(|epoch| order(epoch).collect()).collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..samples).collect::<Vec<_>>(), "each sample once");
            }
            assert!(samples < 7 || (orders[0] == orders[1]) != shuffle, "epochs have the same order");
            for equal in MODES {
                for (n, world) in WORLDS.into_iter().enumerate() {
                    let options = StreamOptions { equal, ..options.clone() };
                    // A worker without a step does not take part in the decision about the next epoch.
                    let how = match n % 3 {
                        _ if equal == Equal::No => How::InTurn,
                        0 => How::InTurn,
                        1 => How::StepByStep,
                        _ => How::InThreads,
                    };
                    let what = format!("{samples} samples, {world} workers, {equal:?}, shuffle {shuffle}, {how:?}");
                    if equal == Equal::Drop && samples < world {
                        assert_all_shares_are_empty(&place, world, &options);
                        continue;
                    }
                    let got = read(&place, how, &format!("{equal:?}-{world}-{shuffle}"), world, &options);
                    for (rank, got) in got.iter().enumerate() {
                        let mut got = got.iter();
                        for (epoch, order) in (0..).zip(&orders) {
                            for due in due(order, rank as u64, world, equal) {
                                let item = got.next().unwrap_or_else(|| panic!("{what}: {rank} ends early"));
                                assert_eq!((item.epoch, item.generation, item.damaged), (epoch, 1, None), "{what}");
                                assert_eq!(item.is_padding, due.is_none(), "{what}: {rank}, {item:?}");
                                assert!(due.is_none_or(|due| due == item.position), "{what}: {rank}, {item:?}");
                            }
                        }
                        assert_eq!(got.next(), None, "{what}: {rank}");
                    }
                    let again = read(&place, how, &format!("again-{equal:?}-{world}-{shuffle}"), world, &options);
                    assert_eq!(got, again, "{what}: another run with the same seed");
                }
            }
        }
    }
}

/// Checks that each worker reports an error if there are fewer samples than workers and the remainder is dropped.
fn assert_all_shares_are_empty(place: &World, world: u64, options: &StreamOptions) {
    let run = format!("nothing-{world}-{}", options.shuffle);
    let reader = place.reader();
    for rank in 0..world.min(3) {
        let options = StreamOptions { share: worker(rank, world).share, run: Some(run.clone()), ..options.clone() };
        let mut stream = Stream::new(reader.clone(), options).unwrap();
        assert!(matches!(next(&mut stream), Err(Error::Sample(_))));
    }
    assert_eq!(reader.ring().run(&run).unwrap().epochs().unwrap(), [], "an epoch was decided");
}

#[test]
fn empty_shares_are_errors_that_name_the_numbers_and_ways_out() {
    let place = World::new("SWAP_CAP: 100\n");
    place.generation(0..24);
    for run in [None, Some("r".to_owned())] {
        for epochs in [None, Some(2)] {
            let options = StreamOptions { equal: Equal::Drop, epochs, run: run.clone(), ..worker(3, 32) };
            let mut stream = Stream::new(place.reader(), options).unwrap();
            for _ in 0..2 {
                let error = next(&mut stream).unwrap_err();
                let text = error.to_string();
                assert!(matches!(error, Error::Sample(_)), "{text}");
                for word in ["generation 1 holds 24 samples", "32 workers", "SWAP_CAP", "wrap", "pad", "fewer"] {
                    assert!(text.contains(word), "{word}: {text}");
                }
            }
        }
    }
    // With the other policies, or with fewer workers, each worker has a step.
    for options in
        [StreamOptions { equal: Equal::Wrap, ..worker(31, 32) }, StreamOptions { equal: Equal::Drop, ..worker(3, 24) }]
    {
        assert!(next(&mut place.stream(options)).unwrap().is_some());
    }
}

#[test]
fn workers_of_an_empty_ring_wait_until_their_timeout() {
    let place = World::new("SWAP_CAP: 100\n");
    drop(ringreel::Generator::open(&place.config()).unwrap());
    let reader = Arc::new(Reader::open(&place.config()).unwrap());
    std::thread::scope(|scope| {
        for equal in MODES {
            for rank in 0..3 {
                let reader = reader.clone();
                scope.spawn(move || {
                    let timeout = Some(Duration::from_millis(100));
                    let options = StreamOptions { equal, timeout, run: Some(format!("{equal:?}")), ..worker(rank, 3) };
                    let mut stream = Stream::new(reader, options).unwrap();
                    for _ in 0..2 {
                        let error = next(&mut stream).unwrap_err();
                        assert!(matches!(error, Error::Timeout { .. }), "{error}");
                        assert!(error.to_string().contains("generation 1 holds 0 of 100 samples"), "{error}");
                    }
                });
            }
        }
    });
    place.generation(0..6);
    assert_eq!(next(&mut place.stream(worker(1, 3))).unwrap().unwrap().position, 1);
}
