// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix of kernel features, with outcomes next to expectations.

use std::collections::{HashMap, HashSet};

use bpfassay_protocol::{
    Operation, ProbeConfiguration,
    kernel_feature::{Feature, FeatureKind, Support},
    message::RunFigures,
    tracer_messages::Attached,
};
use bpfassay_study::{Expectation, ExpectedFeature, Plan, Series, Target};

use super::{bytes, context::DeriveContext};
use bpfassay_results::{
    Attach, Boot, CellResult, ConfigurationCell, ConfigurationRow, Counted, FeatureCell, FeatureRow, FeatureVerdict,
    Figure, KernelFeatures, Outcome, ProgramFacts, RunResult,
};

/// The operations of the workload's calls.
const DATA: [Operation; 2] = [Operation::Read, Operation::Write];

/// Derives the matrix, if the study requests one.
pub(super) fn derive(context: &DeriveContext<'_>, boots: &[Boot], cells: &[CellResult]) -> Option<KernelFeatures> {
    let plan = context.plan;
    let mut targets: Vec<Target> = Vec::new();
    let mut probes: Vec<ProbeConfiguration> = Vec::new();
    let (mut known_targets, mut known_probes) = (HashSet::new(), HashSet::new());
    // The matrix shows the first cell of each kind; `cells` has further file systems and workloads
    // as always.
    let mut first: HashMap<(&Target, ProbeConfiguration), &CellResult> = HashMap::new();
    for (cell, result) in plan.cells.iter().zip(cells).filter(|(cell, _)| cell.workload.features) {
        if known_targets.insert(&cell.target) {
            targets.push(cell.target.clone());
        }
        if !cell.probe.is_baseline() && known_probes.insert(cell.probe) {
            probes.push(cell.probe);
        }
        first.entry((&cell.target, cell.probe)).or_insert(result);
    }
    if targets.is_empty() {
        return None;
    }
    let find = |target: &Target, probe: ProbeConfiguration| {
        let result = *first.get(&(target, probe))?;
        Some((result, context.runs_of(&result.cell)))
    };
    let releases = releases(plan, boots);
    let configurations = probes
        .iter()
        .map(|&probe| ConfigurationRow {
            probe,
            cells: targets
                .iter()
                .map(|target| match find(target, probe) {
                    Some((result, runs)) => configuration(result, runs),
                    None => unknown("not in the plan"),
                })
                .collect(),
        })
        .collect();
    let columns: Vec<FeatureColumn<'_>> = targets
        .iter()
        .map(|target| FeatureColumn {
            target,
            series: releases.get(target).copied().or_else(|| Series::of(&target.kernel)),
            features: find(target, ProbeConfiguration::BASELINE)
                .ok_or_else(|| "the study has no baseline `none`, which tries the features".to_owned())
                .and_then(|(_, runs)| features(runs))
                .map(Features::new),
        })
        .collect();
    let mut rows: Vec<FeatureRow> = Vec::new();
    let mut known = HashSet::new();
    for feature in columns.iter().filter_map(|column| column.features.as_ref().ok()).flat_map(|features| features.all) {
        if known.insert((feature.kind, feature.name.as_str())) {
            let cells = columns.iter().map(|column| column.cell(plan, feature)).collect();
            rows.push(FeatureRow { kind: feature.kind, name: feature.name.clone(), cells });
        }
    }
    Some(KernelFeatures { targets: targets.clone(), configurations, features: rows })
}

/// One target and the features of its kernel.
struct FeatureColumn<'a> {
    target: &'a Target,
    series: Option<Series>,
    features: Result<Features<'a>, String>,
}

/// The features of a kernel, in the order in which they were tried, and by name.
struct Features<'a> {
    all: &'a [Feature],
    by_name: HashMap<(FeatureKind, &'a str), &'a Feature>,
}

impl<'a> Features<'a> {
    fn new(all: &'a [Feature]) -> Self {
        // If a name occurs twice, the first feature counts.
        let by_name = all.iter().rev().map(|feature| ((feature.kind, feature.name.as_str()), feature)).collect();
        Self { all, by_name }
    }
}

impl FeatureColumn<'_> {
    fn cell(&self, plan: &Plan, feature: &Feature) -> FeatureCell {
        let found = self.features.as_ref().map(|features| features.by_name.get(&(feature.kind, feature.name.as_str())));
        let support = match found {
            Ok(Some(found)) => found.support.clone(),
            Ok(None) => Support::NotTried { reason: "not tried".to_owned() },
            Err(reason) => Support::NotTried { reason: reason.clone() },
        };
        let expected = plan.study.features.of(&feature.id(), self.target, self.series);
        let verdict = match (&support, &expected) {
            (Support::NotTried { .. }, _) => FeatureVerdict::NotTried,
            (Support::Works { .. }, ExpectedFeature::Works { .. }) => FeatureVerdict::Works,
            (Support::Works { .. }, ExpectedFeature::Refused { .. }) => FeatureVerdict::UnexpectedSuccess,
            (Support::Works { .. }, ExpectedFeature::Nothing { .. }) => FeatureVerdict::NotEvaluatedSuccess,
            (Support::Refused { .. }, ExpectedFeature::Works { .. }) => FeatureVerdict::UnexpectedRefusal,
            (Support::Refused { .. }, ExpectedFeature::Refused { .. }) => FeatureVerdict::Refused,
            (Support::Refused { .. }, ExpectedFeature::Nothing { .. }) => FeatureVerdict::NotEvaluatedRefusal,
        };
        FeatureCell { support, expected, verdict }
    }
}

/// Returns the series of each target's kernel, as the kernel itself reports it.
fn releases<'a>(plan: &'a Plan, boots: &[Boot]) -> HashMap<&'a Target, Series> {
    let targets: HashMap<&str, &Target> = plan.blocks.iter().map(|block| (block.id.as_str(), &block.target)).collect();
    let mut releases = HashMap::new();
    for boot in boots {
        let reported = boot.facts.as_ref().and_then(|facts| Series::of(&facts.kernel_release));
        if let (Some(series), Some(target)) = (reported, targets.get(boot.block.as_str())) {
            releases.entry(*target).or_insert(series);
        }
    }
    releases
}

/// Returns the features that the baseline's run found, or why there are none.
fn features<'a>(runs: &[&'a RunResult]) -> Result<&'a [Feature], String> {
    let mut reason = "not run".to_owned();
    for run in runs {
        match &run.record.outcome {
            Outcome::Measured(figures) if !figures.features.is_empty() => return Ok(&figures.features),
            Outcome::Measured(_) => reason = "the guest reported no features".to_owned(),
            Outcome::Refused(refusal) => reason.clone_from(&refusal.message),
            Outcome::Failed(failure) => reason = failure.to_string(),
        }
    }
    Err(reason)
}

fn unknown(reason: &str) -> ConfigurationCell {
    ConfigurationCell {
        verdict: FeatureVerdict::NotTried,
        reason: Some(reason.to_owned()),
        counted: Figure::missing(reason),
        programs: Figure::missing(reason),
    }
}

fn configuration(result: &CellResult, runs: &[&RunResult]) -> ConfigurationCell {
    let refused = |verdict, reason: String| ConfigurationCell {
        verdict,
        counted: Figure::missing(reason.as_str()),
        programs: Figure::missing(reason.as_str()),
        reason: Some(reason),
    };
    match &result.attach {
        Attach::Attached { in_spite_of, .. } => attached(runs, in_spite_of.as_ref()),
        Attach::Refused { refusal, expectation, expected } => {
            let mut reason = refusal.message.clone();
            if let Some(line) = &refusal.verifier {
                reason = format!("{reason}: {}", bpfassay_tool::helper::named(line));
            }
            match (expectation, expected) {
                (Some(expectation), true) => refused(
                    FeatureVerdict::Refused,
                    format!("{reason}; {} ({})", expectation.reason, expectation.source),
                ),
                (Some(expectation), false) => refused(
                    FeatureVerdict::UnexpectedRefusal,
                    format!("{reason}; expected was errno {}", expectation.errno),
                ),
                (None, _) => refused(FeatureVerdict::UnexpectedRefusal, reason),
            }
        }
        Attach::Unsteady { refusal, .. } => {
            refused(FeatureVerdict::UnexpectedRefusal, format!("now and then: {}", refusal.message))
        }
        Attach::Unknown { reason } => unknown(reason),
        Attach::Baseline => unknown("the baseline attaches nothing"),
    }
}

/// Judges what attached configurations counted. `in_spite_of` is the refusal that was expected.
fn attached(runs: &[&RunResult], in_spite_of: Option<&Expectation>) -> ConfigurationCell {
    let measured = || {
        runs.iter().filter_map(|run| match &run.record.outcome {
            Outcome::Measured(figures) => Some(figures.as_ref()),
            Outcome::Refused(_) | Outcome::Failed(_) => None,
        })
    };
    let counted = worst(measured().map(counted));
    let (verdict, reason) = match (&counted, in_spite_of) {
        (Figure::NotMeasured(reason), _) => (FeatureVerdict::Miscounts, Some(reason.to_string())),
        (Figure::Value(counted), _) if !counted.is_exact() => {
            let reason = format!(
                "of {} calls and {} bytes it counted {:+} calls and {:+} bytes too many or too few",
                counted.calls, counted.bytes, counted.call_error, counted.byte_error
            );
            (FeatureVerdict::Miscounts, Some(reason))
        }
        (Figure::Value(_), Some(expectation)) => {
            let reason = format!("a refusal was expected: {}", expectation.reason);
            (FeatureVerdict::UnexpectedSuccess, Some(reason))
        }
        (Figure::Value(_), None) => (FeatureVerdict::Works, None),
    };
    let tracers = || measured().filter_map(|figures| figures.tracer.as_ref());
    // Prefer runs that loaded programs: other runs found them already loaded.
    let programs = tracers()
        .find(|attached| attached.load_ns.is_some())
        .or_else(|| tracers().next())
        .map_or_else(|| Figure::missing("no run was measured"), |attached| Figure::Value(programs(attached)));
    ConfigurationCell { verdict, reason, counted, programs }
}

/// Compares reads and writes of one run with the tracer's counts, phase by phase.
fn counted(figures: &RunFigures) -> Figure<Counted> {
    let mut sum = Counted::default();
    for phase in &figures.phases {
        let (Some(before), Some(after)) = (&phase.interval.before.tracer, &phase.interval.after.tracer) else {
            return Figure::missing("the tracer was not read at both barriers");
        };
        for operation in DATA {
            let made = phase.moved.get(&operation).copied().unwrap_or_default();
            let seen = bytes::of_key(figures, operation, after) - bytes::of_key(figures, operation, before);
            sum.calls = sum.calls.saturating_add(made.calls);
            sum.bytes = sum.bytes.saturating_add(made.bytes);
            sum.call_error = farther(sum.call_error, seen.calls.wrapping_sub(made.calls) as i64);
            sum.byte_error = farther(sum.byte_error, seen.bytes.wrapping_sub(made.bytes) as i64);
        }
    }
    Figure::Value(sum)
}

/// Returns the counts of the run that is farthest from exact.
fn worst(runs: impl Iterator<Item = Figure<Counted>>) -> Figure<Counted> {
    let mut worst: Figure<Counted> = Figure::missing("no run was measured");
    for run in runs {
        worst = match (worst, run) {
            (Figure::Value(old), Figure::Value(new)) => {
                let is_worse = new.call_error.unsigned_abs() > old.call_error.unsigned_abs()
                    || new.byte_error.unsigned_abs() > old.byte_error.unsigned_abs()
                    || !new.is_exact() && old.is_exact();
                Figure::Value(if is_worse { new } else { old })
            }
            (Figure::NotMeasured(_), Figure::Value(new)) => Figure::Value(new),
            (_, missing) => return missing,
        };
    }
    worst
}

const fn farther(left: i64, right: i64) -> i64 {
    if right.unsigned_abs() > left.unsigned_abs() { right } else { left }
}

fn programs(attached: &Attached) -> ProgramFacts {
    let sum = |of: fn(&bpfassay_protocol::tracer_messages::Program) -> u32| {
        attached.programs.iter().map(|program| u64::from(of(program))).sum()
    };
    ProgramFacts {
        programs: u32::try_from(attached.programs.len()).unwrap_or(u32::MAX),
        jited_bytes: sum(|program| program.jited_bytes),
        instructions: sum(|program| program.instructions),
        verified_instructions: attached
            .programs
            .iter()
            .map(|program| program.verified_instructions.map(u64::from))
            .sum::<Option<u64>>(),
        load_ns: attached.load_ns,
        attach_ns: attached.attach_ns,
    }
}
