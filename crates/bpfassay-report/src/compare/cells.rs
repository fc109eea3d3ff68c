// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs the cells of two results, and tells which of the results measured each cell.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bpfassay_protocol::Arch;
use bpfassay_stats::{Effect, StatsError, gate_decision::Change};
use bpfassay_study::{Clock, Target};

use super::{
    CellComparison, Claim, Fate, Measure, MetricComparison, NotComparable, Question, Ratio, direct,
    filter::known_names, programs,
};
use crate::{
    derive::{
        levels,
        lookup::{ByCell, by_cell},
        pairs::{metric_of, observations},
        spinning::why_no_overhead,
    },
    labels,
};
use bpfassay_results::{Attach, CellAccuracy, CellMetric, CellResult, Figure, Results, RunResult, ToolResult, Unit};
use bpfassay_tool::finding::FindingStatus;

/// The same cell in both results.
#[derive(Clone, Copy)]
pub(super) struct CellPair<'a> {
    pub(super) base: Option<&'a CellResult>,
    pub(super) new: Option<&'a CellResult>,
}

/// Distinguishes kernels that have one name in both results but differ, such as two that the user
/// built: adds their versions and images to the names.
pub(super) fn name_kernels(cells: &mut [CellComparison], sides: [&Results; 2]) {
    for cell in cells {
        let [Some(was), Some(is)] = &cell.kernels else { continue };
        let image = |results: &Results, name: &str| {
            let mut made = results.provenance.iter().flat_map(|made| &made.targets);
            let target = made.find(|made| made.target.arch == cell.arch && made.target.kernel == name)?;
            Some((target.kernel.version.clone(), target.kernel.sha256.clone()?))
        };
        let (Some(base), Some(new)) = (image(sides[0], was), image(sides[1], is)) else { continue };
        if was == is && base.1 != new.1 {
            let name = |(version, digest): (String, String)| format!("{is} ({version}, {digest:.8})");
            cell.kernels = [base, new].map(|image| Some(name(image)));
        }
    }
}

/// Pairs every cell of both results: cells of the new results in their order, then cells that only
/// the base has. If the question names tools, only their cells.
///
/// # Errors
/// [`NotComparable::Filter`] for a tool that the results lack.
pub(super) fn pair<'a>(
    base: &'a Results,
    new: &'a Results,
    question: &Question,
) -> Result<Vec<CellPair<'a>>, NotComparable> {
    for (side, (results, name)) in [(base, "the base results"), (new, "the new results")].into_iter().enumerate() {
        let asked: Vec<String> = question.tools.iter().map(|(base, new)| [base, new][side].clone()).collect();
        let known: BTreeSet<String> = results.cells.iter().map(CellResult::under_test).collect();
        known_names("--tool", &asked, known.iter().map(String::as_str).collect(), Some(name))?;
    }
    let is_asked = |cell: &CellResult, side: usize| {
        let name = cell.under_test();
        question.tools.is_empty() || question.tools.iter().any(|(base, new)| *[base, new][side] == name)
    };
    let names = kernel_names(base, new, question);
    type PairKey<'a> = (Arch, &'a str, &'a str, &'a str, String);
    fn key<'a>(cell: &'a CellResult, kernel: &'a str) -> PairKey<'a> {
        (cell.target.arch, kernel, &cell.case, &cell.file_system, cell.under_test())
    }
    let mut of_base: HashMap<PairKey<'_>, &CellResult> = HashMap::new();
    for was in base.cells.iter().filter(|was| is_asked(was, 0)) {
        of_base.entry(key(was, &was.target.kernel)).or_insert(was);
    }
    let mut found = HashSet::new();
    let mut pairs: Vec<CellPair<'_>> = Vec::new();
    for is in new.cells.iter().filter(|is| is_asked(is, 1)) {
        let kernel = names.get(&(is.target.arch, is.target.kernel.as_str())).copied().unwrap_or(&is.target.kernel);
        let mut key = key(is, kernel);
        if let Some((base, _)) = question.tools.iter().find(|(_, new)| *new == key.4) {
            key.4.clone_from(base);
        }
        pairs.push(CellPair { base: of_base.get(&key).copied(), new: Some(is) });
        found.insert(key);
    }
    // A kernel is not missing if the new results have it and compare it with another kernel of the
    // base.
    let is_elsewhere = |was: &CellResult| {
        names.get(&(was.target.arch, was.target.kernel.as_str())).is_some_and(|base| *base != was.target.kernel)
            && new.cells.iter().any(|is| is.target == was.target)
    };
    let asked = base.cells.iter().filter(|was| is_asked(was, 0));
    let gone = asked.filter(|was| !found.contains(&key(was, &was.target.kernel)) && !is_elsewhere(was));
    pairs.extend(gone.map(|was| CellPair { base: Some(was), new: None }));
    let (of_others_base, of_others_new) = (of_other_shards(base), of_other_shards(new));
    pairs.retain(|pair| match (pair.base, pair.new) {
        (Some(was), None) => !of_others_new.contains(was.cell.as_str()),
        (None, Some(is)) => !of_others_base.contains(is.cell.as_str()),
        _ => true,
    });
    Ok(pairs)
}

/// Returns the cells of the plan of `results` that other shards measure. If these results lack such
/// a cell, it is neither new nor gone.
fn of_other_shards(results: &Results) -> HashSet<&str> {
    let measured: HashSet<&str> = results.plan.measured_cells().into_iter().map(|cell| cell.id.as_str()).collect();
    results.plan.cells.iter().map(|cell| cell.id.as_str()).filter(|id| !measured.contains(id)).collect()
}

/// Results and the indexes to look up each cell.
pub(super) struct Side<'a> {
    results: &'a Results,
    runs: ByCell<'a>,
    baselines: HashMap<CellPlace<'a>, &'a CellResult>,
    replicates: HashMap<&'a str, u32>,
    /// Why the times of these cells are meaningless, by cell.
    meaningless: HashMap<&'a str, String>,
    pub(super) looks: usize,
}

/// Target, workload case, file system.
type CellPlace<'a> = (&'a Target, &'a str, &'a str);

fn place(cell: &CellResult) -> CellPlace<'_> {
    (&cell.target, &cell.case, &cell.file_system)
}

impl<'a> Side<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let mut baselines = HashMap::new();
        for cell in results.cells.iter().filter(|cell| cell.is_baseline()) {
            baselines.entry(place(cell)).or_insert(cell);
        }
        let cells = results.plan.cells.iter();
        let meaningless = cells.filter_map(|cell| Some((cell.id.as_str(), why_no_overhead(&results.plan, cell)?)));
        Self {
            results,
            meaningless: meaningless.collect(),
            runs: by_cell(&results.runs),
            baselines,
            replicates: results.plan.blocks.iter().map(|block| (block.id.as_str(), block.replicate)).collect(),
            looks: levels::looks(&results.plan),
        }
    }
}

/// Maps kernels of the new results to their name in the base, if it differs.
fn kernel_names<'a>(base: &'a Results, new: &'a Results, question: &'a Question) -> BTreeMap<(Arch, &'a str), &'a str> {
    let kernels = |results: &'a Results| {
        let mut kernels = BTreeMap::<Arch, BTreeSet<&'a str>>::new();
        // Kernels of the study's other shards count, too: they are not renamed kernels of this
        // shard.
        for cell in &results.plan.cells {
            kernels.entry(cell.target.arch).or_default().insert(&cell.target.kernel);
        }
        kernels
    };
    let (was, is) = (kernels(base), kernels(new));
    let mut names = BTreeMap::new();
    for (arch, new) in &is {
        let Some(base) = was.get(arch) else { continue };
        if let (1, 1, Some(base), Some(new)) = (base.len(), new.len(), base.first(), new.first()) {
            names.insert((*arch, *new), *base);
        }
        for (base, new) in &question.kernels {
            names.insert((*arch, new.as_str()), base.as_str());
        }
    }
    names
}

pub(super) fn compare(base: &Side<'_>, new: &Side<'_>, pair: &CellPair<'_>, claim: Claim) -> CellComparison {
    let fate = match (pair.base, pair.new) {
        (Some(was), Some(is)) => match (why_not(was), why_not(is)) {
            (None, None) => Fate::Compared,
            (None, Some(reason)) => Fate::Broken { reason },
            (Some(reason), None) => Fate::Mended { reason },
            (Some(_), Some(reason)) => Fate::Neither { reason },
        },
        (None, _) => Fate::New,
        (Some(_), None) => Fate::Gone,
    };
    let metrics = match (&fate, pair.base, pair.new) {
        (Fate::Compared, Some(was), Some(is)) => is
            .rows()
            .filter_map(|after| Some((was.rows().find(|before| before.0.name == after.0.name)?, after)))
            .map(|(before, after)| metric(base, new, (was, before), (is, after), claim))
            .collect(),
        _ => Vec::new(),
    };
    let findings = |cell: Option<&CellResult>| -> BTreeSet<String> {
        let found = cell.map(|cell| cell.findings.as_slice()).unwrap_or_default();
        found.iter().map(|found| format!("{} {}", found.finding.pitfall, found.finding.subject)).collect()
    };
    let (was, is) = (findings(pair.base), findings(pair.new));
    let (findings_new, findings_gone) = match (pair.base, pair.new) {
        (Some(_), Some(_)) => (is.difference(&was).cloned().collect(), was.difference(&is).cloned().collect()),
        _ => (Vec::new(), Vec::new()),
    };
    let (faults_new, faults_gone) = match fate {
        Fate::Compared => (faults(pair.base, pair.new), faults(pair.new, pair.base)),
        _ => (Vec::new(), Vec::new()),
    };
    // At least one of the two exists: `pair` makes no empty pairs.
    let kernel = |cell: Option<&CellResult>| cell.map(|cell| cell.target.kernel.clone());
    let any = pair.new.or(pair.base);
    CellComparison {
        arch: any.map_or(Arch::X86_64, |cell| cell.target.arch),
        kernels: [kernel(pair.base), kernel(pair.new)],
        case: any.map(|cell| cell.case.clone()).unwrap_or_default(),
        file_system: any.map(|cell| cell.file_system.clone()).unwrap_or_default(),
        under_test: match [pair.base, pair.new].map(|cell| cell.map(CellResult::under_test)) {
            [Some(base), Some(new)] if base != new => format!("{base} → {new}"),
            [base, new] => new.or(base).unwrap_or_default(),
        },
        fate,
        metrics,
        findings_new,
        findings_gone,
        faults_new,
        faults_gone,
        programs: programs::changes(pair.base, pair.new, new.results.plan.study.clock),
    }
}

/// Names the faults of the tool that `is` shows and that a check ruled out in `was`.
fn faults(was: Option<&CellResult>, is: Option<&CellResult>) -> Vec<String> {
    let (Some(was), Some(is)) = (results_of(was), results_of(is)) else { return Vec::new() };
    let clear = |kind| was.findings.iter().any(|found| found.kind == kind && found.status == FindingStatus::Clear);
    let found = is.findings.iter().filter(|found| found.status.is_found());
    found.filter(|found| clear(found.kind)).map(|found| found.kind.to_string()).collect()
}

fn results_of(cell: Option<&CellResult>) -> Option<&ToolResult> {
    cell?.tool_result.as_ref()
}

/// Tells why the cell has no figures; `None` if it was measured.
fn why_not(cell: &CellResult) -> Option<String> {
    if cell.runs.measured > 0 {
        return None;
    }
    Some(match (&cell.attach, cell.failures.first()) {
        (Attach::Refused { refusal, .. } | Attach::Unsteady { refusal, .. }, _) => {
            format!("refused: {}", labels::refusal(refusal))
        }
        (_, Some(failure)) => failure.failure.to_string(),
        (Attach::Unknown { reason }, None) => reason.clone(),
        _ => "not run".to_owned(),
    })
}

/// A cell, one of its metrics and the accuracy of that metric.
type MetricRow<'a> = (&'a CellResult, (&'a CellMetric, Option<&'a CellAccuracy>));

fn metric(base: &Side<'_>, new: &Side<'_>, was: MetricRow<'_>, is: MetricRow<'_>, claim: Claim) -> MetricComparison {
    let measure = if is.0.is_baseline() { Measure::Time } else { Measure::Overhead };
    let logs = [logs(base, was.0, &is.1.0.name), logs(new, is.0, &is.1.0.name)];
    let meaningless = base.meaningless.get(was.0.cell.as_str()).or_else(|| new.meaningless.get(is.0.cell.as_str()));
    let paired = is_paired(base.results, new.results);
    // The effect of another layout is declared for overheads, which are ratios within a boot. That
    // is why the rounds of two boots can be compared.
    let is_declared = measure == Measure::Overhead
        && new.results.plan.study.clock == Clock::Instructions
        && logs.iter().all(is_of_one_boot);
    let effect = || -> Result<Ratio, StatsError> {
        let [before, after] = &logs;
        let effect = match paired {
            true => {
                let pairs = after.iter().filter_map(|(place, after)| Some((*place, after - before.get(place)?)));
                Effect::paired(&of_replicates(pairs))?
            }
            false => {
                let all = |logs: &BTreeMap<(u32, u32), f64>| {
                    let figures = of_replicates(logs.iter().map(|(&place, &log)| (place, log)));
                    match is_of_one_boot(logs) && !is_declared {
                        true => vec![figures.iter().sum::<f64>() / figures.len().max(1) as f64],
                        false => figures,
                    }
                };
                // The estimator subtracts the second argument from the first.
                Effect::independent(&all(after), &all(before))?
            }
        };
        let unit = if logs.iter().any(is_of_one_boot) { Unit::Rounds } else { Unit::Boots };
        Ratio::new(effect, paired, unit, claim)
    };
    let per_call = |metric: &CellMetric| metric.cost.value().map(|cost| cost.per_call.value);
    let whole = is.1.0.calls_of.and_then(|whole| is.0.metric(&whole));
    let byte_error = |accuracy: Option<&CellAccuracy>| {
        accuracy
            .map_or_else(|| Figure::missing("the workload reports no bytes"), |accuracy| accuracy.byte_error.clone())
    };
    MetricComparison {
        metric: is.1.0.name,
        access: whole.unwrap_or(is.1.0).operation,
        measure,
        ratio: match (&was.1.0.value, &is.1.0.value, meaningless) {
            (Figure::NotMeasured(reason), _, _) | (_, Figure::NotMeasured(reason), _) => {
                Figure::missing(reason.as_str())
            }
            (_, _, Some(reason)) => Figure::missing(reason.as_str()),
            _ => effect().into(),
        },
        change: Change::Inconclusive,
        instructions_per_call: [per_call(was.1.0), per_call(is.1.0)],
        direct: direct::change(was.1.0.direct.as_ref(), is.1.0.direct.as_ref(), paired),
        byte_error: [byte_error(was.1.1), byte_error(is.1.1)],
    }
}

/// Reduces figures by replicate and round to independent observations.
fn of_replicates(figures: impl Iterator<Item = ((u32, u32), f64)>) -> Vec<f64> {
    let mut by_replicate = BTreeMap::<u32, Vec<f64>>::new();
    for ((replicate, _), figure) in figures {
        by_replicate.entry(replicate).or_default().push(figure);
    }
    observations(by_replicate).1
}

/// Whether all figures come from one boot, and so from one layout of addresses. They are one
/// observation if the other result comes from another boot: rounds do not show how much boots
/// differ.
fn is_of_one_boot(logs: &BTreeMap<(u32, u32), f64>) -> bool {
    let mut replicates = logs.keys().map(|(replicate, _)| replicate);
    let first = replicates.next();
    replicates.all(|other| Some(other) == first)
}

/// Whether runs of the same replicate and round differ only by the difference between the two
/// results.
fn is_paired(base: &Results, new: &Results) -> bool {
    let [was, is] = [base, new].map(|results| &results.plan.study);
    is.clock == Clock::Instructions && was.design.seed == is.design.seed && was.design.rounds == is.design.rounds
}

/// Returns the log of the time per byte by replicate and round. A tool's time is divided by the
/// time of the baseline of the same block and round.
fn logs(side: &Side<'_>, cell: &CellResult, metric: &str) -> BTreeMap<(u32, u32), f64> {
    let of = |cell: &CellResult| -> BTreeMap<(&str, u32), f64> {
        let log = |run: &RunResult| Some(metric_of(run, metric)?.speed()?.ln());
        let counted = side.runs.get(cell.cell.as_str()).into_iter().flatten().filter(|run| run.record.is_counted());
        counted.filter_map(|run| Some(((run.record.block.as_str(), run.record.round), log(run)?))).collect()
    };
    let own = of(cell);
    let baseline = side.baselines.get(&place(cell));
    let base = if cell.is_baseline() { None } else { baseline.map(|baseline| of(baseline)) };
    own.into_iter()
        .filter_map(|((block, round), log)| {
            let replicate = *side.replicates.get(block)?;
            let over = match &base {
                Some(base) => *base.get(&(block, round))?,
                None => 0.0,
            };
            Some(((replicate, round), over - log))
        })
        .collect()
}
