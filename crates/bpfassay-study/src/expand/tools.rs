// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of other tools under test.

use std::collections::BTreeSet;

use bpfassay_protocol::{
    ProbeConfiguration,
    job::RunSpec,
    probe::{MapLayout, Probe},
    tool::Tool,
};
use bpfassay_tool::Unit;

use crate::{
    Study, Target, expectation,
    plan::{LeftOut, PlannedRun},
};

/// The tools under test that there are for `target`.
pub(super) fn tools_for(study: &Study, target: &Target) -> Vec<Tool> {
    let of_files = study.tool_files.iter().filter_map(|tool| tool.file.for_target(target.arch, &target.kernel).ok());
    study.tools.iter().cloned().chain(of_files).collect()
}

pub(super) fn tools_left_out(study: &Study, targets: &[Target]) -> Vec<LeftOut> {
    let mut left_out: Vec<LeftOut> = Vec::new();
    let mut known = BTreeSet::new();
    for tool in &study.tool_files {
        for target in targets {
            let Err(reason) = tool.file.for_target(target.arch, &target.kernel) else { continue };
            // Once for all kernels of an architecture, where it is for none of them.
            if known.insert((&tool.file.name, target.arch, reason.clone())) {
                left_out.push(LeftOut { what: format!("tool {} on {}", tool.file.name, target.arch), reason });
            }
        }
    }
    left_out
}

/// The configuration of the bundled tracer that stands beside another tool on `target` as its
/// reference tracer: one that counts exactly, and that the kernel is not known to refuse.
fn reference_probe(study: &Study, target: &Target) -> ProbeConfiguration {
    let fexit = ProbeConfiguration::with_defaults(Probe::Fexit);
    if let Some(known) = study.reference {
        return known;
    }
    match expectation::find(&study.expectations, target, fexit) {
        None => fexit,
        Some(_) => ProbeConfiguration::with_defaults(Probe::Kretprobe),
    }
}

/// What a tool's figures are compared with, if it reports any: where some are bytes that were asked
/// for, the same kind of probe at the entry of calls counts those. They count by thread and
/// variant, which takes longer: they are compared with no other run.
fn reference_probes(study: &Study, target: &Target, tool: &Tool) -> Vec<(&'static str, ProbeConfiguration)> {
    let known = study.tool_files.iter().find(|known| known.file.name == tool.name);
    let Some(report) = known.and_then(|known| known.file.report.as_ref()) else { return Vec::new() };
    let requested = report.figures.iter().any(|figure| figure.unit == Unit::BytesRequested);
    let returned = reference_probe(study, target);
    let entry = match returned.probe {
        Probe::Fexit => Some(Probe::Fentry),
        Probe::Kretprobe => Some(Probe::Kprobe),
        // No other probe has one: what calls were asked to move is then not known.
        _ => None,
    };
    let second = entry.filter(|_| requested).map(|entry| ("-requested", ProbeConfiguration::with_defaults(entry)));
    let all = std::iter::once(("", returned)).chain(second);
    all.map(|(what, probe)| (what, ProbeConfiguration { map: MapLayout::Threads, ..probe })).collect()
}

/// One more run of each tool that reports figures, by its tool file, with its reference tracer
/// beside it, or two with one each. A round of their own, so that they are compared with none: two
/// that count cost more than one.
pub(super) fn reference_runs(
    spec: impl Fn(ProbeConfiguration) -> RunSpec,
    study: &Study,
    target: &Target,
    tools: &[Tool],
    place: &str,
    id: &str,
) -> Vec<PlannedRun> {
    let round = study.design.rounds.saturating_add(1);
    let run = |tool: &Tool, (what, reference): (&str, ProbeConfiguration)| PlannedRun {
        spec: RunSpec {
            id: format!("{id}_{}-reference{what}", tool.name),
            tool: Some(tool.clone()),
            sampling_interval_ms: None,
            ..spec(reference)
        },
        cell: format!("{place}_{}", tool.name),
        round,
        control: false,
        warm_up: false,
    };
    let of_tool = |tool| reference_probes(study, target, tool).into_iter().map(move |reference| (tool, reference));
    tools.iter().flat_map(of_tool).map(|(tool, reference)| run(tool, reference)).collect()
}
