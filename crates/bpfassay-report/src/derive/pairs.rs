// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics, summaries, and pairs of runs of the same block and round for comparison.

use std::collections::BTreeMap;

use bpfassay_protocol::Operation;
use bpfassay_stats::{Summary, summarise};
use bpfassay_study::Metric;

use bpfassay_results::{Figure, RepetitionMetric, RunAccuracy, RunMetric, RunResult, Unit, Work};

/// Returns the metrics of `runs` in the order of display, each as the first run has it.
pub(super) fn metrics_of<'a>(runs: impl IntoIterator<Item = &'a &'a RunResult>) -> Vec<Metric> {
    let mut found: Vec<Metric> = Vec::new();
    for metric in runs.into_iter().filter_map(|run| run.derived.as_ref()).flat_map(|derived| &derived.metrics) {
        if found.iter().all(|known| known.name != metric.name) {
            let RunMetric { name, better, operation, calls_of, .. } = *metric;
            found.push(Metric { name, unit: metric.unit.clone(), better, operation, calls_of });
        }
    }
    // The first run can lack a bandwidth; other metrics are the same in every run.
    found.sort_by_key(|metric| (metric.calls_of.is_some(), metric.operation != Some(Operation::Write)));
    found
}

/// Creates a metric of a run. Its direct cost is added later.
pub(super) fn run_metric(
    metric: Metric,
    value: Figure<f64>,
    work: Figure<Work>,
    repetitions: Vec<RepetitionMetric>,
) -> RunMetric {
    let Metric { name, unit, better, operation, calls_of } = metric;
    RunMetric {
        name,
        unit,
        better,
        operation,
        calls_of,
        value,
        direct_cost: None,
        direct_misses: None,
        work,
        repetitions,
    }
}

/// Returns the metric of a run with this name.
pub(crate) fn metric_of<'a>(run: &'a RunResult, name: &str) -> Option<&'a RunMetric> {
    run.derived.as_ref()?.metrics.iter().find(|metric| &*metric.name == name)
}

/// Returns the calls of the metric `name` of a run, or those of its bystander.
pub(super) fn work_of<'a>(run: &'a RunResult, name: &str) -> Option<&'a Figure<Work>> {
    let of_bystander = || run.derived.as_ref()?.bystander.iter().find(|calls| &*calls.name == name);
    metric_of(run, name).map(|metric| &metric.work).or_else(|| Some(&of_bystander()?.work))
}

/// Returns the accuracy of a metric of a run.
pub(crate) fn accuracy_of<'a>(run: &'a RunResult, metric: &str) -> Option<&'a RunAccuracy> {
    run.derived.as_ref()?.accuracy.iter().find(|accuracy| &*accuracy.metric == metric)
}

/// Summarises the measured figures; if no figure was measured, returns the reason of the first.
pub(super) fn summary<'a>(figures: impl Iterator<Item = &'a Figure<f64>>, why_none: &str) -> Figure<Summary> {
    let mut values = Vec::new();
    let mut reason = None;
    for figure in figures {
        match figure {
            Figure::Value(value) => values.push(*value),
            Figure::NotMeasured(why) => {
                reason.get_or_insert(why.as_str());
            }
        }
    }
    match (values.is_empty(), reason) {
        (true, reason) => Figure::missing(reason.unwrap_or(why_none)),
        (false, _) => summarise(&values).into(),
    }
}

/// Log ratios baseline / other of a metric, from pairs of the same block and round.
pub(super) struct Pairs {
    pub(super) logs: BTreeMap<u32, Vec<f64>>,
    pub(super) count: u32,
    /// The number of pairs that were measured in two boots of the same block.
    pub(super) across_boots: u32,
    /// The units of a baseline run and of another run that were left out because they differ.
    pub(super) units: Option<(String, String)>,
}

pub(super) fn by_replicate(baseline: &[&RunResult], others: &[&RunResult], metric: &str) -> Pairs {
    let speed = |run: &RunResult| metric_of(run, metric).and_then(|of| Some((of.speed()?, of.unit.clone())));
    fn place(run: &RunResult) -> (&str, u32) {
        (&run.record.block, run.record.round)
    }
    let baseline: BTreeMap<(&str, u32), _> =
        baseline.iter().filter_map(|run| Some((place(run), (speed(run)?, run.record.boot)))).collect();
    let mut pairs = Pairs { logs: BTreeMap::new(), count: 0, across_boots: 0, units: None };
    for run in others {
        let Some(((with, unit), ((without, of_baseline), boot))) = speed(run).zip(baseline.get(&place(run))) else {
            continue;
        };
        if unit != *of_baseline {
            pairs.units = Some((of_baseline.to_string(), unit.to_string()));
            continue;
        }
        pairs.logs.entry(run.record.replicate).or_default().push(without.ln() - with.ln());
        pairs.count += 1;
        pairs.across_boots += u32::from(*boot != run.record.boot);
    }
    pairs
}

/// Reduces figures to independent observations: the mean of each block, or every figure of a single
/// block.
pub(crate) fn observations<B>(by_block: BTreeMap<B, Vec<f64>>) -> (Unit, Vec<f64>) {
    if by_block.len() > 1 {
        let mean = |figures: &Vec<f64>| figures.iter().sum::<f64>() / figures.len() as f64;
        (Unit::Boots, by_block.values().map(mean).collect())
    } else {
        (Unit::Rounds, by_block.into_values().flatten().collect())
    }
}
