// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of the task that watches a guest, and requests of the guest's owner.

use std::time::Duration;

use bpfassay_protocol::message::GuestMessage;
use tokio::sync::OwnedSemaphorePermit;

use crate::{console::KernelIncident, guest_ending::GuestEnding};

/// An event of a guest, as observed from outside.
#[derive(Debug, Clone, PartialEq)]
pub enum VmEvent {
    /// The agent sent a message.
    Message(GuestMessage),
    /// The kernel reported an incident. The guest continues unless an end follows.
    KernelIncident(KernelIncident),
    /// The guest has ended. This is the last event. [`crate::Guest::next_event`] returns it again
    /// at each further call.
    Ended(Box<GuestEnding>),
}

/// An event on its way to the owner, and its share of the memory limit until the owner has it.
pub(crate) type Delivery = (VmEvent, Option<OwnedSemaphorePermit>);

/// The owner's request that the guest end. It is ended by force after `grace`.
#[derive(Debug)]
pub(crate) struct StopRequest {
    pub(crate) grace: Duration,
}
