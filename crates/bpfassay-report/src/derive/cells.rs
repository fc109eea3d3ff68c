// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives the figures of cells, over the runs of each cell and against the baseline.

use std::{collections::BTreeMap, num::NonZero, panic::resume_unwind, thread};

use bpfassay_stats::{Effect, StatsError, drift::Drift, hierarchical::Hierarchy};
use bpfassay_study::{Cell, Clock, Metric, Plan, WorkloadSpec, expectation, plan::file_system_id};

use super::{
    bystander,
    context::DeriveContext,
    cost,
    pairs::{Pairs, accuracy_of, by_replicate, metric_of, metrics_of, observations, summary},
    spinning::why_no_overhead,
};
use bpfassay_results::{
    Attach, ByteErrors, ByteFigure, CellAccuracy, CellFailure, CellMetric, CellResult, EventTime, Figure, Outcome,
    Overhead, RunAccuracy, RunCounts, RunResult, RunTime,
};

/// The largest number of runs in which drift is looked for. The test compares every pair of runs;
/// more runs would take minutes and gigabytes.
const MAX_DRIFT: usize = 4_000;

/// Derives every cell of the plan on all CPUs, in the order of the plan.
pub(super) fn derive(context: &DeriveContext<'_>) -> Vec<CellResult> {
    let derived = |cell: &Cell| {
        let baseline = context.baseline_of(cell).map(|baseline| context.runs_of(&baseline.id));
        derive_cell(context, cell, context.runs_of(&cell.id), baseline)
    };
    let cells = &context.plan.cells;
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(cells.len());
    // Neighbours have about the same number of runs, so each thread derives every n-th cell.
    let of_thread = |first| cells.iter().enumerate().skip(first).step_by(threads);
    let mut all: Vec<(usize, CellResult)> = thread::scope(|scope| {
        let begin =
            |first| scope.spawn(move || of_thread(first).map(|(at, cell)| (at, derived(cell))).collect::<Vec<_>>());
        let begun: Vec<_> = (0..threads).map(begin).collect();
        begun.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, cell)| cell).collect()
}

fn derive_cell(
    context: &DeriveContext<'_>,
    cell: &Cell,
    all: &[&RunResult],
    baseline: Option<&[&RunResult]>,
) -> CellResult {
    let runs: Vec<&RunResult> = all.iter().copied().filter(|run| run.record.is_counted()).collect();
    let plan = context.plan;
    let mut counts = RunCounts { planned: context.planned(&cell.id), ..RunCounts::default() };
    for run in &runs {
        match &run.record.outcome {
            Outcome::Measured(_) => counts.measured += 1,
            Outcome::Refused(_) => counts.refused += 1,
            Outcome::Failed(_) => counts.failed += 1,
        }
    }
    let failures = all
        .iter()
        .filter_map(|run| match &run.record.outcome {
            Outcome::Failed(failure) => Some(CellFailure { run: run.record.run.clone(), failure: failure.clone() }),
            Outcome::Measured(_) | Outcome::Refused(_) => None,
        })
        .collect();
    let attach = attach(plan, cell, &runs);
    let why_none = why_no_figures(&attach, counts);
    let workload = plan.study.workload(&cell.case);
    // If this cell was never measured, the baseline shows which metrics exist.
    let mut metrics = metrics_of(runs.iter().chain(baseline.unwrap_or_default()));
    if metrics.is_empty() {
        metrics = workload.map(|workload| workload.metrics(&cell.case, plan.study.clock)).unwrap_or_default();
    }
    let accuracy = metrics.iter().filter(|metric| metric.has_accuracy());
    let accuracy = accuracy.map(|metric| derive_accuracy(workload, metric, &runs, &why_none)).collect();
    let metrics =
        metrics.into_iter().map(|metric| derive_metric(context, cell, metric, &runs, baseline, &why_none)).collect();
    let bystander = bystander::of_cell(context, cell, &runs, baseline.unwrap_or_default(), &why_none);
    CellResult {
        cell: cell.id.clone(),
        target: cell.target.clone(),
        case: cell.case.clone(),
        file_system: file_system_id(&cell.file_system),
        probe: cell.probe,
        tool: cell.tool.clone(),
        counts: cell.probe.probe.counts(),
        attach,
        runs: counts,
        failures,
        run_times: run_times(all),
        event_time: event_time(all),
        metrics,
        bystander,
        accuracy,
        findings: super::findings::derive(&runs),
        tool_result: super::tool_results::derive(plan, context.provenance, cell, all),
        code_coverage: if cell.is_baseline() { None } else { context.coverages.of_cell(&runs) },
    }
}

/// Sums runs and run time of each program over the runs for statistics.
fn run_times(all: &[&RunResult]) -> Vec<RunTime> {
    let mut times = BTreeMap::<String, RunTime>::new();
    for run in all.iter().filter(|run| run.record.statistics) {
        let Outcome::Measured(figures) = &run.record.outcome else { continue };
        let of_tracer = figures.ended.iter().flat_map(|ended| &ended.statistics);
        for program in of_tracer.chain(&figures.tool_statistics) {
            let time = times.entry(program.program.clone()).or_insert_with(|| RunTime {
                program: program.program.clone(),
                runs: 0,
                run_time_ns: 0,
                per_run_ns: Figure::missing("the program never ran"),
            });
            time.runs = time.runs.saturating_add(program.runs);
            time.run_time_ns = time.run_time_ns.saturating_add(program.run_time_ns);
            if time.runs > 0 {
                time.per_run_ns = Figure::Value(time.run_time_ns as f64 / time.runs as f64);
            }
        }
    }
    times.into_values().collect()
}

/// Returns the run time of all programs together per counted call, over the runs for statistics.
fn event_time(all: &[&RunResult]) -> Option<EventTime> {
    let mut sum: Option<(u64, u64)> = None;
    for run in all.iter().filter(|run| run.record.statistics) {
        let Outcome::Measured(figures) = &run.record.outcome else { continue };
        let Some((ended, events)) = figures.ended.as_ref().and_then(|ended| Some((ended, ended.events?))) else {
            continue;
        };
        let (all_events, all_time) = sum.get_or_insert((0, 0));
        *all_events = all_events.saturating_add(events);
        *all_time = ended.statistics.iter().fold(*all_time, |sum, program| sum.saturating_add(program.run_time_ns));
    }
    sum.map(|(events, run_time_ns)| EventTime {
        events,
        run_time_ns,
        per_event_ns: match events {
            0 => Figure::missing("no call was counted"),
            _ => Figure::Value(run_time_ns as f64 / events as f64),
        },
    })
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn attach(plan: &Plan, cell: &Cell, runs: &[&RunResult]) -> Attach {
    if cell.is_baseline() {
        return Attach::Baseline;
    }
    // Expectations of the bundled tracer do not apply to other tools.
    let expected_of = |cell: &Cell| expectation::find(&plan.study.expectations, &cell.target, cell.probe).cloned();
    let expectation = if cell.tool.is_some() { None } else { expected_of(cell) };
    let mut attached = 0;
    let mut functions = Vec::new();
    let mut refusals = Vec::new();
    for run in runs {
        match &run.record.outcome {
            Outcome::Measured(figures) => {
                attached += 1;
                for program in figures.tracer.iter().flat_map(|tracer| &tracer.programs) {
                    if !functions.contains(&program.attached_to) {
                        functions.push(program.attached_to.clone());
                    }
                }
            }
            Outcome::Refused(refusal) => refusals.push(refusal),
            Outcome::Failed(_) => {}
        }
    }
    match (attached, refusals.as_slice()) {
        (0, []) => Attach::Unknown { reason: why_not_attached(runs) },
        (_, []) => Attach::Attached { functions, in_spite_of: expectation },
        (0, [first, ..]) => {
            let expected =
                expectation.as_ref().is_some_and(|wanted| refusals.iter().all(|refusal| wanted.is_met_by(refusal)));
            Attach::Refused { refusal: (*first).clone(), expectation, expected }
        }
        (attached, [first, ..]) => {
            Attach::Unsteady { attached, refused: count(refusals.len()), refusal: (*first).clone() }
        }
    }
}

fn why_not_attached(runs: &[&RunResult]) -> String {
    let failure = runs.iter().find_map(|run| match &run.record.outcome {
        Outcome::Failed(failure) => Some(failure),
        Outcome::Measured(_) | Outcome::Refused(_) => None,
    });
    match failure {
        Some(failure) => failure.to_string(),
        None => "not run".to_owned(),
    }
}

/// Tells why a cell without a measured run has no figures.
fn why_no_figures(attach: &Attach, counts: RunCounts) -> String {
    match (attach, counts) {
        (Attach::Refused { .. }, _) => "the kernel refused the tracer".to_owned(),
        (Attach::Unknown { reason }, _) => reason.clone(),
        (_, RunCounts { measured: 0, failed: 0, .. }) => "not run".to_owned(),
        _ => "no run was measured".to_owned(),
    }
}

fn derive_accuracy(
    workload: Option<&WorkloadSpec>,
    metric: &Metric,
    runs: &[&RunResult],
    why_none: &str,
) -> CellAccuracy {
    let measured = runs.iter().any(|run| metric_of(run, &metric.name).is_some());
    let why_no_error = if measured && metric.operation.is_none() { "only IOR reports bandwidths" } else { why_none };
    let of_runs = |pick: fn(&RunAccuracy) -> &Figure<f64>| {
        summary(runs.iter().filter_map(|run| accuracy_of(run, &metric.name)).map(pick), why_no_error)
    };
    let reports_bytes = workload.is_some_and(|workload| workload.bytes("").is_some());
    let errors = |pick: fn(&ByteFigure) -> &Figure<i64>| match metric.operation {
        Some(operation) => byte_errors(runs, |figure| figure.operation == operation, pick, why_none),
        None if reports_bytes => byte_errors(runs, |_| true, pick, why_none),
        None => Figure::missing("the workload reports no bytes"),
    };
    CellAccuracy {
        metric: metric.name,
        byte_error: errors(|bytes| &bytes.error),
        call_error: errors(|bytes| &bytes.call_error),
        mountstats_error: errors(|bytes| &bytes.mountstats_error),
        relative_error_ior_interval: of_runs(|figures| &figures.relative_error_ior_interval),
        relative_error_instantaneous: of_runs(|figures| &figures.relative_error_instantaneous),
    }
}

fn derive_metric(
    context: &DeriveContext<'_>,
    cell: &Cell,
    metric: Metric,
    runs: &[&RunResult],
    baseline: Option<&[&RunResult]>,
    why_none: &str,
) -> CellMetric {
    let name = &*metric.name;
    let base: Option<Vec<&RunResult>> =
        baseline.map(|runs| runs.iter().filter(|run| run.record.is_counted()).copied().collect());
    let why_not = why_no_overhead(context.plan, cell);
    let compare = |others: &[&RunResult]| match (&base, &why_not) {
        (None, _) => (Figure::missing("the plan has no baseline"), Figure::missing("the plan has no baseline")),
        (_, Some(reason)) => (Figure::missing(reason.as_str()), Figure::missing(reason.as_str())),
        (Some(base), None) => (overhead(context, base, others, name), cost::cost(context, base, others, name)),
    };
    let (overhead, cost) = if cell.is_baseline() {
        (Figure::missing("this is the baseline"), Figure::missing("this is the baseline"))
    } else if runs.iter().all(|run| run.derived.is_none()) {
        (Figure::missing(why_none), Figure::missing(why_none))
    } else {
        compare(runs)
    };
    let controls: Vec<&RunResult> =
        baseline.unwrap_or_default().iter().copied().filter(|run| run.record.control).collect();
    let workload = context.plan.study.workload(&cell.case);
    let has_calls = metric.operation.is_some() || workload.is_some_and(|kind| kind.operations().is_some());
    let direct = match &base {
        Some(base) if !cell.is_baseline() && has_calls => {
            context.counts.direct(base, runs, name, context.plan.study.model.as_ref())
        }
        _ => None,
    };
    let drift = match (cell.is_baseline(), &base) {
        (true, Some(base)) => drift(context, base, &controls, name),
        _ => Figure::missing("drift is that of the baseline"),
    };
    let (control, control_cost) = if controls.is_empty() {
        (Figure::missing("no control was run"), Figure::missing("no control was run"))
    } else {
        compare(&controls)
    };
    let value = summary(runs.iter().filter_map(|run| metric_of(run, name)).map(|metric| &metric.value), why_none);
    let Metric { name, unit, better, operation, calls_of } = metric;
    CellMetric { name, unit, better, operation, calls_of, value, overhead, cost, direct, control_cost, control, drift }
}

/// Derives the trend of all runs without anything under test, in the order in which they were made.
/// That is the order by the host's clock. Guests under the instruction clock do not see that clock,
/// so their boots follow in the order of the plan.
fn drift(context: &DeriveContext<'_>, base: &[&RunResult], controls: &[&RunResult], metric: &str) -> Figure<Drift> {
    let mut runs: Vec<(u64, f64)> = base
        .iter()
        .chain(controls)
        .filter_map(|run| {
            let at = match context.plan.study.clock {
                Clock::Wall => run.record.started_unix_ms,
                Clock::Instructions => context.order(&run.record.run)?,
            };
            Some((at, metric_of(run, metric)?.speed()?))
        })
        .collect();
    if runs.len() > MAX_DRIFT {
        return Figure::missing(format!("drift is looked for in at most {MAX_DRIFT} runs of the baseline"));
    }
    runs.sort_by_key(|(at, _)| *at);
    Drift::of(&runs.into_iter().map(|(_, bandwidth)| bandwidth).collect::<Vec<_>>()).into()
}

fn byte_errors(
    runs: &[&RunResult],
    is_meant: impl Fn(&ByteFigure) -> bool,
    pick: fn(&ByteFigure) -> &Figure<i64>,
    why_none: &str,
) -> Figure<ByteErrors> {
    let mut errors: Option<ByteErrors> = None;
    let (mut not_measured, mut reason) = (0, None);
    let all = runs.iter().filter_map(|run| run.derived.as_ref()).flat_map(|derived| &derived.bytes);
    for figure in all.filter(|figure| is_meant(figure)) {
        match pick(figure) {
            Figure::NotMeasured(why) => {
                not_measured += 1;
                reason.get_or_insert(why.as_str());
            }
            Figure::Value(error) => {
                let sum = errors.get_or_insert(ByteErrors {
                    min: *error,
                    max: *error,
                    intervals: 0,
                    exact: 0,
                    not_measured: 0,
                });
                sum.min = sum.min.min(*error);
                sum.max = sum.max.max(*error);
                sum.intervals += 1;
                sum.exact += u32::from(*error == 0);
            }
        }
    }
    match errors {
        Some(errors) => Figure::Value(ByteErrors { not_measured, ..errors }),
        None => Figure::missing(reason.unwrap_or(why_none)),
    }
}

/// Derives the overhead of `others` over `baseline`, paired by block and round.
fn overhead(
    context: &DeriveContext<'_>,
    baseline: &[&RunResult],
    others: &[&RunResult],
    metric: &str,
) -> Figure<Overhead> {
    let Pairs { logs, count: pairs, across_boots, units } = by_replicate(baseline, others, metric);
    if let Some((of_baseline, unit)) = units {
        return Figure::missing(format!("the baseline is in {of_baseline}, and another run in {unit}"));
    }
    if pairs == 0 {
        return Figure::missing("no round has both a baseline run and a run of this cell with a bandwidth");
    }
    let estimate = || -> Result<Overhead, StatsError> {
        let hierarchy = Hierarchy::new(&logs.values().collect::<Vec<_>>())?;
        let (unit, logs) = observations(logs);
        let effect = Effect::paired(&logs)?;
        Ok(Overhead {
            estimate: context.levels.estimate(|level| effect.estimate(level))?,
            effect,
            unit,
            pairs,
            pairs_across_boots: across_boots,
            between_boots: hierarchy.between_boots.map(f64::sqrt),
            within_boots: hierarchy.within_boots.map(f64::sqrt),
            detectable: context.detectable(&effect)?,
            negligible: None,
            pooled: None,
        })
    };
    estimate().into()
}
