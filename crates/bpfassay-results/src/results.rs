// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published form of results: `results.json`, version [`RESULTS_VERSION`].

use bpfassay_protocol::message::GuestFacts;
use bpfassay_study::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    BootVerdict, CellResult, Figure, GateResult, KernelFeatures, NodeFacts, Provenance, Reused, RunFailure, RunResult,
    Sampled, journal::JournalDigest,
};

/// Version of `results.json`.
pub const RESULTS_VERSION: u32 = 3;

/// The results of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// Version of this format.
    pub version: u32,
    /// Digest of the journal behind these results. `None` if they were made without one, or before
    /// journals had sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalDigest>,
    /// When the first run began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// The plan: the whole study, what was selected from it, cells, blocks, and what was left out.
    pub plan: Plan,
    /// The inputs. More than one element if the plan was resumed with another testbed.
    pub provenance: Vec<Provenance>,
    /// Every guest that was started, including those with reused records.
    pub boots: Vec<Boot>,
    /// Every run that ended, in journal order, with raw figures.
    pub runs: Vec<RunResult>,
    /// Every cell of the plan, in order. A shard has only the cells that it measures.
    pub cells: Vec<CellResult>,
    /// Verdicts on the study's gates, a row per gate, demand, cell and metric. Sorted by gate, then
    /// by cell in the plan's order. Empty for a shard: gates are decided after the merge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// Number of boots of sequential sampling, a row per target, workload and file system. Empty if
    /// the number was fixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampling: Vec<Sampled>,
    /// The features that work, fail and differ, if the study asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_features: Option<KernelFeatures>,
    /// Other facts that a reader must know, such as torn journal lines or missing runs.
    pub notes: Vec<String>,
}

/// One guest that was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// The block that the guest was started for.
    pub block: String,
    /// Number of the boot within the block, from 1.
    pub boot: u32,
    /// Time in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// The QEMU command line, one argument per element.
    pub qemu: Vec<String>,
    /// The console log, relative to the results directory.
    pub log: Option<String>,
    /// Time from the start of QEMU until the guest reported that it is ready, in milliseconds.
    pub ready_after_ms: Figure<u64>,
    /// Facts that the guest reported: kernel command line, LOCALIO, JIT, mitigations, mount.
    pub facts: Option<GuestFacts>,
    /// The nodes that measured together, including the first; empty for a single machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFacts>,
    /// The guest's failure, if any.
    pub failure: Option<RunFailure>,
    /// Console lines worth keeping.
    pub notes: Vec<String>,
    /// For a confirming boot: the suspected run. The boot shows whether the guest fails under this
    /// run alone, and gives no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirming: Option<String>,
    /// The conclusion from how the boot ended: whether its records count, and otherwise who is to
    /// blame. `None` if bpfassay was killed before it was written, and in results of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<BootVerdict>,
    /// For records from a store of blocks: their origin. The guest was not started for these
    /// results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<Reused>,
}
