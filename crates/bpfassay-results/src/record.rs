// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of a journal.

use bpfassay_protocol::message::GuestFacts;
use bpfassay_study::{Plan, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{
    BootCoverage, BootVerdict, FailureKind, Figure, NodeFacts, NodeRun, Outcome, Provenance, RunCount, RunFailure,
    provenance::HostFacts,
    tagged::{self, Tagged},
};

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalHeader {
    /// [`crate::JOURNAL_VERSION`].
    pub journal: u32,
    /// Begin of the execution, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// The plan to execute.
    pub plan: Plan,
    /// The inputs of the execution.
    pub provenance: Provenance,
}

/// All other lines of a journal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum JournalEntry {
    /// A guest is about to be booted for a block.
    BlockStarted(Box<BlockStarted>),
    /// The guest is ready.
    GuestReady(Box<GuestReady>),
    /// A run ended, measured or not.
    Run(Box<RunRecord>),
    /// The guest has ended.
    BlockEnded(Box<BlockEnded>),
    /// The testbed grew while its first part was being measured. Reading merges this into the
    /// header, or into the last [`JournalEntry::Resumed`], so readers of a journal never see it.
    Provisioned {
        /// Time in milliseconds since 1970-01-01 UTC.
        at_unix_ms: u64,
        /// The inputs from here on: all earlier ones, and guests of further architectures.
        provenance: Box<Provenance>,
    },
    /// The plan was resumed with another testbed or on another host.
    Resumed {
        /// Time in milliseconds since 1970-01-01 UTC.
        at_unix_ms: u64,
        /// The inputs from here on.
        provenance: Box<Provenance>,
    },
}

impl<'de> Deserialize<'de> for JournalEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        tagged::deserialize(deserializer)
    }
}

impl Tagged for JournalEntry {
    const TAG: &'static str = "entry";

    fn of_kind<'de, D: Deserializer<'de>>(kind: &str, rest: D) -> Result<Self, D::Error> {
        /// Fields of [`JournalEntry::Resumed`] and [`JournalEntry::Provisioned`].
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct With {
            at_unix_ms: u64,
            provenance: Box<Provenance>,
        }
        Ok(match kind {
            "block_started" => Self::BlockStarted(Box::deserialize(rest)?),
            "guest_ready" => Self::GuestReady(Box::deserialize(rest)?),
            "run" => Self::Run(Box::deserialize(rest)?),
            "block_ended" => Self::BlockEnded(Box::deserialize(rest)?),
            "resumed" => {
                let With { at_unix_ms, provenance } = With::deserialize(rest)?;
                Self::Resumed { at_unix_ms, provenance }
            }
            "provisioned" => {
                let With { at_unix_ms, provenance } = With::deserialize(rest)?;
                Self::Provisioned { at_unix_ms, provenance }
            }
            other => {
                let known = &["block_started", "guest_ready", "run", "block_ended", "provisioned", "resumed"];
                return Err(D::Error::unknown_variant(other, known));
            }
        })
    }
}

impl JournalEntry {
    /// Releases spare capacity from parsing: hundreds of megabytes for 200,000 runs.
    pub(crate) fn shrink(&mut self) {
        if let Self::Run(record) = self
            && let Outcome::Measured(figures) = &mut record.outcome
        {
            figures.phases.shrink_to_fit();
            figures.samples.shrink_to_fit();
            if let Some(tracer) = &mut figures.tracer {
                tracer.programs.shrink_to_fit();
            }
        }
    }
}

/// A guest is about to be booted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockStarted {
    /// The block, as in [`bpfassay_study::Block::id`].
    pub block: String,
    /// Number of the boot within the block, from 1. It is above 1 after an interruption, a host
    /// failure, or a guest that failed.
    pub boot: u32,
    /// Number of the attempt that the boot belongs to, from 1. `run --resume --again failed` begins
    /// a new attempt, for which earlier facts about the block's runs do not count.
    pub attempt: u32,
    /// Time in milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// The command line of QEMU (or of the agent, if there is no guest), one argument per element.
    pub qemu: Vec<String>,
    /// The console log, relative to the results directory.
    pub log: Option<String>,
    /// Runs of the boot, in order. They supersede all earlier records of these runs, unless the
    /// boot is a confirming one.
    pub runs: Vec<String>,
    /// For a confirming boot: the suspected run. The boot shows whether the guest fails under this
    /// run alone, and measures nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirming: Option<String>,
    /// For records from a store of blocks: their origin. No guest was booted for them here, and all
    /// times are those of the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<Reused>,
}

/// Origin of a block's records that were measured earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reused {
    /// Key of the block in the store: SHA-256, in hexadecimal, over everything that determines the
    /// block's figures.
    pub key: String,
    /// The store, as the user named it.
    pub store: String,
    /// The machine that measured the block; empty if the store does not record it.
    pub host: HostFacts,
}

/// A guest is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestReady {
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// Number of the boot within the block, from 1.
    pub boot: u32,
    /// Time from the start of QEMU until the guest reported that it is ready, in milliseconds of
    /// the host's clock.
    pub ready_after_ms: u64,
    /// Facts that the guest reported about itself, including its kernel command line.
    pub facts: GuestFacts,
    /// The nodes that measure together; empty for a single machine. The facts of the first node are
    /// also in `facts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFacts>,
}

/// A guest has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockEnded {
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// Number of the boot within the block, from 1.
    pub boot: u32,
    /// Time in milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// The guest's failure, if any.
    pub failure: Option<RunFailure>,
    /// Console lines worth keeping although no run failed over them, such as kernel warnings.
    pub notes: Vec<String>,
    /// Counts of QEMU's plugin in the phases of the runs; `None` if no plugin was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Figure<Vec<RunCount>>>,
    /// Source lines and branches of the programs under test that ran in these phases. `None` if no
    /// plugin was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_coverage: Option<Figure<BootCoverage>>,
    /// The conclusion from how the boot ended.
    pub verdict: BootVerdict,
    /// Runs whose records count although the boot is not complete: those blamed, not tried, or
    /// given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<String>,
}

/// The record of one run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// [`bpfassay_study::Cell::id`].
    pub cell: String,
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// The target.
    pub target: Target,
    /// Number of the replicate, from 1.
    pub replicate: u32,
    /// Round within the block, from 1.
    pub round: u32,
    /// Whether this is the second baseline run of the round (A/A control).
    pub control: bool,
    /// Whether the kernel kept statistics of programs during the run. Such runs are not compared
    /// with other runs.
    #[serde(default)]
    pub statistics: bool,
    /// Whether this is a warm-up, which no figure contains.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
    /// Whether the bundled tracer counted together with another tool, as its reference tracer. Such
    /// runs are not compared with other runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_reference: bool,
    /// Number of the boot within the block, from 1.
    pub boot: u32,
    /// Begin of the run, in milliseconds since 1970-01-01 UTC by the host's clock.
    pub started_unix_ms: u64,
    /// Duration in milliseconds of the host's clock; 0 for a run that never began.
    pub duration_ms: u64,
    /// The outcome. If several nodes did the run, figures are sums over the nodes, and times are
    /// those of the first node.
    pub outcome: Outcome,
    /// The records of each node, if several nodes did the run. Empty for a single machine, or if
    /// nothing was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRun>,
}

impl RunRecord {
    /// Whether the cell's figures use the run: it is not a control, not for statistics, not a
    /// warm-up, and has no reference tracer.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        !self.control && !self.statistics && !self.warm_up && !self.has_reference
    }

    /// Whether the run failed because of the host, and not because of what is under test.
    #[must_use]
    pub fn is_failed_by_host(&self) -> bool {
        matches!(&self.outcome, Outcome::Failed(failure) if failure.kind == FailureKind::Host)
    }

    /// Creates the record of `run` in `block`.
    #[must_use]
    pub fn new(
        block: &bpfassay_study::Block,
        run: &bpfassay_study::PlannedRun,
        boot: u32,
        started_unix_ms: u64,
        duration_ms: u64,
        outcome: Outcome,
    ) -> Self {
        Self {
            run: run.spec.id.clone(),
            cell: run.cell.clone(),
            block: block.id.clone(),
            target: block.target.clone(),
            replicate: block.replicate,
            round: run.round,
            control: run.control,
            statistics: run.spec.bpf_stats,
            warm_up: run.warm_up,
            has_reference: run.has_reference(),
            boot,
            started_unix_ms,
            duration_ms,
            outcome,
            nodes: Vec::new(),
        }
    }
}
