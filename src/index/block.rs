//! Numbers are taken from the index in blocks, so that many generators cost it little.

use std::sync::{Mutex, PoisonError};

/// The block that this process takes its numbers from, and the last generation that it found closed.
#[derive(Debug, Default)]
pub struct Block(Mutex<(Numbers, Option<u64>)>);

/// Numbers of one generation: those from `next` to before `end` are ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    pub generation: u64,
    pub next: u64,
    pub end: u64,
}

impl Block {
    /// The next number in `generation`. When there is none, `claim` is to get the next block; it is told up to where the
    /// numbers of that generation are known to be taken. None: it got none, since the generation is closed.
    pub fn take<E>(
        &self,
        generation: u64,
        claim: impl FnOnce(Option<u64>) -> Result<Option<Numbers>, E>,
    ) -> Result<Option<u64>, E> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (numbers, closed) = &mut *held;
        if *closed == Some(generation) {
            return Ok(None); // it was, and stays so
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

    /// Gives up what is below `next` in `generation`.
    pub fn skip_to(&self, generation: u64, next: u64) {
        let numbers = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).0;
        if numbers.generation == generation {
            numbers.next = numbers.next.max(next);
        }
    }
}
