// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bill of a tool: all that it costs on one target, each figure with its unit, or why it was
//! not measured.

use bpfassay_protocol::message::BYSTANDER_PREFIX;
use bpfassay_results::{CellResult, Direct, Figure, Loaded, NO_COUNTS, Results};
use bpfassay_study::Series;

use super::study;
use crate::{
    derive::tool_results::{NOT_TIMED, has_sign, is_timed, map_bytes},
    labels,
};

const NOT_READY: &str = "the tool was not ready in any run";

/// The bill of a tool in a cell.
pub(super) struct Bill {
    /// Instructions on the tool's path per call of the workload.
    pub(super) traced: Figure<String>,
    /// The same per call of the bystander.
    pub(super) untraced: Figure<String>,
    /// CPU time of the tool's processes in an idle guest, as a share of one CPU.
    pub(super) idle: Figure<f64>,
    /// CPU time of the tool's processes per reported event, in nanoseconds.
    pub(super) per_event_ns: Figure<f64>,
    /// Memory of maps, programs and processes, in bytes.
    pub(super) memory: [Figure<u64>; 3],
    /// Times to attach and to detach, in nanoseconds.
    pub(super) times_ns: [Figure<u64>; 2],
}

/// Returns the bill of `cell`; `None` for a cell without a tool from a tool file, and if tools are
/// only loaded.
pub(super) fn of(results: &Results, cell: &CellResult) -> Option<Bill> {
    let tool = results.plan.study.tool(cell.tool.as_ref()?)?;
    cell.tool_result.as_ref()?;
    if study::loads_only(results, &cell.case) {
        return None;
    }
    let loaded = || cell.loaded().ok_or(NOT_READY);
    let timed = || match is_timed(&results.plan, &results.provenance, cell.target.arch) {
        true => loaded(),
        false => Err(NOT_TIMED),
    };
    let of_metrics: Vec<_> =
        cell.metrics.iter().filter_map(|metric| Some((&*metric.name, metric.direct.as_ref()?))).collect();
    let of_bystander: Vec<_> = cell.bystander.iter().map(|cost| (short(&cost.name), &cost.direct)).collect();
    Some(Bill {
        traced: per_call(&of_metrics, NO_COUNTS),
        untraced: per_call(&of_bystander, "the workload has no bystander"),
        idle: timed().and_then(idle).into(),
        per_event_ns: timed().and_then(per_event_ns).into(),
        memory: [
            loaded()
                .map_err(str::to_owned)
                .and_then(|loaded| map_bytes(loaded, Series::of(&cell.target.kernel)))
                .into(),
            loaded().and_then(program_bytes).into(),
            loaded().and_then(|loaded| loaded.resident_bytes.ok_or("the memory of its processes is not known")).into(),
        ],
        times_ns: [
            timed()
                .and_then(|loaded| has_sign(tool).then_some(loaded.ready_ns).ok_or("nothing shows when it is ready"))
                .into(),
            timed().and_then(|loaded| loaded.stop_ns.ok_or("the tool was killed")).into(),
        ],
    })
}

/// Returns the tools in the order of the study, each with its cells.
pub(super) fn cells_by_tool(results: &Results) -> Vec<(&str, Vec<&CellResult>)> {
    let mut tools: Vec<(&str, Vec<&CellResult>)> = Vec::new();
    for cell in &results.cells {
        let Some(tool) = cell.tool.as_deref() else { continue };
        match tools.iter_mut().find(|(known, _)| *known == tool) {
            Some((_, cells)) => cells.push(cell),
            None => tools.push((tool, vec![cell])),
        }
    }
    tools
}

/// Returns the name of a bystander's calls without what all have in common: `write`.
pub(super) fn short(name: &str) -> &str {
    name.strip_prefix(BYSTANDER_PREFIX).unwrap_or(name)
}

/// Formats direct costs: `write 529.0, read 530.2`.
fn per_call(costs: &[(&str, &Figure<Direct>)], why_none: &str) -> Figure<String> {
    let reason = costs.iter().find_map(|(_, direct)| direct.reason());
    match (costs.is_empty(), reason) {
        (true, _) => Figure::missing(why_none),
        (_, Some(reason)) => Figure::missing(reason),
        _ => {
            let word =
                |(name, direct): &(&str, &Figure<Direct>)| Some(format!("{name} {}", labels::direct(direct.value()?)));
            Figure::Value(costs.iter().filter_map(word).collect::<Vec<_>>().join(", "))
        }
    }
}

fn idle(loaded: &Loaded) -> Result<f64, &'static str> {
    let processor = loaded.processor.ok_or("its CPU time was not read")?;
    Ok(processor.idle_us as f64 * 1000.0 / processor.idle_ns as f64)
}

fn per_event_ns(loaded: &Loaded) -> Result<f64, &'static str> {
    let processor = loaded.processor.ok_or("its CPU time was not read")?;
    match loaded.events {
        None => Err("the tool reports no single events"),
        Some(0) => Err("the tool reported no event"),
        Some(events) => Ok(processor.working_us as f64 * 1000.0 / events as f64),
    }
}

fn program_bytes(loaded: &Loaded) -> Result<u64, &'static str> {
    let of_all = loaded.programs.iter().map(|program| program.memory_bytes).sum::<Option<u64>>();
    of_all.ok_or("the kernel does not report the memory of each program")
}

/// Formats a size: `84 KiB`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Formats a time in milliseconds: `812.3 ms`.
pub(super) fn time(nanoseconds: u64) -> String {
    format!("{:.1} ms", nanoseconds as f64 / 1e6)
}

/// Formats a time in seconds: `0.81 s`.
fn seconds(nanoseconds: u64) -> String {
    format!("{:.2} s", nanoseconds as f64 / 1e9)
}

/// Formats a share: `0.03 %`, or `0 %` for nothing at all.
pub(super) fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.01 => format!("{percent:.4} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// Formats what the tool of `cells` costs apart from its calls, from the smallest to the largest
/// figure: `idle CPU 0.03 %, kernel 84 KiB, process 4.1 MiB, attach 0.81 s, detach 0.02 s`.
/// `None` if nothing of that was measured.
pub(super) fn in_words(results: &Results, cells: &[&CellResult]) -> Option<String> {
    let bills: Vec<Bill> = cells.iter().filter_map(|cell| of(results, cell)).collect();
    let kernel = |bill: &Bill| {
        let [maps, programs, _] = &bill.memory;
        Some(maps.value()? + programs.value()?)
    };
    let parts = [
        range("idle CPU", bills.iter().filter_map(|bill| bill.idle.value().copied()), share),
        range("kernel", bills.iter().filter_map(kernel), size),
        range("process", bills.iter().filter_map(|bill| bill.memory[2].value().copied()), size),
        range("attach", bills.iter().filter_map(|bill| bill.times_ns[0].value().copied()), seconds),
        range("detach", bills.iter().filter_map(|bill| bill.times_ns[1].value().copied()), seconds),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats the smallest and the largest of `figures`.
fn range<T: PartialOrd + Copy>(name: &str, figures: impl Iterator<Item = T>, shown: fn(T) -> String) -> Option<String> {
    let ends = figures.fold(None, |ends: Option<(T, T)>, figure| match ends {
        None => Some((figure, figure)),
        Some((low, high)) => Some((if figure < low { figure } else { low }, if figure > high { figure } else { high })),
    });
    let (low, high) = ends?;
    Some(match (shown(low), shown(high)) {
        (low, high) if low == high => format!("{name} {low}"),
        (low, high) => {
            let (number, unit) = low.rsplit_once(' ').unwrap_or((&low, ""));
            let low = if high.ends_with(&format!(" {unit}")) { number } else { &low };
            format!("{name} {low} to {high}")
        }
    })
}
