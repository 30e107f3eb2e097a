//! The order in which the samples of a generation are read: by position, or shuffled by a keyed permutation. The
//! permutation is computed position by position, so a million samples need no table and every rank has the same
//! order.
//!
//! It is a Feistel network over the smallest power of 4 that is not less than the number of samples, applied until
//! the result is below that number (cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
//! 2002). This takes fewer than four applications on average.

use crate::run_log::Epoch;

/// Rounds of the network. Four mix large domains well; small domains need more.
const ROUNDS: usize = 8;

/// A permutation of `0..samples`.
#[derive(Clone, Debug)]
pub struct Order {
    samples: u64,
    /// Bits in each half of the network's domain, and its keys; `None` for the order of the positions.
    keys: Option<(u32, [u64; ROUNDS])>,
}

impl Order {
    /// Returns the order of a run's epoch `number`, as its log defines it: the same for all workers.
    pub fn of(epoch: &Epoch, number: u64) -> Order {
        if epoch.shuffle {
            Order::shuffled(epoch.samples, epoch.seed, epoch.generation, number)
        } else {
            Order { samples: epoch.samples, keys: None }
        }
    }

    /// Returns the order of `samples` samples of `generation` in epoch `epoch` of a run that shuffles with `seed`. A
    /// generation that is read again gets another order.
    pub fn shuffled(samples: u64, seed: u64, generation: u64, epoch: u64) -> Order {
        let bits = (64 - samples.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
        let mut state = mix(mix(mix(seed) ^ generation) ^ epoch);
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(GOLDEN);
            mix(state)
        });
        Order { samples, keys: Some((bits, keys)) }
    }

    /// Returns the position that is read as number `n`, which must be less than the number of samples.
    pub fn at(&self, n: u64) -> u64 {
        let Some((bits, keys)) = &self.keys else { return n };
        let mut n = n;
        loop {
            n = permute(n, *bits, keys);
            if n < self.samples || self.samples == 0 {
                return n;
            }
        }
    }
}

fn permute(n: u64, bits: u32, keys: &[u64; ROUNDS]) -> u64 {
    let mask = (1 << bits) - 1;
    let (mut left, mut right) = (n >> bits & mask, n & mask);
    for key in keys {
        (left, right) = (right, left ^ (mix(right ^ key) & mask));
    }
    left << bits | right
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finalizer (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_order_is_a_permutation() {
        for samples in (0..70).chain([255, 256, 257, 1000, 4097]) {
            for seed in 0..5 {
                let order = Order::shuffled(samples, seed, 3, 1);
                let mut seen: Vec<u64> = (0..samples).map(|n| order.at(n)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..samples).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn huge_generation_is_shuffled_without_a_table() {
        let order = Order::shuffled(1 << 40, 7, 1, 0);
        assert!((0..1000).all(|n| order.at(n) < 1 << 40));
        assert!((0..1000).map(|n| order.at(n)).collect::<std::collections::HashSet<_>>().len() == 1000);
        assert!(Order::shuffled(u64::MAX, 7, 1, 0).at(u64::MAX - 1) < u64::MAX);
    }

    /// Each of seed, generation and epoch changes the order, and nothing else does.
    #[test]
    fn order_depends_on_seed_generation_and_epoch_only() {
        let order = |seed, generation, epoch| {
            let order = Order::shuffled(100, seed, generation, epoch);
            (0..100).map(|n| order.at(n)).collect::<Vec<_>>()
        };
        assert_eq!(order(1, 2, 3), order(1, 2, 3));
        let others = [order(1, 2, 3), order(2, 2, 3), order(1, 3, 3), order(1, 2, 4), order(3, 2, 1), order(0, 0, 0)];
        for (n, one) in others.iter().enumerate() {
            for other in &others[n + 1..] {
                assert!(one.iter().zip(other).filter(|(a, b)| a == b).count() < 10);
            }
        }
        assert_eq!(
            order(1, 2, 3)[..8],
            [86, 35, 54, 23, 66, 7, 30, 26],
            "saved states need the same order in later versions"
        );
    }

    /// Each sample should be equally likely at each place: chi-squared test over 7 x 7 and 100 x 100 counts.
    #[test]
    fn shuffle_places_samples_uniformly() {
        for (samples, seeds) in [(2u64, 2000u64), (7, 7000), (100, 20_000)] {
            let mut counts = vec![0u32; (samples * samples) as usize];
            for seed in 0..seeds {
                let order = Order::shuffled(samples, seed, 1, 0);
                (0..samples).for_each(|n| counts[(n * samples + order.at(n)) as usize] += 1);
            }
            let expected = seeds as f64 / samples as f64;
            let chi: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
            let freedom = ((samples - 1) * (samples - 1)) as f64;
            assert!(chi < freedom + 5.0 * (2.0 * freedom).sqrt(), "{samples}: chi-squared {chi:.0} with {freedom}");
        }
    }
}
