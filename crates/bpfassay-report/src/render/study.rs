// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report's lines about a study as a whole: the title, and warnings about its figures.

use std::collections::HashSet;

use bpfassay_protocol::tool_job::BpfObject;
use bpfassay_study::{Cell, Clock, MetricName};

use super::result_summary;
use crate::{
    derive::activity,
    labels::{self, MissingEvents},
};
use bpfassay_results::{ByteFigure, CellResult, Figure, Outcome, Results, RunResult, Sampled, SamplingEnd};

/// The largest number of lines about doubtful figures below a table.
const MAX_DOUBTS: usize = 20;

/// Whether any workload of the plan has metrics: `io-paths` and `kernel-features` have separate
/// tables instead.
pub(super) fn has_figures(results: &Results) -> bool {
    let study = &results.plan.study;
    let has_metrics = |cell: &Cell| {
        study.workload(&cell.case).is_some_and(|workload| !workload.metrics(&cell.case, study.clock).is_empty())
    };
    results.plan.measured_cells().into_iter().any(has_metrics)
}

/// Whether tools are only loaded and attached in this case.
pub(super) fn loads_only(results: &Results, case: &str) -> bool {
    results.plan.study.workload(case).is_some_and(|workload| !workload.compares_tools())
}

/// Formats the title: `study quick, clock wall, IOR engine embedded`.
pub(super) fn title(results: &Results) -> String {
    let mut engines: Vec<&str> = Vec::new();
    for cell in results.plan.measured_cells() {
        // IOR also executes the workload `kernel-features`, which has no metrics.
        let Some(engine) = cell.workload.engine.filter(|_| cell.interface.is_some()) else { continue };
        if !engines.contains(&engine.name()) {
            engines.push(engine.name());
        }
    }
    let mut title = format!("study {}, clock {}", results.plan.title(), results.plan.study.clock);
    if !engines.is_empty() {
        title.push_str(&format!(", IOR engine {}", engines.join(" and ")));
    }
    title
}

/// Lists runs that themselves report doubts about their figures, one line each: `place: what`.
pub(super) fn doubts(results: &Results) -> Vec<String> {
    let mut doubts = Vec::new();
    for run in &results.runs {
        if let Outcome::Measured(figures) = &run.record.outcome
            && let Some(warm_up) = figures.warm_up.as_ref().filter(|warm_up| !warm_up.is_steady)
        {
            let times = warm_up.durations_ns.len();
            doubts.push(format!("{}: the guest was not steady after {times} warm-up runs", run.record.run));
        }
        let Some(derived) = &run.derived else { continue };
        let Some(losses) = derived.losses.value() else { continue };
        let missing = missing(&derived.bytes);
        let of_losses = [labels::lost(losses, missing), labels::skipped(losses, missing)];
        doubts.extend(of_losses.into_iter().flatten().map(|text| format!("{}: {text}", run.record.run)));
    }
    doubts.extend(activity::unusual(results));
    let interpreted = interpreted(results);
    for cell in &results.cells {
        doubts.extend(close_to_limit(cell));
        if interpreted.contains(cell.cell.as_str()) {
            doubts.push(format!(
                "{}: the kernel interpreted the programs (BPF JIT off): the overhead is that of the interpreter",
                cell.cell
            ));
        }
        for accuracy in &cell.accuracy {
            if let Some(errors) = accuracy.mountstats_error.value().filter(|errors| (errors.min, errors.max) != (0, 0))
            {
                let range = labels::byte_error(&Figure::Value(*errors)).unwrap_or_default();
                doubts.push(format!(
                    "{}, {}: mountstats differ from the workload's bytes by {range}",
                    cell.cell, accuracy.metric
                ));
            }
        }
    }
    doubts
}

/// The largest number of instructions that the verifier processes for one program before it refuses
/// the program (`BPF_COMPLEXITY_LIMIT_INSNS` of include/linux/bpf.h, since 5.2).
const VERIFIER_LIMIT: u32 = 1_000_000;

/// Lists the programs of `cell` that need 80 % or more of [`VERIFIER_LIMIT`]: another compiler or
/// kernel can bring such a program above the limit.
fn close_to_limit(cell: &CellResult) -> Vec<String> {
    let Some(loaded) = cell.loaded() else { return Vec::new() };
    let line = |program: &BpfObject| {
        let verified = program.code?.verified.filter(|&verified| verified >= VERIFIER_LIMIT / 5 * 4)?;
        let of = format!("{verified} of the {VERIFIER_LIMIT} instructions that the verifier processes at most");
        Some(format!("{}: {} needs {of}", cell.cell, program.name))
    };
    loaded.programs.iter().filter_map(line).collect()
}

/// Returns whether the tracer's counts lack anything of what the workload did.
fn missing(bytes: &[ByteFigure]) -> MissingEvents {
    let errors = || bytes.iter().flat_map(|figure| [&figure.error, &figure.call_error]);
    match () {
        () if errors().filter_map(Figure::value).any(|error| *error < 0) => MissingEvents::Some,
        () if bytes.is_empty() || bytes.iter().any(|figure| figure.error.value() != Some(&0)) => {
            MissingEvents::NotKnown
        }
        () => MissingEvents::None,
    }
}

/// Returns the cells with a measured run in which a program was not compiled.
pub(super) fn interpreted(results: &Results) -> HashSet<&str> {
    let is_interpreted = |run: &&RunResult| match &run.record.outcome {
        Outcome::Measured(figures) => {
            figures.tracer.iter().flat_map(|tracer| &tracer.programs).any(|program| program.jited_bytes == 0)
        }
        Outcome::Refused(_) | Outcome::Failed(_) => false,
    };
    results.runs.iter().filter(is_interpreted).map(|run| run.record.cell.as_str()).collect()
}

/// Warns of costs that figures of the instruction clock leave out.
const INSTRUCTIONS: &str = "the clock counts the guest's instructions, 1 ns each, not cycles: cache misses and traps are not priced, and time \
                            in which the guest waits passes at once, up to the next timer.";

fn warning_of_emulation(results: &Results) -> Option<String> {
    if results.plan.study.clock == Clock::Instructions {
        return None;
    }
    let provenance = results.provenance.last()?;
    let mut emulated: Vec<_> = results.plan.targets().iter().map(|target| target.arch).collect();
    emulated.dedup();
    emulated.retain(|&arch| provenance.is_emulated(arch));
    let emulated: Vec<String> = emulated.iter().map(ToString::to_string).collect();
    (!emulated.is_empty()).then(|| {
        format!(
            "{} ran under TCG (emulation): bandwidth and overhead in wall-clock time are functional only, no verdict on cost. \
             Byte errors are exact all the same.",
            emulated.join(", ")
        )
    })
}

/// Returns the warnings, and doubts about figures of single runs and cells.
pub(super) fn warnings_with_doubts(results: &Results) -> Vec<String> {
    let mut warnings = warnings(results);
    let doubts = doubts(results);
    let more = doubts.len().saturating_sub(MAX_DOUBTS);
    warnings.extend(doubts.into_iter().take(MAX_DOUBTS));
    if more > 0 {
        warnings.push(format!(
            "{more} more such lines are left out here: see `losses`, `activity` and `mountstats_error` in results.json"
        ));
    }
    warnings
}

/// Returns the warnings about all figures.
pub(super) fn warnings(results: &Results) -> Vec<String> {
    limit_of_clock(results).into_iter().chain(warnings_but_of_clock(results)).collect()
}

/// Describes costs that overheads do not show, because of the study's clock.
pub(super) fn limit_of_clock(results: &Results) -> Option<String> {
    match results.plan.study.clock {
        Clock::Instructions => Some(INSTRUCTIONS.to_owned()),
        Clock::Wall => warning_of_emulation(results),
    }
}

/// Returns the warnings, except for what the instruction clock counts.
pub(super) fn warnings_but_of_instructions(results: &Results) -> Vec<String> {
    warning_of_emulation(results).into_iter().chain(warnings_but_of_clock(results)).collect()
}

fn warnings_but_of_clock(results: &Results) -> Vec<String> {
    let mut warnings: Vec<String> = result_summary::races(results).into_iter().collect();
    warnings.extend(results.plan.left_out.iter().map(|left| format!("left out: {}: {}", left.what, left.reason)));
    warnings.extend(results.notes.iter().cloned());
    warnings.extend(course(results));
    warnings
}

/// Describes how the experiment went: how many boots sequential sampling took, and whether the
/// baseline drifted.
fn course(results: &Results) -> Vec<String> {
    let mut lines: Vec<String> = results.sampling.iter().filter_map(|sampled| of_sampling(results, sampled)).collect();
    lines.extend(drifts(results));
    lines
}

/// Formats the outcome of sampling: `sampled x86_64 6.12: 5 of at most 20 boots: every interval is
/// within 0.5%`.
fn of_sampling(results: &Results, sampled: &Sampled) -> Option<String> {
    let until = results.plan.until()?;
    let Sampled { target, case, file_system, boots, most, .. } = sampled;
    let widest = sampled.widest.as_ref().map_or_else(String::new, |widest| {
        format!("; the widest is {}, {}: {}", widest.cell, widest.metric, labels::beyond_one(1.0 + widest.within))
    });
    let why = match sampled.end {
        None => format!("goes on, the next look is at {boots} boots"),
        Some(SamplingEnd::NarrowEnough) => format!("stopped after {boots}: every interval is within {until}{widest}"),
        Some(SamplingEnd::MostBoots) => format!("all boots done, and not every interval is within {until}{widest}"),
        Some(SamplingEnd::NothingMeasured) => format!("stopped after {boots}: no overhead was measured"),
    };
    Some(format!("sampling {target}, {case} on {file_system}, of at most {most} boots: {why}"))
}

/// Lists the baselines that changed with time, at the study's error rate over all of them
/// (Bonferroni).
fn drifts(results: &Results) -> Vec<String> {
    let found: Vec<_> = results
        .cells
        .iter()
        .flat_map(|cell| cell.metrics.iter().map(move |metric| (cell, metric)))
        .filter_map(|(cell, metric)| Some((cell, metric.name, metric.drift.value()?)))
        .collect();
    let alpha = results.plan.study.design.certainty.error_rate.value() / found.len().max(1) as f64;
    let line = |cell: &CellResult, metric: MetricName, drift: &bpfassay_stats::drift::Drift| {
        let (way, by) = if drift.ratio_overall < 1.0 {
            ("falls", 1.0 / drift.ratio_overall)
        } else {
            ("rises", drift.ratio_overall)
        };
        format!(
            "drift: {}, {metric}: the baseline's bandwidth {way} by {} from the first to the last of {} runs (Mann-Kendall, p = \
             {:.1e}): blocks are not repetitions of one state",
            cell.cell,
            labels::beyond_one(by),
            drift.n,
            drift.p
        )
    };
    let drifted = found.iter().filter(|(_, _, drift)| drift.p < alpha);
    drifted.map(|(cell, metric, drift)| line(cell, *metric, drift)).collect()
}
