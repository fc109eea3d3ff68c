// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a run as sums over the nodes that did it together. Pure.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Operation,
    call_list::CallTimes,
    finding_name::Finding,
    message::{Interval, MountFacts, MountStats, Reading, RunFigures, WorkloadPhase},
    operation::{Totals, Variant},
    tracer_messages::{CounterRow, Device, Ended, Losses, ProgramStatistics, Sample},
};
use bpfassay_results::NodeRun;

/// The key of a row of the sum: device, mount, operation and variant.
type SumKey = (Device, u64, Operation, Option<Variant>);

/// Sums the figures of all `nodes`. Counters are summed as if all nodes had the cgroup and the
/// mount of the first node. Summary, times and the attached tracer come from the first node.
///
/// # Errors
/// There is no node, or a node's counters have other phases or another configuration.
pub fn figures(nodes: &[NodeRun]) -> Result<RunFigures, String> {
    let Some(first) = nodes.first() else { return Err("no node measured".to_owned()) };
    let names = |figures: &RunFigures| -> Vec<(String, u32, u32)> {
        figures.phases.iter().map(|phase| (phase.name.clone(), phase.test, phase.repetition)).collect()
    };
    let of_first = names(&first.figures);
    let wrong = |node: &&NodeRun| names(&node.figures) != of_first || node.figures.probe != first.figures.probe;
    if let Some(NodeRun { node, .. }) = nodes.iter().find(wrong) {
        return Err(format!("{node} did not have the phases of the first node, or had another probe"));
    }
    let mut all = first.figures.clone();
    all.whole = interval(nodes, &first.figures, &|figures| Some(&figures.whole));
    for (at, phase) in all.phases.iter_mut().enumerate() {
        phase.interval = interval(nodes, &first.figures, &|figures| Some(&figures.phases.get(at)?.interval));
        // The activity is the activity of the first node's kernel only.
        phase.activity = None;
        for other in nodes.iter().skip(1).filter_map(|node| node.figures.phases.get(at)) {
            add(phase, other);
        }
    }
    all.samples = Vec::new();
    all.ended = ended(nodes);
    if let Some(tracer) = &mut all.tracer {
        let found = nodes.iter().filter_map(|node| node.figures.tracer.as_ref()).flat_map(|tracer| &tracer.findings);
        tracer.findings = each_once(found);
    }
    Ok(all)
}

/// Sums the intervals that `of` selects from each node.
fn interval<'a>(
    nodes: &'a [NodeRun],
    first: &'a RunFigures,
    of: &dyn Fn(&'a RunFigures) -> Option<&'a Interval>,
) -> Interval {
    let of_edge = |pick: fn(&Interval) -> &Reading| reading(nodes, first, &|figures| Some(pick(of(figures)?)));
    Interval { before: of_edge(|interval| &interval.before), after: of_edge(|interval| &interval.after) }
}

/// Adds the calls of `other`, the same phase on another node.
fn add(phase: &mut WorkloadPhase, other: &WorkloadPhase) {
    for (operation, totals) in &other.moved {
        *phase.moved.entry(*operation).or_default() += *totals;
    }
    for (event, totals) in &other.events {
        *phase.events.entry(*event).or_default() += *totals;
    }
    phase.calls = phase.calls.zip(other.calls).map(|(sum, other)| CallTimes {
        ranks: sum.ranks.saturating_add(other.ranks),
        calls: sum.calls.saturating_add(other.calls),
        sum_ns: sum.sum_ns.saturating_add(other.sum_ns),
        tail_ns: sum.tail_ns.saturating_add(other.tail_ns),
        max_ns: sum.max_ns.max(other.max_ns),
        // The distribution does not follow from the distributions on the nodes.
        distribution: None,
    });
}

fn reading<'a>(
    nodes: &'a [NodeRun],
    first: &'a RunFigures,
    of: &dyn Fn(&'a RunFigures) -> Option<&'a Reading>,
) -> Reading {
    let of_nodes = || nodes.iter().filter_map(|node| Some((&node.figures, of(&node.figures)?)));
    let samples: Option<Vec<(&RunFigures, &Sample)>> =
        of_nodes().map(|(figures, reading)| Some((figures, reading.tracer.as_ref()?))).collect();
    let mountstats: Option<Vec<MountStats>> = of_nodes().map(|(_, reading)| reading.mountstats).collect();
    let own = of(first).unwrap_or(&first.whole.before);
    Reading {
        tracer: samples.zip(own.tracer.as_ref()).map(|(samples, own)| sample(&samples, first, own)),
        mountstats: mountstats.map(|all| all.into_iter().fold(MountStats::default(), added)),
        // Each kernel has its own idle time.
        idle_ns: None,
        ..own.clone()
    }
}

/// Sums what all tracers counted for their ranks. The rows have the cgroup and the mount of
/// `first`, whose sample is `own`. Counts of other processes, and of ranks on other file systems,
/// remain only in the nodes' figures.
fn sample(samples: &[(&RunFigures, &Sample)], first: &RunFigures, own: &Sample) -> Sample {
    let mut sums: BTreeMap<SumKey, (Totals, Vec<u64>)> = BTreeMap::new();
    for (figures, sample) in samples {
        for row in sample.rows.iter().filter(|row| row.cgroup == figures.cgroup) {
            let Some((device, mount)) = place(figures, row, &first.mount) else { continue };
            let (totals, latency) = sums.entry((device, mount, row.operation, row.variant)).or_default();
            *totals += row.totals;
            if latency.len() < row.latency.len() {
                latency.resize(row.latency.len(), 0);
            }
            latency.iter_mut().zip(&row.latency).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
        }
    }
    let row = |((device, mount, operation, variant), (totals, latency)): (SumKey, (Totals, Vec<u64>))| CounterRow {
        cgroup: first.cgroup,
        device,
        mount,
        path: (device == first.mount.device && mount == first.mount.id).then(|| first.mount.path.clone()),
        operation,
        variant,
        task: None,
        totals,
        latency,
    };
    Sample {
        rows: sums.into_iter().map(row).collect(),
        events: Vec::new(),
        losses: losses(samples.iter().map(|(_, sample)| &sample.losses)),
        ..own.clone()
    }
}

/// Translates device and mount of a node's row to the mount of the first node; `None` if the row
/// belongs to another file system.
fn place(figures: &RunFigures, row: &CounterRow, first: &MountFacts) -> Option<(Device, u64)> {
    let mount = if row.mount == figures.mount.id { first.id } else { 0 };
    match row.device {
        device if device == figures.mount.device => Some((first.device, mount)),
        Device::UNKNOWN => Some((Device::UNKNOWN, 0)),
        // A probe that does not distinguish mounts.
        _ if !figures.probe.probe.distinguishes_mounts() => Some((first.device, mount)),
        _ => None,
    }
}

/// Sums the losses. A loss that one node does not report is unknown in the sum.
fn losses<'a>(all: impl Iterator<Item = &'a Losses> + Clone) -> Losses {
    let sum = |pick: fn(&Losses) -> Option<u64>| {
        all.clone().map(pick).try_fold(0u64, |sum, more| Some(sum.saturating_add(more?)))
    };
    Losses {
        missed_probes: sum(|losses| losses.missed_probes),
        recursion_misses: sum(|losses| losses.recursion_misses),
        map_insert_failures: sum(|losses| losses.map_insert_failures),
        lru_evictions: sum(|losses| losses.lru_evictions),
        ring_buffer_drops: sum(|losses| losses.ring_buffer_drops),
    }
}

/// Joins the final reports of the tracers; `None` if a tracer made none.
fn ended(nodes: &[NodeRun]) -> Option<Ended> {
    let all: Vec<&Ended> = nodes.iter().map(|node| node.figures.ended.as_ref()).collect::<Option<_>>()?;
    let mut statistics: Vec<ProgramStatistics> = Vec::new();
    for one in all.iter().flat_map(|ended| &ended.statistics) {
        match statistics.iter_mut().find(|known| known.program == one.program) {
            Some(sum) => {
                sum.runs = sum.runs.saturating_add(one.runs);
                sum.run_time_ns = sum.run_time_ns.saturating_add(one.run_time_ns);
            }
            None => statistics.push(one.clone()),
        }
    }
    Some(Ended {
        findings: each_once(all.iter().flat_map(|ended| &ended.findings)),
        detach_ns: all.first()?.detach_ns,
        statistics,
        events: all.iter().try_fold(0u64, |sum, ended| Some(sum.saturating_add(ended.events?))),
    })
}

fn each_once<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Finding> {
    let mut once: Vec<Finding> = Vec::new();
    for finding in findings {
        if !once.contains(finding) {
            once.push(finding.clone());
        }
    }
    once
}

fn added(sum: MountStats, more: MountStats) -> MountStats {
    MountStats {
        normal_read: sum.normal_read.wrapping_add(more.normal_read),
        normal_written: sum.normal_written.wrapping_add(more.normal_written),
        direct_read: sum.direct_read.wrapping_add(more.direct_read),
        direct_written: sum.direct_written.wrapping_add(more.direct_written),
        server_read: sum.server_read.wrapping_add(more.server_read),
        server_written: sum.server_written.wrapping_add(more.server_written),
    }
}
