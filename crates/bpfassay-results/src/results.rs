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
    /// Version of this form.
    pub version: u32,
    /// The digest of the journal that they follow from; `None` where they were made otherwise, or
    /// before journals had sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalDigest>,
    /// When the first run began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// The plan: the study whole (its clock included), what was kept of it, its cells and blocks,
    /// and what was left out.
    pub plan: Plan,
    /// What it was done with; more than one where it was taken up again with another testbed.
    pub provenance: Vec<Provenance>,
    /// Every guest that was started, those among them whose records are reused.
    pub boots: Vec<Boot>,
    /// Every run that came to its end, in the order of the journal, with its raw figures.
    pub runs: Vec<RunResult>,
    /// Every cell of the plan, in its order; of a shard those that it measures.
    pub cells: Vec<CellResult>,
    /// The verdicts on the study's gates, a row per gate, demand, cell and metric; gates first,
    /// then cells in the plan's order. None for a shard: the gates are decided when all is merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// How many boots sequential sampling took, a row per target, workload and file system; empty
    /// where they were fixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampling: Vec<Sampled>,
    /// What works, breaks and differs, where the study asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_features: Option<KernelFeatures>,
    /// What a reader of these results must know besides: torn journal lines, runs that are missing.
    pub notes: Vec<String>,
}

/// One guest that was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// The block it was started for.
    pub block: String,
    /// Which boot of this block, from 1.
    pub boot: u32,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// The QEMU command line, one argument each.
    pub qemu: Vec<String>,
    /// The console log, relative to the results directory.
    pub log: Option<String>,
    /// From the start of QEMU until the guest reported that it is ready, in milliseconds.
    pub ready_after_ms: Figure<u64>,
    /// What the guest knew about itself: kernel command line, LOCALIO, JIT, mitigations, mount.
    pub facts: Option<GuestFacts>,
    /// The nodes that measured together, the first one included; none where one machine did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFacts>,
    /// What went wrong with the guest, if something did.
    pub failure: Option<RunFailure>,
    /// Console lines worth keeping.
    pub notes: Vec<String>,
    /// For a confirming boot the run that it was about: whether the guest fails under that run
    /// alone. Nothing of such a boot is a figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirming: Option<String>,
    /// What follows from how it ended: whether its records count, and if not, who is to blame.
    /// `None` where bpfassay was killed before it wrote it, and in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<BootVerdict>,
    /// Where its records come from, if the guest was not started for these results: from a store of
    /// blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<Reused>,
}
