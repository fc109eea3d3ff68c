// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of the other tools under test.

use std::collections::BTreeSet;

use bpfassay_protocol::{
    ProbeConfiguration,
    job::RunSpec,
    probe::{MapLayout, Probe},
    tool_job::Tool,
};
use bpfassay_tool::CountedUnit;

use crate::{
    Study, Target, expectation,
    plan::{LeftOut, PlannedRun},
};

/// The tools under test that support `target`.
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
            // An architecture without any supported kernel is reported once.
            if known.insert((&tool.file.name, target.arch, reason.clone())) {
                left_out.push(LeftOut { what: format!("tool {} on {}", tool.file.name, target.arch), reason });
            }
        }
    }
    left_out
}

/// The bundled tracer's configuration that serves as reference tracer on `target`. It counts
/// exactly, and no known refusal of the kernel concerns it.
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

/// Reference tracers for a tool that reports figures. If some figures are requested bytes, a second
/// tracer with the same kind of probe at function entry counts those. Reference tracers count by
/// thread and variant, which takes longer, so their runs are compared with no others.
fn reference_probes(study: &Study, target: &Target, tool: &Tool) -> Vec<(&'static str, ProbeConfiguration)> {
    let Some(report) = study.tool(&tool.name).and_then(|known| known.file.report.as_ref()) else { return Vec::new() };
    let requested = report.figures.iter().any(|figure| figure.unit == CountedUnit::BytesRequested);
    let returned = reference_probe(study, target);
    let entry = match returned.probe {
        Probe::Fexit => Some(Probe::Fentry),
        Probe::Kretprobe => Some(Probe::Kprobe),
        // No other probe has a counterpart at function entry, so requested bytes stay unknown.
        _ => None,
    };
    let second = entry.filter(|_| requested).map(|entry| ("-requested", ProbeConfiguration::with_defaults(entry)));
    let all = std::iter::once(("", returned)).chain(second);
    all.map(|(what, probe)| (what, ProbeConfiguration { map: MapLayout::Threads, ..probe })).collect()
}

/// Builds the runs with reference tracers: one or two for each tool whose tool file declares
/// figures. Two tracers cost more than one, so a separate round keeps these runs out of
/// comparisons.
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
