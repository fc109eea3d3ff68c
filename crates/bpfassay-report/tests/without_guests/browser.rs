// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the pages in a headless Chromium: they need no other files, cause no complaints, fit the
//! window, are accessible, and show the numbers of results.json.
//!
//! `BPFASSAY_BROWSER` names the browser, and `BPFASSAY_AXE` the file `axe.min.js`
//! (<https://github.com/dequelabs/axe-core>); `ci/test` provides both. `BPFASSAY_SCREENSHOTS` names
//! a directory for pictures of the pages.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it skips"
)]

mod chromium;
mod expected;
mod plots;

use std::{env, fs, path::Path};

use bpfassay_protocol::probe::Probe;
use bpfassay_report::{
    compare::{Question, compare},
    derive,
    render::{code_coverage_html, comparison_html, html},
};
use bpfassay_results::{CellAccuracy, CellMetric, CellResult, Outcome, Results};
use bpfassay_study::{Clock, Gate, Study};
use chromium::Browser;

use crate::common::{contents, made_up, matrix, not_supported, outcome, paths, quick, study};

/// Widths from a telephone to a desktop, in CSS pixels. WCAG 2.2, 1.4.10, requires 320.
const WIDTHS: [u32; 4] = [320, 360, 800, 1600];
/// The largest width at which not even a table can scroll sideways.
const NARROW: u32 = 800;
/// A4 within margins of 1 cm, in CSS pixels (96 per inch).
const PAPER: u32 = 718;

/// Checks `page` in every window by general rules.
fn assert_fit(browser: &mut Browser, name: &str, page: &str, widths: &[u32]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    fs::write(&file, page).unwrap();
    browser.open(&file);
    let mut unreadable = Vec::new();
    for &width in widths {
        browser.resize(width);
        // Colours are the same in every window.
        let schemes = if width == widths[0] { &["light", "dark"][..] } else { &["light"] };
        for scheme in schemes {
            browser.show_as("screen", scheme);
            let what = format!("{name}-{scheme}-{width}");
            assert_no_overflow(browser, &what);
            if width <= NARROW {
                assert_no_scrolling(browser, &what);
            }
            assert_accessible(browser, &what);
            picture(browser, &what);
        }
        browser.show_as("screen", "light");
        unreadable.extend(plots::unreadable(browser, &format!("{name}, {width} pixels")));
    }
    assert!(unreadable.is_empty(), "{unreadable:#?}");
    browser.show_as("print", "light");
    browser.resize(PAPER);
    assert_no_overflow(browser, &format!("{name}-print"));
    browser.show_as("screen", "light");
    let (requests, complaints) = browser.requests_and_complaints();
    assert_eq!(requests.len(), 1, "{name} asks for more than itself: {requests:?}");
    assert!(complaints.is_empty(), "{name}: {complaints:#?}");
}

/// Checks that nothing lies outside the window, where only scrolling sideways would show it.
fn assert_no_overflow(browser: &mut Browser, what: &str) {
    let wide = browser.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]");
    assert!(wide[0].as_u64() <= wide[1].as_u64(), "{what}: {wide} pixels wide");
}

/// Checks that nothing on the page is wider than its place, such as a table in a region that
/// scrolls.
fn assert_no_scrolling(browser: &mut Browser, what: &str) {
    let wide = browser.evaluate(
        "[...document.querySelectorAll('.scroll, pre, figure, table, svg')].filter(part => part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0) \
         .map(part => `${part.tagName} ${part.className} ${part.getAttribute('aria-label')} ${part.scrollWidth} > ${part.clientWidth}`)",
    );
    assert_eq!(wide, serde_json::json!([]), "{what}");
}

/// Checks that the page violates no serious or critical rule of axe-core.
fn assert_accessible(browser: &mut Browser, what: &str) {
    let Some(axe) = env::var_os("BPFASSAY_AXE") else {
        println!("SKIPPED: BPFASSAY_AXE names no axe.min.js: accessibility is not tested");
        return;
    };
    if browser.evaluate("typeof axe") == "undefined" {
        let script = fs::read_to_string(axe).unwrap();
        browser.evaluate(&format!("{script}; null"));
    }
    let found = browser.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(found => ({rules: found.passes.length, \
         violations: found.violations.map(of => [of.impact, of.id, of.nodes.length, of.nodes[0].html, of.nodes[0].failureSummary])}))",
    );
    assert!(found["rules"].as_u64() > Some(10), "axe checked next to nothing: {found}");
    let violations = found["violations"].as_array().unwrap();
    assert!(violations.is_empty(), "{what}: {violations:#?}");
}

fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = env::var_os("BPFASSAY_SCREENSHOTS") {
        fs::write(Path::new(&folder).join(format!("{name}.png.base64")), browser.screenshot()).unwrap();
    }
}

/// Whether `text` is `value`, rounded to its digits.
fn is_rounded(text: &str, value: f64) -> bool {
    let text = text.trim_end_matches('%');
    let Ok(shown) = text.parse::<f64>() else { return false };
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    (shown - value).abs() <= 0.5 * 10f64.powi(-i32::try_from(digits).unwrap()) + 1e-9
}

/// Returns the rows of the table of cells from the browser.
fn table_of_cells(browser: &mut Browser) -> Vec<std::collections::BTreeMap<String, String>> {
    let rows = browser.evaluate(
        "(() => { const table = [...document.querySelectorAll('#tables table')].find(table => \
         table.tHead.textContent.includes('overhead [95 %]')); \
         const names = [...table.tHead.rows[0].cells].map(cell => cell.textContent); \
         return [...table.tBodies[0].rows].map(row => Object.fromEntries([...row.cells].map((cell, i) => [names[i], cell.textContent]))); })()",
    );
    serde_json::from_value(rows).unwrap()
}

fn assert_row(
    row: &std::collections::BTreeMap<String, String>,
    cell: &CellResult,
    (metric, accuracy): (&CellMetric, Option<&CellAccuracy>),
) {
    let place = format!("{}, {}: {row:?}", cell.cell, metric.name);
    assert_eq!(row["metric"], &*metric.name, "{place}");
    if !row["probe"].is_empty() {
        assert_eq!(
            (row["target"].as_str(), row["probe"].as_str()),
            (cell.target.to_string().as_str(), cell.under_test().as_str()),
            "{place}"
        );
    }
    match metric.value.value() {
        Some(summary) => assert!(is_rounded(&row["MiB/s"], summary.center()), "{place}"),
        None => assert!(row["MiB/s"].starts_with("not measured"), "{place}"),
    }
    let overhead = if cell.is_baseline() { &metric.control } else { &metric.overhead };
    match overhead.value() {
        Some(overhead) => {
            let shown: Vec<&str> = row["overhead [95 %]"]
                .trim_start_matches("A/A ")
                .split([' ', '[', ',', ']'])
                .filter(|word| !word.is_empty())
                .collect();
            let interval = overhead.estimate.bounds.interval().map(|interval| [interval.lower, interval.upper]);
            // Words replace a ratio that noise explains.
            let is_noise = !cell.is_baseline() && metric.is_within_noise();
            let is_open = overhead.detectable.is_some_and(|detectable| detectable > 2.0);
            let words = if is_open { ["not", "known"] } else { ["within", "noise"] };
            assert_eq!(shown.starts_with(&words), is_noise, "{place}");
            let estimate = (!is_noise).then_some(overhead.estimate.value);
            let shown = if is_noise { &shown[2..] } else { &shown };
            let values: Vec<f64> = estimate.into_iter().chain(interval.into_iter().flatten()).collect();
            assert!(shown.len() >= values.len(), "{place}");
            assert!(shown.iter().zip(&values).all(|(text, value)| is_rounded(text, *value)), "{place}: {values:?}");
            let percent = shown.iter().find(|word| word.ends_with('%'));
            if let Some(estimate) = estimate.filter(|_| !cell.is_baseline()) {
                match percent {
                    Some(percent) => assert!(is_rounded(percent, (estimate - 1.0) * 100.0), "{place}"),
                    // A percentage would look as certain as one with an interval.
                    None => assert!(interval.is_none() && shown.ends_with(&["no", "interval"]), "{place}: {shown:?}"),
                }
            }
        }
        None => assert!(row["overhead [95 %]"].starts_with("not measured"), "{place}"),
    }
    if let (Some(errors), false) = (accuracy.and_then(|accuracy| accuracy.byte_error.value()), cell.is_baseline()) {
        let shown = row["byte error"].split(' ').next().unwrap().trim_end_matches(',').to_owned();
        let values: Vec<i64> = shown.split("..").map(|number| number.parse().unwrap()).collect();
        assert_eq!((values[0], *values.last().unwrap()), (errors.min, errors.max), "{place}");
    }
}

/// Checks the page of `results` by general rules, and its numbers against `results`.
fn assert_shown(browser: &mut Browser, name: &str, results: &Results) {
    assert_fit(browser, name, &html(results).unwrap(), &WIDTHS);
    let rows = table_of_cells(browser);
    let planned: Vec<_> = results.cells.iter().flat_map(|cell| cell.whole().map(move |row| (cell, row))).collect();
    assert_eq!(rows.len(), planned.len(), "{name}");
    for (row, (cell, figures)) in rows.iter().zip(planned) {
        assert_row(row, cell, figures);
    }
    plots::assert_marks(browser, results);
}

/// Creates a study with verdicts of every kind: see `gates.rs`.
fn gated() -> Study {
    let limit = |percent: &str| Gate {
        probes: vec!["fexit".to_owned()],
        overhead: Some(percent.parse().unwrap()),
        ..Gate::default()
    };
    Study { gates: ["6%", "3%", "4.95%"].map(limit).into(), clock: Clock::Instructions, ..study(None, 3, 4) }
}

#[test]
fn pages_are_right_in_a_browser() {
    let Some(program) = chromium::find() else { return };
    let mut browser = Browser::start(&program);
    assert_shown(&mut browser, "quick", &quick::results());
    let coverage = code_coverage_html(&quick::results()).unwrap().unwrap();
    assert_fit(&mut browser, "code-coverage", &coverage, &WIDTHS[..1]);
    assert_shown(&mut browser, "made-up", &derive(&contents(&study(None, 3, 2), outcome)));
    assert_shown(&mut browser, "sampled", &made_up::sampled());
    let series = quick::results_of("kernel-series");
    assert_fit(&mut browser, "kernel-series", &html(&series).unwrap(), &WIDTHS[..1]);
    plots::assert_along_kernels(&mut browser, &series);
    for group in ["overhead", "cost"] {
        plots::assert_one_axis(&mut browser, group);
    }
    let matrix = derive(&contents(&matrix::study(""), matrix::outcome));
    assert_fit(&mut browser, "kernel_features", &html(&matrix).unwrap(), &WIDTHS);
    expected::assert_matrix(&mut browser, &matrix);
    let gated = derive(&contents(&gated(), outcome));
    assert_shown(&mut browser, "gates", &gated);
    expected::assert_gates(&mut browser, &gated);
    assert_fit(&mut browser, "paths", &html(&paths::results()).unwrap(), &WIDTHS[..1]);
    let made_up = derive(&contents(&study(None, 3, 2), outcome));
    let other = derive(&contents(&study(None, 3, 2), |block, run| match run.spec.probe.probe {
        Probe::Kprobe => Outcome::Refused(not_supported()),
        _ => outcome(block, run),
    }));
    let comparison = compare(&made_up, &other, &Question::default()).unwrap();
    assert_fit(&mut browser, "comparison", &comparison_html(&comparison, true).unwrap(), &WIDTHS);
}
