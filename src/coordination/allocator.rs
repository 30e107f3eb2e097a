//! Hands out numbers that are claimed from a store in blocks, so that many generators cause few
//! requests.

use std::sync::{Mutex, PoisonError};

/// The block of numbers that this process hands out, and the last generation that it found closed.
#[derive(Debug, Default)]
pub struct NumberAllocator(Mutex<(NumberRange, Option<u64>)>);

/// Numbers of one generation that this process owns: from `next` to before `end`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberRange {
    pub generation: u64,
    pub next: u64,
    pub end: u64,
}

impl NumberAllocator {
    /// Returns the next number in `generation`, or `None` if it is closed. If the block is used up,
    /// `claim` gets the next one; its argument is the number up to which the generation's numbers
    /// are known to be taken.
    ///
    /// # Errors
    /// Errors of `claim`.
    pub fn take<E>(
        &self,
        generation: u64,
        claim: impl FnOnce(Option<u64>) -> Result<Option<NumberRange>, E>,
    ) -> Result<Option<u64>, E> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (numbers, closed) = &mut *held;
        if *closed == Some(generation) {
            return Ok(None); // a generation stays closed
        }
        if numbers.generation != generation || numbers.next >= numbers.end {
            let last = (numbers.generation == generation).then_some(numbers.end.max(numbers.next));
            let Some(claimed) = claim(last)? else {
                *closed = Some(generation);
                return Ok(None);
            };
            *numbers = claimed;
        }
        numbers.next += 1;
        Ok(Some(numbers.next - 1))
    }

    /// Discards the numbers below `next` in `generation`.
    pub fn skip_to(&self, generation: u64, next: u64) {
        let numbers = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).0;
        if numbers.generation == generation {
            numbers.next = numbers.next.max(next);
        }
    }
}
