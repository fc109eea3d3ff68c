//! The tables of costs: what each probe configuration adds to each call, in instructions, and how long its programs run.

use bpfassay_study::Clock;

use super::{
    rows::{Remarks, Table, differ},
    words::{self, NONE},
};
use crate::{
    Figure, Results,
    results::{Basis, Unit},
};

/// The table, where the clock counts instructions and there is something to compare.
pub(super) fn table(results: &Results) -> Option<Table> {
    if results.plan.study.clock != Clock::Instructions {
        return None;
    }
    let many_cases = differ(results, |cell| cell.case.as_str());
    let many_file_systems = differ(results, |cell| cell.file_system.as_str());
    let mut columns = vec!["target"];
    columns.extend(many_cases.then_some("workload"));
    columns.extend(many_file_systems.then_some("file system"));
    columns.extend(["probe", "access", "calls", "instructions per call [95 %]", "per MiB", "n"]);
    let mut remarks = Remarks::default();
    let (mut rows, mut elapsed, mut of_rounds) = (Vec::new(), false, false);
    for cell in results.cells.iter().filter(|cell| cell.runs.measured > 0) {
        // What tells a figure of merit tells no calls that it could be divided by.
        for (index, access) in cell.accesses.iter().filter(|access| access.merit.is_none()).enumerate() {
            let is_baseline = cell.is_baseline();
            let figure = if is_baseline { &access.control_cost } else { &access.cost };
            let once = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
            let mut row = vec![once(&cell.target.to_string())];
            row.extend(many_cases.then(|| once(&cell.case)));
            row.extend(many_file_systems.then(|| once(&cell.file_system)));
            row.extend([once(&cell.under_test()), access.access.to_string()]);
            let Some(cost) = figure.value() else {
                let reason = figure.reason().unwrap_or_default().to_owned();
                row.extend([
                    "-".to_owned(),
                    format!("{NONE} {}", remarks.mark(reason)),
                    NONE.to_owned(),
                    "-".to_owned(),
                ]);
                rows.push(row);
                continue;
            };
            elapsed |= cost.basis == Basis::Elapsed;
            of_rounds |= cost.unit == Unit::Rounds;
            let prefix = if is_baseline { "A/A " } else { "" };
            let mark = if cost.basis == Basis::Elapsed { " *" } else { "" };
            row.extend([
                cost.calls.to_string(),
                format!("{prefix}{}{mark}", words::instructions(&cost.per_call)),
                words::number(cost.per_mib.value),
                cost.per_call.n.to_string(),
            ]);
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut legend = vec![
        "instructions per call: of the whole guest between the barriers of a phase, beyond the baseline's of the same round, / calls \
         of the workload; counts instructions, not cycles: cache misses and traps are not priced."
            .to_owned(),
        "A/A: the same for the second baseline run, the noise floor.".to_owned(),
    ];
    if elapsed {
        legend.push("*: time in which the guest waits is in it, because the kernel does not tell it.".to_owned());
    }
    if of_rounds {
        legend
            .push("n counts rounds within one boot: the interval does not cover the spread between boots.".to_owned());
    }
    Some(Table {
        title: vec![format!("cost of each probe configuration, study {}, clock instructions", results.plan.study.name)],
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows,
        warnings: Vec::new(),
        remarks: remarks.0,
        legend,
    })
}

/// The table of run times, where the kernel kept statistics: a row for each program that ran, and one for all of them.
pub(super) fn run_times(results: &Results) -> Option<Table> {
    let many_cases = differ(results, |cell| cell.case.as_str());
    let many_file_systems = differ(results, |cell| cell.file_system.as_str());
    let mut columns = vec!["target"];
    columns.extend(many_cases.then_some("workload"));
    columns.extend(many_file_systems.then_some("file system"));
    columns.extend(["probe", "program", "runs", "ns per run", "calls counted", "ns per call"]);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        let mut figures: Vec<[String; 5]> = Vec::new();
        for time in cell.run_times.iter().filter(|time| time.runs > 0) {
            let per_run = time.per_run_ns.value().map_or_else(|| NONE.to_owned(), |&value| words::number(value));
            figures.push([time.program.clone(), time.runs.to_string(), per_run, "-".to_owned(), "-".to_owned()]);
        }
        if let Some(all) = &cell.event_time {
            let runs = cell.run_times.iter().fold(0u64, |sum, time| sum.saturating_add(time.runs));
            let per_event = match &all.per_event_ns {
                Figure::Value(value) => words::number(*value),
                Figure::NotMeasured(reason) => format!("{NONE} {}", remarks.mark(reason.to_string())),
            };
            let [all_programs, none] = ["all".to_owned(), "-".to_owned()];
            figures.push([all_programs, runs.to_string(), none, all.events.to_string(), per_event]);
        }
        for (index, figures) in figures.into_iter().enumerate() {
            let once = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
            let mut row = vec![once(&cell.target.to_string())];
            row.extend(many_cases.then(|| once(&cell.case)));
            row.extend(many_file_systems.then(|| once(&cell.file_system)));
            row.push(once(&cell.under_test()));
            row.extend(figures);
            rows.push(row);
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: vec![format!("run time of programs by the kernel's own statistics, clock {}", results.plan.study.clock)],
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows,
        warnings: Vec::new(),
        remarks: remarks.0,
        legend: vec![
            whose_time(results),
            "from runs of their own, which are compared with no others: the statistics cost two readings of the clock per event, \
             partly within the time. Of the programs alone, without the hooks that lead to them, and of all calls in the guest; \
             programs that never ran are left out."
                .to_owned(),
            "ns per call: of all programs together, those for other system calls included, / calls counted.".to_owned(),
        ],
    })
}

/// What a nanosecond of the guest's clock is worth.
fn whose_time(results: &Results) -> String {
    if results.plan.study.clock == Clock::Instructions {
        return "ns: of the instruction clock, 1 ns each: instructions of the guest, not time of any processor."
            .to_owned();
    }
    let emulated =
        results.cells.iter().any(|cell| results.provenance.iter().any(|of| of.is_emulated(cell.target.arch)));
    if !emulated {
        "ns: of the guest's clock, under KVM.".to_owned()
    } else {
        "ns: of the guest's clock, under TCG: time of the emulator, not of the processor that it stands for.".to_owned()
    }
}
