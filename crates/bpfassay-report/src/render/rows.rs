//! What a table shows, before it is text or Markdown.

use std::collections::{BTreeMap, HashMap, HashSet};

use bpfassay_protocol::{job::Workload, probe::ByteMeaning};
use bpfassay_stats::Bounds;
use bpfassay_study::{Clock, Interface};

use super::{
    cost, coverage, events, experiment, findings, gates, program_count, tools,
    words::{self, NONE},
};
use crate::{
    FailureKind, Figure, Outcome, Results,
    results::{Attach, CellAccess, CellFailure, CellResult, RunResult, Unit},
};

/// Most lines about doubtful figures below a table.
const MAX_DOUBTS: usize = 20;

/// A table with what stands above and below it.
pub(super) struct Table {
    /// What this is a table of, in lines: in the last one, where there are several.
    pub(super) title: Vec<String>,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Lines that must be read with the table.
    pub(super) warnings: Vec<String>,
    /// Numbered remarks that cells of the table refer to as `[n]`.
    pub(super) remarks: Vec<String>,
    /// How to read the columns.
    pub(super) legend: Vec<String>,
}

/// Remarks, each once.
#[derive(Default)]
pub(super) struct Remarks(pub(super) Vec<String>, HashMap<String, usize>);

impl Remarks {
    pub(super) fn mark(&mut self, remark: String) -> String {
        let number = match self.1.get(&remark) {
            Some(&number) => number,
            None => {
                self.0.push(remark.clone());
                self.1.insert(remark, self.0.len());
                self.0.len()
            }
        };
        format!("[{number}]")
    }
}

/// What comes first: verdicts, and the tables of workloads.
pub(super) fn leading(results: &Results) -> Vec<Table> {
    gates::table(results).into_iter().chain(workloads(results)).collect()
}

/// What comes last: what was found of other tools, pitfalls.
pub(super) fn closing(results: &Results) -> Vec<Table> {
    tools::tables(results).into_iter().chain(findings::table(results)).collect()
}

/// The table of cells with bandwidths, what they cost, and those of other workloads.
pub(super) fn workloads(results: &Results) -> Vec<Table> {
    let mut others = coverage::tables(results);
    let is_other =
        |cell: &bpfassay_study::Cell| matches!(cell.workload, Workload::IoPaths { .. } | Workload::KernelFeatures);
    let has_others_only = results.plan.cells.iter().all(is_other);
    match others.first_mut() {
        // The matrix of kernel features stands for itself.
        None if has_others_only => Vec::new(),
        Some(first) if has_others_only => {
            first.title.insert(0, title(results));
            if let Some(last) = others.last_mut() {
                last.warnings = warnings(results);
            }
            others
        }
        _ => [table(results)]
            .into_iter()
            .chain(cost::table(results))
            .chain(cost::run_times(results))
            .chain(program_count::table(results))
            .chain(events::table(results))
            .chain(others)
            .collect(),
    }
}

fn table(results: &Results) -> Table {
    let many_cases = differ(results, |cell| cell.case.as_str());
    let many_file_systems = differ(results, |cell| cell.file_system.as_str());
    let sampled = results.plan.study.design.sampling_interval_ms.is_some();
    let mut columns = vec!["target"];
    columns.extend(many_cases.then_some("workload"));
    columns.extend(many_file_systems.then_some("file system"));
    columns.extend([
        "probe",
        "attach",
        "access",
        if has_merits(results) { "figure of merit" } else { "MiB/s" },
        "overhead [95 %]",
        "n",
        "detectable",
        "byte error",
        "relative error",
    ]);
    columns.extend(sampled.then_some("relative error, sampled"));

    let has_merits = has_merits(results);
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    for cell in &results.cells {
        let attach = attach(cell, &mut remarks);
        for (index, access) in cell.accesses.iter().enumerate() {
            let once = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
            let mut row = vec![once(&cell.target.to_string())];
            row.extend(many_cases.then(|| once(&cell.case)));
            row.extend(many_file_systems.then(|| once(&cell.file_system)));
            row.extend([once(&cell.under_test()), once(&attach), access.access.to_string()]);
            row.extend(figures(cell, access, sampled, has_merits, &mut remarks));
            rows.push(row);
        }
    }
    Table {
        title: vec![title(results)],
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows,
        warnings: warnings(results),
        legend: legend(results, sampled),
        remarks: remarks.0,
    }
}

/// Whether there are figures of merit beside bandwidths: each then has its unit with it.
fn has_merits(results: &Results) -> bool {
    results.cells.iter().flat_map(|cell| &cell.accesses).any(|access| access.merit.is_some())
}

pub(super) fn differ<'a>(results: &'a Results, of: impl Fn(&'a CellResult) -> &'a str) -> bool {
    let mut values = results.cells.iter().map(of);
    values.next().is_some_and(|first| values.any(|value| value != first))
}

fn figures(
    cell: &CellResult,
    access: &CellAccess,
    sampled: bool,
    has_merits: bool,
    remarks: &mut Remarks,
) -> Vec<String> {
    // Where nothing was measured, the column `attach` says why: a remark for each figure would only repeat it.
    let nothing = cell.runs.measured == 0;
    let mut shown = |text: Option<String>, reason: Option<&str>| match (text, reason) {
        (Some(text), _) => text,
        (None, Some(reason)) if !nothing => format!("{NONE} {}", remarks.mark(reason.to_owned())),
        (None, _) => NONE.to_owned(),
    };
    let is_baseline = cell.is_baseline();
    let compared = if is_baseline { &access.control } else { &access.overhead };
    let prefix = if is_baseline { "A/A " } else { "" };
    let overhead = shown(words::overhead(compared).map(|text| format!("{prefix}{text}")), compared.reason());
    let n = compared.value().map_or_else(|| "-".to_owned(), |overhead| overhead.estimate.n.to_string());
    let detectable = compared.value().and_then(|overhead| overhead.detectable);
    let detectable = detectable.map_or_else(|| "-".to_owned(), words::beyond_one);
    // Other tools are not asked for figures either.
    // Program sets neither, of bytes per mount; nor are workloads that are not IOR.
    let untold = cell.counts.is_none() || access.merit.is_some();
    let not_of_the_baseline = |text: String| if untold && !nothing { "-".to_owned() } else { text };
    // Of the bytes that any other workload tells there are figures in one of its rows.
    let no_bytes = cell.counts.is_none() || (access.merit.is_some() && access.byte_error.value().is_none());
    let mut byte_error = shown(words::byte_error(&access.byte_error), access.byte_error.reason().filter(|_| !no_bytes));
    if no_bytes && !nothing {
        byte_error = "-".to_owned();
    }
    if let Some(calls) = words::byte_error(&access.call_error).filter(|calls| calls != "0") {
        byte_error.push_str(&format!(", calls {calls}"));
    }
    if cell.counts == Some(ByteMeaning::Requested) && access.byte_error.value().is_some() {
        byte_error.push_str(" requested");
    }
    let mut row = vec![
        shown(
            words::performance(access.performance()).map(|text| match &access.merit {
                Some(merit) => format!("{text} {}", merit.unit),
                None if has_merits => format!("{text} MiB/s"),
                None => text,
            }),
            access.performance().reason(),
        ),
        overhead,
        n,
        detectable,
        byte_error,
        not_of_the_baseline(shown(
            words::relative_error(&access.relative_error_ior_interval),
            access.relative_error_ior_interval.reason().filter(|_| !untold),
        )),
    ];
    if sampled {
        row.push(not_of_the_baseline(shown(
            words::relative_error(&access.relative_error_instantaneous),
            access.relative_error_instantaneous.reason().filter(|_| !untold),
        )));
    }
    row
}

pub(super) fn attach(cell: &CellResult, remarks: &mut Remarks) -> String {
    let mut text = match &cell.attach {
        Attach::Baseline if cell.runs.measured > 0 => "baseline".to_owned(),
        Attach::Baseline if cell.failures.is_empty() => "baseline, not run".to_owned(),
        Attach::Baseline => "baseline".to_owned(),
        Attach::Attached { functions, in_spite_of } => {
            let displaced: Vec<&str> = functions.iter().map(String::as_str).filter(|name| name.contains('+')).collect();
            let mut text = "attached".to_owned();
            match displaced.len() {
                0 => {}
                // More of them make the table too wide to read.
                1 | 2 => text = format!("{text} at {}", displaced.join(", ")),
                _ => text = format!("{text} {}", remarks.mark(format!("behind the entry: {}", displaced.join(", ")))),
            }
            if let Some(expectation) = in_spite_of {
                let remark = format!(
                    "attached though errno {} was expected ({}): the expectation is out of date",
                    expectation.errno, expectation.reason
                );
                text = format!("{text}, unexpectedly {}", remarks.mark(remark));
            }
            text
        }
        Attach::Refused { refusal, expectation: Some(expectation), expected: true } => {
            let remark = format!("{}; expected: {} ({})", refusal.message, expectation.reason, expectation.source);
            format!("refused, as expected: {} {}", words::refusal(refusal), remarks.mark(remark))
        }
        Attach::Refused { refusal, expectation, .. } => {
            let mut remark = refusal.message.clone();
            if let Some(line) = &refusal.verifier {
                remark = format!("{remark}; verifier: {line}");
            }
            if let Some(expectation) = expectation {
                remark = format!("{remark}; expected was errno {}", expectation.errno);
            }
            format!("REFUSED: {} {}", words::refusal(refusal), remarks.mark(remark))
        }
        Attach::Unsteady { attached, refused, refusal } => {
            let mark = remarks.mark(refusal.message.clone());
            format!("UNSTEADY: attached in {attached}, refused in {refused} runs: {} {mark}", words::refusal(refusal))
        }
        Attach::Unknown { .. } if cell.failures.is_empty() => "not run".to_owned(),
        Attach::Unknown { .. } => String::new(),
    };
    let mut by_kind = BTreeMap::<FailureKind, Vec<String>>::new();
    for CellFailure { run, failure } in &cell.failures {
        by_kind.entry(failure.kind).or_default().push(remarks.mark(format!("{run}: {failure}")));
    }
    for (kind, marks) in by_kind {
        let failed = match kind {
            // Neither is anything that the tool did in these runs.
            FailureKind::Host | FailureKind::NotTried => format!("not measured: {} {}", kind.words(), marks.join(" ")),
            _ => format!("FAILED: {} {}", kind.words(), marks.join(" ")),
        };
        text = if text.is_empty() { failed } else { format!("{text}; {failed}") };
    }
    let done = cell.runs.measured.saturating_add(cell.runs.refused).saturating_add(cell.runs.failed);
    if done > 0 && done < cell.runs.planned {
        text = format!("{text}; {done} of {} runs done", cell.runs.planned);
    }
    text
}

/// `study quick, clock wall, IOR engine embedded`
fn title(results: &Results) -> String {
    let mut engines: Vec<&str> = Vec::new();
    for cell in &results.plan.cells {
        let Workload::Ior { engine, .. } = &cell.workload else { continue };
        if !engines.contains(&engine.name()) {
            engines.push(engine.name());
        }
    }
    let mut title = format!("study {}, clock {}", results.plan.study.name, results.plan.study.clock);
    if !engines.is_empty() {
        title.push_str(&format!(", IOR engine {}", engines.join(" and ")));
    }
    title
}

/// Runs whose figures are less than exact by their own account.
fn doubts(results: &Results) -> Vec<String> {
    let mut doubts = Vec::new();
    for run in &results.runs {
        let Some(derived) = &run.derived else { continue };
        if let Some(lost) = derived.losses.value().and_then(words::losses) {
            // Counted per program over the whole guest: the byte error tells whether the workload's were among them.
            doubts.push(format!("{}: events lost by the tracer, in the whole guest: {lost}", run.record.run));
        }
    }
    let interpreted = interpreted(results);
    for cell in &results.cells {
        if interpreted.contains(cell.cell.as_str()) {
            doubts.push(format!(
                "{}: the kernel interpreted the programs (BPF JIT off): the overhead is that of the interpreter",
                cell.cell
            ));
        }
        for access in &cell.accesses {
            if let Some(errors) = access.mountstats_error.value().filter(|errors| (errors.min, errors.max) != (0, 0)) {
                let range = words::byte_error(&Figure::Value(*errors)).unwrap_or_default();
                doubts.push(format!(
                    "{}, {}: mountstats differ from the workload's bytes by {range}",
                    cell.cell, access.access
                ));
            }
        }
    }
    if doubts.len() > MAX_DOUBTS {
        let more = doubts.len() - MAX_DOUBTS;
        doubts.truncate(MAX_DOUBTS);
        doubts.push(format!(
            "{more} more such lines are left out here: see `losses` and `mountstats_error` in results.json"
        ));
    }
    doubts
}

/// The cells with a measured run of which a program was not compiled.
fn interpreted(results: &Results) -> HashSet<&str> {
    let is_interpreted = |run: &&RunResult| match &run.record.outcome {
        Outcome::Measured(figures) => {
            figures.tracer.iter().flat_map(|tracer| &tracer.programs).any(|program| program.jited_bytes == 0)
        }
        Outcome::Refused(_) | Outcome::Failed(_) => false,
    };
    results.runs.iter().filter(is_interpreted).map(|run| run.record.cell.as_str()).collect()
}

/// What the clock's figures are worth.
fn warning_of_clock(results: &Results) -> Option<String> {
    if results.plan.study.clock == Clock::Instructions {
        return Some(
            "the clock counts the guest's instructions, 1 ns each, not cycles: cache misses and traps are not priced, and time \
             in which the guest waits passes at once, up to the next timer."
                .to_owned(),
        );
    }
    let provenance = results.provenance.last()?;
    let mut emulated: Vec<_> = results.plan.targets().iter().map(|target| target.arch).collect();
    emulated.dedup();
    emulated.retain(|&arch| provenance.is_emulated(arch));
    let emulated: Vec<String> = emulated.iter().map(ToString::to_string).collect();
    (!emulated.is_empty()).then(|| {
        format!(
            "{} ran under TCG (emulation): bandwidth and overhead in wall-clock time are functional only, no verdict on cost. \
             Byte errors are exact all the same.",
            emulated.join(", ")
        )
    })
}

fn warnings(results: &Results) -> Vec<String> {
    let mut warnings = of_study(results);
    warnings.extend(doubts(results));
    warnings
}

/// What must be known of all figures.
pub(super) fn of_study(results: &Results) -> Vec<String> {
    let mut warnings: Vec<String> = warning_of_clock(results).into_iter().collect();
    warnings.extend(results.plan.left_out.iter().map(|left| format!("left out: {}: {}", left.what, left.reason)));
    warnings.extend(results.notes.iter().cloned());
    warnings.extend(experiment::warnings(results));
    warnings
}

fn legend(results: &Results, sampled: bool) -> Vec<String> {
    let mut legend = vec![
        "overhead: bandwidth of the baseline / bandwidth with the probe (above 1: slower), with 95 % interval; A/A: the baseline \
         against itself, the noise floor."
            .to_owned(),
        "detectable: the smallest overhead that so many observations with such a spread would show with probability 0.8."
            .to_owned(),
        "byte error: bytes traced - bytes moved, smallest..largest over all intervals; `calls`: the same for calls, where not 0; \
         `requested`: the probe counts what callers ask for, not what calls return."
            .to_owned(),
        "relative error: bandwidth by IOR / bandwidth traced, over IOR's own interval (1: exact).".to_owned(),
    ];
    if sampled {
        legend.push(
            "relative error, sampled: the same with the mean of instantaneous bandwidths (as in the CEEMS study), too high by about \
             sampling interval / duration."
                .to_owned(),
        );
    }
    if has_merits(results) {
        legend.push(
            "work: what a workload that is not IOR tells of itself; its overhead is that of the figure of merit, above 1 worse."
                .to_owned(),
        );
    }
    if results.plan.cells.iter().any(|cell| cell.interface == Some(Interface::Mmap)) {
        legend.push(
            "MMAP: no system call moves mapped pages, so a probe on reads and writes misses them: the byte error is all that was \
             moved."
                .to_owned(),
        );
    }
    let overheads = || {
        results
            .cells
            .iter()
            .flat_map(|cell| &cell.accesses)
            .flat_map(|access| [&access.overhead, &access.control])
            .filter_map(Figure::value)
    };
    if let Some(margin) = results.plan.study.design.margin {
        legend
            .push(format!("negligible: shown to lie within {margin} either way (two one-sided tests, over all rows)."));
    }
    let of_rounds =
        overheads().any(|overhead| overhead.unit == Unit::Rounds && overhead.estimate.bounds.interval().is_some());
    if of_rounds {
        legend
            .push("n counts rounds within one boot: the interval does not cover the spread between boots.".to_owned());
    } else if overheads().any(|overhead| overhead.unit == Unit::Boots) {
        legend.push("n counts boots.".to_owned());
    }
    for reason in [Bounds::OneObservation, Bounds::NoSpread] {
        if overheads().any(|overhead| overhead.estimate.bounds == reason)
            && let Some(words) = reason.reason()
        {
            legend.push(format!("no interval: {words}."));
        }
    }
    legend
}
