//! Sources of a target's bytes: a `Read` that returns pieces of odd lengths, and noise for structured input.

use ringreel_format::frame::MAGIC;
use std::io::{self, Read};

/// Pseudo-random numbers, the same for the same seed (xorshift).
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Noise {
        Noise(seed ^ 0x9e37_79b9_7f4a_7c15 | 1 << 63)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 56) as u8).collect()
    }

    /// `len` bytes with magic numbers at random positions, at multiples of four and elsewhere.
    pub fn magics(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            match self.next() >> 61 {
                0..=3 => out.extend_from_slice(&MAGIC.to_le_bytes()),
                4 => out.push(0x0a),
                5 => out.extend_from_slice(&[0; 4]),
                _ => out.extend_from_slice(&self.next().to_le_bytes()[..4]),
            }
        }
        out.truncate(len);
        out
    }
}

/// Returns bytes in pieces of odd lengths, with occasional interruptions.
#[derive(Debug)]
pub struct Chunked<'a> {
    left: &'a [u8],
    noise: Noise,
}

impl<'a> Chunked<'a> {
    /// Returns `bytes` in pieces whose lengths depend on their number.
    pub fn new(bytes: &'a [u8]) -> Chunked<'a> {
        Chunked { left: bytes, noise: Noise::new(bytes.len() as u64) }
    }
}

impl Read for Chunked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = match self.noise.below(8) {
            0 => return Err(io::ErrorKind::Interrupted.into()),
            1..=3 => 1 + self.noise.below(9),
            4..=6 => 1 + self.noise.below(300),
            _ => 1 + self.noise.below(70_000),
        };
        let len = len.min(self.left.len()).min(buffer.len());
        let (now, later) = self.left.split_at(len);
        buffer[..len].copy_from_slice(now);
        self.left = later;
        Ok(len)
    }
}
