//! Which positions of a generation are whose: worker `w` of `W` gets `w`, `w + W`, `w + 2 W`, ...

use crate::error::{Error, Result};

/// One worker of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which one, from 0.
    pub rank: u64,
    /// Of how many.
    pub world: u64,
}

impl Share {
    /// The only worker.
    pub const ALL: Share = Share { rank: 0, world: 1 };

    /// Worker `rank` of `world`.
    ///
    /// # Errors
    /// A rank that is not below the world's size.
    pub fn new(rank: u64, world: u64) -> Result<Share> {
        if rank < world {
            return Ok(Share { rank, world });
        }
        Err(Error::Sample(format!("rank {rank} is not below the world size {world}: ranks count from 0")))
    }

    /// The position at this worker's `step`, from 0, in a generation of `samples`; none after its last.
    pub fn position(self, step: u64, samples: u64) -> Option<u64> {
        step.checked_mul(self.world)?.checked_add(self.rank).filter(|position| *position < samples)
    }

    /// How many positions of `samples` are this worker's.
    pub fn steps(self, samples: u64) -> u64 {
        samples.saturating_sub(self.rank).div_ceil(self.world)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn three_ranks_over_ten_samples_get_every_third_each() {
        let of = |rank| {
            let share = Share::new(rank, 3).unwrap();
            let positions: Vec<_> = (0..).map_while(|step| share.position(step, 10)).collect();
            assert_eq!(positions.len() as u64, share.steps(10));
            positions
        };
        assert_eq!([of(0), of(1), of(2)], [vec![0, 3, 6, 9], vec![1, 4, 7], vec![2, 5, 8]]);
    }

    #[test]
    fn shares_are_disjoint_and_complete_for_every_size() {
        for samples in 0..40 {
            for world in 1..12 {
                let mut seen = vec![0; samples as usize];
                for rank in 0..world {
                    let share = Share::new(rank, world).unwrap();
                    (0..share.steps(samples))
                        .for_each(|step| seen[share.position(step, samples).unwrap() as usize] += 1);
                    assert_eq!(share.position(share.steps(samples), samples), None);
                }
                assert!(seen.iter().all(|n| *n == 1), "{samples} over {world}");
            }
        }
        assert!(Share::new(3, 3).is_err() && Share::new(0, 0).is_err());
    }
}
