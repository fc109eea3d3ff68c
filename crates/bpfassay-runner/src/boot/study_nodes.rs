// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of a study: how many guests a boot has, and what each of them is.

use bpfassay_protocol::job_nodes::Node;
use bpfassay_study::{Study, WorkloadSpec};

/// Returns the nodes of `study` that run the workload; `None` is a single guest.
pub(crate) fn of(study: &Study) -> Vec<Option<Node>> {
    match study.guest.nodes {
        0 | 1 => vec![None],
        count => Node::all(count).map(Some).collect(),
    }
}

/// Returns the first node of `study`, which is shown as the example of all.
pub(crate) fn first(study: &Study) -> Option<Node> {
    of(study).into_iter().next().flatten()
}

/// Returns the number of ranks of the workload `case` on each node of `study`.
pub(crate) fn ranks(study: &Study, case: &str) -> u32 {
    let ranks = study.workload(case).and_then(WorkloadSpec::ranks).unwrap_or(1);
    ranks / study.guest.nodes.max(1)
}

/// Returns the server of the nodes of `study`.
pub(crate) fn server(study: &Study) -> Option<Node> {
    first(study).map(|node| Node::server(node.count))
}
