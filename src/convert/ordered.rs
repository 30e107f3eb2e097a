//! Work done by several threads, whose results are taken in order.

use crate::error::{Error, Result};
use std::io;
use std::ops::Range;
use std::sync::mpsc::sync_channel;

/// Results that one thread may have ready before they are taken.
const READY: usize = 2;

/// Does `work` for each number of `range` in `threads` threads, and gives each result to `take`, in order, in this
/// thread. At most four results a thread are there at a time. What is given to `take` does not depend on `threads`.
///
/// # Errors
/// The first that `take` returns: the rest is not done then. A thread that cannot be started.
pub fn in_order<R: Send>(
    range: Range<u64>,
    threads: usize,
    work: &(dyn Fn(u64) -> R + Sync),
    mut take: impl FnMut(u64, R) -> Result<()>,
) -> Result<()> {
    let threads = threads.clamp(1, 1024).min(usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(1024));
    std::thread::scope(|scope| {
        let mut lanes = Vec::with_capacity(threads);
        for lane in 0..threads {
            let (sender, receiver) = sync_channel(READY);
            let numbers = (range.start + lane as u64..range.end).step_by(threads);
            let run = move || numbers.map(work).all(|done| sender.send(done).is_ok());
            let started = std::thread::Builder::new().name("ringreel-convert".into()).spawn_scoped(scope, run);
            started.map_err(|error| Error::Sample(format!("a thread cannot be started: {error}")))?;
            lanes.push(receiver);
        }
        for number in range.clone() {
            let lane = (number - range.start) as usize % threads;
            let ended = |_| Error::Fs {
                source: crate::fs::FsError::new("convert", "".as_ref(), io::Error::other("a thread ended")),
            };
            take(number, lanes[lane].recv().map_err(ended)?)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn results_come_in_order_and_few_are_ahead() -> Result<()> {
        for threads in [1, 2, 7, 64] {
            let (begun, mut taken) = (AtomicU64::new(0), Vec::new());
            let work = |n: u64| {
                begun.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_micros(n * 7919 % 300));
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
    fn the_first_error_ends_it() {
        let begun = AtomicU64::new(0);
        let work = |n| (begun.fetch_add(1, Ordering::SeqCst), n).1;
        let done =
            in_order(
                0..1_000_000,
                4,
                &work,
                |n, _| {
                    if n == 10 { Err(Error::Sample("enough".to_owned())) } else { Ok(()) }
                },
            );
        assert!(matches!(done, Err(Error::Sample(_))) && begun.load(Ordering::SeqCst) < 100);
    }
}
