//! From a study to the runs to do. Pure: the same study, narrowing and machine give the same plan.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{FileSystem, IorEngine, RunSpec, Workload},
    tool::Tool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod cases;
mod digest;
mod tools;

use self::{
    cases::cases,
    tools::{reference_runs, tools_for, tools_left_out},
};
use crate::{
    ExpandError, Interface, IorSpec, IorTest, Share, Study, Target, WorkloadSpec,
    narrow::{keep_cells, list, narrow},
    shuffle::shuffle,
};

/// Largest number of runs of one plan.
pub const MAX_RUNS: usize = 200_000;

/// Largest plan as JSON, in bytes: study, cells and blocks. What writes a plan down has room for it and for what stands beside it.
pub const MAX_BYTES: u64 = 512 << 20;

/// nfsd threads and size of the file system where a study does not say.
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

/// What the machine at hand offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Available {
    /// The real IOR: per architecture for which the user gave one (`--ior ARCH=DIR`), the interfaces that it has.
    pub external_ior: BTreeMap<Arch, BTreeSet<Interface>>,
    /// The targets of the testbed at hand, where only these are wanted; none where every target can be made.
    pub targets: Option<BTreeSet<Target>>,
}

/// Everything to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The study it comes from, whole.
    pub study: Study,
    /// What was asked to be kept of it.
    pub narrowing: Narrowing,
    /// SHA-256, in hexadecimal, of study, cells and blocks: two plans with the same digest name the same runs.
    pub digest: String,
    /// The cells, grouped by target.
    pub cells: Vec<Cell>,
    /// The blocks in the order to do them: the first replicate of everything, then the second, and so on.
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

/// One boot: the runs of all probe configurations of one target, workload case and file system, for one replicate.
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
    /// What the guest is told. Its `id` is `BLOCK_rROUND_PROBE`, for the control `BLOCK_rROUND_none-control`.
    pub spec: RunSpec,
    /// [`Cell::id`].
    pub cell: String,
    /// Which round of the block, from 1. Runs of the same block and round are compared with each other.
    pub round: u32,
    /// Whether this is the second baseline run of the round (A/A control).
    pub control: bool,
    /// Whether this only warms the guest up: recorded, and part of no figure. `round` then numbers such runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
}

impl PlannedRun {
    /// Whether the bundled tracer counts beside another tool: to know what really happened, and for no other figure.
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
    /// How narrow the intervals are to become, where boots go on until they are.
    #[must_use]
    pub fn until(&self) -> Option<Share> {
        self.narrowing.until.or(self.study.design.until)
    }

    /// The most boots of a target, workload and file system.
    #[must_use]
    pub fn replicates(&self) -> u32 {
        self.blocks.iter().map(|block| block.replicate).max().unwrap_or(0)
    }

    /// The plan with these blocks in place of its own.
    #[must_use]
    pub fn with_blocks(&self, blocks: Vec<Block>) -> Self {
        Self {
            digest: digest::of(&self.study, &self.cells, &blocks).0,
            blocks,
            study: self.study.clone(),
            narrowing: self.narrowing.clone(),
            cells: self.cells.clone(),
            left_out: self.left_out.clone(),
        }
    }

    /// Whether [`Self::digest`] is that of what the plan holds: whether it is the plan that was made, with the seed that it was made with.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.digest == digest::of(&self.study, &self.cells, &self.blocks).0
    }

    /// The cells by their ids: for whoever looks many of them up.
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

    /// The targets, each once, in the order of the study.
    #[must_use]
    pub fn targets(&self) -> Vec<&Target> {
        let mut known = BTreeSet::new();
        self.cells.iter().map(|cell| &cell.target).filter(|target| known.insert(*target)).collect()
    }
}

/// The identifier of a file system: type and version, and what differs from the defaults (8 threads, 256 MiB, the
/// kernel's choice of LOCALIO).
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
            (id, nfs.size_mib)
        }
        FileSystem::Tmpfs { size_mib } => ("tmpfs".to_owned(), *size_mib),
    };
    if size != DEFAULT_SIZE_MIB {
        id.push_str(&format!("-{size}MiB"));
    }
    id
}

/// Expands `study`.
///
/// # Errors
/// [`ExpandError`], when `narrowing` names what the study does not have, when nothing is left, or when far too much is.
pub fn expand(study: &Study, narrowing: &Narrowing, available: &Available) -> Result<Plan, ExpandError> {
    // Whoever knows of builds should have put them in place of their patterns.
    if let Some(pattern) = study.targets.iter().find(|target| target.is_pattern()) {
        return Err(ExpandError::NoBuild { pattern: pattern.to_string() });
    }
    let mut narrowed = narrow(study, narrowing)?;
    let mut left_out = std::mem::take(&mut narrowed.left_out);
    if let Some(at_hand) = &available.targets {
        let (kept, absent): (Vec<_>, Vec<_>) =
            narrowed.targets.into_iter().partition(|target| at_hand.contains(target));
        if !absent.is_empty() {
            let reason = "the testbed has no guest for them".to_owned();
            left_out.push(LeftOut { what: format!("targets {}", list(&absent)), reason });
        }
        narrowed.targets = kept;
    }
    let cases = cases(study, &narrowed.targets, available, &mut left_out);
    let configurations: usize =
        cases.iter().map(|(_, cases)| cases.len()).sum::<usize>().saturating_mul(study.file_systems.len());
    if configurations == 0 {
        let reasons =
            left_out.iter().map(|left| format!("{}: {}", left.what, left.reason)).collect::<Vec<_>>().join("; ");
        return Err(ExpandError::NothingLeft { study: study.name.clone(), reasons });
    }
    let tools = study.tools.len().saturating_add(study.tool_files.len());
    let per_round = narrowed.probes.len().saturating_add(tools).saturating_add(usize::from(study.design.control));
    let beside = (study.design.warm_up as usize).saturating_add(study.tool_files.len());
    let per_boot = per_round.saturating_mul(study.design.rounds as usize).saturating_add(beside);
    let runs = configurations.saturating_mul(per_boot).saturating_mul(narrowed.replicates as usize);
    if runs > MAX_RUNS {
        return Err(ExpandError::TooLarge { study: study.name.clone(), limit: MAX_RUNS });
    }

    left_out.extend(tools_left_out(study, &narrowed.targets));
    let mut plan = Plan {
        study: study.clone(),
        narrowing: narrowing.clone(),
        digest: String::new(),
        cells: Vec::new(),
        blocks: Vec::new(),
        left_out,
    };
    let points = || {
        cases.iter().flat_map(|(target, cases)| {
            cases
                .iter()
                .flat_map(move |case| study.file_systems.iter().map(move |file_system| (*target, case, file_system)))
        })
    };
    for (target, case, file_system) in points() {
        for &probe in &narrowed.probes {
            plan.cells.push(case.cell(target, file_system, probe, None));
        }
        for tool in tools_for(study, target.arch) {
            plan.cells.push(case.cell(target, file_system, ProbeConfiguration::BASELINE, Some(&tool)));
        }
    }
    for replicate in 1..=narrowed.replicates {
        for (target, case, file_system) in points() {
            plan.blocks.push(case.block(study, &narrowed.probes, target, file_system, replicate));
        }
    }
    keep_cells(&mut plan)?;
    let (digest, bytes) = digest::of(&plan.study, &plan.cells, &plan.blocks);
    if bytes > MAX_BYTES {
        return Err(ExpandError::TooLong { study: study.name.clone(), bytes, limit: MAX_BYTES });
    }
    plan.digest = digest;
    Ok(plan)
}

/// A workload case on one target: one IOR test with the engine that runs it, or another workload.
struct Case {
    id: String,
    workload: Workload,
    interface: Option<Interface>,
}

/// The name of what is under test.
fn under_test(probe: ProbeConfiguration, tool: Option<&Tool>) -> String {
    tool.map_or_else(|| probe.to_string(), |tool| tool.name.clone())
}

impl Case {
    fn ior(id: String, spec: &IorSpec, test: &IorTest, engine: IorEngine) -> Self {
        let IorSpec { ranks, neighbour, .. } = *spec;
        let workload = Workload::Ior { engine, ranks, options: test.options.clone(), neighbour };
        Self { id, workload, interface: Some(test.interface) }
    }

    fn other(spec: &WorkloadSpec, workload: Workload) -> Self {
        Self { id: spec.name.clone(), workload, interface: None }
    }

    fn place(&self, target: &Target, file_system: &FileSystem) -> String {
        format!("{}_{}_{}", target.id(), self.id, file_system_id(file_system))
    }

    fn cell(&self, target: &Target, file_system: &FileSystem, probe: ProbeConfiguration, tool: Option<&Tool>) -> Cell {
        Cell {
            id: format!("{}_{}", self.place(target, file_system), under_test(probe, tool)),
            target: target.clone(),
            case: self.id.clone(),
            workload: self.workload.clone(),
            interface: self.interface,
            file_system: file_system.clone(),
            probe,
            tool: tool.map(|tool| tool.name.clone()),
        }
    }

    /// What the guest is told of a run, without its name.
    fn spec(&self, study: &Study, probe: ProbeConfiguration) -> RunSpec {
        RunSpec {
            id: String::new(),
            probe,
            bpf_stats: false,
            tool: None,
            tracer_arguments: if probe.is_baseline() { Vec::new() } else { study.tracer_arguments.clone() },
            sampling_interval_ms: study.design.sampling_interval_ms.filter(|_| !probe.is_baseline()),
            workload: self.workload.clone(),
        }
    }

    /// The runs before the first round. The baseline warms up as well as anything else: it is what all others share, and loading
    /// a tracer takes several times as long as a run.
    fn warm_up(&self, study: &Study, probes: &[ProbeConfiguration], place: &str, id: &str) -> Vec<PlannedRun> {
        let probe = probes.iter().find(|probe| probe.is_baseline()).or(probes.first());
        // Other workloads are not timed.
        let (Some(&probe), Workload::Ior { .. } | Workload::Microbenchmark { .. } | Workload::Command { .. }) =
            (probe, &self.workload)
        else {
            return Vec::new();
        };
        (1..=study.design.warm_up)
            .map(|round| PlannedRun {
                spec: RunSpec { id: format!("{id}_w{round}_{probe}"), ..self.spec(study, probe) },
                cell: format!("{place}_{probe}"),
                round,
                control: false,
                warm_up: true,
            })
            .collect()
    }

    fn block(
        &self,
        study: &Study,
        probes: &[ProbeConfiguration],
        target: &Target,
        file_system: &FileSystem,
        replicate: u32,
    ) -> Block {
        let place = self.place(target, file_system);
        let id = format!("{place}_{replicate}");
        let tools = tools_for(study, target.arch);
        let mut runs = self.warm_up(study, probes, &place, &id);
        for round in 1..=study.design.rounds {
            // The whole study is shuffled and then narrowed, so that narrowing keeps the order of what is left.
            let mut order: Vec<(ProbeConfiguration, Option<&Tool>, bool)> =
                study.probes.iter().map(|&probe| (probe, None, false)).collect();
            if study.design.control {
                order.push((ProbeConfiguration::BASELINE, None, true));
            }
            order.extend(tools.iter().map(|tool| (ProbeConfiguration::BASELINE, Some(tool), false)));
            shuffle(&mut order, study.design.seed, &id, round);
            let kept =
                |(probe, tool, _): &(ProbeConfiguration, Option<&Tool>, bool)| tool.is_some() || probes.contains(probe);
            for (probe, tool, control) in order.into_iter().filter(kept) {
                let name = under_test(probe, tool);
                let suffix = if control { "-control" } else { "" };
                runs.push(PlannedRun {
                    spec: RunSpec {
                        id: format!("{id}_r{round}_{name}{suffix}"),
                        tool: tool.cloned(),
                        ..self.spec(study, probe)
                    },
                    cell: format!("{place}_{name}"),
                    round,
                    control,
                    warm_up: false,
                });
            }
        }
        if study.design.bpf_stats {
            // Last, so that it changes nothing for the others; a round of their own, so that they are compared with none.
            let round = study.design.rounds.saturating_add(1);
            let of_probes = probes.iter().filter(|probe| !probe.is_baseline()).map(|&probe| (probe, None));
            let of_tools = tools.iter().map(|tool| (ProbeConfiguration::BASELINE, Some(tool)));
            runs.extend(of_probes.chain(of_tools).map(|(probe, tool)| {
                let name = under_test(probe, tool);
                PlannedRun {
                    spec: RunSpec {
                        id: format!("{id}_{name}-statistics"),
                        bpf_stats: true,
                        tool: tool.cloned(),
                        ..self.spec(study, probe)
                    },
                    cell: format!("{place}_{name}"),
                    round,
                    control: false,
                    warm_up: false,
                }
            }));
        }
        runs.extend(reference_runs(self, study, target, &tools, &place, &id));
        Block { id, target: target.clone(), case: self.id.clone(), file_system: file_system.clone(), replicate, runs }
    }
}
