//! Work done ahead by threads, whose results come in the order in which it was given out: the same for any number of
//! threads. Dropping it stops the threads after what they are doing, and joins them. Nothing spins.

use crate::background::do_not_preempt;
use crate::error::{Error, Result};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time for which a wait does not ask whether it shall stop.
const SLICE: Duration = Duration::from_millis(50);

/// See the module.
pub struct Ahead<T, R> {
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
    results: HashMap<u64, Option<R>>,
    stopped: bool,
}

impl<T, R> Shared<T, R> {
    fn lock(&self) -> MutexGuard<'_, State<T, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static, R: Send + 'static> Ahead<T, R> {
    /// Starts so many threads, one at least.
    ///
    /// # Errors
    /// What the system says against another thread.
    pub fn new(threads: usize, work: impl Fn(T) -> R + Send + Sync + 'static) -> io::Result<Ahead<T, R>> {
        let state = State { tasks: VecDeque::new(), results: HashMap::new(), stopped: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), wanted: Condvar::new(), done: Condvar::new() });
        let work = Arc::new(work);
        let mut ahead = Ahead { shared, threads: Vec::new(), given: 0, taken: 0 };
        for n in 0..threads.max(1) {
            let (shared, work) = (ahead.shared.clone(), work.clone());
            let thread =
                std::thread::Builder::new().name(format!("read-ahead-{n}")).spawn(move || run(&shared, &*work));
            ahead.threads.push(thread?);
        }
        Ok(ahead)
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
    /// The work panicked: a bug.
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

fn run<T, R>(shared: &Shared<T, R>, work: &(impl Fn(T) -> R + ?Sized)) {
    do_not_preempt();
    let mut state = shared.lock();
    loop {
        if state.stopped {
            return;
        }
        let Some((number, task)) = state.tasks.pop_front() else {
            state = shared.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let result = catch_unwind(AssertUnwindSafe(|| work(task))).ok();
        state = shared.lock();
        state.results.insert(number, result);
        shared.done.notify_one();
    }
}

impl<T, R> Drop for Ahead<T, R> {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.wanted.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // its panics were caught
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_the_order_of_the_work_for_any_number_of_threads() {
        for threads in [0, 1, 2, 8] {
            let mut ahead = Ahead::new(threads, |n: u64| {
                std::thread::sleep(Duration::from_micros(n * 7919 % 300));
                n * n
            })
            .unwrap();
            (0..200).for_each(|n| ahead.give(n));
            for n in 0..200 {
                assert_eq!(ahead.take(&|| false).unwrap(), Some(n * n));
            }
        }
    }

    #[test]
    fn a_wait_can_be_given_up_and_taken_up_again() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Mutex::new(released);
        let mut ahead = Ahead::new(1, move |n: u32| {
            let _ = released.lock().unwrap().recv();
            n
        })
        .unwrap();
        ahead.give(5);
        assert_eq!(ahead.take(&|| true).unwrap(), None);
        release.send(()).unwrap();
        assert_eq!(ahead.take(&|| false).unwrap(), Some(5));
    }

    #[test]
    fn dropping_it_ends_its_threads_and_leaves_undone_what_was_not_begun() {
        let done = Arc::new(AtomicUsize::new(0));
        let counter = done.clone();
        let mut ahead = Ahead::new(2, move |()| {
            std::thread::sleep(Duration::from_millis(20));
            counter.fetch_add(1, Ordering::SeqCst)
        })
        .unwrap();
        (0..1000).for_each(|_| ahead.give(()));
        ahead.take(&|| false).unwrap();
        drop(ahead);
        let after = done.load(Ordering::SeqCst);
        assert!((1..100).contains(&after), "{after}");
        assert_eq!(Arc::strong_count(&done), 1, "no thread is left");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn its_threads_do_not_take_the_processor_of_who_wakes_them() {
        /// proc(5): the 41st field, counted behind the name, which may hold anything.
        fn policy(_: ()) -> String {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap().to_owned()
        }
        let mut ahead = Ahead::new(1, policy).unwrap();
        ahead.give(());
        assert_eq!(policy(()), "0", "SCHED_OTHER");
        assert_eq!(ahead.take(&|| false).unwrap().unwrap(), "3", "SCHED_BATCH");
    }

    #[test]
    fn a_panic_is_an_error_in_its_place() {
        let mut ahead = Ahead::new(2, |n: u32| {
            assert_ne!(n, 1, "on purpose");
            n
        })
        .unwrap();
        (0..3).for_each(|n| ahead.give(n));
        assert_eq!(ahead.take(&|| false).unwrap(), Some(0));
        assert!(ahead.take(&|| false).unwrap_err().to_string().contains("panicked"));
        assert_eq!(ahead.take(&|| false).unwrap(), Some(2));
    }
}
