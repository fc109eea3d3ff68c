// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a study: cells and blocks of runs. How that follows from the study is in
//! [`crate::expand()`].

use std::collections::{BTreeSet, HashMap};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{FileSystem, RunSpec, Workload},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Interface, Shard, Share, Study, Target, digest::digest_and_length};

/// nfsd threads and size of the file system where a study does not set them.
pub(crate) const DEFAULT_THREADS: u32 = 8;
pub(crate) const DEFAULT_SIZE_MIB: u32 = 256;

/// What to keep of a study; empty lists keep everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Narrowing {
    /// Architectures (`--arch`).
    pub archs: Vec<Arch>,
    /// Kernel names (`--kernel`).
    pub kernels: Vec<String>,
    /// Probe configurations (`--probe`); the baseline stays in any case.
    pub probes: Vec<ProbeConfiguration>,
    /// Cells by their ids (`--cell`); the baselines that they are compared with stay in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<String>,
    /// Boots in place of the study's number (`--replicates`).
    pub replicates: Option<u32>,
    /// Sequential sampling in place of the study's own (`--until`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Share>,
}

/// Everything to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The study it comes from, whole.
    pub study: Study,
    /// What was asked to be kept of it.
    pub narrowing: Narrowing,
    /// The shard that is measured; `None`: everything. Cells and blocks are those of the whole
    /// plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// SHA-256, in hexadecimal, of study, cells and blocks: two plans with the same digest name the
    /// same runs.
    pub digest: String,
    /// The cells, grouped by target.
    pub cells: Vec<Cell>,
    /// The blocks in the order to do them: the first replicate of everything, then the second, and
    /// so on.
    pub blocks: Vec<Block>,
    /// What the study names and the plan does not do.
    pub left_out: Vec<LeftOut>,
}

/// One point of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Identifier: `x86_64_6.1_quick_nfs4.2_fexit`. Safe as a file name.
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
    /// The probe configuration; the baseline where another tool is under test.
    pub probe: ProbeConfiguration,
    /// Name of the other tool under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

impl Cell {
    /// Whether nothing is under test: what the others are compared with.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.probe.is_baseline() && self.tool.is_none()
    }
}

/// One boot: the runs of all probe configurations of one target, workload case and file system, for
/// one replicate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Identifier: `x86_64_6.1_quick_nfs4.2_1`. Safe as a file name.
    pub id: String,
    /// The target.
    pub target: Target,
    /// Name of the workload case.
    pub case: String,
    /// The file system under test.
    pub file_system: FileSystem,
    /// Which replicate, from 1.
    pub replicate: u32,
    /// The runs in the order to do them.
    pub runs: Vec<PlannedRun>,
}

/// One run to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRun {
    /// What the guest runs. Its `id` is `BLOCK_rROUND_PROBE`, for the control
    /// `BLOCK_rROUND_none-control`.
    pub spec: RunSpec,
    /// [`Cell::id`].
    pub cell: String,
    /// Which round of the block, from 1. Runs of the same block and round are compared with each
    /// other.
    pub round: u32,
    /// Whether this is the second baseline run of the round (A/A control).
    pub control: bool,
    /// Whether this only warms the guest up: recorded, and part of no figure. `round` then numbers
    /// such runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
}

impl PlannedRun {
    /// Whether the bundled tracer counts beside another tool: as its reference, and for no other
    /// figure.
    #[must_use]
    pub fn has_reference(&self) -> bool {
        self.spec.tool.is_some() && !self.spec.probe.is_baseline()
    }
}

/// Something that the study names and the plan does not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// Why.
    pub reason: String,
}

impl Plan {
    /// How narrow the intervals are to become, where boots are repeated until they are.
    #[must_use]
    pub fn until(&self) -> Option<Share> {
        self.narrowing.until.or(self.study.design.until)
    }

    /// The most boots of a target, workload and file system.
    #[must_use]
    pub fn replicates(&self) -> u32 {
        self.blocks.iter().map(|block| block.replicate).max().unwrap_or(0)
    }

    /// The plan with these blocks in place of its own, all of which are measured.
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

    /// Whether [`Self::digest`] is that of what the plan holds: whether it is the plan that was
    /// made, with the seed that it was made with.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.digest == digest_and_length(&(&self.study, &self.cells, &self.blocks)).0
    }

    /// The cells by their ids: for callers that look many of them up.
    #[must_use]
    pub fn cells_by_id(&self) -> HashMap<&str, &Cell> {
        self.cells.iter().map(|cell| (cell.id.as_str(), cell)).collect()
    }

    /// The cell named `id`.
    #[must_use]
    pub fn cell(&self, id: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.id == id)
    }

    /// All runs with their blocks, in the order to do them.
    pub fn runs(&self) -> impl Iterator<Item = (&Block, &PlannedRun)> {
        self.blocks.iter().flat_map(|block| block.runs.iter().map(move |run| (block, run)))
    }

    /// The targets of what is measured, each once, in the order of the study.
    #[must_use]
    pub fn targets(&self) -> Vec<&Target> {
        let mut known = BTreeSet::new();
        self.measured_cells().into_iter().map(|cell| &cell.target).filter(|target| known.insert(*target)).collect()
    }
}

/// Most characters of the type of a mounted file system in an identifier.
const LONGEST_TYPE: usize = 40;

/// The identifier of a file system: type and version, and what differs from the defaults (8
/// threads, 256 MiB, the kernel's choice of LOCALIO, the study's scheduling). Of one that is
/// mounted already, the type.
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
        // A FUSE server chooses the second half of its type itself.
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
