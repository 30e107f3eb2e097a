//! The plan of an epoch, and the queue of its steps that are planned but not delivered yet.

use crate::manifest::Manifest;
use crate::read::checkpoint::Remaining;
use crate::read::shard::{Equal, Share, Slot};
use crate::read::shuffle::Order;
use crate::run_log::Epoch;
use std::collections::VecDeque;
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

/// A planned step.
pub struct PlannedStep {
    pub plan: Arc<Plan>,
    pub number: u64,
    pub slot: Slot,
    /// Expected size of its sample.
    pub bytes: u64,
    /// Whether it is read when it is delivered, not prefetched.
    pub inline: bool,
}

/// Steps that are planned but not delivered yet, in order.
#[derive(Default)]
pub struct Queue {
    steps: VecDeque<PlannedStep>,
    bytes: u64,
}

impl Queue {
    /// Returns the next step.
    pub fn front(&self) -> Option<&PlannedStep> {
        self.steps.front()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns the expected size of all planned samples.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a step.
    pub fn push(&mut self, step: PlannedStep) {
        self.bytes += step.bytes;
        self.steps.push_back(step);
    }

    /// Puts a step that could not be delivered back to the front.
    pub fn push_again(&mut self, step: PlannedStep) {
        self.bytes += step.bytes;
        self.steps.push_front(step);
    }

    /// Removes and returns the next step.
    pub fn pop(&mut self) -> Option<PlannedStep> {
        let step = self.steps.pop_front()?;
        self.bytes -= step.bytes;
        Some(step)
    }
}
