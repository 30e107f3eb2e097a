//! Shares of an epoch: worker `w` of `W` gets positions `w`, `w + W`, `w + 2 W`, ..., and [`Equal`] decides what
//! happens if they cannot be divided evenly.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// How all workers get the same number of steps in an epoch. If one rank has a step more than the others, ranks that
/// train together wait for each other forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Equal {
    /// Not at all: every sample is delivered once, and some workers have one step more than others.
    #[default]
    No,
    /// The remainder is not read: fewer samples than there are workers.
    Drop,
    /// The first samples of the epoch's order are repeated.
    Wrap,
    /// Missing steps get padding samples.
    Pad,
}

/// What a worker does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Reads this position of the epoch's order.
    Read(u64),
    /// Makes a step without a sample.
    Padding,
}

/// One worker of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub rank: u64,
    /// The number of workers.
    pub world: u64,
}

impl Share {
    /// The only worker.
    pub const ALL: Share = Share { rank: 0, world: 1 };

    /// Creates the share of worker `rank` of `world`.
    ///
    /// # Errors
    /// The rank is not less than the world size.
    pub fn new(rank: u64, world: u64) -> Result<Share> {
        if rank < world {
            return Ok(Share { rank, world });
        }
        Err(Error::Sample(format!("rank {rank} is not less than the world size {world}: ranks count from 0")))
    }

    /// Returns the positions of this worker in a generation of `samples`.
    pub fn positions(self, samples: u64) -> impl Iterator<Item = u64> {
        (self.rank..samples).step_by(self.world as usize)
    }

    /// Returns the number of steps that it makes in an epoch of `samples` samples.
    pub fn equal_steps(self, samples: u64, equal: Equal) -> u64 {
        match equal {
            Equal::No => samples.saturating_sub(self.rank).div_ceil(self.world),
            Equal::Drop => samples / self.world,
            Equal::Wrap | Equal::Pad => samples.div_ceil(self.world),
        }
    }

    /// Returns what it does in `step` of an epoch of `samples` samples, or `None` after its last step.
    pub fn slot(self, step: u64, samples: u64, equal: Equal) -> Option<Slot> {
        if step >= self.equal_steps(samples, equal) {
            return None;
        }
        let position = step * self.world + self.rank;
        Some(match equal {
            _ if position < samples => Slot::Read(position),
            Equal::Wrap => Slot::Read(position % samples),
            _ => Slot::Padding,
        })
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
            let positions: Vec<_> = share.positions(10).collect();
            assert_eq!(positions.len() as u64, share.equal_steps(10, Equal::No));
            positions
        };
        assert_eq!([of(0), of(1), of(2)], [vec![0, 3, 6, 9], vec![1, 4, 7], vec![2, 5, 8]]);
        assert!(Share::new(3, 3).is_err() && Share::new(0, 0).is_err());
    }

    /// All workers take the same number of steps, except with [`Equal::No`].
    #[test]
    fn workers_take_equal_steps_unless_equal_is_no() {
        for samples in 0..40 {
            for world in 1..12 {
                for equal in [Equal::No, Equal::Drop, Equal::Wrap, Equal::Pad] {
                    let of = |rank| {
                        let share = Share::new(rank, world).unwrap();
                        let slots: Vec<Slot> = (0..).map_while(|step| share.slot(step, samples, equal)).collect();
                        assert_eq!(slots.len() as u64, share.equal_steps(samples, equal));
                        assert!(equal != Equal::No || share.positions(samples).map(Slot::Read).eq(slots.clone()));
                        slots
                    };
                    let workers: Vec<_> = (0..world).map(of).collect();
                    let steps: Vec<usize> = workers.iter().map(Vec::len).collect();
                    let (least, most) = (steps.iter().min().unwrap(), steps.iter().max().unwrap());
                    assert!(most - least <= usize::from(equal == Equal::No), "{samples} over {world}, {equal:?}");
                    let mut seen = vec![0; samples as usize];
                    let mut fill = 0;
                    workers.iter().flatten().for_each(|slot| match slot {
                        Slot::Read(position) => seen[*position as usize] += 1,
                        Slot::Padding => fill += 1,
                    });
                    let total: u64 = seen.iter().sum();
                    match equal {
                        Equal::No => assert!(seen.iter().all(|n| *n == 1) && fill == 0),
                        Equal::Drop => {
                            assert!(seen.iter().all(|n| *n <= 1) && fill == 0 && samples - total < world);
                        }
                        Equal::Wrap => {
                            assert!(seen.iter().all(|n| *n >= 1) && fill == 0 && total - samples < world);
                        }
                        Equal::Pad => assert!(seen.iter().all(|n| *n == 1) && fill < world),
                    }
                }
            }
        }
    }
}
