// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report in its formats, on made-up results with known figures.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_report::{
    derive,
    render::{Style, code_coverage_html, csv, figure_svg, html, junit, ktap, markdown, openmetrics, trend_text},
    trend::trend,
};
use bpfassay_results::Results;
use bpfassay_study::Clock;
use bpfassay_tool::finding::Kind;

use crate::common::{
    contents,
    made_up::{sampled, series, with_tool},
    outcome, paths, quick, study,
};

fn results() -> Results {
    derive(&contents(&study(None, 3, 1), outcome))
}

#[test]
fn junit_has_a_case_for_every_cell() {
    let results = results();
    let text = junit(&results).unwrap();
    assert_eq!(text.matches("<testcase ").count(), results.cells.len() + results.gates.len());
    insta::assert_snapshot!(text);
}

#[test]
fn ktap_has_a_line_for_every_case() {
    let results = results();
    let text = ktap(&results);
    let lines = text.lines().filter(|line| line.starts_with("  ok ") || line.starts_with("  not ok ")).count();
    assert_eq!(lines, results.cells.len() + results.gates.len());
    insta::assert_snapshot!(text);
}

#[test]
fn the_evidence_of_a_denied_finding_is_told_where_the_gate_fails() {
    let results = with_tool(&[Kind::LeftBehind], None);
    let (left, held) = ("left-behind (proven): ", "memory-held (bounded): ");
    let xml = junit(&results).unwrap();
    let of = |from: &str, to: &str| {
        let texts = xml.split(from).skip(1).map(|rest| rest.split(to).next().unwrap().to_owned());
        texts.collect::<Vec<_>>().join("\n")
    };
    let failed = of("<failure ", "</failure>");
    assert!(failed.contains("found: left-behind") && failed.contains(left) && !failed.contains(held), "{failed}");
    let printed = of("<system-out>", "</system-out>");
    assert!(printed.contains(left) && printed.contains(held), "{printed}");
    let text = ktap(&results);
    assert!(text.contains(&format!("  # {left}")) && text.contains("  # regression: found: left-behind"), "{text}");
    // There is no failure without the gate, but the evidence is still shown.
    let allowed = ktap(&with_tool(&[], None));
    assert!(!allowed.contains("regression") && allowed.contains("  ok 12 ") && allowed.contains(held), "{allowed}");
}

#[test]
fn openmetrics_is_as_the_format_has_it() {
    let text = openmetrics(&results());
    assert!(text.ends_with("# EOF\n"));
    let mut families = std::collections::BTreeSet::new();
    let mut current = "";
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap();
            assert!(families.insert(current.to_owned()), "{current} comes twice");
        } else if !line.starts_with('#') {
            assert_eq!(line.split('{').next(), Some(current), "a sample outside its family");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().unwrap().is_finite(), "{line}");
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn csv_has_a_line_per_run_and_access() {
    let results = results();
    let text = csv(&results).unwrap();
    let lines = results
        .runs
        .iter()
        .map(|run| run.derived.as_ref().map_or(0, |derived| derived.metrics.len()).max(1))
        .sum::<usize>();
    assert_eq!(text.lines().count(), lines + 1);
    insta::assert_snapshot!(text.lines().take(12).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_page_needs_nothing_but_itself() {
    for results in [results(), sampled()] {
        // The name of a vocabulary causes no request.
        let page = html(&results).unwrap().replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for foreign in ["<script", "<link", "<img", "http://", "https://", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}

#[test]
fn the_page_shows_every_cell_in_the_matrix_and_in_one_plot() {
    let results = results();
    let page = html(&results).unwrap();
    let (_, matrix) = page.split_once("<section id=\"matrix\">").unwrap();
    let (matrix, rest) = matrix.split_once("</section>").unwrap();
    let (_, plot) = rest.split_once("<section id=\"overhead\">").unwrap();
    let (plot, _) = plot.split_once("</section>").unwrap();
    for cell in results.cells.iter().filter(|cell| !cell.is_baseline()) {
        assert!(matrix.contains(&format!("<caption>bundled tracer by {}</caption>", cell.under_test())));
        assert!(matrix.contains(&format!("<th scope=\"row\">{}</th>", cell.target)));
        // A cell without a figure keeps its row, with the reason.
        let row = format!("\n{} {}\n</text>", cell.target, cell.under_test());
        assert_eq!(plot.matches(&row).count(), 2, "{row}: {plot}");
    }
    for reason in ["refused as expected", "failed"] {
        assert_eq!(plot.matches(&format!("\n{reason}\n</text>")).count(), 2, "{reason}: {plot}");
    }
    assert!(plot.contains("\n+5%\n") && !plot.contains("\n1.05"), "the axis has percents as the text does: {plot}");
    assert_eq!(plot.matches("<figure>").count(), 1);
    let plots = page.matches("<svg ").count();
    // Each plot exists for wide and for narrow windows.
    assert_eq!(2 * page.matches("<figure>").count(), plots);
    // Plots use the page's colours, on light and dark.
    assert!(!page.contains("fill=\"#0") && page.contains("var(--series-0)"));
    assert!(html(&sampled()).unwrap().contains("traced bandwidth over time"));
}

#[test]
fn what_a_guest_wrote_is_not_markup() {
    let mut results = results();
    results.notes.push("<b onclick=\"x\">&</b>\u{1b}[31m".to_owned());
    let page = html(&results).unwrap();
    assert!(!page.contains("<b onclick"), "a note is markup");
    assert!(!page.contains('\u{1b}'), "a terminal's escape");
}

#[test]
fn the_command_that_does_it_again_is_one_command_whatever_the_study_is_called() {
    let mut results = results();
    "quick; reboot 'now'".clone_into(&mut results.plan.study.name);
    results.plan.narrowing.kernels = vec!["$(reboot)".to_owned()];
    let page = html(&results).unwrap();
    // HTML escapes quotation marks.
    let command = r"bpfassay run 'quick; reboot '\''now'\''' --kernel '$(reboot)'".replace('\'', "&#39;");
    assert!(page.contains(&command), "{command}");
}

#[test]
fn the_reports_in_the_repository_are_those_of_their_results() {
    let [quick, series] = ["quick", "kernel-series"].map(quick::results_of);
    let pages = [
        ("quick/report.html", html(&quick).unwrap()),
        ("quick/code-coverage.html", code_coverage_html(&quick).unwrap().unwrap()),
        ("kernel-series/report.html", html(&series).unwrap()),
    ];
    assert!(code_coverage_html(&series).unwrap().is_none());
    let trend = trend(&[("kernel-series".to_owned(), series)]).unwrap();
    for (name, text) in pages.into_iter().chain([("kernel-series/series.txt", trend_text(&trend, Style::default()))]) {
        let file = quick::folder_of(name);
        if std::env::var_os("BPFASSAY_UPDATE_REPORT").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let published = std::fs::read_to_string(&file).unwrap();
        assert!(
            published == text,
            "results/{name} is not what its results come to: run BPFASSAY_UPDATE_REPORT=1 cargo test -p bpfassay-report"
        );
    }
}

/// The conclusion, the matrix and its caveats stand before versions, plots and tables.
#[test]
fn the_page_begins_with_what_a_reader_asks() {
    let page = html(&quick::results()).unwrap();
    let marks = [
        "exact, 15 of 16; refused as expected, 1 of 16",
        "<table class=\"matrix\">",
        "instructions per call by kprobe: write 529 to 3958",
        "the kernel interpreted the programs (BPF JIT off)",
        "<li id=\"remark-1\">[1] ENOTSUPP, as expected: ",
        "<dt>versions</dt>",
        "<nav ",
        "*: the kernel interpreted the programs (BPF JIT off). Limit: the clock counts the guest&#39;s instructions",
        "<h2>Tables</h2>",
    ];
    let mut rest = page.as_str();
    for mark in marks {
        let found = rest.split_once(mark);
        assert!(found.is_some(), "{mark} is missing or in another place");
        rest = found.unwrap().1;
    }
    assert!(page.contains("✘ <a href=\"#remark-1\">[1]</a>"));
}

/// The figure that results/quick/overhead.svg shows.
const SHOWN: &str = "relative overhead of each cell";

#[test]
fn the_figure_of_the_readme_is_that_of_its_results() {
    let svg = figure_svg(&quick::results(), SHOWN).unwrap();
    let file = quick::folder().join("overhead.svg");
    if std::env::var_os("BPFASSAY_UPDATE_REPORT").is_some() {
        std::fs::write(&file, &svg).unwrap();
    }
    assert!(std::fs::read_to_string(&file).unwrap() == svg, "BPFASSAY_UPDATE_REPORT=1 cargo test -p bpfassay-report");
    // The file is self-contained, and readable on light and dark.
    assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("--paper:") && svg.ends_with("</svg>\n"));
    assert!(!svg.contains("url(") && svg.matches("<svg ").count() == 1);
    let error = figure_svg(&quick::results(), "e").unwrap_err();
    assert!(error.found > 1 && error.found == error.known.len(), "{error}");
    assert!(error.to_string().contains(SHOWN), "{error}");
}

#[test]
fn what_was_seen_of_io_paths_is_shown_by_colour_and_text() {
    let page = crate::common::without_labels(&html(&paths::results()).unwrap());
    for cell in ["<td class=\"good\">all</td>", "<td class=\"bad\">none</td>", "<td class=\"open\">"] {
        assert!(page.contains(cell), "{cell}");
    }
    assert!(page.contains("<a href=\"#paths\">") && page.matches("id=\"paths\"").count() == 1);
    assert!(page.contains("<td>not done: errno 95</td>"), "what was not done is neither good nor bad");
}

#[test]
fn a_series_of_kernels_shows_where_its_level_changes() {
    let page = html(&series(Clock::Instructions)).unwrap();
    assert!(page.contains("x86_64, fexit, w, write: instructions/call along the kernels"));
    assert!(page.contains("fexit write: instructions/call from 6.18.12 to 6.18.13: 1.10"), "the change is not shown");
    assert!(page.contains("No change of level is shown."));
}

/// Returns class and text of the first two cells in each row of a block of the page's matrix.
fn block(results: &Results, name: &str) -> Vec<[(String, String); 2]> {
    let page = html(results).unwrap();
    let (_, block) = page.split_once(&format!("<caption>{name}</caption>")).unwrap();
    let (block, _) = block.split_once("</table>").unwrap();
    let cell = |cell: &str| {
        let (start, text) = cell.split_once('>').unwrap();
        let class = start.strip_prefix(" class=\"").map_or("", |class| class.trim_end_matches('"'));
        self::cell(class, text.split('<').next().unwrap().trim())
    };
    let row = |row: &str| {
        let mut cells = row.split("<td").skip(1).map(cell);
        [cells.next().unwrap(), cells.next().unwrap()]
    };
    block.split("<tr>").skip(2).map(row).collect()
}

fn cell(class: &str, text: &str) -> (String, String) {
    (class.to_owned(), text.to_owned())
}

#[test]
fn a_refusal_that_was_expected_is_neither_good_nor_bad() {
    let rows = block(&results(), "bundled tracer by fexit");
    let expected = [
        [cell("good", "✔"), cell("good", "exact")],
        [cell("", "✘"), cell("", "-")],
        [cell("bad", "FAILED"), cell("", "-")],
    ];
    assert_eq!(rows, expected);
}

#[test]
fn what_is_found_of_a_tool_is_a_warning_and_what_is_denied_a_failure() {
    let on_riscv64 = |deny: &[Kind]| {
        let rows = block(&with_tool(deny, None), "mine");
        let [x86_64, aarch64, [loads, counts]] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!([x86_64, aarch64], [&[cell("good", "✔"), cell("good", "nothing found")]; 2]);
        assert_eq!(*loads, cell("good", "✔"));
        counts.clone()
    };
    let both = cell("open", "left-behind +1");
    assert_eq!(on_riscv64(&[]), both);
    // A gate that denies another kind changes nothing.
    assert_eq!(on_riscv64(&[Kind::SlowDetach]), both);
    assert_eq!(on_riscv64(&[Kind::LeftBehind]), cell("bad", "left-behind +1"));
    assert_eq!(on_riscv64(Kind::ALL), cell("bad", "left-behind +1"));
}

#[test]
fn a_finding_is_shown_with_its_certainty_and_leads_to_what_it_means() {
    let results = with_tool(&[], None);
    let page = crate::common::without_labels(&html(&results).unwrap());
    for (kind, certainty) in [(Kind::LeftBehind, "proven"), (Kind::MemoryHeld, "bounded")] {
        let cells = format!("<td><a href=\"#finding-{kind}\">{kind}</a></td><td>{certainty}</td>");
        assert!(page.contains(&cells), "{cells}");
        assert_eq!(page.matches(&format!("id=\"finding-{kind}\"")).count(), 1, "{kind}");
        assert!(markdown(&results).contains(&format!("| {kind} | {certainty} |")), "{kind}");
    }
    assert!(page.contains("<p>Repair: No pins; close what was opened on SIGTERM.</p>"));
    // Kinds that were not found are not explained, and a page without tools explains none.
    assert!(!page.contains("id=\"finding-slow-detach\"") && page.contains("<a href=\"#findings\">"));
    let without = html(&self::results()).unwrap();
    assert!(!without.contains("id=\"findings\"") && !without.contains("#finding"));
}
