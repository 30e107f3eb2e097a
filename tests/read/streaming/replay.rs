//! Replays read again what a run has read.

use ringreel::read::shard::Equal;
use ringreel::{Error, Stream, StreamOptions};
use testkit::stream::{Got, World, drain, take, worker};

fn run(name: &str) -> StreamOptions {
    StreamOptions { run: Some(name.into()), ..worker(0, 1) }
}

fn replay(name: &str) -> StreamOptions {
    StreamOptions { replay: Some(name.into()), ..worker(0, 1) }
}

/// A shuffled run over three generations, with two epochs of the last one.
fn told(keep: u64) -> (World, Vec<Got>) {
    let place = World::new(&format!("SWAP_CAP: 10\nKEEP: {keep}\n"));
    let mut stream = Option::<Stream>::None;
    let mut got = Vec::new();
    for n in 0..3 {
        place.generation(n * 10..n * 10 + 10);
        let options = StreamOptions { shuffle: true, seed: 4, ..run("r") };
        got.extend(take(stream.get_or_insert_with(|| place.stream(options)), 10));
    }
    got.extend(take(&mut stream.unwrap(), 10));
    (place, got)
}

#[test]
fn replays_give_the_same_order_and_end_with_the_log() {
    let (place, got) = told(9);
    place.generation(30..40); // a newer generation, which the run did not read
    for prefetch_bytes in [0, 1 << 20] {
        let mut stream = place.stream(StreamOptions { prefetch_bytes, ..replay("r") });
        assert_eq!(drain(&mut stream), got);
        assert_eq!((stream.epochs(), stream.run()), (4, "r"));
    }
    // More workers than in the run read the same samples together.
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| drain(&mut place.stream(StreamOptions { share: worker(rank, 3).share, ..replay("r") })).into_iter())
        .collect();
    for (n, got) in got.iter().enumerate() {
        assert_eq!(ranks[n % 10 % 3].next().as_ref(), Some(got));
    }
    assert_eq!(drain(&mut place.stream(StreamOptions { epochs: Some(2), ..replay("r") })), got[..20]);
    assert_eq!(place.ring().run_names().unwrap(), ["r"], "a replay is recorded as a run");
}

#[test]
fn replay_can_be_saved_and_resumed() {
    let (place, got) = told(9);
    let mut stream = place.stream(replay("r"));
    take(&mut stream, 13);
    let state = stream.state();
    let mut stream = place.stream(replay("r"));
    stream.load(&state).unwrap();
    assert_eq!(drain(&mut stream), got[13..]);
}

#[test]
fn runs_begun_from_a_foreign_state_are_replayed_from_there() {
    let (place, got) = told(9);
    let mut stream = place.stream(StreamOptions { shuffle: true, seed: 4, ..run("r") });
    take(&mut stream, 25);
    let mut other = place.stream(StreamOptions { shuffle: true, seed: 4, ..run("other") });
    other.load(&stream.state()).unwrap();
    let more = take(&mut other, 9);
    assert_eq!(more[..5], got[25..30]);
    let again = drain(&mut place.stream(replay("other")));
    assert_eq!(again[..10], got[20..30], "the complete first epoch");
    assert_eq!((again[10..14].iter().collect::<Vec<_>>(), again.len()), (more[5..].iter().collect(), 20));
}

#[test]
fn replay_of_an_unknown_run_is_an_error() {
    let (place, _) = told(9);
    let error = Stream::new(place.reader(), replay("another")).err().unwrap();
    assert!(matches!(error, Error::Sample(_)) && error.to_string().contains("\"another\""), "{error}");
    assert!(Stream::new(place.reader(), replay("../r")).is_err());
}

#[test]
fn reclaimed_samples_are_skipped_or_replaced_in_replays() {
    let (place, got) = told(0);
    place.ring().reclaim().unwrap();
    assert!(!place.has(1) && !place.has(2) && place.has(3));
    assert_eq!(drain(&mut place.stream(replay("r"))), got[20..]);
    let again = drain(&mut place.stream(StreamOptions { equal: Equal::Wrap, ..replay("r") }));
    assert_eq!((again.len(), &again[20..]), (40, &got[20..]));
    assert!(again[..20].iter().all(|got| got.generation == 3));
}

#[test]
fn concurrent_workers_of_a_run_read_the_same_epoch() {
    let place = World::new("SWAP_CAP: 10\nKEEP: 9\n");
    place.generation(0..10);
    let mut ranks = [0, 1].map(|rank| place.stream(StreamOptions { share: worker(rank, 2).share, ..run("r") }));
    for n in 1..20 {
        place.generation(n * 10..n * 10 + 10);
        let epochs = std::thread::scope(|scope| {
            ranks.each_mut().map(|stream| scope.spawn(|| take(stream, 5).remove(4))).map(|rank| rank.join().unwrap())
        });
        let [first, second] = epochs;
        assert_eq!((first.epoch, first.generation), (second.epoch, second.generation));
        assert_eq!(second.position, first.position + 1);
    }
}
