//! Times of streams and generators, compared with an outside clock around the same calls, and what a stream counts.

use ringreel::read::stream::Item;
use ringreel::{Generator, NamedPart, Reader, Stream, StreamOptions, StreamStats, Summary};
use ringreel_format::{DType, Meta};
use std::path::Path;
use std::sync::Arc;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use testkit::ring::{Action, HookFs};
use testkit::stream::{SHAPE, World, data, drain, eventually, one, put, take, worker};

/// Difference between a measured sum and an outside clock that a busy machine explains, in seconds: the outside clock
/// also counts the time in which the test's thread is not scheduled between two readings of the clocks.
const SLACK: f64 = 0.02;

/// Asserts that two times differ by at most 2 % and [`SLACK`].
#[track_caller]
fn assert_close(measured: f64, outside: Duration, what: &str) {
    let outside = outside.as_secs_f64();
    assert!((measured - outside).abs() <= outside * 0.02 + SLACK, "{what}: {measured} s, outside clock {outside} s");
}

/// Measures the time inside and outside of the calls of a stream.
#[derive(Default)]
struct Outside {
    inside: Duration,
    between: Duration,
    returned: Option<Instant>,
}

impl Outside {
    /// Calls `next`; returns the time in that call.
    fn next(&mut self, stream: &mut Stream) -> Duration {
        let called = Instant::now();
        self.between += self.returned.map_or(Duration::ZERO, |returned| called - returned);
        let item = stream.next(&|| false, &mut |_| {}).unwrap();
        assert!(matches!(item, Some(Item::Sample(_))), "{item:?}");
        self.returned = Some(Instant::now());
        self.inside += called.elapsed();
        called.elapsed()
    }
}

/// A filesystem on which every segment takes 30 ms to open.
fn slow_disk() -> HookFs {
    let fs = HookFs::default();
    fs.hook(|_, op, path: &Path| {
        if op == "open" && path.extension().is_some_and(|end| end == "rec") {
            sleep(Duration::from_millis(30));
        }
        Action::Pass
    });
    fs
}

#[test]
fn stream_times_match_an_outside_clock() {
    for prefetch_bytes in [0, 1] {
        let place = World::new("SWAP_CAP: 8\n");
        place.generation(0..8);
        let reader = Reader::open_on(Arc::new(slow_disk()), &place.config()).unwrap();
        let options = StreamOptions { prefetch_bytes, repeat: false, ..worker(0, 1) };
        let mut stream = Stream::new(Arc::new(reader), options).unwrap();
        assert_eq!(stream.stats(), StreamStats::default());
        sleep(Duration::from_millis(50)); // before the first call: counted by nobody
        let mut clock = Outside::default();
        for _ in 0..8 {
            clock.next(&mut stream);
            sleep(Duration::from_millis(40));
        }
        let stats = stream.stats();
        assert_eq!(stats.waited_seconds, 0.0, "{stats:?}");
        assert_close(stats.read_seconds, clock.inside, "read");
        assert_close(stats.step_seconds, clock.between + clock.returned.unwrap().elapsed(), "step");
        assert!(prefetch_bytes > 0 || stats.read_seconds >= 0.24, "8 opens of 30 ms: {stats:?}");

        let before = stream.stats();
        let waited = scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(600));
                place.generation(8..16);
            });
            clock.next(&mut stream)
        });
        let stats = stream.stats();
        let (waits, reads) = (stats.waited_seconds, stats.read_seconds - before.read_seconds);
        assert_close(waits + reads, waited, "waited and read");
        // The thread publishes after most of the call, and the sample's segment takes 30 ms to open.
        assert!(reads >= 0.03 && waits > 0.1, "{waits} {reads}");
        let all = stats.waited_seconds + stats.read_seconds + stats.step_seconds;
        assert!((stats.starved().unwrap() - stats.waited_seconds / all).abs() < 1e-9);
    }
}

/// While `next` waits in one thread, another one reads the time that it has waited so far. The end of the stream ends
/// the count.
#[test]
fn stats_grow_during_a_wait_and_stop_at_the_end() {
    let place = World::new("SWAP_CAP: 2\n");
    place.generation(0..2);
    let mut stream = place.stream(StreamOptions { repeat: false, epochs: Some(2), ..worker(0, 1) });
    take(&mut stream, 2);
    let position = stream.position();
    scope(|scope| {
        let reading = scope.spawn(|| take(&mut stream, 2).len());
        eventually("the wait is visible", || position.stats().waited_seconds > 0.05);
        assert_eq!(position.stats().now, "waited");
        place.generation(2..4);
        assert_eq!(reading.join().unwrap(), 2);
    });
    assert_eq!(position.stats().now, "step");
    assert_eq!(drain(&mut stream), []);
    let ended = stream.stats();
    sleep(Duration::from_millis(5));
    assert_eq!((stream.stats(), &*ended.now), (ended.clone(), ""));
    stream.add_wait(Duration::from_secs(100));
    assert!((stream.stats().waited_seconds - ended.waited_seconds - 100.0).abs() < 1e-6);
}

#[test]
fn stream_counts_distinct_samples_and_their_reads() {
    let place = World::new("SWAP_CAP: 10\nVALIDATION: 2\nKEEP: 3\n");
    place.generation(0..10);
    let counts = |stream: &Stream| {
        let stats = stream.stats();
        (stats.distinct, stats.offered, stats.share_read, stats.reads_per_sample)
    };
    // Two samples are held out.
    let mut stream = place.stream(StreamOptions { shuffle: true, ..worker(0, 1) });
    assert_eq!(counts(&stream), (0, 0, None, None));
    take(&mut stream, 4);
    assert_eq!(counts(&stream), (4, 8, Some(0.5), Some(1.0)));
    take(&mut stream, 20);
    assert_eq!(counts(&stream), (8, 8, Some(1.0), Some(3.0)));
    place.generation(10..20);
    while one(&mut stream).generation == 1 {}
    let stats = stream.stats();
    assert_eq!((stats.distinct, stats.offered, stats.share_read), (9, 18, Some(0.5)));
    // Padding samples are no reads.
    let mut padded = place.stream(StreamOptions { equal: ringreel::Equal::Pad, epochs: Some(1), ..worker(2, 3) });
    assert_eq!((drain(&mut padded).len(), counts(&padded).0), (4, 3));
}

#[test]
fn age_at_reading_follows_the_clock() {
    let place = World::new("SWAP_CAP: 4\n");
    let begun = Instant::now();
    place.generation(0..4);
    let written = Instant::now();
    let mut stream = place.stream(worker(0, 1));
    sleep(Duration::from_millis(300));
    let least = written.elapsed().as_secs_f64();
    take(&mut stream, 4);
    let (age, most) = (stream.stats().age_seconds.unwrap(), begun.elapsed().as_secs_f64());
    assert!((least - SLACK..most + SLACK).contains(&age), "{least} {age} {most}");
}

/// Sums of a generator's times around calls that this test makes.
fn assert_sums(summary: &Summary, inside: Duration, between: Duration) {
    assert_close(summary.waited_seconds + summary.wrote_seconds, inside, "inside");
    assert_close(summary.made_seconds, between, "made");
    let waits = summary.waited_room_seconds + summary.waited_readers_seconds;
    assert_eq!(summary.waited_seconds, waits, "{summary:?}");
}

/// Writes until the call blocks for `blocked`; returns the times inside and between the calls.
fn write_until_blocked(generator: &mut Generator, blocked: Duration) -> (Duration, Duration, Duration) {
    let (mut inside, mut between, mut last) = (Duration::ZERO, Duration::ZERO, Instant::now());
    let bytes = data(1);
    loop {
        sleep(Duration::from_millis(20));
        between += last.elapsed();
        let called = Instant::now();
        let stop = || called.elapsed() >= blocked;
        let done = generator.write(&[NamedPart::new("data", DType::F32, &SHAPE, &bytes)], &Meta::new(), &stop);
        (inside, last) = (inside + called.elapsed(), Instant::now());
        if called.elapsed() >= blocked {
            assert!(matches!(done, Ok(_) | Err(ringreel::Error::Interrupted { .. })), "{done:?}");
            return (inside, between, called.elapsed());
        }
        done.unwrap();
    }
}

#[test]
fn generator_times_match_an_outside_clock() {
    let blocked = Duration::from_millis(500);
    for (yaml, for_readers) in [("SWAP_CAP: 4\nMAX_FILES: 10\n", false), ("SWAP_CAP: 4\nREUSE: {min: 1}\n", true)] {
        let place = World::new(yaml);
        let mut generator = Generator::open(&place.config()).unwrap();
        let (inside, between, waited) = write_until_blocked(&mut generator, blocked);
        let summary = generator.summary();
        assert_sums(&summary, inside, between);
        let (expected, other) = match for_readers {
            true => (summary.waited_readers_seconds, summary.waited_room_seconds),
            false => (summary.waited_room_seconds, summary.waited_readers_seconds),
        };
        assert_close(expected, waited, yaml);
        assert!(other < SLACK, "{summary:?}");
        let finished = generator.finish(false, &|| true).unwrap();
        assert!(finished.waited_seconds >= summary.waited_seconds);
    }
}

#[test]
fn generator_that_never_waits_reports_no_wait() {
    let place = World::new("SWAP_CAP: 1000000\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    // The clock advances by ticks of up to 10 ms, so a few calls may take no time.
    eventually("times of making and of writing", || {
        put(&mut generator, 0);
        let summary = generator.summary();
        assert_eq!(summary.waited_seconds, 0.0);
        summary.wrote_seconds > 0.0 && summary.made_seconds > 0.0
    });
}
