// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each node counted in a run that several did together. Their sums are the figures of the run itself.

use super::{bytes, runs};
use bpfassay_results::{NodeBytes, NodeFigures, NodeRun};

/// The figures of each node.
pub(super) fn derive(nodes: &[NodeRun]) -> Vec<NodeFigures> {
    let of_node = |NodeRun { node, ranks, figures }: &NodeRun| NodeFigures {
        node: node.clone(),
        ranks: *ranks,
        bytes: bytes::DATA
            .into_iter()
            .map(|operation| NodeBytes {
                operation,
                traced: bytes::counted_between(figures, operation, &figures.whole),
                mountstats: bytes::mountstats(operation, &figures.whole),
            })
            .collect(),
        losses: runs::losses(figures),
    };
    nodes.iter().map(of_node).collect()
}
