// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of what program sets counted of each workload: a row per event, over all
//! configurations with the event's set.

use std::collections::{BTreeMap, HashMap};

use bpfassay_protocol::program_set::{ProgramEvent, ProgramSets};
use bpfassay_study::Target;

use crate::{
    derive::lookup::by_cell,
    labels::{NONE, number},
    render::table::TextTable,
};
use bpfassay_results::{EventFigure, Results, RunResult};

/// The text if a set counted none of the expected events.
const NOT_SEEN: &str = "NOT SEEN";

/// Target, workload and file system.
type EventPlace<'a> = (&'a Target, &'a str, &'a str);

/// The counts of one event in the runs of one place.
#[derive(Default)]
struct EventCounts {
    runs: u64,
    /// Calls in each run, over all phases.
    counted: Vec<u64>,
    /// Calls in each run that the workload reports; `None` if it does not count them.
    reported: Vec<Option<u64>>,
    /// counted − reported of every phase: calls, bytes, errors.
    differences: Vec<[i64; 3]>,
    time_ns: u64,
    calls: u64,
    /// The number of phases without a reading.
    not_measured: u64,
}

impl EventCounts {
    /// Whether every phase has a reading, and none has a call.
    fn is_nothing(&self) -> bool {
        self.not_measured == 0 && self.counted.iter().all(|calls| *calls == 0)
    }

    /// Formats the figures of a row.
    fn figures(&self) -> [String; 5] {
        let calls = match self.counted.is_empty() {
            _ if self.is_nothing() => NOT_SEEN.to_owned(),
            true => NONE.to_owned(),
            false => range(self.counted.iter().copied()),
        };
        let reported: Option<Vec<u64>> = self.reported.iter().copied().collect();
        let reported = reported.map_or_else(|| "-".to_owned(), |reported| range(reported.into_iter()));
        let time = match self.calls {
            0 => "-".to_owned(),
            _ if self.time_ns == 0 => "-".to_owned(),
            calls => number(self.time_ns as f64 / calls as f64),
        };
        [self.runs.to_string(), calls, reported, difference(&self.differences), time]
    }
}

/// Creates the table, if program sets were attached.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let mut rows = Vec::new();
    let mut warnings = Vec::new();
    for ((target, case, file_system), events) in counts_by_place(results) {
        for (event, seen) in events {
            if seen.is_nothing() {
                warnings.push(format!("{target}, {case}, {file_system}: the set {} saw no {event}", event.set()));
            }
            let place = [target.to_string(), case.to_owned(), file_system.to_owned()];
            let event = [event.set().to_string(), event.to_string()];
            rows.push([&place[..], &event, &seen.figures()].concat());
        }
    }
    let columns = [
        "target",
        "workload",
        "file system",
        "set",
        "event",
        "runs",
        "calls",
        "workload's own",
        "error",
        "ns per call",
    ];
    (!rows.is_empty()).then(|| TextTable {
        rows,
        warnings,
        legend: vec![
            "calls: of the workload's cgroup in its timed phases, in each run; runs of all configurations that have the set."
                .to_owned(),
            "error: counted by the set - made by the workload, in calls, bytes and failures, over all phases; 0 is exact, - is not known."
                .to_owned(),
        ],
        ..TextTable::new("what program sets saw of the workload", columns)
    })
}

/// Counts the events of each place with program sets, in the order of the cells.
fn counts_by_place(results: &Results) -> Vec<(EventPlace<'_>, BTreeMap<ProgramEvent, EventCounts>)> {
    let mut places: Vec<(EventPlace<'_>, BTreeMap<ProgramEvent, EventCounts>)> = Vec::new();
    let runs = by_cell(&results.runs);
    let mut known: HashMap<EventPlace<'_>, usize> = HashMap::new();
    for cell in results.cells.iter().filter(|cell| cell.probe.sets != ProgramSets::NONE) {
        let place: EventPlace<'_> = (&cell.target, &cell.case, &cell.file_system);
        let index = *known.entry(place).or_insert_with(|| {
            places.push((place, BTreeMap::new()));
            places.len() - 1
        });
        for run in runs.get(cell.cell.as_str()).into_iter().flatten() {
            add(&mut places[index].1, run);
        }
    }
    places
}

fn add(events: &mut BTreeMap<ProgramEvent, EventCounts>, run: &RunResult) {
    let mut of_run = BTreeMap::<ProgramEvent, Vec<&EventFigure>>::new();
    for figure in run.derived.iter().flat_map(|derived| &derived.events) {
        of_run.entry(figure.event).or_default().push(figure);
    }
    for (event, figures) in of_run {
        let seen = events.entry(event).or_default();
        let calls = |pick: fn(&EventFigure) -> Option<u64>| {
            figures.iter().filter_map(|figure| pick(figure)).fold(0u64, u64::saturating_add)
        };
        let counted = calls(|figure| Some(figure.counted.value()?.calls));
        seen.runs += 1;
        seen.not_measured += figures.iter().filter(|figure| figure.counted.value().is_none()).count() as u64;
        if figures.iter().any(|figure| figure.counted.value().is_some()) {
            seen.counted.push(counted);
        }
        let is_reported = figures.iter().any(|figure| figure.workload.value().is_some());
        seen.reported.push(is_reported.then(|| calls(|figure| Some(figure.workload.value()?.calls))));
        seen.calls = seen.calls.saturating_add(counted);
        seen.time_ns = seen.time_ns.saturating_add(calls(|figure| figure.time_ns.value().copied()));
        let differences = figures.iter().filter_map(|figure| figure.difference.value());
        seen.differences.extend(differences.map(|one| [one.calls.unwrap_or(0), one.bytes, one.errors]));
    }
}

/// Formats `5`, or `5..7`.
fn range<T: Ord + Copy + ToString>(values: impl Iterator<Item = T>) -> String {
    let values: Vec<T> = values.collect();
    match (values.iter().min(), values.iter().max()) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) => format!("{}..{}", least.to_string(), most.to_string()),
        _ => "-".to_owned(),
    }
}

/// Formats `0` if all differences are 0, or else those that are not.
fn difference(differences: &[[i64; 3]]) -> String {
    if differences.is_empty() {
        return "-".to_owned();
    }
    let parts = ["calls", "bytes", "failures"].into_iter().enumerate().filter_map(|(index, what)| {
        let of = || differences.iter().map(|one| one[index]);
        of().any(|difference| difference != 0).then(|| format!("{} {what}", range(of())))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "0".to_owned() } else { parts.join(", ") }
}
