// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of the output of `run` claims no more than the results show, hides no failure, and fits
//! a screen.

use bpfassay_protocol::Arch;
use bpfassay_report::{
    check_results::check,
    derive,
    render::{Screen, github, html, markdown, screen},
};
use bpfassay_results::{Demand, FailureKind, GateResult, Outcome, Results, RunFailure};
use bpfassay_stats::Verdict;
use bpfassay_study::Clock;
use bpfassay_tool::{ToolFile, UnderTest, finding::Kind};

use crate::common::{contents, figures, made_up, matrix, not_supported, outcome, paths, quick, study};

const WIDTH: usize = 80;

fn shown(results: &Results) -> String {
    screen(results, Screen { width: Some(80), symbols: true })
}

/// Creates results in which the host failed each run on riscv64, and the baseline of aarch64 was
/// not done.
fn unfinished() -> Results {
    let mut contents = contents(&study(None, 2, 1), |block, run| match block.target.arch {
        Arch::Riscv64 => Outcome::Failed(RunFailure {
            kind: FailureKind::Host,
            phase: None,
            excerpt: vec!["no such machine today".to_owned()],
            log: None,
            after: None,
        }),
        _ => outcome(block, run),
    });
    contents.entries.retain(|entry| match entry {
        bpfassay_results::JournalEntry::Run(record) => {
            !record.cell.starts_with("aarch64") || !record.cell.ends_with("_none")
        }
        _ => true,
    });
    derive(&contents)
}

#[test]
fn the_recorded_study_is_one_screen() {
    let text = shown(&quick::results());
    assert!(text.lines().count() <= 26, "with the last four lines of `run` more than 30:\n{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn readme_shows_the_screen_of_the_recorded_study() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let checked = check(&quick::folder());
    let fingerprint = checked[0].message.rsplit(' ').next().unwrap();
    let text = format!("{}fingerprint of the raw figures: {fingerprint}\n", shown(&quick::results()));
    let mut readme = std::fs::read_to_string(file).unwrap();
    if std::env::var_os("BPFASSAY_UPDATE_REPORT").is_some() {
        let (before, rest) = readme.split_once("```text\nquick · ").unwrap();
        let (_, after) = rest.split_once("\nit is the recorded one: ").unwrap();
        readme = format!("{before}```text\n{text}it is the recorded one: {after}");
        std::fs::write(file, &readme).unwrap();
    }
    assert!(readme.contains(&format!("```text\n{text}")), "BPFASSAY_UPDATE_REPORT=1 cargo test -p bpfassay-report");
}

/// Splits a text into words, without the marks of Markdown and HTML.
fn words(text: &str) -> Vec<String> {
    text.replace(['\\', '|'], " ").split_whitespace().map(str::to_owned).collect()
}

#[test]
fn reports_begin_with_the_rows_of_the_screen() {
    let quick = quick::results();
    let markdown = markdown(&quick);
    let summary = github(&quick).summary;
    let page = html(&quick).unwrap();
    let rows = shown(&quick).lines().filter(|line| line.starts_with("  ")).map(words).collect::<Vec<_>>();
    // Two lines have the titles and the heads of columns; the first remark takes two lines.
    let rows: Vec<_> = rows.into_iter().filter(|row| row.len() > 8 && row[1].contains('.')).collect();
    assert_eq!(rows.len(), quick.plan.targets().len(), "{rows:?}");
    for text in [&markdown, &summary] {
        let (head, _) = text.split_once("\nstudy quick, clock").unwrap();
        let of_text: Vec<_> = head
            .lines()
            .filter(|line| line.contains(" | ✔ | "))
            .map(|row| words(&row.replace("\\_", "_").replace('\\', "")))
            .collect();
        assert_eq!(of_text, rows, "{head}");
        assert!(head.contains("target | bundled tracer by kprobe: loads | counts | write | read | bundled"), "{head}");
        assert!(
            head.contains("\\[1\\] ENOTSUPP, as expected") && head.contains("instructions per call by fexit"),
            "{head}"
        );
    }
    let (_, matrix) = page.split_once("<div class=\"blocks\">").unwrap();
    let (matrix, _) = matrix.split_once("</div>").unwrap();
    let blocks = matrix.split("<tbody>").skip(1).filter_map(|rest| rest.split("</tbody>").next()).map(|body| {
        let rows = body.split("<tr>").skip(1).map(|row| {
            let mut text = String::new();
            for part in row.split('<').filter_map(|part| part.split_once('>')) {
                text.push_str(part.1);
                text.push(' ');
            }
            words(&text)
        });
        rows.collect::<Vec<_>>()
    });
    let [kprobe, fexit] = blocks.collect::<Vec<_>>().try_into().unwrap();
    for ((row, kprobe), fexit) in rows.iter().zip(kprobe).zip(fexit) {
        assert_eq!([&kprobe[..], &fexit[2..]].concat(), *row);
    }
}

#[test]
fn findings_refusals_failures_and_gates_are_shown() {
    insta::assert_snapshot!(shown(&made_up::with_tool(&[Kind::LeftBehind], Some(Arch::Aarch64))));
}

#[test]
fn what_was_not_measured_is_said() {
    insta::assert_snapshot!(shown(&unfinished()));
}

#[test]
fn without_symbols_there_are_words() {
    let text = screen(&quick::results(), Screen::default());
    assert!(text.contains("yes") && text.contains("no [1]"), "{text}");
    assert!(!text.contains('✔') && !text.contains('✘'), "{text}");
}

#[test]
fn every_sample_fits_the_width() {
    let mut samples = vec![
        ("made up", derive(&contents(&study(None, 3, 1), outcome))),
        ("one round", derive(&contents(&study(None, 1, 1), outcome))),
        ("with a tool", made_up::with_tool(&[Kind::LeftBehind], Some(Arch::Aarch64))),
        ("unfinished", unfinished()),
        ("kernel features", derive(&contents(&matrix::study(""), matrix::outcome))),
        ("sampled", made_up::sampled()),
        ("series", made_up::series(Clock::Instructions)),
        ("paths", paths::results()),
    ];
    for study in ["quick", "kernel-series", "program-count"] {
        samples.push((study, quick::results_of(study)));
    }
    for (name, results) in samples {
        let text = shown(&results);
        for line in text.lines() {
            // One word of a remark can be longer: the name of a file or a message of a kernel.
            let is_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= WIDTH || is_word, "{name}: {line}\n{text}");
        }
        assert!(text.lines().count() <= 90, "{name}: {} lines", text.lines().count());
        assert_eq!(text.lines().filter(|line| line.ends_with(' ')).count(), 0, "{name}: {text}");
    }
}

#[test]
fn an_overhead_that_is_not_shown_is_no_figure() {
    let with = |change: &dyn Fn(&mut bpfassay_results::CellMetric)| {
        let mut results = quick::results();
        let cell = results.cells.iter_mut().find(|cell| cell.under_test() == "fexit").unwrap();
        cell.metrics.iter_mut().for_each(change);
        shown(&results)
    };
    let first = |text: &str| text.lines().rfind(|line| line.starts_with("  x86_64   6.1 ")).unwrap().to_owned();
    let missing = with(&|metric| metric.overhead = bpfassay_results::Figure::missing("no pair of runs"));
    assert!(first(&missing).ends_with("not measured"), "{missing}");
    let one_round = shown(&derive(&contents(&study(None, 1, 1), outcome)));
    assert!(
        !one_round.contains("?: the overhead has no interval"),
        "under the wall clock guests that are emulated have none"
    );
    let mut series = study(None, 1, 1);
    series.clock = Clock::Instructions;
    let one_round = shown(&derive(&contents(&series, outcome)));
    assert!(one_round.contains("?: the overhead has no interval"), "{one_round}");
    let percents = one_round.matches('%').count();
    assert!(percents > 0 && percents == one_round.matches("%?").count(), "{one_round}");
}

#[test]
fn a_gate_that_does_not_pass_has_a_line() {
    let of = |verdict: Verdict| {
        let mut results = quick::results();
        let cell = results.cells[1].cell.clone();
        let gate = |verdict| GateResult {
            gate: 0,
            demand: Demand::Attach,
            cell: cell.clone(),
            metric: None,
            verdict,
            found: "what was found".to_owned(),
            evidence: None,
        };
        results.gates = vec![gate(Verdict::Pass), gate(verdict)];
        shown(&results)
    };
    assert!(of(Verdict::Pass).contains("gate 1, attach as expected: 2 pass\n"));
    let text = of(Verdict::Regression);
    assert!(text.contains("gate 1, attach as expected: 1 regression, 1 pass\n"), "{text}");
    assert!(text.contains("  regression: x86_64 6.1 kprobe: what was found"), "{text}");
    assert!(of(Verdict::Inconclusive).contains("  inconclusive: x86_64 6.1 kprobe: what was found"));
}

#[test]
fn many_rows_leave_out_only_what_is_as_expected() {
    let mut many = study(None, 1, 1);
    many.targets =
        (1..=80).map(|patch| bpfassay_study::Target { arch: Arch::X86_64, kernel: format!("6.18.{patch}") }).collect();
    let results =
        derive(&contents(&many, |block, run| match (block.target.kernel.as_str(), run.spec.probe.is_baseline()) {
            ("6.18.77", false) => Outcome::Refused(not_supported()),
            _ => Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0))),
        }));
    let text = shown(&results);
    assert!(text.contains("… and 55 more rows, as expected: the report has them"), "{text}");
    let refused = text.lines().find(|line| line.contains("6.18.77")).unwrap();
    assert!(refused.contains("REFUSED [1]") && !refused.contains('✔'), "{text}");
}

#[test]
fn many_tools_have_rows_in_place_of_columns() {
    let mut many = study(None, 1, 1);
    for name in ["one", "two", "three"] {
        let text = format!(
            "schema = 1\n[tool]\nname = '{name}'\ndescription = 'x'\n[source]\nscript = {{ path = 'a', interpreter = '/bin/sh' }}\n"
        );
        many.test_tool(UnderTest::of(ToolFile::parse("a.toml", &text).unwrap())).unwrap();
    }
    let results = derive(&contents(&many, |_, run| Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0)))));
    let text = shown(&results);
    let of = |name: &str| text.lines().filter(|line| line.contains(&format!("  {name}  "))).count();
    assert_eq!(["one", "two", "three", "fexit"].map(of), [3; 4], "{text}");
    let heads = text.lines().filter(|line| line.trim_start().starts_with("loads"));
    assert_eq!(heads.count(), 1, "{text}");
}
