//! Random numbers: for unique names, and to spread the actions of many processes over time.

use std::hash::{BuildHasher, RandomState};

/// Returns `N` random bytes from the operating system.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        // Fallback for a system without a random source: the hash keys of the standard library, the
        // time and the pid differ between calls.
        let seed = (std::time::SystemTime::now(), std::process::id());
        let words = (0..N).map(|n| RandomState::new().hash_one((seed, n)));
        bytes.iter_mut().zip(words).for_each(|(byte, word)| *byte = word as u8);
    }
    bytes
}

/// Returns a random number.
pub fn random_u32() -> u32 {
    u32::from_le_bytes(random_bytes())
}
