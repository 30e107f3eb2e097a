//! The counter: the process that creates the name of a block owns the numbers of the block.

use super::FileStore;
use crate::coordination::allocator::NumberRange;
use crate::coordination::{COUNTER_END, Counter};
use crate::error::{Error, Result};
use crate::layout::parse_number;
use crate::random::random_u32;
use std::path::{Path, PathBuf};

/// Attempts to claim a block while other processes claim blocks at the same time.
const PATIENCE: u32 = 64;
/// The directory of counters, with a subdirectory for each generation.
pub(super) const COUNTERS: &str = "counter";
/// A file of this name in a generation's subdirectory means that the generation is closed.
const CLOSED: &str = "closed";

impl FileStore {
    /// Returns the directory of the counter of `generation`.
    fn counter_dir(&self, generation: u64) -> PathBuf {
        self.dir(COUNTERS).join(generation.to_string())
    }

    /// Claims the next free block after the number `taken`. Returns `None` if the generation is
    /// closed, or no block is free.
    fn claim_block(&self, generation: u64, taken: Option<u64>) -> Result<Option<NumberRange>> {
        let dir = self.counter_dir(generation);
        // After a false "not found", the caller gets a number of a closed generation, and its link
        // fails.
        if self.fs.seen(&dir.join(CLOSED))? {
            return Ok(None);
        }
        let mut block = match taken {
            Some(taken) => taken.div_ceil(self.block),
            None => self.highest_block(&dir)?.map_or(0, |highest| highest + 1),
        };
        let numbers = |block| NumberRange { generation, next: block * self.block, end: (block + 1) * self.block };
        for attempt in 0..=PATIENCE {
            if block >= COUNTER_END / self.block {
                break;
            }
            match self.with_dirs(Some(&dir), || self.fs.create_new(&dir.join(block.to_string()))) {
                Ok(file) => return file.close().map(|()| Some(numbers(block))).map_err(Error::from),
                Err(error) if error.is_taken() => {}
                Err(error) if error.is_gone() => return Ok(None), // just removed, because the generation is old
                Err(error) => return Err(error.into()),
            }
            let highest = self.highest_block(&dir)?;
            // The listing may be outdated, and many processes may claim at once, so a random
            // distance avoids collisions.
            let spread = u64::from(random_u32()) % u64::from(attempt + 1);
            block = highest.map_or(0, |n| n + 1).max(block + 1) + spread;
        }
        tracing::debug!("no free block of numbers in {}; using random numbers", dir.display());
        Ok(None)
    }

    /// Returns the highest claimed block. Ignores names beyond the last valid block.
    fn highest_block(&self, dir: &Path) -> Result<Option<u64>> {
        let end = COUNTER_END / self.block;
        Ok(self.list(dir)?.iter().filter_map(|name| parse_number(name)).filter(|block| *block < end).max())
    }

    /// Removes the counters of generations before `generation`.
    pub(super) fn forget_counters_before(&self, generation: u64) -> Result<()> {
        for name in self.list(&self.dir(COUNTERS))? {
            if let Some(old) = parse_number(&name).filter(|n| *n < generation) {
                let dir = self.counter_dir(old);
                self.forget_where(&dir, |_| true)?;
                match self.fs.remove_dir(&dir) {
                    Err(error) if !error.is_gone() && !error.is_taken() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Counter for FileStore {
    fn next_index(&self, generation: u64) -> Result<Option<u64>> {
        self.numbers.take(generation, |taken| self.claim_block(generation, taken))
    }

    fn close_generation(&self, generation: u64) -> Result<()> {
        let dir = self.counter_dir(generation);
        self.mark(Some(&dir), &dir.join(CLOSED))
    }

    fn handed_out(&self, generation: u64) -> Result<u64> {
        Ok(self.highest_block(&self.counter_dir(generation))?.map_or(0, |highest| (highest + 1) * self.block))
    }

    fn skip_to(&self, generation: u64, next: u64) -> Result<()> {
        self.numbers.skip_to(generation, next);
        let Some(block) = next.div_ceil(self.block).checked_sub(1) else { return Ok(()) };
        let dir = self.counter_dir(generation);
        self.mark(Some(&dir), &dir.join(block.to_string()))
    }
}
