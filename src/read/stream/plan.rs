//! The plan of an epoch, and its steps.

use crate::manifest::Manifest;
use crate::read::checkpoint::Remaining;
use crate::read::shard::{Equal, Share, Slot};
use crate::read::shuffle::Order;
use crate::run_log::Epoch;
use std::sync::Arc;

/// One epoch, as this worker reads it.
pub struct Plan {
    pub number: u64,
    /// Number of epochs that this stream began before it.
    pub nth: u64,
    pub epoch: Epoch,
    /// The manifest; `None` if the generation was already gone when the epoch began.
    pub manifest: Option<Arc<Manifest>>,
    /// The positions for training, without those that are left out.
    pub served: Remaining,
    pub order: Order,
    pub place: Remaining,
}

impl Plan {
    /// Returns the position in the generation of the sample of `step`, or `None` after the last step.
    pub fn slot(&self, share: Share, step: u64, equal: Equal) -> Option<Slot> {
        Some(match share.slot(step, self.place.left(self.epoch.samples), equal)? {
            Slot::Read(n) => Slot::Read(self.served.number(self.order.at(self.place.number(n)))),
            Slot::Padding => Slot::Padding,
        })
    }
}

pub struct PlannedStep {
    pub plan: Arc<Plan>,
    pub number: u64,
    pub slot: Slot,
    /// Expected size of its sample; `None` if it is not prefetched, but read when it is delivered.
    pub prefetched: Option<u64>,
}
