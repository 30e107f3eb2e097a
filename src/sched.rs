//! Threads that work ahead of a consumer. Results come in the order of the work, for any number of threads.
//!
//! [`Pool`] owns its threads, and its caller says how much work is given out ahead. [`in_order`] borrows what it works
//! on, and has a window of its own. Nothing spins.
//!
//! Two others differ for a reason: `Prefetch` has one producer, which is called in sequence and gets its buffers back;
//! `verify` adds up results in any order, since one large file would hold up the window of all threads.

use crate::error::{Error, Result};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// Longest time for which a wait does not ask whether it shall stop.
const SLICE: Duration = Duration::from_millis(50);
/// Threads of [`in_order`] at most.
const MOST_THREADS: usize = 1024;
/// Numbers for each of its threads that are begun and not taken, at most.
const WINDOW: usize = 4;

/// A pool of threads whose results are taken in the order in which the work was given out. Dropping it stops the
/// threads after what they are doing, and joins them.
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
    /// None for work that panicked.
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
    /// Starts `threads` threads, at least one. They do not preempt others ([`do_not_preempt`]).
    ///
    /// # Errors
    /// The system starts no further thread.
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

    /// Gives out a piece of work.
    pub fn give(&mut self, task: T) {
        self.shared.lock().tasks.push_back((self.given, task));
        self.given += 1;
        self.shared.wanted.notify_one();
    }

    /// The result of the first piece of work whose result was not taken yet. None where `stop`, which is asked while it
    /// waits, says so: the result can be taken later.
    ///
    /// # Errors
    /// The work panicked, which is a bug.
    pub fn take(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<R>> {
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = state.results.remove(&self.taken) {
                self.taken += 1;
                let panicked =
                    || Error::Sample("a thread that reads ahead has panicked: a bug; please report it".into());
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
            let _ = thread.join(); // its panics were caught
        }
    }
}

/// Does `work` for each number of `range` in `threads` threads, and gives each result to `take`, in order, in this
/// thread. At most four results per thread exist at a time. The calls of `take` do not depend on `threads`.
///
/// # Errors
/// The first error of `take`, after which no further work is begun. A thread that cannot be started. The work panicked.
pub fn in_order<R: Send>(
    range: Range<u64>,
    threads: usize,
    work: &(dyn Fn(u64) -> R + Sync),
    mut take: impl FnMut(u64, R) -> Result<()>,
) -> Result<()> {
    let numbers = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(MOST_THREADS);
    let threads = threads.clamp(1, MOST_THREADS).min(numbers);
    thread::scope(|scope| {
        let mut pool = Pool::without_threads(); // those of the scope, which end when it is dropped
        for _ in 0..threads {
            let shared = pool.shared.clone();
            let run = move || shared.run(work);
            let started = Builder::new().name("ringreel-convert".into()).spawn_scoped(scope, run);
            started.map_err(|error| Error::Sample(format!("a thread cannot be started: {error}")))?;
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

/// Makes the calling thread preempt no other when it wakes up (`SCHED_BATCH`, see sched(7)); its share of time stays the
/// same. Changes nothing on other systems than Linux, or where another policy was set already.
///
/// A thread that was asleep is let onto a processor at once, and where none is idle the thread that woke it has to wait
/// until it sleeps again: the consumer of a stream, while one sample is read. On a machine of two cores with a generator
/// beside it that was 4 ms at the 99th percentile of a training loop's waits, and is 0.4 ms with this policy.
#[allow(unsafe_code)]
pub fn do_not_preempt() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: both calls take numbers, and the address of a value that lives until they return; 0 is this thread.
        let refused = unsafe {
            let priority: libc::sched_param = std::mem::zeroed();
            libc::sched_getscheduler(0) == libc::SCHED_OTHER
                && libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) != 0
        };
        if refused {
            let error = io::Error::last_os_error();
            tracing::debug!(%error, "a thread in the background keeps its scheduling policy");
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
        /// proc(5): the 41st field, counted behind the name, which may hold anything.
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
        in_order(3..3, 4, &|n| n, |_, _| Err(Error::Sample("nothing was to be done".to_owned())))
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
