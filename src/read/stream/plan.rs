//! What a stream is about to give: its epoch, and the steps of it that are planned and not given yet.

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
    /// How many epochs this stream began before it.
    pub nth: u64,
    pub epoch: Epoch,
    /// None: the generation is gone, and was before the epoch began.
    pub manifest: Option<Arc<Manifest>>,
    /// The first position that is served.
    pub first: u64,
    pub order: Order,
    pub place: Remaining,
}

impl Plan {
    /// Where in the generation the sample of `step` is; none after the last step.
    pub fn slot(&self, share: Share, step: u64, equal: Equal) -> Option<Slot> {
        Some(match share.slot(step, self.place.left(self.epoch.samples), equal)? {
            Slot::Read(n) => Slot::Read(self.first + self.order.at(self.place.number(n))),
            Slot::Padding => Slot::Padding,
        })
    }
}

/// One step that was planned.
pub struct PlannedStep {
    pub plan: Arc<Plan>,
    pub number: u64,
    pub slot: Slot,
    /// What it is thought to take.
    pub bytes: u64,
    /// Nobody reads it ahead.
    pub inline: bool,
}

/// Steps that were planned and not given yet, the next one first.
#[derive(Default)]
pub struct Queue {
    steps: VecDeque<PlannedStep>,
    bytes: u64,
}

impl Queue {
    /// The step that is given next.
    pub fn front(&self) -> Option<&PlannedStep> {
        self.steps.front()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// What they are thought to take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The step that comes last.
    pub fn push(&mut self, step: PlannedStep) {
        self.bytes += step.bytes;
        self.steps.push_back(step);
    }

    /// A step that could not be given is next again.
    pub fn push_again(&mut self, step: PlannedStep) {
        self.bytes += step.bytes;
        self.steps.push_front(step);
    }

    /// Takes the next one.
    pub fn pop(&mut self) -> Option<PlannedStep> {
        let step = self.steps.pop_front()?;
        self.bytes -= step.bytes;
        Some(step)
    }
}
