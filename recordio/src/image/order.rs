//! Which records form which batch.
//!
//! The records of a part are read round after round; each round has an order of its own. With `round_batch` epochs follow
//! each other without a gap: the last batch of an epoch is completed with the first records of the next round, and the
//! next epoch begins behind them (MXNet's "round robin"). Without it every epoch is one round, and the last batch may
//! have empty slots.

use super::random::Random;

/// The records of a part and how batches are made of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) records: usize,
    pub(super) batch_size: usize,
    pub(super) round_batch: bool,
    /// The seed of the orders; none: the order of the files.
    pub(super) shuffle: Option<u64>,
}

/// The stretch of slots that an epoch has, counted from the first slot of the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    start: u64,
    pub(super) batches: u64,
    /// Slots of the last batch that do not belong to this epoch.
    pub(super) padding: usize,
}

/// One slot of a batch: which round, and which position in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) round: u64,
    pub(super) position: usize,
}

impl Order {
    /// The epoch that begins at slot `start`.
    fn beginning_at(&self, start: u64) -> Epoch {
        let (records, size) = (self.records as u64, self.batch_size as u64);
        if records == 0 {
            return Epoch { start, batches: 0, padding: 0 };
        }
        let end = (start / records + 1) * records;
        let batches = (end - start).div_ceil(size);
        Epoch { start, batches, padding: (start + batches * size - end) as usize }
    }

    /// The first epoch.
    pub(super) fn first(&self) -> Epoch {
        self.beginning_at(0)
    }

    /// The epoch after `epoch`, which was read to its end, or else left early: then with the next round's first record.
    pub(super) fn after(&self, epoch: Epoch, complete: bool) -> Epoch {
        let records = self.records as u64;
        if records == 0 {
            return epoch;
        }
        self.beginning_at(if complete && self.round_batch {
            epoch.start + epoch.batches * self.batch_size as u64
        } else {
            (epoch.start / records + 1) * records
        })
    }

    /// What slot `slot` of batch `batch` has; none where it is empty.
    pub(super) fn slot(&self, epoch: Epoch, batch: u64, slot: usize) -> Option<Slot> {
        let is_padding = batch + 1 == epoch.batches && slot >= self.batch_size - epoch.padding;
        if is_padding && !self.round_batch {
            return None;
        }
        let at = epoch.start + batch * self.batch_size as u64 + slot as u64;
        let records = self.records as u64;
        Some(Slot { round: at / records, position: (at % records) as usize })
    }

    /// The records of a round in their order.
    pub(super) fn round(&self, round: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.records).collect();
        if let Some(seed) = self.shuffle {
            Random::new(seed, round, u64::MAX).shuffle(&mut order);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions of each batch of `epoch`, and its padding.
    fn batches(order: &Order, epoch: Epoch) -> (Vec<Vec<usize>>, usize) {
        let position = |batch, slot| order.slot(epoch, batch, slot).map(|slot| slot.position);
        let batch = |batch| (0..order.batch_size).filter_map(|slot| position(batch, slot)).collect();
        ((0..epoch.batches).map(batch).collect(), epoch.padding)
    }

    #[test]
    fn round_batch_continues_behind_the_completing_records() {
        let order = Order { records: 10, batch_size: 4, round_batch: true, shuffle: None };
        let first = order.first();
        assert_eq!(batches(&order, first), (vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 0, 1]], 2));
        let second = order.after(first, true);
        assert_eq!(batches(&order, second), (vec![vec![2, 3, 4, 5], vec![6, 7, 8, 9]], 0));
        assert_eq!(batches(&order, order.after(second, true)), batches(&order, first));
        assert_eq!(batches(&order, order.after(first, false)), batches(&order, first));
    }

    #[test]
    fn batches_without_round_batch_have_empty_slots() {
        let order = Order { records: 5, batch_size: 3, round_batch: false, shuffle: None };
        assert_eq!(batches(&order, order.first()), (vec![vec![0, 1, 2], vec![3, 4]], 1));
        assert_eq!(batches(&order, order.after(order.first(), true)), batches(&order, order.first()));
    }

    #[test]
    fn batches_larger_than_all_records_repeat_them() {
        let order = Order { records: 2, batch_size: 5, round_batch: true, shuffle: None };
        assert_eq!(batches(&order, order.first()), (vec![vec![0, 1, 0, 1, 0]], 3));
        let none = Order { records: 0, ..order };
        assert_eq!(batches(&none, none.after(none.first(), true)), (vec![], 0));
    }

    #[test]
    fn rounds_are_shuffled_differently() {
        let order = Order { records: 100, batch_size: 5, round_batch: true, shuffle: Some(3) };
        assert_ne!(order.round(0), order.round(1));
        assert_eq!(order.round(1), order.round(1));
    }
}
