//! Threads that work ahead of a consumer. Results are taken in the order of the work, for any
//! number of threads.
//!
//! [`Pool`] owns its threads, and its caller decides how much work is queued ahead. [`in_order`]
//! borrows its input and limits the work ahead to a window. No thread spins.
//!
//! Two other thread pools differ for a reason: `Prefetch` has one producer, which is called in
//! sequence and gets its buffers back; `verify` combines results in any order, because one large
//! file would stall the window of all threads.

use crate::error::{Error, Result};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// Maximum time for which a wait does not check whether to stop.
const SLICE: Duration = Duration::from_millis(50);
/// Maximum number of threads of [`in_order`].
const MOST_THREADS: usize = 1024;
/// Maximum number of items per thread of [`in_order`] that are begun and not taken.
const WINDOW: usize = 4;

/// A thread pool whose results are taken in the order in which the work was queued. Dropping it
/// lets each thread finish its current item, and joins all threads.
pub struct Pool<T, R> {
    shared: Arc<Shared<T, R>>,
    threads: Vec<JoinHandle<()>>,
    given: u64,
    taken: u64,
}

struct Shared<T, R> {
    state: Mutex<State<T, R>>,
    wanted: Condvar,
    done: Condvar,
}

struct State<T, R> {
    tasks: VecDeque<(u64, T)>,
    /// Results by number; `None` for work that panicked.
    results: HashMap<u64, Option<R>>,
    stopped: bool,
}

impl<T, R> Shared<T, R> {
    fn lock(&self) -> MutexGuard<'_, State<T, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until the pool is dropped.
    fn run(&self, work: &(impl Fn(T) -> R + ?Sized)) {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return;
            }
            let Some((number, task)) = state.tasks.pop_front() else {
                state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(|| work(task))).ok();
            state = self.lock();
            state.results.insert(number, result);
            self.done.notify_one();
        }
    }
}

impl<T, R> Pool<T, R> {
    /// Starts `threads` threads, at least one. They do not preempt other threads
    /// ([`do_not_preempt`]).
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub fn new(threads: usize, work: impl Fn(T) -> R + Send + Sync + 'static) -> io::Result<Pool<T, R>>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let work = Arc::new(work);
        let mut pool = Pool::without_threads();
        for n in 0..threads.max(1) {
            let (shared, work) = (pool.shared.clone(), work.clone());
            let run = move || {
                do_not_preempt();
                shared.run(&*work);
            };
            pool.threads.push(Builder::new().name(format!("read-ahead-{n}")).spawn(run)?);
        }
        Ok(pool)
    }

    fn without_threads() -> Pool<T, R> {
        let state = State { tasks: VecDeque::new(), results: HashMap::new(), stopped: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), wanted: Condvar::new(), done: Condvar::new() });
        Pool { shared, threads: Vec::new(), given: 0, taken: 0 }
    }

    /// Queues a piece of work.
    pub fn give(&mut self, task: T) {
        self.shared.lock().tasks.push_back((self.given, task));
        self.given += 1;
        self.shared.wanted.notify_one();
    }

    /// Returns the next result, in the order of the work. Returns `None` if `stop`, which is called
    /// during the wait, returns true; the result can be taken later.
    ///
    /// # Errors
    /// The work panicked, which is a bug.
    pub fn take(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<R>> {
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = state.results.remove(&self.taken) {
                self.taken += 1;
                let panicked =
                    || Error::Sample("a read-ahead thread panicked, which is a bug; please report it".into());
                return result.ok_or_else(panicked).map(Some);
            }
            let waited = self.shared.done.wait_timeout(state, SLICE).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                drop(state);
                if stop() {
                    return Ok(None);
                }
                state = self.shared.lock();
            }
        }
    }
}

impl<T, R> Drop for Pool<T, R> {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.wanted.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // panics of the work were caught
        }
    }
}

/// Runs `work` for each number of `range` in `threads` threads, and passes the results to `take` in
/// order, in this thread. At most four results per thread exist at a time. The calls of `take` do
/// not depend on `threads`.
///
/// # Errors
/// The first error of `take`, after which no further work is begun; a thread that cannot be
/// started; a panic of `work`.
pub fn in_order<R: Send>(
    range: Range<u64>,
    threads: usize,
    work: &(dyn Fn(u64) -> R + Sync),
    mut take: impl FnMut(u64, R) -> Result<()>,
) -> Result<()> {
    let numbers = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(MOST_THREADS);
    let threads = threads.clamp(1, MOST_THREADS).min(numbers);
    thread::scope(|scope| {
        let mut pool = Pool::without_threads(); // the threads belong to the scope and end when the pool is dropped
        for _ in 0..threads {
            let shared = pool.shared.clone();
            let run = move || shared.run(work);
            let started = Builder::new().name("ringreel-convert".into()).spawn_scoped(scope, run);
            started.map_err(|error| Error::Sample(format!("cannot start a thread: {error}")))?;
        }
        let mut ahead = range.start;
        for number in range.clone() {
            while ahead < range.end && ahead - number < (threads * WINDOW) as u64 {
                pool.give(ahead);
                ahead += 1;
            }
            if let Some(result) = pool.take(&|| false)? {
                take(number, result)?;
            }
        }
        Ok(())
    })
}

/// Prevents the calling thread from preempting another thread when it wakes up (`SCHED_BATCH`, see
/// sched(7)); its share of CPU time stays the same. Does nothing on systems other than Linux, or if
/// another policy is set already.
///
/// Otherwise the scheduler runs a thread that wakes up at once. If no core is idle, the thread that
/// woke it has to wait until it sleeps again; here that is the consumer of a stream, for as long as
/// one sample is read. On a machine with two cores and a generator, this took 4 ms at the 99th
/// percentile of a training loop's waits, against 0.4 ms with this policy.
#[allow(unsafe_code)]
pub fn do_not_preempt() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: both calls take numbers, and the address of a value that lives until they return;
        // 0 is this thread.
        let refused = unsafe {
            let priority: libc::sched_param = std::mem::zeroed();
            libc::sched_getscheduler(0) == libc::SCHED_OTHER
                && libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) != 0
        };
        if refused {
            let error = io::Error::last_os_error();
            tracing::debug!(%error, "cannot change the scheduling policy of a background thread");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    #[test]
    fn pool_keeps_the_order_for_any_number_of_threads() {
        for threads in [0, 1, 2, 8] {
            let mut pool = Pool::new(threads, |n: u64| {
                thread::sleep(Duration::from_micros(n * 7919 % 300));
                n * n
            })
            .unwrap();
            (0..200).for_each(|n| pool.give(n));
            for n in 0..200 {
                assert_eq!(pool.take(&|| false).unwrap(), Some(n * n));
            }
        }
    }

    #[test]
    fn interrupted_wait_can_be_repeated() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Mutex::new(released);
        let mut pool = Pool::new(1, move |n: u32| {
            let _ = released.lock().unwrap().recv();
            n
        })
        .unwrap();
        pool.give(5);
        assert_eq!(pool.take(&|| true).unwrap(), None);
        release.send(()).unwrap();
        assert_eq!(pool.take(&|| false).unwrap(), Some(5));
    }

    #[test]
    fn dropped_pool_joins_its_threads_and_skips_waiting_work() {
        let done = Arc::new(AtomicUsize::new(0));
        let counter = done.clone();
        let mut pool = Pool::new(2, move |()| {
            thread::sleep(Duration::from_millis(20));
            counter.fetch_add(1, Ordering::SeqCst)
        })
        .unwrap();
        (0..1000).for_each(|_| pool.give(()));
        pool.take(&|| false).unwrap();
        drop(pool);
        let after = done.load(Ordering::SeqCst);
        assert!((1..100).contains(&after), "{after}");
        assert_eq!(Arc::strong_count(&done), 1, "no thread is left");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pool_threads_do_not_preempt_the_consumer() {
        /// The scheduling policy is field 41 in proc(5), counted after the name, which may contain
        /// any character.
        fn policy(_: ()) -> String {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap().to_owned()
        }
        let mut pool = Pool::new(1, policy).unwrap();
        pool.give(());
        assert_eq!(policy(()), "0", "SCHED_OTHER");
        assert_eq!(pool.take(&|| false).unwrap().unwrap(), "3", "SCHED_BATCH");
    }

    #[test]
    fn panic_in_a_pool_is_an_error_in_its_place() {
        let mut pool = Pool::new(2, |n: u32| {
            assert_ne!(n, 1, "on purpose");
            n
        })
        .unwrap();
        (0..3).for_each(|n| pool.give(n));
        assert_eq!(pool.take(&|| false).unwrap(), Some(0));
        assert!(pool.take(&|| false).unwrap_err().to_string().contains("panicked"));
        assert_eq!(pool.take(&|| false).unwrap(), Some(2));
    }

    #[test]
    fn in_order_keeps_the_order_and_its_window() -> Result<()> {
        for threads in [1, 2, 7, 64] {
            let (begun, mut taken) = (AtomicU64::new(0), Vec::new());
            let work = |n: u64| {
                begun.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(n * 7919 % 300));
                n * n
            };
            in_order(5..205, threads, &work, |n, square| {
                assert!(begun.load(Ordering::SeqCst) <= (taken.len() + 1 + 4 * threads) as u64);
                taken.push((n, square));
                Ok(())
            })?;
            assert_eq!(taken, (5..205).map(|n| (n, n * n)).collect::<Vec<_>>());
        }
        in_order(3..3, 4, &|n| n, |_, _| Err(Error::Sample("there was no work".to_owned())))
    }

    #[test]
    fn in_order_ends_with_the_first_error() {
        let begun = AtomicU64::new(0);
        let work = |n| (begun.fetch_add(1, Ordering::SeqCst), n).1;
        let take = |n, _| if n == 10 { Err(Error::Sample("enough".to_owned())) } else { Ok(()) };
        let done = in_order(0..1_000_000, 4, &work, take);
        assert!(matches!(done, Err(Error::Sample(_))) && begun.load(Ordering::SeqCst) < 100);
    }

    #[test]
    fn in_order_reports_a_panic_in_its_place() {
        let (work, mut taken) = (|n: u64| assert_ne!(n, 3, "on purpose"), 0);
        let done = in_order(0..100, 2, &work, |_, ()| {
            taken += 1;
            Ok(())
        });
        assert!(done.unwrap_err().to_string().contains("panicked") && taken == 3);
    }
}
