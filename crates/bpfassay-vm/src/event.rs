// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the task that watches a guest reports to its owner, and what the owner requests.

use std::time::Duration;

use bpfassay_protocol::message::GuestMessage;
use tokio::sync::OwnedSemaphorePermit;

use crate::{Ending, KernelIncident};

/// What a guest does, observed from outside.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The agent sent a message.
    Message(GuestMessage),
    /// The kernel reported an incident. The guest continues unless an end follows.
    KernelIncident(KernelIncident),
    /// The guest has ended. Always the last event; [`crate::Guest::next_event`] returns it again at
    /// each further call.
    Ended(Box<Ending>),
}

/// An event on its way to the owner, and the memory that it takes until the owner has it.
pub(crate) type Delivery = (Event, Option<OwnedSemaphorePermit>);

/// The owner's request that the guest end: by itself within `grace`, or otherwise by force.
#[derive(Debug)]
pub(crate) struct StopRequest {
    pub(crate) grace: Duration,
}
