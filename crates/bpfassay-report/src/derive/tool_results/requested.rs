// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluates phases whose calls are known to request more bytes than they move. These phases tell a
//! tool that counts requested bytes from one that counts moved bytes. The reference tracer counts
//! moved bytes, and the workload reports both.

use std::collections::BTreeSet;

use bpfassay_protocol::{IoPath, message::RunFigures, tool_job::ToolFigures};
use bpfassay_tool::{
    CountedUnit, Readings, Report,
    finding::{self, CallShare, Evidence, FindingResult, Kind, Truth, ValueLimits},
};

use super::{
    cgroups::SumsByCgroup,
    is_of,
    truth::{mount_names, of_operation},
};

/// Returns whether the tool reports requested bytes as moved bytes, phase by phase, and which of
/// its figures do.
pub(super) fn evaluate(
    report: &Report,
    readings: &Readings,
    seen: &ToolFigures,
    figures: &RunFigures,
    cgroups: &SumsByCgroup,
) -> (Vec<FindingResult>, BTreeSet<usize>) {
    let mut requested = BTreeSet::new();
    let of_phase = |truth: Truth| {
        requested.append(&mut finding::requested(report, readings, &truth));
        let evidence =
            Evidence { report: Some(report), readings: Some(readings), truth: Some(&truth), ..Evidence::default() };
        let findings = finding::evaluate(&evidence, &ValueLimits::default());
        findings.into_iter().find(|finding| finding.kind == Kind::RequestedAsMoved)
    };
    let findings = truths(report, seen, figures, cgroups).into_iter().filter_map(of_phase).collect();
    (findings, requested)
}

/// Returns the truth between the reports at the beginning and at the end of each such phase. The
/// workload makes no calls while either report is made.
fn truths(report: &Report, seen: &ToolFigures, figures: &RunFigures, cgroups: &SumsByCgroup) -> Vec<Truth> {
    let reported = || seen.output.iter().filter(|piece| is_of(report, piece)).map(|piece| piece.monotonic_ns);
    let mut truths = Vec::new();
    for phase in &figures.phases {
        let Ok(path) = phase.name.parse::<IoPath>() else { continue };
        let (before, after) = (phase.interval.before.monotonic_ns, phase.interval.after.monotonic_ns);
        let from = reported().filter(|&at_ns| at_ns <= before).max();
        let to = reported().filter(|&at_ns| at_ns >= after).min();
        let (Some(from_ns), Some(to_ns)) = (from, to) else { continue };
        let mount = phase.mount.as_ref().unwrap_or(&figures.mount);
        let share = |(&operation, totals): (&_, &bpfassay_protocol::operation::Totals)| {
            let requested = path.requested(totals.bytes)?;
            Some(CallShare {
                cgroup: cgroups.names(figures.cgroup),
                mount: mount_names(Some(&mount.path), mount.device, mount.id, &BTreeSet::new()),
                process: of_operation(figures, cgroups, phase, operation),
                is_file: true,
                file_system: Some(mount.file_system.clone()),
                operation,
                variant: None,
                calls: totals.calls,
                errors: Some(totals.errors),
                bytes_returned: Some(totals.bytes),
                bytes_requested: Some(requested),
            })
        };
        let shares: Vec<CallShare> = phase.moved.iter().filter_map(share).collect();
        if !shares.is_empty() {
            truths.push(Truth { from_ns, to_ns, shares, units: CountedUnit::ALL.to_vec(), ..Truth::default() });
        }
    }
    truths
}
