//! The report and its other forms, on results made up of known figures.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

mod common;

use bpfassay_report::{
    Entry, Outcome, Results, derive,
    render::{csv, html, junit, openmetrics},
};
use common::{MOVED, contents, outcome, sample, study};

fn results() -> Results {
    derive(&contents(&study(None, 3, 1), outcome))
}

/// With two samples in every traced run: half of what is written, then all.
fn sampled() -> Results {
    let mut contents = contents(&study(Some("2s"), 1, 2), outcome);
    for entry in &mut contents.entries {
        if let Entry::Run(record) = entry
            && let Outcome::Measured(figures) = &mut record.outcome
            && !figures.probe.is_baseline()
        {
            figures.samples = vec![sample(1_500_000_000, None, MOVED / 2, 0), sample(3_500_000_000, None, MOVED, 0)];
        }
    }
    derive(&contents)
}

#[test]
fn junit_has_a_case_for_every_cell() {
    let results = results();
    let text = junit(&results).unwrap();
    assert_eq!(text.matches("<testcase ").count(), results.cells.len() + results.gates.len());
    insta::assert_snapshot!(text);
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
        .map(|run| run.derived.as_ref().map_or(0, |derived| derived.accesses.len()).max(1))
        .sum::<usize>();
    assert_eq!(text.lines().count(), lines + 1);
    insta::assert_snapshot!(text.lines().take(12).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_page_needs_nothing_but_itself() {
    for results in [results(), sampled()] {
        // The name of a vocabulary, which nothing is fetched from.
        let page = html(&results).unwrap().replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for foreign in ["<script", "<link", "<img", "http://", "https://", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}

#[test]
fn the_page_shows_every_cell_and_a_plot_per_target() {
    let results = results();
    let page = html(&results).unwrap();
    for cell in &results.cells {
        assert!(page.contains(&format!("<th scope=\"row\">{}</th>", cell.under_test())) || cell.is_baseline());
    }
    let plots = page.matches("<svg ").count();
    assert!(plots >= results.plan.targets().len(), "{plots} plots");
    assert_eq!(page.matches("<figure>").count(), plots);
    // Plots take the page's colours, on light and dark.
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
