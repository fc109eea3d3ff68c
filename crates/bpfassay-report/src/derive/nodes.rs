// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of several nodes: the figures of all together, which everything else is derived from, and those of each.
//!
//! Bytes, calls and losses are sums. IOR's bandwidth over all is their bytes by the longest of their own intervals, from the first open to the last close on each
//! node by its own clock: the nodes begin a phase together, and their clocks are not compared.

use std::borrow::Cow;

use bpfassay_protocol::{
    calls::CallTimes,
    message::{Interval, MountStats, Reading, RunFigures, WorkloadPhase},
    tracer::{CounterRow, Losses, Sample},
};
use bpfassay_results::{NodeDerived, RunDerived};
use bpfassay_study::PhaseReport;

const MIB: f64 = 1_048_576.0;

/// The figures of each node alone, the first one first; none where there is one node.
pub(super) fn each(figures: &RunFigures) -> Vec<Cow<'_, RunFigures>> {
    if figures.nodes.is_empty() {
        return Vec::new();
    }
    let first = RunFigures { nodes: Vec::new(), ..figures.clone() };
    std::iter::once(Cow::Owned(first)).chain(figures.nodes.iter().map(Cow::Borrowed)).collect()
}

/// What is kept of what follows from a node's figures.
pub(super) fn derived(number: u32, derived: RunDerived) -> NodeDerived {
    let RunDerived { metrics, bytes, losses, .. } = derived;
    NodeDerived { node: number, metrics, bytes, losses }
}

/// The figures of all nodes together, with those of the others beside them as they were.
///
/// # Errors
/// Why they cannot be summed: the nodes did not have the same phases.
pub(super) fn summed(figures: &RunFigures) -> Result<Cow<'_, RunFigures>, String> {
    if figures.nodes.is_empty() {
        return Ok(Cow::Borrowed(figures));
    }
    let mut sum = figures.clone();
    for node in &figures.nodes {
        if node.phases.len() != sum.phases.len() {
            return Err("the nodes did not have the same phases".to_owned());
        }
        for (phase, other) in sum.phases.iter_mut().zip(&node.phases) {
            if (&phase.name, phase.test, phase.repetition) != (&other.name, other.test, other.repetition) {
                return Err("the nodes did not have the same phases".to_owned());
            }
            add_phase(phase, other, (figures, node));
        }
        add_interval(&mut sum.whole, &node.whole, (figures, node));
    }
    Ok(Cow::Owned(sum))
}

/// What the summaries of the nodes report together.
///
/// # Errors
/// What the summary of one cannot be read for, or that they report different phases.
pub(super) fn reported(nodes: Vec<Result<Vec<PhaseReport>, String>>) -> Result<Vec<PhaseReport>, String> {
    let mut nodes = (1..).zip(nodes).map(|(number, node)| node.map_err(|error| format!("node {number}: {error}")));
    let mut all = nodes.next().unwrap_or_else(|| Ok(Vec::new()))?;
    let others = nodes.collect::<Result<Vec<_>, _>>()?;
    for (at, phase) in all.iter_mut().enumerate() {
        let mut of_nodes = vec![*phase];
        for other in &others {
            match other.get(at) {
                Some(same) if place(same) == place(phase) => of_nodes.push(*same),
                _ => return Err("the nodes report different phases".to_owned()),
            }
        }
        *phase = together(phase, &of_nodes);
    }
    Ok(all)
}

fn place(report: &PhaseReport) -> (&str, u32, u32) {
    (&report.name, report.test, report.repetition)
}

fn together(first: &PhaseReport, nodes: &[PhaseReport]) -> PhaseReport {
    let sum = |of: &dyn Fn(&PhaseReport) -> Option<f64>| nodes.iter().map(of).sum::<Option<f64>>();
    let bytes = nodes.iter().map(|node| node.bytes).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
    // IOR rounds its time to 0.1 ms; bytes by bandwidth is the same interval with more digits.
    let interval = |node: &PhaseReport| match node.bytes.zip(node.bandwidth) {
        Some((bytes, bandwidth)) => Some(bytes as f64 / MIB / bandwidth),
        None => node.total_s,
    };
    let longest = nodes.iter().map(interval).try_fold(0.0_f64, |longest, one| Some(longest.max(one?)));
    let mib = match bytes {
        Some(bytes) => Some(bytes as f64 / MIB),
        None => sum(&|node| Some(node.bandwidth? * node.total_s?)),
    };
    PhaseReport { bandwidth: mib.zip(longest).map(|(mib, longest)| mib / longest), total_s: longest, bytes, ..*first }
}

fn add_phase(phase: &mut WorkloadPhase, other: &WorkloadPhase, nodes: (&RunFigures, &RunFigures)) {
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
        // That of all cannot be had from that of each.
        distribution: None,
    });
    add_interval(&mut phase.interval, &other.interval, nodes);
}

fn add_interval(interval: &mut Interval, other: &Interval, nodes: (&RunFigures, &RunFigures)) {
    add_reading(&mut interval.before, &other.before, nodes);
    add_reading(&mut interval.after, &other.after, nodes);
}

fn add_reading(reading: &mut Reading, other: &Reading, nodes: (&RunFigures, &RunFigures)) {
    // Each kernel has an idle time of its own.
    reading.idle_ns = None;
    reading.tracer = reading.tracer.take().zip(other.tracer.as_ref()).map(|(sum, other)| add_sample(sum, other, nodes));
    reading.mountstats = reading.mountstats.zip(other.mountstats).map(add_mountstats);
}

/// The counters of the workload on both nodes, under the numbers that the first one's kernel gave its cgroup and mount. What others did there is no part of the sum.
fn add_sample(mut sum: Sample, other: &Sample, (first, node): (&RunFigures, &RunFigures)) -> Sample {
    let own = other.rows.iter().filter(|row| row.cgroup == node.cgroup).map(|row| {
        let is_on_mount = row.device == node.mount.device;
        CounterRow {
            cgroup: first.cgroup,
            device: if is_on_mount { first.mount.device } else { row.device },
            mount: if is_on_mount && row.mount == node.mount.id { first.mount.id } else { row.mount },
            ..row.clone()
        }
    });
    sum.rows.extend(own);
    sum.events.extend(other.events.iter().filter(|row| row.cgroup == node.cgroup).cloned().map(|mut row| {
        row.cgroup = first.cgroup;
        row
    }));
    sum.losses = add_losses(&sum.losses, &other.losses);
    sum
}

/// A kind of loss that one node does not report is not known of all.
fn add_losses(sum: &Losses, other: &Losses) -> Losses {
    let add = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one.saturating_add(other));
    Losses {
        missed_probes: add(sum.missed_probes, other.missed_probes),
        recursion_misses: add(sum.recursion_misses, other.recursion_misses),
        map_insert_failures: add(sum.map_insert_failures, other.map_insert_failures),
        lru_evictions: add(sum.lru_evictions, other.lru_evictions),
        ring_buffer_drops: add(sum.ring_buffer_drops, other.ring_buffer_drops),
    }
}

const fn add_mountstats((sum, other): (MountStats, MountStats)) -> MountStats {
    MountStats {
        normal_read: sum.normal_read.saturating_add(other.normal_read),
        normal_written: sum.normal_written.saturating_add(other.normal_written),
        direct_read: sum.direct_read.saturating_add(other.direct_read),
        direct_written: sum.direct_written.saturating_add(other.direct_written),
        server_read: sum.server_read.saturating_add(other.server_read),
        server_written: sum.server_written.saturating_add(other.server_written),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::Operation;

    use super::*;

    fn report(bytes: u64, seconds: f64) -> PhaseReport {
        PhaseReport {
            operation: Operation::Write,
            name: "write".parse().unwrap(),
            test: 0,
            repetition: 0,
            bandwidth: Some(bytes as f64 / MIB / seconds),
            total_s: Some(seconds),
            bytes: Some(bytes),
        }
    }

    #[test]
    fn the_bandwidth_of_all_is_their_bytes_by_the_longest_interval() {
        let nodes = vec![Ok(vec![report(6 << 20, 2.0)]), Ok(vec![report(6 << 20, 3.0)])];
        let all = reported(nodes).unwrap();
        assert_eq!((all[0].bytes, all[0].total_s, all[0].bandwidth), (Some(12 << 20), Some(3.0), Some(4.0)));
        // Rounded figures of one node settle no number of bytes of all; the bandwidth has them still.
        let rounded = PhaseReport { bytes: None, ..report(6 << 20, 3.0) };
        let all = reported(vec![Ok(vec![report(6 << 20, 2.0)]), Ok(vec![rounded])]).unwrap();
        assert_eq!((all[0].bytes, all[0].bandwidth), (None, Some(4.0)));
    }

    #[test]
    fn what_one_node_does_not_report_is_not_known_of_all() {
        let none = PhaseReport { bandwidth: None, total_s: None, bytes: None, ..report(1, 1.0) };
        let all = reported(vec![Ok(vec![report(6 << 20, 2.0)]), Ok(vec![none])]).unwrap();
        assert_eq!((all[0].bytes, all[0].total_s, all[0].bandwidth), (None, None, None));
        assert_eq!(reported(vec![Ok(vec![report(1, 1.0)]), Err("torn".to_owned())]).unwrap_err(), "node 2: torn");
        assert!(reported(vec![Ok(vec![report(1, 1.0)]), Ok(Vec::new())]).unwrap_err().contains("different phases"));
        let losses = |drops| Losses { ring_buffer_drops: drops, missed_probes: Some(1), ..Losses::default() };
        let sum = add_losses(&losses(Some(3)), &losses(Some(4)));
        assert_eq!((sum.ring_buffer_drops, sum.missed_probes, sum.lru_evictions), (Some(7), Some(2), None));
        assert_eq!(add_losses(&losses(None), &losses(Some(4))).ring_buffer_drops, None);
    }
}
