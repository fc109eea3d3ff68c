// SPDX-License-Identifier: MIT OR Apache-2.0
//! Incidents of the kernel. They wait until everything that the agent had sent by then is read,
//! which shows the run of each incident.

use std::collections::VecDeque;

use crate::{
    console::KernelIncident,
    vm_event::{Delivery, VmEvent},
};

/// The incidents, in order, each with the number of the question whose answer it awaits.
#[derive(Default)]
pub(super) struct WaitingIncidents {
    last: u64,
    waiting: VecDeque<(u64, KernelIncident)>,
}

impl WaitingIncidents {
    /// Returns the number of the next question.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Holds `incident` until the last question is answered.
    pub(super) fn push(&mut self, incident: KernelIncident) {
        self.waiting.push_back((self.last, incident));
    }

    /// Releases the incidents up to the question `number`, which is answered.
    pub(super) fn up_to(&mut self, number: u64, queue: &mut VecDeque<Delivery>) {
        while let Some((_, incident)) = self.waiting.pop_front_if(|(asked, _)| *asked <= number) {
            queue.push_back((VmEvent::KernelIncident(incident), None));
        }
    }

    /// Releases all incidents, because no question will be answered any more.
    pub(super) fn all(&mut self, queue: &mut VecDeque<Delivery>) {
        self.up_to(u64::MAX, queue);
    }
}
