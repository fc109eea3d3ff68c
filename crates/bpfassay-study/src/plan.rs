// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a study: cells, and blocks of runs. [`crate::expand()`] makes plans.

use std::collections::{BTreeSet, HashMap};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{FileSystem, RunSpec, Workload},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Interface, Shard, Share, Study, Target, study_digest::digest_and_length};

/// Default number of nfsd threads, and default size of a file system.
pub(crate) const DEFAULT_THREADS: u32 = 8;
pub(crate) const DEFAULT_SIZE_MIB: u32 = 256;

/// Which parts of a study to keep. An empty list keeps everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Narrowing {
    /// Architectures (`--arch`).
    pub archs: Vec<Arch>,
    /// Kernel names (`--kernel`).
    pub kernels: Vec<String>,
    /// Probe configurations (`--probe`). The baseline always stays.
    pub probes: Vec<ProbeConfiguration>,
    /// Cell ids (`--cell`). The baselines of these cells always stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<String>,
    /// Number of boots (`--replicates`); overrides the study's number.
    pub replicates: Option<u32>,
    /// Sequential sampling (`--until`); overrides the study's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Share>,
}

/// Everything to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The whole study.
    pub study: Study,
    /// The requested narrowing of the study.
    pub narrowing: Narrowing,
    /// The shard to measure; `None` for everything. `cells` and `blocks` always cover the whole
    /// plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// SHA-256, in hexadecimal, of study, cells and blocks. Plans with the same digest have the
    /// same runs.
    pub digest: String,
    /// The cells, grouped by target.
    pub cells: Vec<Cell>,
    /// The blocks in execution order: the first replicate of everything, then the second, and so
    /// on.
    pub blocks: Vec<Block>,
    /// Parts of the study that the plan does not run.
    pub left_out: Vec<LeftOut>,
}

/// One point of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Cell id: `x86_64_6.1_quick_nfs4.2_fexit`. Safe as a file name.
    pub id: String,
    /// The target.
    pub target: Target,
    /// Name of the workload case: `quick`, `ceems-ior-posix-t1MiB`.
    pub case: String,
    /// The workload.
    pub workload: Workload,
    /// The IOR interface that the workload uses; `None` for workloads other than IOR.
    pub interface: Option<Interface>,
    /// The file system under test.
    pub file_system: FileSystem,
    /// The probe configuration. It is the baseline if another tool is under test.
    pub probe: ProbeConfiguration,
    /// Name of the other tool under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

impl Cell {
    /// Whether this is the baseline that other cells are compared with.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.probe.is_baseline() && self.tool.is_none()
    }
}

/// One boot: all probe configurations of one target, workload case and file system, in one
/// replicate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Block id: `x86_64_6.1_quick_nfs4.2_1`. Safe as a file name.
    pub id: String,
    /// The target.
    pub target: Target,
    /// Name of the workload case.
    pub case: String,
    /// The file system under test.
    pub file_system: FileSystem,
    /// Number of the replicate, from 1.
    pub replicate: u32,
    /// The runs in execution order.
    pub runs: Vec<PlannedRun>,
}

/// One run to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRun {
    /// The run in the guest. The id is `BLOCK_rROUND_PROBE`, or `BLOCK_rROUND_none-control` for the
    /// control.
    pub spec: RunSpec,
    /// The cell, as in [`Cell::id`].
    pub cell: String,
    /// Round within the block, from 1. Runs of the same block and round are compared with each
    /// other.
    pub round: u32,
    /// Whether this is the second baseline run of the round (A/A control).
    pub control: bool,
    /// Whether this is a warm-up, which is recorded but part of no figure. `round` then numbers the
    /// warm-ups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
}

impl PlannedRun {
    /// Whether the bundled tracer counts together with another tool, only as its reference tracer.
    #[must_use]
    pub fn has_reference(&self) -> bool {
        self.spec.tool.is_some() && !self.spec.probe.is_baseline()
    }
}

/// A part of the study that the plan does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The part.
    pub what: String,
    /// The reason.
    pub reason: String,
}

impl Plan {
    /// The interval width at which sequential sampling stops; `None` without sequential sampling.
    #[must_use]
    pub fn until(&self) -> Option<Share> {
        self.narrowing.until.or(self.study.design.until)
    }

    /// Largest number of boots of a target, workload and file system.
    #[must_use]
    pub fn replicates(&self) -> u32 {
        self.blocks.iter().map(|block| block.replicate).max().unwrap_or(0)
    }

    /// Replaces the blocks. The new plan measures all of them.
    #[must_use]
    pub fn with_blocks(&self, blocks: Vec<Block>) -> Self {
        Self {
            digest: digest_and_length(&(&self.study, &self.cells, &blocks)).0,
            blocks,
            study: self.study.clone(),
            narrowing: self.narrowing.clone(),
            shard: None,
            cells: self.cells.clone(),
            left_out: self.left_out.clone(),
        }
    }

    /// Whether [`Self::digest`] matches the contents, so that the plan was not changed after its
    /// creation.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.digest == digest_and_length(&(&self.study, &self.cells, &self.blocks)).0
    }

    /// Indexes the cells by id, for many look-ups.
    #[must_use]
    pub fn cells_by_id(&self) -> HashMap<&str, &Cell> {
        self.cells.iter().map(|cell| (cell.id.as_str(), cell)).collect()
    }

    /// Finds the cell `id`.
    #[must_use]
    pub fn cell(&self, id: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.id == id)
    }

    /// All runs with their blocks, in execution order.
    pub fn runs(&self) -> impl Iterator<Item = (&Block, &PlannedRun)> {
        self.blocks.iter().flat_map(|block| block.runs.iter().map(move |run| (block, run)))
    }

    /// The targets that are measured, each once, in the order of the study.
    #[must_use]
    pub fn targets(&self) -> Vec<&Target> {
        let mut known = BTreeSet::new();
        self.measured_cells().into_iter().map(|cell| &cell.target).filter(|target| known.insert(*target)).collect()
    }
}

/// Largest number of characters of a mounted file system's type in an identifier.
const LONGEST_TYPE: usize = 40;

/// Identifier of a file system: type, version, and differences from the defaults (8 threads, 256
/// MiB, the kernel's choice of LOCALIO, the study's scheduling). A file system that was mounted
/// already has its type as identifier.
#[must_use]
pub fn file_system_id(file_system: &FileSystem) -> String {
    let (mut id, size) = match file_system {
        FileSystem::Nfs(nfs) => {
            let mut id = format!("nfs{}", nfs.version);
            match nfs.localio {
                None => {}
                Some(true) => id.push_str("-localio"),
                Some(false) => id.push_str("-nolocalio"),
            }
            if nfs.threads != DEFAULT_THREADS {
                id.push_str(&format!("-{}threads", nfs.threads));
            }
            if let Some(scheduling) = nfs.scheduling {
                id.push_str(&format!("-{scheduling}"));
            }
            (id, nfs.size_mib)
        }
        FileSystem::Tmpfs { size_mib } => ("tmpfs".to_owned(), *size_mib),
        // The type is untrusted: a FUSE server chooses the second half.
        FileSystem::Mounted { file_system } => {
            let in_id = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
            return file_system.chars().take(LONGEST_TYPE).map(in_id).collect();
        }
    };
    if size != DEFAULT_SIZE_MIB {
        id.push_str(&format!("-{size}MiB"));
    }
    id
}
