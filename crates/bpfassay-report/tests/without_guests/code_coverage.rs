// SPDX-License-Identifier: MIT OR Apache-2.0
//! The code coverage of programs: summed over runs, on the page, and as a tracefile of lcov that an
//! independent reader parses.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::{collections::BTreeMap, process::Command};

use bpfassay_report::{
    derive,
    render::{FormatError, code_coverage_html, html, lcov},
};
use bpfassay_results::{
    BootCoverage, CodeCoverage, CoveredBranch, Figure, JournalContents, JournalEntry, Outcome, ProgramExecutions,
    ProgramLines, ProgramSource, Results, RunCoverage, SourceBranch, SourceLine,
};
use bpfassay_study::PlannedRun;

use crate::common::{contents, figures, study};

fn line(file: u32, line: u32, text: &str) -> SourceLine {
    SourceLine { file, line, text: text.to_owned() }
}

/// Creates a program with two conditions in a line, a line that never runs, and one of a header;
/// and a program without line information.
fn programs() -> Vec<ProgramSource> {
    let lines = ProgramLines {
        files: ["/src/a.h", "/src/on_read.bpf.c"].map(str::to_owned).into(),
        lines: vec![
            line(0, 3, "static int add(void) { return 1; }"),
            line(1, 10, "\tif (a && b)"),
            line(1, 11, "\t\treturn add();"),
            line(1, 12, "\tif (broken)"),
            line(1, 13, "\t\treturn -1; // </td><script>alert(1)</script>"),
        ],
        branches: vec![
            SourceBranch { line: 1, column: 6 },
            SourceBranch { line: 1, column: 11 },
            SourceBranch { line: 3, column: 6 },
            SourceBranch { line: 4, column: 2 },
        ],
    };
    vec![
        ProgramSource { program: "on_read".to_owned(), lines: Figure::Value(lines) },
        ProgramSource { program: "bare".to_owned(), lines: Figure::missing("it was loaded without line information") },
    ]
}

fn executions() -> Vec<ProgramExecutions> {
    let lines = vec![4, 10, 4, 6, 0];
    let branches = vec![Some([3, 7]), Some([3, 4]), Some([6, 0]), Some([0, 0])];
    vec![
        ProgramExecutions { program: 0, lines, branches },
        ProgramExecutions { program: 1, lines: Vec::new(), branches: Vec::new() },
    ]
}

/// Creates the journal of the made-up study with two rounds, in which runs with a tool executed
/// `programs`.
fn covered(
    programs: Vec<ProgramSource>,
    of_run: impl Fn(&PlannedRun) -> Figure<Vec<ProgramExecutions>>,
) -> JournalContents {
    let mut contents =
        contents(&study(None, 2, 1), |_, run| Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0))));
    let blocks = contents.header.plan.blocks.clone();
    for entry in &mut contents.entries {
        let JournalEntry::BlockEnded(ended) = entry else { continue };
        let block = blocks.iter().find(|block| block.id == ended.block).unwrap();
        let runs = block.runs.iter().filter(|run| !run.spec.probe.is_baseline() && !run.warm_up);
        let runs = runs.map(|run| RunCoverage { run: run.spec.id.clone(), programs: of_run(run) }).collect();
        ended.code_coverage = Some(Figure::Value(BootCoverage { programs: programs.clone(), runs }));
    }
    contents
}

fn found(results: &Results) -> Vec<&Figure<CodeCoverage>> {
    results.cells.iter().filter_map(|cell| cell.code_coverage.as_ref()).collect()
}

#[test]
fn lines_and_branches_are_summed_over_the_runs_of_a_cell() {
    let results = derive(&covered(programs(), |_| Figure::Value(executions())));
    let cells = results.cells.iter().filter(|cell| !cell.is_baseline());
    assert!(results.cells.iter().all(|cell| cell.is_baseline() == cell.code_coverage.is_none()));
    assert!(cells.count() >= 4);
    for coverage in found(&results) {
        let CodeCoverage { runs, programs } = coverage.value().unwrap();
        assert_eq!(*runs, 2);
        let [bare, on_read] = programs.as_slice() else { panic!("{programs:?}") };
        assert_eq!(
            (bare.program.as_str(), bare.lines.reason()),
            ("bare", Some("it was loaded without line information"))
        );
        let lines = on_read.lines.value().unwrap();
        let counts: Vec<_> = lines.lines.iter().map(|line| (line.line, line.executions)).collect();
        assert_eq!(counts, [(3, 8), (10, 20), (11, 8), (12, 12), (13, 0)]);
        let branch = |column, outcomes| CoveredBranch { column, outcomes };
        assert_eq!(lines.lines[1].branches, [branch(6, Some([6, 14])), branch(11, Some([6, 8]))]);
        assert_eq!((lines.ran(), lines.outcomes()), ((4, 5), (5, 8)));
    }
}

#[test]
fn a_branch_that_one_run_does_not_tell_is_not_told() {
    let results = derive(&covered(programs(), |run| {
        let mut executions = executions();
        if run.round == 2 {
            executions[0].branches[0] = None;
        }
        Figure::Value(executions)
    }));
    let lines = found(&results)[0].value().unwrap().programs[1].lines.value().unwrap();
    let outcomes: Vec<_> = lines.lines[1].branches.iter().map(|branch| branch.outcomes).collect();
    assert_eq!(outcomes, [None, Some([6, 8])]);
}

#[test]
fn what_was_not_measured_has_its_reason() {
    let reasons = |contents: &JournalContents| {
        let results = derive(contents);
        found(&results).into_iter().map(|coverage| coverage.reason().map(str::to_owned)).collect::<Vec<_>>()
    };
    let all = |reasons: Vec<Option<String>>, part: &str| {
        assert!(
            !reasons.is_empty() && reasons.iter().flatten().filter(|why| why.contains(part)).count() == reasons.len(),
            "{reasons:?}"
        );
    };
    all(reasons(&covered(programs(), |_| Figure::missing("nothing was counted"))), "nothing was counted");
    // One of two runs is enough to know its executions.
    let half = derive(&covered(programs(), |run| match run.round {
        1 => Figure::Value(executions()),
        _ => Figure::missing("nothing was counted"),
    }));
    assert!(found(&half).iter().all(|coverage| coverage.value().unwrap().runs == 1));
    // Somebody changed the journal.
    let cut = |_: &PlannedRun| {
        let mut executions = executions();
        executions[0].lines.pop();
        Figure::Value(executions)
    };
    all(reasons(&covered(programs(), cut)), "contradicts itself");
    all(reasons(&covered(Vec::new(), |_| Figure::Value(executions()))), "does not have the source lines");
    let without = contents(&study(None, 2, 1), |_, run| Outcome::Measured(Box::new(figures(run.spec.probe, 1.0, 1.0))));
    assert!(reasons(&without).is_empty());
    assert!(matches!(lcov(&derive(&without)), Err(FormatError::NoCoverage)));
    assert!(!html(&derive(&without)).unwrap().contains("id=\"code-coverage\""));
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Section {
    test: String,
    file: String,
    lines: BTreeMap<u32, u64>,
    /// Executions by line, block and branch; `None` for a branch that was never reached.
    branches: BTreeMap<(u32, u32, u32), Option<u64>>,
}

/// Reads tracefiles more strictly than lcov: it requires the records of geninfo(1), in order, with
/// correct sums.
fn read(text: &str) -> Result<Vec<Section>, String> {
    let mut sections = Vec::new();
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(first) = lines.next() {
        let part = |line: Option<&str>, name: &str| -> Result<String, String> {
            let line = line.ok_or("it is cut off")?;
            Ok(line.strip_prefix(name).ok_or_else(|| format!("{line:?} where {name} has to be"))?.to_owned())
        };
        let numbers = |text: &str| -> Result<Vec<u64>, String> {
            text.split(',')
                .map(|number| number.parse().map_err(|_| format!("{number:?} in {text:?} is no number")))
                .collect()
        };
        let mut section =
            Section { test: part(Some(first), "TN:")?, file: part(lines.next(), "SF:")?, ..Section::default() };
        if !section.test.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') || section.file.is_empty() {
            return Err(format!("{section:?}"));
        }
        while let Some(branch) = lines.next_if(|line| line.starts_with("BRDA:")) {
            let (place, taken) = branch["BRDA:".len()..].rsplit_once(',').ok_or("a branch without a count")?;
            let [line, block, branch] = numbers(place)?[..] else { return Err(format!("{place:?}")) };
            let taken = if taken == "-" { None } else { Some(numbers(taken)?[0]) };
            section.branches.insert((line as u32, block as u32, branch as u32), taken);
        }
        if !section.branches.is_empty() {
            let hit = section.branches.values().filter(|taken| taken.is_some_and(|count| count > 0)).count();
            let sums = [part(lines.next(), "BRF:")?, part(lines.next(), "BRH:")?];
            if sums != [section.branches.len().to_string(), hit.to_string()] {
                return Err(format!("{sums:?} of {section:?}"));
            }
        }
        while let Some(line) = lines.next_if(|line| line.starts_with("DA:")) {
            let [line, count] = numbers(&line["DA:".len()..])?[..] else { return Err(line.to_owned()) };
            section.lines.insert(line as u32, count);
        }
        let hit = section.lines.values().filter(|count| **count > 0).count();
        let sums = [part(lines.next(), "LF:")?, part(lines.next(), "LH:")?];
        if sums != [section.lines.len().to_string(), hit.to_string()]
            || !part(lines.next(), "end_of_record")?.is_empty()
        {
            return Err(format!("{sums:?} of {section:?}"));
        }
        sections.push(section);
    }
    Ok(sections)
}

#[test]
fn a_tracefile_has_what_the_results_have() {
    let results = derive(&covered(programs(), |_| Figure::Value(executions())));
    let text = lcov(&results).unwrap();
    let sections = read(&text).unwrap_or_else(|problem| panic!("{problem}:\n{text}"));
    assert_eq!(sections.len(), 2 * found(&results).len());
    let last = sections.last().unwrap();
    assert_eq!(last.file, "/src/on_read.bpf.c");
    assert_eq!(last.lines, BTreeMap::from([(10, 20), (11, 8), (12, 12), (13, 0)]));
    let branches = [
        ((10, 0, 0), Some(6)),
        ((10, 0, 1), Some(14)),
        ((10, 1, 0), Some(6)),
        ((10, 1, 1), Some(8)),
        ((12, 0, 0), Some(12)),
        ((12, 0, 1), Some(0)),
        ((13, 0, 0), None),
        ((13, 0, 1), None),
    ];
    assert_eq!(last.branches, branches.into());
    let bare =
        text.lines().filter(|line| line.starts_with("# not measured: ") && line.contains("program bare")).count();
    assert_eq!(bare, found(&results).len());
    let of_one_cell = |line: &&str| line.contains("6.1") || !line.contains("riscv64");
    let golden: Vec<&str> = text.lines().filter(of_one_cell).take(26).collect();
    insta::assert_snapshot!(golden.join("\n"));
    // Check that the reader refuses wrong files.
    for (from, to) in
        [("BRH:", "BRX:"), ("DA:10,20", "DA:10,x"), ("LH:", "LH:1"), ("end_of_record\n", ""), ("TN:", "TN:-")]
    {
        let wrong = text.replace(from, to);
        assert!(wrong != text && read(&wrong).is_err(), "{from} → {to}");
    }
}

/// Compares with lcov itself.
#[test]
fn lcov_reads_a_tracefile() {
    let Some(program) = std::env::var_os("BPFASSAY_LCOV") else {
        eprintln!("skipped: BPFASSAY_LCOV names no lcov");
        return;
    };
    let results = derive(&covered(programs(), |_| Figure::Value(executions())));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lcov(&results).unwrap()).unwrap();
    let output =
        Command::new(program).args(["--rc", "lcov_branch_coverage=1", "--summary"]).arg(file.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // lcov merges sections of one file: 5 lines in two files, of which 4 ran, and 8 outcomes, of
    // which 5 occurred.
    assert!(said.contains("80.0% (4 of 5 lines)") && said.contains("62.5% (5 of 8 branches)"), "{said}");
}

#[test]
fn the_page_shows_lines_with_their_texts_as_text() {
    let results = derive(&covered(programs(), |_| Figure::Value(executions())));
    let page = code_coverage_html(&results).unwrap().unwrap();
    // The report has a link in place of the lines.
    let report = html(&results).unwrap();
    assert!(report.contains("<a href=\"#code-coverage\">") && report.contains("<a href=\"code-coverage.html\">"));
    assert!(!report.contains("lines ran"));
    let cells = found(&results).len() as u64;
    for shown in [
        "on_read</code>: 4 of 5 lines ran, 5 of 8 outcomes of branches came about".to_owned(),
        "<td class=\"bad\">0</td><td>13</td>".to_owned(),
        "kprobe, programs bare; aarch64 6.1 w nfs4.2, ".to_owned(),
        "it was loaded without line information".to_owned(),
    ] {
        assert!(page.contains(&shown), "{shown} is not on the page");
    }
    // Two probe configurations share the cells.
    assert!(page.contains(&format!("<td class=\"open\">{}</td><td>12</td>", 12 * cells / 2)), "{cells}");
    assert!(!page.contains("<script>alert"));
}

/// The largest program alone would make a page of megabytes.
#[test]
fn a_page_has_room_for_so_many_lines_only() {
    let lines: Vec<SourceLine> = (1..=6_001).map(|number| line(0, number, "x")).collect();
    let large = ProgramLines { files: vec!["/src/large.bpf.c".to_owned()], lines, branches: Vec::new() };
    let large = ProgramSource { program: "large".to_owned(), lines: Figure::Value(large) };
    let mut all = programs();
    all.push(large);
    let results = derive(&covered(all, |_| {
        let mut executions = executions();
        executions.push(ProgramExecutions { program: 2, lines: vec![1; 6_001], branches: Vec::new() });
        Figure::Value(executions)
    }));
    let page = code_coverage_html(&results).unwrap().unwrap();
    assert!(page.contains("large</code>: 6001 of 6001 lines ran; the page is full"));
    assert!(page.contains("/src/on_read.bpf.c") && !page.contains("/src/large.bpf.c"));
}
