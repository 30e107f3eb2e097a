//! Memory budgets of this process. Sizes that are claimed in files of other users are compared with
//! the available memory, and with what all threads and readers of the process already hold.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Condvar, LazyLock, Mutex, OnceLock, PoisonError};

/// Smaller sizes are not counted, because a caller that holds many small samples has requested each
/// of them.
const COUNTED: u64 = 1 << 20;

/// Returns the smallest `memory.max` of this process's control group and its ancestors (cgroup
/// version 2).
pub fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(group.trim());
    let up = own.ancestors().take_while(|dir| dir.starts_with(root));
    up.filter_map(|dir| std::fs::read_to_string(dir.join("memory.max")).ok()?.trim().parse().ok()).min()
}

/// Returns the memory in bytes that this process may use: the smallest of the machine's memory, its
/// control group's limit, and its address space limit (`ulimit -v`). Queries the system once.
pub fn bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let system = rustix::system::sysinfo();
        let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
        let addresses = rustix::process::getrlimit(rustix::process::Resource::As).current;
        machine.min(group_limit().unwrap_or(u64::MAX)).min(addresses.unwrap_or(u64::MAX))
    })
}

/// The budget of samples that readers read and hand out. An eighth of the memory is left for
/// everything else.
pub static HANDED_OUT: LazyLock<Budget> = LazyLock::new(|| Budget::new(bytes() - bytes() / 8));
/// The budget of data that is read only to be verified.
pub static CHECKED: LazyLock<Budget> = LazyLock::new(|| Budget::new(bytes() / 4 * 3));

/// Memory that all threads together may hold for one purpose. Reserving and releasing it takes no
/// lock, because both happen for each sample, and a child that is forked meanwhile continues to use
/// the budget.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    held: AtomicU64,
    /// Number of threads that wait for others to release memory.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    less: Condvar,
}

/// A part of a budget, which is released when it is dropped.
#[derive(Debug)]
pub struct Reservation<'b> {
    of: &'b Budget,
    len: u64,
}

impl Budget {
    /// Creates a budget of `most` bytes.
    pub fn new(most: u64) -> Budget {
        let (held, waiting) = (AtomicU64::new(0), AtomicUsize::new(0));
        Budget { most, held, waiting, lock: Mutex::default(), less: Condvar::new() }
    }

    fn try_take(&self, len: u64) -> bool {
        let more = |held: u64| held.checked_add(len).filter(|all| *all <= self.most);
        self.held.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Reserves `len` bytes, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] if `len` exceeds the whole budget;
    /// [`io::ErrorKind::ResourceBusy`] if too much of it is reserved.
    pub fn take(&self, len: u64) -> io::Result<Reservation<'_>> {
        let len = if len < COUNTED { 0 } else { len };
        if len == 0 || self.try_take(len) {
            return Ok(Reservation { of: self, len });
        }
        let (most, held) = (self.most, self.held.load(SeqCst));
        let kind = if len > most { io::ErrorKind::OutOfMemory } else { io::ErrorKind::ResourceBusy };
        let why = format!(
            "not enough memory for {len} bytes: this process may hold {most} bytes of samples and holds {held} (hold \
             fewer samples, lower PREFETCH_BYTES or the number of workers; MAX_PART refuses parts that only claim to be \
             large)"
        );
        Err(io::Error::new(kind, why))
    }

    /// Reserves `len` bytes, at most the whole budget, as soon as other threads have released
    /// enough. A waiting thread holds nothing of the budget.
    pub fn wait_for(&self, len: u64) -> Reservation<'_> {
        let len = len.min(self.most);
        if !self.try_take(len) {
            let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_add(1, SeqCst);
            while !self.try_take(len) {
                guard = self.less.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.waiting.fetch_sub(1, SeqCst);
        }
        Reservation { of: self, len }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        self.of.held.fetch_sub(self.len, SeqCst);
        // A thread that begins to wait after this check sees the released bytes.
        if self.of.waiting.load(SeqCst) > 0 {
            drop(self.of.lock.lock());
            self.of.less.notify_all();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_exceed_the_budget() {
        let budget = Budget::new(10 * COUNTED);
        let first = budget.take(6 * COUNTED).unwrap();
        let refused = budget.take(5 * COUNTED).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        let claimed = budget.take(u64::MAX).map(drop).unwrap_err();
        assert!(claimed.kind() == io::ErrorKind::OutOfMemory && claimed.to_string().contains("MAX_PART"));
        let second = budget.take(4 * COUNTED).unwrap();
        assert!(budget.take(COUNTED).is_err() && budget.take(COUNTED - 1).is_ok(), "small sizes are not counted");
        drop(first);
        drop(second);
        assert_eq!(budget.held.load(SeqCst), 0);
    }

    /// Every waiting thread gets its bytes, and a request for more than the budget gets the whole
    /// budget.
    #[test]
    fn waiters_make_progress_and_requests_are_capped() {
        let budget = Budget::new(100);
        let held = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (budget, held) = (&budget, &held);
                scope.spawn(move || {
                    for round in 0..200 {
                        let len = [1, 30, 60, 100, 1000][(n + round) % 5];
                        let _mine = budget.wait_for(len);
                        let all = held.fetch_add(len.min(100), SeqCst) + len.min(100);
                        assert!(all <= 100, "{all}");
                        held.fetch_sub(len.min(100), SeqCst);
                    }
                });
            }
        });
        assert_eq!(budget.held.load(SeqCst), 0);
    }
}
