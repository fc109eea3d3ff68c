// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares tables and counts in the browser with results.json.

use std::collections::BTreeMap;

use bpfassay_results::{ConfigurationCell, FeatureVerdict, Results};
use bpfassay_stats::Verdict;

use super::chromium::Browser;

/// Returns the numbers at the top of the page, by what they count.
fn counts(browser: &mut Browser) -> BTreeMap<String, usize> {
    let counts = browser.evaluate(
        "[...document.querySelectorAll('.counts li')].map(count => { const number = count.querySelector('strong').textContent; \
         return [count.textContent.slice(number.length).trim(), Number(number)]; })",
    );
    serde_json::from_value::<Vec<(String, usize)>>(counts).unwrap().into_iter().collect()
}

/// Returns the texts of the cells of the table whose header begins with `first`, row by row.
fn table(browser: &mut Browser, first: &str) -> Vec<Vec<String>> {
    let rows = browser.evaluate(&format!(
        "[...[...document.querySelectorAll('#tables table')].find(table => table.tHead.rows[0].cells[0].textContent === '{first}') \
         .tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
    ));
    serde_json::from_value(rows).unwrap()
}

/// Checks the matrix against results.json, configuration by configuration.
pub(crate) fn assert_matrix(browser: &mut Browser, results: &Results) {
    let matrix = results.kernel_features.as_ref().unwrap();
    let counts = counts(browser);
    assert_eq!(counts["probe configurations"], matrix.configurations.len());
    assert_eq!(counts["features"], matrix.features.len());
    assert_eq!(counts["surprises"], matrix.surprises().count());
    let rows = table(browser, "probe configurations");
    assert_eq!(rows.len(), matrix.configurations.len());
    let symbol = |cell: &ConfigurationCell| match cell.verdict {
        FeatureVerdict::Works => "ok",
        FeatureVerdict::Refused => "-",
        other => panic!("the made-up matrix has no {other:?}"),
    };
    for (shown, known) in rows.iter().zip(&matrix.configurations) {
        assert_eq!(shown[0].split(' ').next(), Some(known.probe.to_string().as_str()));
        assert_eq!(shown[1..], known.cells.iter().map(symbol).collect::<Vec<_>>());
    }
    let features = table(browser, "features that differ between targets").concat().join(" ");
    for row in &matrix.features {
        let is_alike = row.cells.iter().all(|cell| cell.verdict == row.cells[0].verdict);
        assert_eq!(features.contains(row.name.as_str()), !is_alike, "{}: {features}", row.name);
    }
}

/// Checks that every verdict is counted, and every one that is not a pass is shown.
pub(crate) fn assert_gates(browser: &mut Browser, results: &Results) {
    let conclusion = browser.evaluate("document.querySelector('.conclusion').textContent");
    let conclusion = conclusion.as_str().unwrap();
    let mut count = 0;
    for (what, verdict) in
        [("pass", Verdict::Pass), ("regression", Verdict::Regression), ("inconclusive", Verdict::Inconclusive)]
    {
        let known: Vec<_> = results.gates.iter().filter(|gate| gate.verdict == verdict).collect();
        assert!(!known.is_empty(), "the made-up study has no such verdict: {what}");
        assert!(conclusion.contains(&format!("{} {what}", known.len())), "{conclusion}");
        if verdict == Verdict::Pass {
            continue;
        }
        let rows = table(browser, "verdict");
        let shown: Vec<_> = rows.iter().filter(|row| row[0] == what).collect();
        assert_eq!(shown.len(), known.len(), "{what}");
        for (row, gate) in shown.iter().zip(known) {
            assert_eq!((&row[4], &row[5]), (&gate.demand.to_string(), &gate.found), "{what}");
        }
        count += shown.len();
    }
    assert!(count < results.gates.len());
}
