//! Prefetching: order, reused buffers, errors, panics, and a drop at every stage. The tests run one at a time, because
//! they count the threads of this process.

use ringreel_recordio::Prefetch;
use ringreel_recordio::prefetch::{Panicked, Prefetched};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq)]
enum Bad {
    At(u64),
    Panicked(String),
}

impl From<Panicked> for Bad {
    fn from(panicked: Panicked) -> Bad {
        Bad::Panicked(panicked.message)
    }
}

type Buffer = Vec<u64>;
type Numbers = Prefetch<Buffer, Bad>;

/// Counts the prefetch threads; checks that none remains at the end of a test.
struct Threads(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Threads {
    fn alone() -> Threads {
        Threads(testkit::process::alone())
    }
    fn count() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        tasks.filter(|task| name(task.as_ref().unwrap().path()).trim() == "prefetch").count()
    }
    /// Waits until no thread remains. A joined thread stays in /proc for a moment, because the kernel wakes the joiner
    /// first.
    fn end(when: &str) {
        let started = Instant::now();
        while Threads::count() != 0 {
            assert!(started.elapsed() < PATIENCE, "{when}: {} threads are left", Threads::count());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !thread::panicking() {
            Threads::end("at the end of the test");
        }
    }
}

/// Produces 0, 1, 2, ... below `end`, each in a buffer of 1000 numbers. `before` is called before each.
fn numbers(depth: usize, end: u64, mut before: impl FnMut(u64) -> Result<(), Bad> + Send + 'static) -> Numbers {
    let mut n = 0;
    let produce = move |out: &mut Buffer| {
        let this = n;
        n += 1;
        before(this)?;
        out.clear();
        out.resize(1000, this);
        Ok(this < end)
    };
    Prefetch::new(depth, produce).unwrap()
}

fn within<T>(limit: Duration, what: &str, call: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let value = call();
    assert!(started.elapsed() < limit, "{what} took {:?}", started.elapsed());
    value
}

/// The longest wait in these tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `count` is `n`, and checks that it stays `n`.
fn settles(count: &AtomicUsize, n: usize) {
    let started = Instant::now();
    while count.load(Ordering::SeqCst) != n {
        assert!(started.elapsed() < PATIENCE, "{} instead of {n}", count.load(Ordering::SeqCst));
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(30));
    assert_eq!(count.load(Ordering::SeqCst), n);
}

fn counted() -> (Arc<AtomicUsize>, impl FnMut(u64) -> Result<(), Bad> + Send + 'static) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    (count, move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })
}

#[test]
fn items_arrive_in_order_in_reused_buffers() {
    let _alone = Threads::alone();
    for depth in [0, 1, 2, 7] {
        let mut addresses = BTreeSet::new();
        let mut next = 0;
        for item in numbers(depth, 500, |_| Ok(())) {
            let item = item.unwrap();
            assert!(item.iter().all(|n| *n == next));
            addresses.insert(item.as_ptr() as usize);
            next += 1;
        }
        assert_eq!(next, 500);
        assert!(addresses.len() <= depth.max(1) + 1, "{} buffers at depth {depth}", addresses.len());
    }
}

#[test]
fn producers_stay_within_their_depth_plus_held_items() {
    let _alone = Threads::alone();
    for depth in [1, 3] {
        let (count, counter) = counted();
        let mut ahead = numbers(depth, 1000, counter);
        settles(&count, depth);
        let held: Vec<Prefetched<Buffer>> = (0..20).map(|_| ahead.next().unwrap().unwrap()).collect();
        settles(&count, depth + 20);
        assert!(held.iter().enumerate().all(|(n, item)| item[0] == n as u64), "held items do not change");
        // Released buffers are reused: the next twenty items need no new one.
        let mut addresses: BTreeSet<_> = held.iter().map(|item| item.as_ptr() as usize).collect();
        drop(held);
        (0..40).for_each(|_| _ = addresses.insert(ahead.next().unwrap().unwrap().as_ptr() as usize));
        assert!(addresses.len() <= 20 + depth + 1, "{}", addresses.len());
    }
}

#[test]
fn errors_arrive_in_order_and_pause_the_producer() {
    let _alone = Threads::alone();
    let (count, mut counter) = counted();
    let mut ahead = numbers(4, 8, move |n| {
        counter(n)?;
        if n == 2 || n == 3 || n == 6 { Err(Bad::At(n)) } else { Ok(()) }
    });
    let mut seen = Vec::new();
    settles(&count, 3); // 0, 1, and the error: no fourth call
    for want in [3, 3, 3, 4, 7, 7, 7, 9] {
        seen.push(ahead.next().unwrap().map(|item| item[0]));
        settles(&count, want);
    }
    let bad = |n| Err(Bad::At(n));
    assert_eq!(seen, [Ok(0), Ok(1), bad(2), bad(3), Ok(4), Ok(5), bad(6), Ok(7)]);
    assert!(ahead.next().is_none() && ahead.next().is_none());
    settles(&count, 9);
}

#[test]
fn failing_producers_are_called_once_per_request() {
    let _alone = Threads::alone();
    let (count, mut counter) = counted();
    let mut ahead = numbers(4, 1000, move |n| counter(n).and(Err(Bad::At(n))));
    for n in 0..10 {
        settles(&count, n.max(1));
        assert_eq!(ahead.next().unwrap().unwrap_err(), Bad::At(n as u64));
    }
    settles(&count, 10);
}

#[test]
fn panics_become_errors_after_the_items_before_them() {
    let _alone = Threads::alone();
    std::panic::set_hook(Box::new(|_| {}));
    for depth in [1, 4] {
        let mut ahead = numbers(depth, 1000, |n| if n == 3 { panic!("at number {n}") } else { Ok(()) });
        (0..3).for_each(|n| assert_eq!(ahead.next().unwrap().unwrap()[0], n));
        assert_eq!(ahead.next().unwrap().unwrap_err(), Bad::Panicked("at number 3".to_owned()));
        assert!(ahead.next().is_none() && ahead.next().is_none());
        let mut odd = numbers(depth, 1000, |_| std::panic::panic_any(7));
        assert_eq!(odd.next().unwrap().unwrap_err(), Bad::Panicked("no message".to_owned()));
        drop(numbers(depth, 1000, |_| panic!("unseen")));
    }
    drop(std::panic::take_hook());
}

/// Reports the start of the producer's call number `n`, and blocks it until it is released.
fn gate(at: u64) -> (Receiver<()>, Sender<()>, impl FnMut(u64) -> Result<(), Bad> + Send + 'static) {
    let ((begun, is_in), (leave, may_go)) = (channel(), channel());
    (is_in, leave, move |n| {
        if n == at {
            begun.send(()).unwrap();
            let _ = may_go.recv();
        }
        Ok(())
    })
}

#[test]
fn drop_at_every_stage_stops_and_joins_the_thread() {
    let _alone = Threads::alone();
    let drops = |what: &str, ahead: Numbers| {
        within(PATIENCE, what, || drop(ahead));
        Threads::end(what);
    };
    drops("at once", numbers(3, 1000, |_| Ok(())));
    // The producer waits for a free buffer.
    let (count, counter) = counted();
    let ahead = numbers(3, 1000, counter);
    settles(&count, 3);
    drops("while it waits for a buffer", ahead);
    // The consumer holds items, and keeps them.
    let mut ahead = numbers(3, 1000, |_| Ok(()));
    let held: Vec<_> = (0..5).map(|_| ahead.next().unwrap().unwrap()).collect();
    drops("while items are held", ahead);
    assert!(held.iter().enumerate().all(|(n, item)| item[0] == n as u64));
    drop(held);
    // In the middle of a call: the producer stops after that call, even if buffers are free.
    let (is_in, leave, gate) = gate(2);
    let (count, mut counter) = counted();
    let mut both = gate;
    let ahead = numbers(9, 1000, move |n| counter(n).and(both(n)));
    is_in.recv().unwrap();
    let free = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(leave);
    });
    drops("while it produces", ahead);
    free.join().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3, "the producer was called after the drop");
    // After an error, taken or not; after the end.
    let mut ahead = numbers(3, 1000, |n| Err(Bad::At(n)));
    assert!(ahead.next().unwrap().is_err());
    drops("after an error", ahead);
    let (count, mut counter) = counted();
    let ahead = numbers(3, 1000, move |n| counter(n).and(Err(Bad::At(n))));
    settles(&count, 1);
    drops("with an error that was not taken", ahead);
    let mut ahead = numbers(3, 2, |_| Ok(()));
    assert_eq!(ahead.by_ref().count(), 2);
    drops("after the end", ahead);
    // The producer, and everything that it holds, is dropped.
    let witness = Arc::new(());
    let kept = witness.clone();
    drops(
        "with a value that the producer holds",
        numbers(2, 1000, move |n| if Arc::strong_count(&kept) > 0 { Ok(()) } else { Err(Bad::At(n)) }),
    );
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn many_dropped_prefetchers_leave_no_thread() {
    let _alone = Threads::alone();
    for n in 0..300 {
        let mut ahead = numbers(1 + n % 5, 50, |_| Ok(()));
        ahead.by_ref().take(n % 60).for_each(drop);
    }
}

#[test]
fn waiting_threads_use_no_processor_time() {
    let _alone = Threads::alone();
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum()
    };
    // The producer waits for the consumer, and the consumer for the producer, for 300 ms each.
    let mut ahead = numbers(2, 1000, |n| {
        if n == 2 {
            thread::sleep(Duration::from_millis(300));
        }
        Ok(())
    });
    thread::sleep(Duration::from_millis(300));
    let before = ticks();
    thread::sleep(Duration::from_millis(300));
    (0..3).for_each(|_| drop(ahead.next().unwrap().unwrap()));
    assert!(ticks() - before <= 6, "{} hundredths of a second of work", ticks() - before);
}
