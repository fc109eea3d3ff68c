// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential sampling (`--until`): how many boots are enough, and what that means for intervals
//! and p-values.
//!
//! The effects of one target, workload and file system are measured in the same boots, so they stop
//! together. They stop at the first look at which the intervals of all requested overheads are
//! narrow enough, or at the largest number of boots. The numbers of boots at looks are fixed in
//! advance, and each look spends an equal share of the error (see bpfassay-stats, `sequential`).

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
};

use bpfassay_stats::sequential::Sampling;
use bpfassay_study::{Block, Cell, MetricName, Plan, plan::file_system_id};

use super::{
    entries::{self, Ahead, TakenEntries, take},
    levels::design,
    lookup::{ByCell, RunPlace, by_cell, place, place_of},
    pairs::{by_replicate, metrics_of},
    spinning::why_no_overhead,
};
use bpfassay_results::{Again, JournalContents, RunResult, Sampled, SamplingEnd, ToDo, Widest};

/// The boots of one target, workload and file system.
struct Group<'a> {
    first: &'a Cell,
    cells: Vec<&'a Cell>,
    blocks: Vec<&'a Block>,
}

fn groups(plan: &Plan) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut places: HashMap<RunPlace<'_>, usize> = HashMap::new();
    for cell in &plan.cells {
        let index = *places.entry(place(cell)).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => group.cells.push(cell),
            None => groups.push(Group { first: cell, cells: vec![cell], blocks: Vec::new() }),
        }
    }
    for block in &plan.blocks {
        if let Some(group) = places.get(&place_of(block)).and_then(|&index| groups.get_mut(index)) {
            group.blocks.push(block);
        }
    }
    groups
}

/// Derives the progress of each group; empty if the plan has a fixed number of boots.
pub(super) fn derive(plan: &Plan, runs: &ByCell<'_>) -> Vec<Sampled> {
    let Some(sampling) = design(plan) else { return Vec::new() };
    let done: HashSet<&str> = runs.values().flatten().map(|run| run.record.run.as_str()).collect();
    groups(plan).iter().map(|group| sampled(plan, &sampling, group, runs, &done)).collect()
}

fn sampled(plan: &Plan, sampling: &Sampling, group: &Group<'_>, runs: &ByCell<'_>, done: &HashSet<&str>) -> Sampled {
    let is_done = |block: &&&Block| block.runs.iter().all(|run| done.contains(run.spec.id.as_str()));
    let whole = group.blocks.iter().take_while(is_done).count();
    let most = group.blocks.len();
    let mut found = Sampled {
        target: group.first.target.clone(),
        case: group.first.case.clone(),
        file_system: file_system_id(&group.first.file_system),
        boots: 0,
        most: number(most),
        end: None,
        widest: None,
    };
    let series = series(plan, group, runs);
    for &look in sampling.looks() {
        found.boots = number(look);
        if whole < look {
            return found;
        }
        found.widest = widest(sampling, &series, look);
        let is_narrow = |logs: &BTreeMap<u32, f64>| {
            sampling.estimate_at_a_look(&up_to(logs, look)).is_ok_and(|estimate| sampling.is_narrow(&estimate))
        };
        found.end = if series.is_empty() {
            Some(SamplingEnd::NothingMeasured)
        } else if series.iter().all(|(_, _, logs)| is_narrow(logs)) {
            Some(SamplingEnd::NarrowEnough)
        } else if look == most {
            Some(SamplingEnd::MostBoots)
        } else {
            None
        };
        if found.end.is_some() {
            return found;
        }
    }
    found
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn up_to(logs: &BTreeMap<u32, f64>, look: usize) -> Vec<f64> {
    logs.range(..=number(look)).map(|(_, &log)| log).collect()
}

type SampledSeries<'a> = (&'a Cell, MetricName, BTreeMap<u32, f64>);

/// Returns the requested overheads by replicate: those that a gate covers, or else all. Cells
/// without any figures, because the kernel refuses the tool or the figures would be meaningless,
/// are not waited for.
fn series<'a>(plan: &Plan, group: &Group<'a>, runs: &ByCell<'_>) -> Vec<SampledSeries<'a>> {
    let gates: Vec<_> = plan.study.gates.iter().filter(|gate| gate.limits_overheads()).collect();
    let of = |cell: &Cell| -> Vec<&RunResult> {
        let all = runs.get(cell.id.as_str()).into_iter().flatten();
        all.copied().filter(|run| run.record.is_counted()).collect()
    };
    let Some(baseline) = group.cells.iter().find(|cell| cell.is_baseline()).map(|cell| of(cell)) else {
        return Vec::new();
    };
    let wanted = |cell: &&&'a Cell| {
        !cell.is_baseline()
            && why_no_overhead(plan, cell).is_none()
            && (gates.is_empty() || gates.iter().any(|gate| gate.covers(&plan.study, cell)))
    };
    let mut all = Vec::new();
    for &cell in group.cells.iter().filter(wanted) {
        let with = of(cell);
        for metric in metrics_of(&baseline) {
            let logs = by_replicate(&baseline, &with, &metric.name).logs;
            if !logs.is_empty() {
                let mean = |figures: Vec<f64>| figures.iter().sum::<f64>() / figures.len() as f64;
                all.push((
                    cell,
                    metric.name,
                    logs.into_iter().map(|(replicate, logs)| (replicate, mean(logs))).collect(),
                ));
            }
        }
    }
    all
}

/// Returns the overhead whose interval is the widest at `look`.
fn widest(sampling: &Sampling, series: &[SampledSeries<'_>], look: usize) -> Option<Widest> {
    series
        .iter()
        .filter_map(|(cell, metric, logs)| {
            let estimate = sampling.estimate_at_a_look(&up_to(logs, look)).ok()?;
            let within = match estimate.bounds.interval() {
                Some(interval) => interval.upper / estimate.value - 1.0,
                None => 0.0,
            };
            Some(Widest { cell: cell.id.clone(), metric: *metric, within })
        })
        .max_by(|a, b| a.within.total_cmp(&b.within))
}

/// Returns the largest number of boots that each sampled place needs.
fn limits(sampled: &[Sampled]) -> HashMap<RunPlace<'_>, u32> {
    sampled.iter().map(|group| ((&group.target, group.case.as_str(), group.file_system.clone()), group.boots)).collect()
}

fn is_beyond(block: &Block, limits: &HashMap<RunPlace<'_>, u32>) -> bool {
    limits.get(&place_of(block)).is_some_and(|&boots| block.replicate > boots)
}

/// Removes the boots from `plan` that sampling did not need.
pub(super) fn needed<'a>(plan: &'a Plan, sampled: &[Sampled]) -> Cow<'a, Plan> {
    if sampled.is_empty() {
        return Cow::Borrowed(plan);
    }
    let limits = limits(sampled);
    let mut plan = plan.clone();
    plan.blocks.retain(|block| !is_beyond(block, &limits));
    Cow::Owned(plan)
}

/// Returns what to do next; empty if nothing is left. If the number of boots is fixed, this is
/// everything without a record that counts. Sequential sampling does the boots up to the next look
/// of each group that continues. `again` selects what to execute once more.
#[must_use]
pub fn to_do(contents: &JournalContents, again: Again) -> Vec<ToDo> {
    let mut blocks = contents.to_do(again);
    let header = &contents.header;
    if design(&header.plan).is_some() {
        // Provisional runs, and runs that the host failed, decide nothing. They will be measured,
        // and the decision then is the same as in an uninterrupted run.
        let standing = contents.standing();
        let (stands, _) = entries::standing(contents);
        let mut entries = contents.entries.clone();
        let ahead = Ahead::of(&header.plan, &mut entries);
        let TakenEntries { plan, mut runs, .. } =
            take(header.plan.clone(), header.provenance.clone(), entries, ahead, &stands);
        runs.retain(|run| standing.is_final(&run.record.run));
        let sampled = derive(&plan, &by_cell(&runs));
        let limits = limits(&sampled);
        blocks.retain(|todo| !is_beyond(&todo.block, &limits));
    }
    blocks
}
