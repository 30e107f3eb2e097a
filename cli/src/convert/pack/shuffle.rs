//! Equivalent of Python's `random.seed(n)` and `random.shuffle`, so that shuffled lists equal those of `im2rec.py`.
//!
//! Matsumoto and Nishimura's MT19937 (ACM TOMACS 8, 1998), seeded by `init_by_array`. Numbers below a bound are drawn with
//! as many bits as the bound, until one is below it (`Lib/random.py`, `Modules/_randommodule.c` of CPython 3).

const N: usize = 624;
const M: usize = 397;

/// The generator.
struct Twister {
    state: [u32; N],
    next: usize,
}

impl Twister {
    fn new(seed: u64) -> Twister {
        let key = if seed >> 32 == 0 { vec![seed as u32] } else { vec![seed as u32, (seed >> 32) as u32] };
        let mut state = [0u32; N];
        state[0] = 19_650_218;
        for i in 1..N {
            state[i] = 1_812_433_253u32.wrapping_mul(state[i - 1] ^ state[i - 1] >> 30).wrapping_add(i as u32);
        }
        let mut i = 1;
        let mut mix = |factor: u32, add: &dyn Fn(usize) -> u32| {
            let mixed = state[i] ^ (state[i - 1] ^ state[i - 1] >> 30).wrapping_mul(factor);
            state[i] = mixed.wrapping_add(add(i));
            i += 1;
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        };
        for n in 0..N.max(key.len()) {
            let j = n % key.len();
            mix(1_664_525, &|_| key[j].wrapping_add(j as u32));
        }
        for _ in 1..N {
            mix(1_566_083_941, &|i| (i as u32).wrapping_neg());
        }
        state[0] = 0x8000_0000;
        Twister { state, next: N }
    }

    fn next(&mut self) -> u32 {
        if self.next == N {
            for i in 0..N {
                let y = self.state[i] & 0x8000_0000 | self.state[(i + 1) % N] & 0x7fff_ffff;
                let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + M) % N] ^ y >> 1 ^ odd;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    /// Draws a number below `bound`, which is at least 1.
    fn below(&mut self, bound: u32) -> u32 {
        let bits = 32 - bound.leading_zeros();
        loop {
            let drawn = self.next() >> (32 - bits);
            if drawn < bound {
                return drawn;
            }
        }
    }
}

/// Shuffles fewer than 2^32 items like Python after `random.seed(seed)`.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut random = Twister::new(seed);
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i as u32 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `random.seed(n); x = list(range(12)); random.shuffle(x); print(x)` of CPython 3.11.
    #[test]
    fn shuffle_equals_that_of_python() {
        let expected: [(u64, [u8; 12]); 3] = [
            (0, [1, 9, 8, 5, 10, 2, 3, 7, 4, 0, 11, 6]),
            (100, [1, 4, 9, 0, 3, 8, 5, 6, 11, 10, 7, 2]),
            (1 << 40, [10, 9, 2, 7, 4, 8, 3, 0, 6, 11, 5, 1]),
        ];
        for (seed, expected) in expected {
            let mut items: Vec<u8> = (0..12).collect();
            shuffle(&mut items, seed);
            assert_eq!(items, expected, "{seed}");
        }
    }
}
