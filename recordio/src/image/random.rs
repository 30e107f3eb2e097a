//! Random numbers that depend on a seed, an epoch and a record alone, so that neither threads nor the number of parts
//! change them.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Random {
    /// The generator of one record in one epoch. `record`: a number that identifies the record in its files.
    pub(super) fn new(seed: u64, epoch: u64, record: u64) -> Random {
        let state = [seed, epoch, record].iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, part| {
            mix(state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(*part).wrapping_add(1))
        });
        Random(state)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..1`, of 24 bits.
    pub(super) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    /// A number in `low..high`, or `low` where both are equal.
    pub(super) fn within(&mut self, low: f32, high: f32) -> f32 {
        low + self.unit() * (high - low)
    }

    /// An integer in `0..=most`.
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        ((u128::from(self.next()) * (most as u128 + 1)) >> 64) as usize
    }

    /// An integer in `low..=high`.
    pub(super) fn between(&mut self, low: i32, high: i32) -> i32 {
        low + self.up_to(high.abs_diff(low) as usize) as i32
    }

    /// True in half of the cases.
    pub(super) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// A number of the normal distribution with mean 0 and standard deviation 1 (Box and Muller).
    pub(super) fn normal(&mut self) -> f32 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f32::consts::TAU * angle).cos()
    }

    /// Orders `items` at random (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.up_to(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_depends_on_seed_epoch_and_record() {
        let first = |seed, epoch, record| Random::new(seed, epoch, record).next();
        let all = [first(0, 0, 0), first(1, 0, 0), first(0, 1, 0), first(0, 0, 1)];
        for (n, one) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|other| other != one));
        }
        assert_eq!(first(3, 4, 5), first(3, 4, 5));
    }

    #[test]
    fn random_is_uniform_over_its_range() {
        let mut random = Random::new(1, 2, 3);
        let mut counts = [0; 5];
        let (mut sum, mut heads, mut square) = (0.0, 0, 0.0);
        for _ in 0..10_000 {
            counts[random.up_to(4)] += 1;
            sum += f64::from(random.within(-1.0, 3.0));
            heads += u32::from(random.coin());
            square += f64::from(random.normal().powi(2));
            assert!((-3..=-1).contains(&random.between(-3, -1)));
        }
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
        assert!((sum / 10_000.0 - 1.0).abs() < 0.05 && (4_800..5_200).contains(&heads));
        assert!((square / 10_000.0 - 1.0).abs() < 0.1, "{square}");
    }

    #[test]
    fn shuffle_gives_a_permutation() {
        let mut items: Vec<u32> = (0..1000).collect();
        Random::new(7, 0, 0).shuffle(&mut items);
        assert_ne!(items[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(n, item)| n as u32 == *item));
    }
}
