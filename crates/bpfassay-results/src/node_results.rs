// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs that several nodes of a cluster do together: what each node recorded, and what follows.

use bpfassay_protocol::{
    Operation,
    message::{GuestFacts, RunFigures},
    operation::Totals,
    tracer_messages::Losses,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// A node that is ready, as its agent reported it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFacts {
    /// Node name, as the scheduler has it.
    pub node: String,
    /// Facts that the agent reported about the node.
    pub facts: GuestFacts,
}

/// The record of one node in a run of several nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeRun {
    /// Node name, as the scheduler has it.
    pub node: String,
    /// Number of IOR ranks on this node, in the cgroup that the tracer counts.
    pub ranks: u32,
    /// The records of the node's agent. The summary covers the node's own ranks. It is empty if IOR
    /// has one summary for all nodes, which is in the run's figures.
    pub figures: RunFigures,
}

/// Figures of one node in a run of several nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFigures {
    /// Name of the node.
    pub node: String,
    /// Number of IOR ranks on this node.
    pub ranks: u32,
    /// Counts on this node, a row per operation.
    pub bytes: Vec<NodeBytes>,
    /// Lost events that the node's tracer reports, over the whole run.
    pub losses: Figure<Losses>,
}

/// Counts of one operation on one node, over the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeBytes {
    /// The operation.
    pub operation: Operation,
    /// The bytes that calls of the node's ranks returned. Not measured if only IOR's summary of all
    /// nodes has them.
    pub moved: Figure<Totals>,
    /// The tracer's count for the cgroup of the ranks and the device of the mount.
    pub traced: Figure<Totals>,
    /// The count in `/proc/self/mountstats` of the node's mount.
    pub mountstats: Figure<u64>,
}
