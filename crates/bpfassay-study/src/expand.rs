// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expands a study to a plan. Pure: the same study, narrowing and machine give the same plan.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{FileSystem, RunSpec},
    tool_job::Tool,
};

mod tool_runs;

use self::tool_runs::{reference_runs, tools_for, tools_left_out};
use crate::{
    ExpandError, Interface, IorSpec, Study, Target, WarmUp, WarmUpRule, WorkloadKind,
    error::list,
    narrow::{keep_cells, narrow},
    node_design,
    plan::{Block, Cell, LeftOut, Narrowing, Plan, PlannedRun, file_system_id},
    shuffle::shuffle,
    study_digest::digest_and_length,
    workload::{Case, OnTarget},
};

/// Largest number of runs in a plan.
pub const MAX_RUNS: usize = 200_000;

/// Largest size of a plan as JSON (study, cells and blocks), in bytes. Journals and results leave
/// room for this size.
pub const MAX_BYTES: u64 = 512 << 20;

/// Inputs of the expansion that depend on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Available {
    /// Interfaces of the real IOR, for each architecture for which the user gave one (`--ior
    /// ARCH=DIR`).
    pub external_ior: BTreeMap<Arch, BTreeSet<Interface>>,
    /// The targets of the testbed. `None` if a guest can be built for any target.
    pub targets: Option<BTreeSet<Target>>,
}

/// Expands `study`.
///
/// # Errors
/// [`ExpandError`] if `narrowing` names something that the study does not have, if nothing is left,
/// or if the plan is too large to be recorded.
pub fn expand(study: &Study, narrowing: &Narrowing, available: &Available) -> Result<Plan, ExpandError> {
    // A caller with a list of builds resolves the patterns before this.
    if let Some(pattern) = study.targets.iter().find(|target| target.is_pattern()) {
        return Err(ExpandError::NoBuild { pattern: pattern.to_string() });
    }
    // A tool can be added after the study was read.
    node_design::check(study).map_err(|problem| ExpandError::Nodes { study: study.name.clone(), problem })?;
    let mut narrowed = narrow(study, narrowing)?;
    let mut left_out = std::mem::take(&mut narrowed.left_out);
    left_out.extend(keep_available(&mut narrowed.targets, available));
    let cases = cases(study, &narrowed.targets, available, &mut left_out);
    let configurations: usize =
        cases.iter().map(|(_, cases)| cases.len()).sum::<usize>().saturating_mul(study.file_systems.len());
    if configurations == 0 {
        return Err(nothing_left(study, &left_out));
    }
    let boots = configurations.saturating_mul(narrowed.replicates as usize);
    if boots.saturating_mul(runs_per_boot(study, narrowed.probes.len())) > MAX_RUNS {
        return Err(ExpandError::TooLarge { study: study.name.clone(), limit: MAX_RUNS });
    }

    left_out.extend(files_left_out(study).chain(tools_left_out(study, &narrowed.targets)));
    let mut plan = Plan {
        study: study.clone(),
        narrowing: narrowing.clone(),
        shard: None,
        digest: String::new(),
        cells: Vec::new(),
        blocks: Vec::new(),
        left_out,
    };
    plan.study.guest.scheduling = Some(study.scheduling());
    plan.study.design.margin = study.margin();
    let points = || {
        cases.iter().flat_map(|(target, cases)| {
            cases
                .iter()
                .flat_map(move |case| study.file_systems.iter().map(move |file_system| (*target, case, file_system)))
        })
    };
    for (target, case, file_system) in points() {
        let cell = |probe, tool| case.cell(target, file_system, probe, tool);
        plan.cells.extend(narrowed.probes.iter().map(|&probe| cell(probe, None)));
        let tools = tools_for(study, target);
        plan.cells.extend(tools.iter().map(|tool| cell(ProbeConfiguration::BASELINE, Some(tool))));
    }
    for replicate in 1..=narrowed.replicates {
        for (target, case, file_system) in points() {
            let block = case.block(study, &narrowed.probes, target, file_system, replicate);
            // A target that no tool supports has no runs if the study has no probe configurations.
            plan.blocks.extend((!block.runs.is_empty()).then_some(block));
        }
    }
    if plan.blocks.is_empty() {
        return Err(nothing_left(study, &plan.left_out));
    }
    keep_cells(&mut plan)?;
    plan.digest = digest(&plan)?;
    Ok(plan)
}

/// Keeps the targets that are available, and reports the others.
fn keep_available(targets: &mut Vec<Target>, available: &Available) -> Option<LeftOut> {
    let at_hand = available.targets.as_ref()?;
    let absent: Vec<Target> = targets.extract_if(.., |target| !at_hand.contains(target)).collect();
    let reason = "the testbed has no guest for them".to_owned();
    (!absent.is_empty()).then(|| LeftOut { what: format!("targets {}", list(&absent)), reason })
}

/// Estimates how many runs a boot has.
fn runs_per_boot(study: &Study, probes: usize) -> usize {
    let tools = study.tools.len().saturating_add(study.tool_files.len());
    let per_round = probes.saturating_add(tools).saturating_add(usize::from(study.design.control));
    let beside = study.design.warm_up.runs(probes).saturating_add(study.tool_files.len());
    per_round.saturating_mul(study.design.rounds as usize).saturating_add(beside)
}

/// Returns the digest of `plan`, if the plan is not too large.
fn digest(plan: &Plan) -> Result<String, ExpandError> {
    let (digest, bytes) = digest_and_length(&(&plan.study, &plan.cells, &plan.blocks));
    if bytes > MAX_BYTES {
        return Err(ExpandError::TooLong { study: plan.study.name.clone(), bytes, limit: MAX_BYTES });
    }
    Ok(digest)
}

/// Reports the IOR options that say where files are.
fn files_left_out(study: &Study) -> impl Iterator<Item = LeftOut> {
    study.workloads.iter().filter_map(|workload| {
        let WorkloadKind::Ior(IorSpec { files, .. }) = &workload.kind else { return None };
        let options = files.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ");
        (!files.is_empty()).then(|| LeftOut {
            what: format!("options {options} of workload {}", workload.name),
            reason: "the agent decides where files are: choose the file system in [[file_systems]]".to_owned(),
        })
    })
}

/// Returns the cases that can run on each target, and adds the impossible ones to `left_out`.
fn cases<'a>(
    study: &Study,
    targets: &'a [Target],
    available: &Available,
    left_out: &mut Vec<LeftOut>,
) -> Vec<(&'a Target, Vec<NamedCase>)> {
    let mut refused: Vec<(LeftOut, Vec<Arch>)> = Vec::new();
    let mut per_target = Vec::new();
    for target in targets {
        let on = OnTarget {
            arch: target.arch,
            external_ior: available.external_ior.get(&target.arch),
            mounts: &study.mounts,
            nodes: study.guest.nodes,
        };
        let mut possible = Vec::new();
        for spec in &study.workloads {
            for (id, case) in spec.cases(&on) {
                match case {
                    Ok(mut case) => {
                        case.workload.mounts = study.mounts.iter().filter(|mount| mount.private).cloned().collect();
                        let is_timed = spec.is_timed(&id, study.clock);
                        possible.push(NamedCase { id, case, is_timed, compares_tools: spec.compares_tools() });
                    }
                    Err(reason) => refuse(&mut refused, &id, reason, target.arch),
                }
            }
        }
        per_target.push((target, possible));
    }
    left_out.extend(
        refused.into_iter().map(|(left, archs)| LeftOut { what: format!("{} on {}", left.what, list(&archs)), ..left }),
    );
    per_target
}

fn nothing_left(study: &Study, left_out: &[LeftOut]) -> ExpandError {
    let mut reasons: Vec<String> = left_out.iter().map(|left| format!("{}: {}", left.what, left.reason)).collect();
    if reasons.is_empty() {
        reasons.push("it has no probe configurations, and no tool was named: name one with --tool".to_owned());
    }
    ExpandError::NothingLeft { study: study.name.clone(), reasons: reasons.join("; ") }
}

/// Records why workload `id` cannot run on `arch`.
fn refuse(refused: &mut Vec<(LeftOut, Vec<Arch>)>, id: &str, reason: String, arch: Arch) {
    let left = LeftOut { what: format!("workload {id}"), reason };
    match refused.iter_mut().find(|(known, _)| *known == left) {
        Some((_, archs)) if archs.contains(&arch) => {}
        Some((_, archs)) => archs.push(arch),
        None => refused.push((left, vec![arch])),
    }
}

/// A workload case on one target.
struct NamedCase {
    id: String,
    case: Case,
    /// Whether the case measures time.
    is_timed: bool,
    /// Whether the tools' reports are compared with what really happened.
    compares_tools: bool,
}

/// Name of the tool or probe configuration under test.
fn under_test(probe: ProbeConfiguration, tool: Option<&Tool>) -> String {
    tool.map_or_else(|| probe.to_string(), |tool| tool.name.clone())
}

impl NamedCase {
    fn place(&self, target: &Target, file_system: &FileSystem) -> String {
        format!("{}_{}_{}", target.id(), self.id, file_system_id(file_system))
    }

    fn cell(&self, target: &Target, file_system: &FileSystem, probe: ProbeConfiguration, tool: Option<&Tool>) -> Cell {
        Cell {
            id: format!("{}_{}", self.place(target, file_system), under_test(probe, tool)),
            target: target.clone(),
            case: self.id.clone(),
            workload: self.case.workload.clone(),
            interface: self.case.interface,
            file_system: file_system.clone(),
            probe,
            tool: tool.map(|tool| tool.name.clone()),
        }
    }

    /// Builds a run specification without its id.
    fn spec(&self, study: &Study, probe: ProbeConfiguration) -> RunSpec {
        RunSpec {
            id: String::new(),
            probe,
            bpf_stats: false,
            tool: None,
            until_steady: None,
            tracer_arguments: if probe.is_baseline() { Vec::new() } else { study.tracer_arguments.clone() },
            sampling_interval_ms: study.design.sampling_interval_ms.filter(|_| !probe.is_baseline()),
            workload: self.case.workload.clone(),
        }
    }

    /// Builds the runs before the first round: of the baseline, or of each probe configuration.
    /// Tools under test do not warm up. Their effect on the guest must show in a run that counts.
    fn warm_up(&self, study: &Study, probes: &[ProbeConfiguration], place: &str, id: &str) -> Vec<PlannedRun> {
        let rule = study.design.warm_up;
        let mut baseline_first = probes.to_vec();
        baseline_first.sort_by_key(|probe| !probe.is_baseline());
        let each = match (rule, baseline_first.first()) {
            (WarmUp::Rule(WarmUpRule::Probes), _) => baseline_first,
            (_, Some(&first)) => vec![first; rule.runs(probes.len())],
            (_, None) => Vec::new(),
        };
        let run = |(round, probe): (u32, ProbeConfiguration)| PlannedRun {
            spec: RunSpec {
                id: format!("{id}_w{round}_{probe}"),
                until_steady: rule.until_steady(),
                ..self.spec(study, probe)
            },
            cell: format!("{place}_{probe}"),
            round,
            control: false,
            warm_up: true,
        };
        (1..).zip(each.into_iter().filter(|_| self.is_timed)).map(run).collect()
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
        let tools = tools_for(study, target);
        let planned = |probe, tool: Option<&Tool>, id: String, round| PlannedRun {
            spec: RunSpec { id, tool: tool.cloned(), ..self.spec(study, probe) },
            cell: format!("{place}_{}", under_test(probe, tool)),
            round,
            control: false,
            warm_up: false,
        };
        let mut runs = self.warm_up(study, probes, &place, &id);
        for round in 1..=study.design.rounds {
            // Shuffling precedes narrowing, so that narrowing keeps the order of the remaining
            // runs.
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
                let suffix = if control { "-control" } else { "" };
                let id = format!("{id}_r{round}_{}{suffix}", under_test(probe, tool));
                runs.push(PlannedRun { control, ..planned(probe, tool, id, round) });
            }
        }
        if study.design.bpf_stats {
            // These runs come last, so that they cannot affect the others. Their separate round
            // keeps them out of comparisons.
            let round = study.design.rounds.saturating_add(1);
            let of_probes = probes.iter().filter(|probe| !probe.is_baseline()).map(|&probe| (probe, None));
            let of_tools = tools.iter().map(|tool| (ProbeConfiguration::BASELINE, Some(tool)));
            runs.extend(of_probes.chain(of_tools).map(|(probe, tool)| {
                let mut run = planned(probe, tool, format!("{id}_{}-statistics", under_test(probe, tool)), round);
                run.spec.bpf_stats = true;
                run
            }));
        }
        if self.compares_tools {
            let spec = |probe| self.spec(study, probe);
            runs.extend(reference_runs(spec, study, target, &tools, &place, &id));
        }
        Block { id, target: target.clone(), case: self.id.clone(), file_system: file_system.clone(), replicate, runs }
    }
}
