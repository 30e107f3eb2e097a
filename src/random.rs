//! Randomness: for names that nobody else has, and for spreading many processes over time.

use std::hash::{BuildHasher, RandomState};

/// `N` random bytes, from the system.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        // A system without a source of randomness: the standard library's hash keys, the time and the pid are different
        // in each call.
        let seed = (std::time::SystemTime::now(), std::process::id());
        let words = (0..N).map(|n| RandomState::new().hash_one((seed, n)));
        bytes.iter_mut().zip(words).for_each(|(byte, word)| *byte = word as u8);
    }
    bytes
}

/// A random number.
pub fn random_u32() -> u32 {
    u32::from_le_bytes(random_bytes())
}
