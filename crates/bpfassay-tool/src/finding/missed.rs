// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subjects that a tool reports nothing about, although it counts their operations for other
//! subjects. The mount, cgroup or process is missed, and not the operation.

use bpfassay_protocol::Operation;

use super::{aliases::unknown, finding_comparison::NumberComparison, finding_figures::Differences};
use crate::file::Whose;

/// The operations of `one`, an unreported subject, that the figure reports for other subjects.
/// Empty if something is reported for `one`, or if no other subject shows its operations.
pub(super) fn shown_of_others(differences: &Differences<'_>, one: &NumberComparison<'_>) -> Vec<Operation> {
    let Differences { figure, truth, comparisons, grown, .. } = differences;
    if one.reported != 0 || figure.whose == Whose::System {
        return Vec::new();
    }
    let done: Vec<Operation> =
        figure.operations.iter().copied().filter(|&operation| one.subject.of(operation, figure.unit) > 0).collect();
    // An amount under an unknown name can be any operation that happened. If `one` did all of
    // these, it shows them.
    let happened = |operation: &Operation| truth.shares.iter().any(|share| share.operation == *operation);
    let is_all = figure.operations.iter().filter(|operation| happened(operation)).all(|of| done.contains(of));
    if is_all && unknown(figure, grown, truth).next().is_some() {
        return done;
    }
    let shows = |other: &NumberComparison<'_>, operation: Operation| {
        let all = other.subject.shares.iter().chain(&other.subject.besides);
        let by_others = all.filter(|share| share.operation != operation).filter_map(|share| share.amount(figure.unit));
        other.subject.of(operation, figure.unit) > 0 && other.reported > by_others.fold(0, u64::saturating_add)
    };
    done.into_iter().filter(|&operation| comparisons.iter().any(|other| shows(other, operation))).collect()
}
