// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs that several nodes of a cluster do together: what each of them has recorded, and what
//! follows from it for each.

use bpfassay_protocol::{
    Operation,
    message::{GuestFacts, RunFigures},
    operation::Totals,
    tracer::Losses,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// A node that is ready, as its agent reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFacts {
    /// Its name, as the scheduler has it.
    pub node: String,
    /// What its agent reported about it.
    pub facts: GuestFacts,
}

/// What one node recorded of a run that several did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeRun {
    /// Its name, as the scheduler has it.
    pub node: String,
    /// How many ranks of IOR ran there, in the cgroup that its tracer counts.
    pub ranks: u32,
    /// What its agent recorded. The summary is that of its own ranks; empty where IOR has one for
    /// all nodes, which the run has then.
    pub figures: RunFigures,
}

/// What follows for one node from a run that several did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFigures {
    /// Its name.
    pub node: String,
    /// How many ranks of IOR ran there.
    pub ranks: u32,
    /// What was counted there, a row per operation.
    pub bytes: Vec<NodeBytes>,
    /// Events that its tracer reports to have lost, over the whole run.
    pub losses: Figure<Losses>,
}

/// What was counted on one node of one operation, over the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeBytes {
    /// The operation.
    pub operation: Operation,
    /// What the calls of the ranks there returned; not measured where only IOR's summary of all
    /// nodes has it.
    pub moved: Figure<Totals>,
    /// What the tracer counted for the key (cgroup of the ranks, device of the mount).
    pub traced: Figure<Totals>,
    /// What `/proc/self/mountstats` of the node's mount counted.
    pub mountstats: Figure<u64>,
}
