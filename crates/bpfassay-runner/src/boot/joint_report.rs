// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joint reports of several nodes, either guests of a boot or machines of a job. Their boot treats
//! them as one guest.

use bpfassay_protocol::message::{GuestFacts, RunOutcome};
use bpfassay_results::{NodeFacts, NodeRun};

/// A joint report of all nodes.
#[derive(Debug, PartialEq)]
pub enum JointReport {
    /// All nodes are ready.
    Ready {
        /// The facts of the first node.
        facts: Box<GuestFacts>,
        /// The facts of all nodes.
        nodes: Vec<NodeFacts>,
    },
    /// All nodes have ended a run.
    RunEnded(RunTogether),
}

/// A run that all nodes have ended.
#[derive(Debug, PartialEq)]
pub struct RunTogether {
    /// The id of the run.
    pub run: String,
    /// The sums, if all nodes have measured the run.
    pub outcome: RunOutcome,
    /// The figures of each node; empty unless all have measured the run.
    pub nodes: Vec<NodeRun>,
}
