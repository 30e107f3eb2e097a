//! How much memory this process may use: what somebody else's file claims is compared with it, and with what the process
//! holds of such claims already, in whatever thread, for whichever reader.

use std::io;
use std::path::Path;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

/// Less than this is not counted: whoever holds many small things has asked for each.
const COUNTED: u64 = 1 << 20;

/// The least `memory.max` from this process's control group up (version 2).
pub(crate) fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(group.trim());
    let up = own.ancestors().take_while(|dir| dir.starts_with(root));
    up.filter_map(|dir| std::fs::read_to_string(dir.join("memory.max")).ok()?.trim().parse().ok()).min()
}

/// Bytes of memory that this machine has, that its group may use, or that this process may have addresses for (`ulimit
/// -v`), whichever is less. Asked of the system once.
pub(crate) fn bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let system = rustix::system::sysinfo();
        let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
        let addresses = rustix::process::getrlimit(rustix::process::Resource::As).current;
        machine.min(group_limit().unwrap_or(u64::MAX)).min(addresses.unwrap_or(u64::MAX))
    })
}

/// For what readers read and hand out. An eighth is left to all else.
pub(crate) static HANDED_OUT: LazyLock<Budget> = LazyLock::new(|| Budget::new(bytes() - bytes() / 8));
/// For what is read in order to be checked, and forgotten.
pub(crate) static CHECKED: LazyLock<Budget> = LazyLock::new(|| Budget::new(bytes() / 4 * 3));

/// Memory that all threads together may hold for one purpose.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    held: Mutex<u64>,
    less: Condvar,
}

/// Some of a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'b> {
    of: &'b Budget,
    len: u64,
}

impl Budget {
    /// One of `most` bytes.
    pub fn new(most: u64) -> Budget {
        Budget { most, held: Mutex::new(0), less: Condvar::new() }
    }

    fn held(&self) -> MutexGuard<'_, u64> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `len` bytes of it, now.
    ///
    /// # Errors
    /// They are not there.
    pub fn take(&self, len: u64) -> io::Result<Held<'_>> {
        let len = if len < COUNTED { 0 } else { len };
        let (most, mut held) = (self.most, self.held());
        if len > most.saturating_sub(*held) {
            let why = format!(
                "there is no memory for {len} bytes: this process may hold {most} of samples, and holds {held} (hold \
                 fewer samples, lower PREFETCH_BYTES or the number of workers; MAX_PART refuses what only claims to be \
                 large)"
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        }
        *held += len;
        Ok(Held { of: self, len })
    }

    /// `len` bytes of it, or all of it where that is less, as soon as others have given back enough. (Who waits holds
    /// nothing of it.)
    pub fn wait_for(&self, len: u64) -> Held<'_> {
        let (len, mut held) = (len.min(self.most), self.held());
        while len > self.most - *held {
            held = self.less.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        *held += len;
        Held { of: self, len }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.of.held() -= self.len;
        self.of.less.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_all_hold_together_is_never_more_than_the_budget() {
        let budget = Budget::new(10 * COUNTED);
        let first = budget.take(6 * COUNTED).unwrap();
        let refused = budget.take(5 * COUNTED).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        assert!(refused.to_string().contains("MAX_PART") && budget.take(u64::MAX).is_err());
        let second = budget.take(4 * COUNTED).unwrap();
        assert!(budget.take(COUNTED).is_err() && budget.take(COUNTED - 1).is_ok(), "small ones are not counted");
        drop(first);
        drop(second);
        assert_eq!(*budget.held(), 0);
    }

    #[test]
    fn who_waits_has_its_turn_and_who_wants_more_than_there_is_has_all_of_it() {
        let budget = Budget::new(100);
        let held = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (budget, held) = (&budget, &held);
                scope.spawn(move || {
                    for round in 0..200 {
                        let len = [1, 30, 60, 100, 1000][(n + round) % 5];
                        let _mine = budget.wait_for(len);
                        let all = held.fetch_add(len.min(100), Ordering::SeqCst) + len.min(100);
                        assert!(all <= 100, "{all}");
                        held.fetch_sub(len.min(100), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(*budget.held(), 0);
    }
}
