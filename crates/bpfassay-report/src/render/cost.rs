//! The tables of costs: what each probe configuration adds to each call, in instructions, and how long its programs run.

use bpfassay_study::Clock;

use super::{
    rows::{Remarks, Table, differ},
    words::{self, NONE},
};
use crate::{
    Results,
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
        for (index, access) in cell.accesses.iter().enumerate() {
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
        title: format!("cost of each probe configuration, study {}, clock instructions", results.plan.study.name),
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows,
        warnings: Vec::new(),
        remarks: remarks.0,
        legend,
    })
}

/// The table of run times, where the kernel kept statistics.
pub(super) fn run_times(results: &Results) -> Option<Table> {
    let many_cases = differ(results, |cell| cell.case.as_str());
    let many_file_systems = differ(results, |cell| cell.file_system.as_str());
    let mut columns = vec!["target"];
    columns.extend(many_cases.then_some("workload"));
    columns.extend(many_file_systems.then_some("file system"));
    columns.extend(["probe", "program", "runs", "ns per run"]);
    let mut rows = Vec::new();
    for cell in &results.cells {
        for (index, time) in cell.run_times.iter().enumerate() {
            let once = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
            let mut row = vec![once(&cell.target.to_string())];
            row.extend(many_cases.then(|| once(&cell.case)));
            row.extend(many_file_systems.then(|| once(&cell.file_system)));
            let per_run = time.per_run_ns.value().map_or_else(|| NONE.to_owned(), |&value| words::number(value));
            row.extend([once(&cell.under_test()), time.program.clone(), time.runs.to_string(), per_run]);
            rows.push(row);
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: format!("run time of programs by the kernel's own statistics, clock {}", results.plan.study.clock),
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows,
        warnings: Vec::new(),
        remarks: Vec::new(),
        legend: vec![
            "from runs of their own, which are compared with no others: the statistics cost two readings of the clock per event. \
             Of the program alone, without the hook that leads to it, and of all events in the guest."
                .to_owned(),
        ],
    })
}
