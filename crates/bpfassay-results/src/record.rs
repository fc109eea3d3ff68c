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

/// First line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`crate::JOURNAL_VERSION`].
    pub journal: u32,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// What is to be done.
    pub plan: Plan,
    /// What it is done with.
    pub provenance: Provenance,
}

/// Every other line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A guest is about to be booted for a block.
    BlockStarted(Box<BlockStarted>),
    /// The guest is ready.
    GuestReady(Box<GuestReady>),
    /// A run came to its end, measured or not.
    Run(Box<RunRecord>),
    /// The guest is gone.
    BlockEnded(Box<BlockEnded>),
    /// More of the testbed is there, while what was there before is measured. Reading puts this in
    /// the place of what the header, or the last
    /// [`Entry::Resumed`], has: no reader of a journal sees it.
    Provisioned {
        /// When, in milliseconds since 1970-01-01 UTC.
        at_unix_ms: u64,
        /// What it is done with from here on: what it was done with before, and the guests of
        /// further architectures.
        provenance: Box<Provenance>,
    },
    /// The plan was taken up again with another testbed or on another host.
    Resumed {
        /// When, in milliseconds since 1970-01-01 UTC.
        at_unix_ms: u64,
        /// What it is done with from here on.
        provenance: Box<Provenance>,
    },
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        tagged::deserialize(deserializer)
    }
}

impl Tagged for Entry {
    const TAG: &'static str = "entry";

    fn of_kind<'de, D: Deserializer<'de>>(kind: &str, rest: D) -> Result<Self, D::Error> {
        /// [`Entry::Resumed`], [`Entry::Provisioned`].
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

impl Entry {
    /// Gives back memory that reading took beyond what is needed: of 200,000 runs it would be
    /// hundreds of megabytes.
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
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// Which boot of this block, from 1; more than 1 after an interruption, host failure, or a
    /// guest that failed.
    pub boot: u32,
    /// Which attempt at the block the boot is part of, from 1. `run --resume --again failed` begins
    /// a new one, for which nothing counts that was found out about the block's runs before.
    pub attempt: u32,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// The QEMU command line, one argument each; without a guest, the agent's.
    pub qemu: Vec<String>,
    /// The console log, relative to the results directory.
    pub log: Option<String>,
    /// The runs that the boot does, in order. All earlier records of these runs are superseded,
    /// unless the boot is a confirming one.
    pub runs: Vec<String>,
    /// For a confirming boot the run that it is about: it shows whether the guest fails under that
    /// run alone, and measures nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirming: Option<String>,
    /// Where the records come from, if no guest was booted for them here: they were measured
    /// before, and taken from a store of blocks. Times are those of the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<Reused>,
}

/// Where the records of a block come from that was measured before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reused {
    /// What names the block in the store: SHA-256, in hexadecimal, over everything that determines
    /// its figures.
    pub key: String,
    /// The store, as it was named.
    pub store: String,
    /// The machine that measured the block; empty where the store does not have it.
    pub host: HostFacts,
}

/// A guest is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestReady {
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// Which boot of this block, from 1.
    pub boot: u32,
    /// From the start of QEMU until the guest reported that it is ready, in milliseconds of the
    /// host's clock.
    pub ready_after_ms: u64,
    /// The facts that the guest reported about itself, its kernel command line included.
    pub facts: GuestFacts,
    /// The nodes that measure together, the first one included, whose facts are those above too;
    /// none where one machine measures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFacts>,
}

/// A guest is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockEnded {
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// Which boot of this block, from 1.
    pub boot: u32,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// What went wrong with the guest, if something did.
    pub failure: Option<RunFailure>,
    /// Lines of the console worth keeping though no run failed over them (kernel warnings).
    pub notes: Vec<String>,
    /// What QEMU's plugin counted in the phases of the runs; `None` where none was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Figure<Vec<RunCount>>>,
    /// Which source lines and branches of the programs under test ran in these phases; `None` where
    /// no plugin was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_coverage: Option<Figure<BootCoverage>>,
    /// What follows from how the boot ended.
    pub verdict: BootVerdict,
    /// The runs whose records count although the boot is not complete: those blamed, not tried, or
    /// given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<String>,
}

/// One run that came to its end.
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
    /// Which replicate, from 1.
    pub replicate: u32,
    /// Which round of the block, from 1.
    pub round: u32,
    /// Whether it is the second baseline run of its round (A/A control).
    pub control: bool,
    /// Whether the kernel kept statistics of programs meanwhile: compared with no other run.
    #[serde(default)]
    pub statistics: bool,
    /// Whether it only warmed the guest up: part of no figure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
    /// Whether the bundled tracer counted beside another tool, as its reference tracer: compared
    /// with no other run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_reference: bool,
    /// Which boot of the block it ran in, from 1.
    pub boot: u32,
    /// When it began, in milliseconds since 1970-01-01 UTC of the host.
    pub started_unix_ms: u64,
    /// How long it took, in milliseconds of the host's clock; for a run that never began, 0.
    pub duration_ms: u64,
    /// Its outcome. Of a run that several nodes did, the figures are sums over them, and times are
    /// those of the first.
    pub outcome: Outcome,
    /// What each of the nodes recorded that did it together; none where one machine measures, or
    /// nothing was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRun>,
}

impl RunRecord {
    /// Whether it is one of the runs that figures of its cell are made of: no control, not for
    /// statistics, no warm-up, no reference tracer.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        !self.control && !self.statistics && !self.warm_up && !self.has_reference
    }

    /// Whether the host failed the run, which does not count against what is under test.
    #[must_use]
    pub fn is_failed_by_host(&self) -> bool {
        matches!(&self.outcome, Outcome::Failed(failure) if failure.kind == FailureKind::Host)
    }

    /// The record of `run` of `block`.
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
