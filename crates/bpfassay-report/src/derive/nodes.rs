// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of each node in a run of several nodes. The figures of the run itself are the sums.
//!
//! If each node has its own summary, IOR's bandwidth over all nodes is the sum of bytes divided by
//! the longest interval. A node's interval lasts from its first open to its last close by its own
//! clock: the nodes begin a phase together, and their clocks are not compared.

use bpfassay_protocol::{Operation, message::RunFigures, operation::Totals};
use bpfassay_results::{Figure, NodeBytes, NodeFigures, NodeRun};
use bpfassay_study::{PhaseReport, WorkloadSpec};

use super::{bytes, losses};

const MIB: f64 = 1_048_576.0;

pub(super) fn derive(nodes: &[NodeRun]) -> Vec<NodeFigures> {
    let of_node = |NodeRun { node, ranks, figures }: &NodeRun| NodeFigures {
        node: node.clone(),
        ranks: *ranks,
        bytes: bytes::DATA
            .into_iter()
            .map(|operation| NodeBytes {
                operation,
                moved: moved(figures, operation),
                traced: bytes::counted_between(figures, operation, &figures.whole),
                mountstats: bytes::mountstats(operation, &figures.whole),
            })
            .collect(),
        losses: losses::of(figures),
    };
    nodes.iter().map(of_node).collect()
}

/// Sums the results of the calls of the ranks on a node, over all phases.
fn moved(figures: &RunFigures, operation: Operation) -> Figure<Totals> {
    if figures.phases.is_empty() {
        return Figure::missing("IOR's summary is of all nodes");
    }
    let of_phases = figures.phases.iter().filter_map(|phase| phase.moved.get(&operation));
    Figure::Value(of_phases.fold(Totals::default(), |mut sum, totals| {
        sum += *totals;
        sum
    }))
}

/// Returns the phases that the summary of a run reports. The summaries of several nodes are
/// combined.
pub(super) fn phases(
    kind: &WorkloadSpec,
    summary: &str,
    nodes: &[NodeRun],
) -> Option<Result<Vec<PhaseReport>, String>> {
    // An MPI program has one summary for all nodes, on the node of the first rank.
    if nodes.is_empty() || nodes.iter().any(|node| node.figures.summary.is_empty()) {
        return kind.phases(summary);
    }
    let of_node = |node: &NodeRun| kind.phases(&node.figures.summary);
    Some(reported(nodes.iter().map(of_node).collect::<Option<_>>()?))
}

/// Combines what the summaries of the nodes report.
///
/// # Errors
/// Why a summary cannot be read, or that the nodes report different phases.
fn reported(nodes: Vec<Result<Vec<PhaseReport>, String>>) -> Result<Vec<PhaseReport>, String> {
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
        // If the figures of one node are rounded, the sum of bytes is unknown, but the bandwidth
        // still includes them.
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
    }
}
