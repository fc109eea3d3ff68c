// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subjects that a tool has nothing of, though it counts what they did: a mount, cgroup or process
//! is missed there, and no operation.

use bpfassay_protocol::Operation;

use super::{aliases::unknown, comparison::Comparison, figures::Differences};
use crate::Whose;

/// The operations of `one`, of which `differences` has nothing, that the figure shows of others;
/// none where it has something of `one`, or no other shows an operation of it.
pub(super) fn shown_of_others(differences: &Differences<'_>, one: &Comparison<'_>) -> Vec<Operation> {
    let Differences { figure, truth, comparisons, grown, .. } = differences;
    if one.reported != 0 || figure.whose == Whose::System {
        return Vec::new();
    }
    let done: Vec<Operation> =
        figure.operations.iter().copied().filter(|&operation| one.subject.of(operation, figure.unit) > 0).collect();
    // Under a name that is not known, something is reported of whatever happened; that is of `one`
    // what happened, if nothing else did.
    let happened = |operation: &Operation| truth.shares.iter().any(|share| share.operation == *operation);
    let is_all = figure.operations.iter().filter(|operation| happened(operation)).all(|of| done.contains(of));
    if is_all && unknown(figure, grown, truth).next().is_some() {
        return done;
    }
    let shows = |other: &Comparison<'_>, operation: Operation| {
        let all = other.subject.shares.iter().chain(&other.subject.besides);
        let by_others = all.filter(|share| share.operation != operation).filter_map(|share| share.amount(figure.unit));
        other.subject.of(operation, figure.unit) > 0 && other.reported > by_others.fold(0, u64::saturating_add)
    };
    done.into_iter().filter(|&operation| comparisons.iter().any(|other| shows(other, operation))).collect()
}
