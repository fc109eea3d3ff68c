// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several nodes report together, whether they are guests of a boot or machines of a job: to
//! the boot that they measure for, they are one guest.

use bpfassay_protocol::message::{GuestFacts, GuestMessage, RunOutcome};
use bpfassay_results::{NodeFacts, NodeRun};

use crate::boot::Boot;

/// What all nodes have reported.
#[derive(Debug, PartialEq)]
pub(crate) enum Together {
    /// All are ready.
    Ready {
        /// The first one's.
        facts: Box<GuestFacts>,
        /// Those of all.
        nodes: Vec<NodeFacts>,
    },
    /// All have ended a run.
    RunEnded(RunTogether),
}

/// A run that all nodes have ended.
#[derive(Debug, PartialEq)]
pub(crate) struct RunTogether {
    pub(crate) run: String,
    /// Of a run that all have measured, the sums.
    pub(crate) outcome: RunOutcome,
    /// What each has measured; none where not all have.
    pub(crate) nodes: Vec<NodeRun>,
}

impl Boot<'_> {
    /// Takes what is of each node, and returns the message by which a single guest reports the
    /// same.
    pub(crate) fn message_of(&mut self, together: Together) -> GuestMessage {
        match together {
            Together::Ready { facts, nodes } => {
                self.node_facts = nodes;
                GuestMessage::Ready(facts)
            }
            Together::RunEnded(RunTogether { run, outcome, nodes }) => {
                self.nodes = nodes;
                GuestMessage::RunEnded { run, outcome: Box::new(outcome) }
            }
        }
    }
}
