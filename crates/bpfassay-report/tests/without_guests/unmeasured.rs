// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run whose workload reports no figure, or an impossible one, is no measurement: it is never
//! exact, and no case passes.

use bpfassay_protocol::Arch;
use bpfassay_report::{
    derive,
    render::{Style, junit, text},
};
use bpfassay_results::{Outcome, Results};

use crate::common::{contents, figures, study, summary};

/// Creates results of runs whose summary is `of(round)` on x86_64 with fexit, and IOR's in other
/// cells.
fn with_summary(of: impl Fn(u32) -> String) -> Results {
    derive(&contents(&study(None, 2, 1), |block, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        if block.target.arch == Arch::X86_64 && run.spec.probe.to_string() == "fexit" {
            figures.summary = of(run.round);
        }
        Outcome::Measured(Box::new(figures))
    }))
}

/// Checks that every report lacks figures of `runs` runs because of `why`.
fn assert_not_measured(results: &Results, runs: u32, why: &str) {
    let words = text(results, Style::default());
    let state = if runs == 2 { "not measured, 1 of 6" } else { "partly measured, 1 of 6" };
    assert!(words.lines().next().unwrap().contains(state), "{words}");
    let junit = junit(results).unwrap();
    assert!(junit.contains("errors=\"1\"") && junit.contains(why), "{junit}");
}

#[test]
fn a_summary_that_is_no_json_is_not_measured() {
    let commencing = summary(100.0, 200.0).replacen("\"Results\":[", "\"Results\":[Commencing write", 1);
    assert_not_measured(&with_summary(|_| commencing.clone()), 2, "summary is not valid");
    let sometimes = with_summary(|round| if round == 1 { String::new() } else { summary(100.0, 200.0) });
    assert_not_measured(&sometimes, 1, "1 of 2 runs without figures");
}

#[test]
fn figures_of_ior_that_cannot_be_are_not_measured() {
    let changed = |path: &str, value: f64| {
        let mut all: serde_json::Value = serde_json::from_str(&summary(100.0, 200.0)).unwrap();
        *all.pointer_mut(&format!("/tests/0/Results/0/{path}")).unwrap() = value.into();
        all.to_string()
    };
    let of = |text: String| with_summary(move |_| text.clone());
    assert_not_measured(&of(changed("totalTime", 1_751_892_628.0)), 2, "are not 8 MiB");
    assert_not_measured(&of(changed("bwMiB", 0.0)), 2, "are not 8 MiB");
    assert_not_measured(&of(changed("bwMiB", 1000.0)), 2, "are not 8 MiB");
    assert_not_measured(&of(changed("bwMiB", -100.0)), 2, "a bandwidth of -100");
    // The summary has nine seconds at a rate that gives the same bytes, in a run of four seconds.
    let mut slow: serde_json::Value = serde_json::from_str(&changed("totalTime", 9.0)).unwrap();
    slow["tests"][0]["Results"][0]["bwMiB"] = (8.0 / 9.0).into();
    assert_not_measured(&of(slow.to_string()), 2, "more than the 4.0000 s of the whole run");
}

#[test]
fn a_phase_that_the_summary_leaves_out_is_not_measured() {
    let mut all: serde_json::Value = serde_json::from_str(&summary(100.0, 200.0)).unwrap();
    all["tests"][0]["Results"].as_array_mut().unwrap().pop();
    let results = with_summary(|_| all.to_string());
    assert_not_measured(&results, 2, "summary does not report it");
    let none = with_summary(|_| {
        let mut none = all.clone();
        none["tests"] = serde_json::json!([]);
        none.to_string()
    });
    assert_not_measured(&none, 2, "summary does not report it");
}

/// Nothing is exact, wherever the summary was cut off, and whichever figure it lacks.
#[test]
fn no_part_of_a_summary_is_a_measurement() {
    let whole = summary(100.0, 200.0);
    for end in (0..whole.len()).step_by(97) {
        let part = whole.get(..end).unwrap().to_owned();
        assert_not_measured(&with_summary(|_| part.clone()), 2, "2 of 2 runs without figures");
    }
    for access in [0, 1] {
        for figure in ["bwMiB", "totalTime"] {
            let mut without: serde_json::Value = serde_json::from_str(&whole).unwrap();
            without["tests"][0]["Results"][access][figure] = serde_json::Value::Null;
            let part = without.to_string();
            let words = text(&with_summary(|_| part.clone()), Style::default());
            let is_exact = words.lines().next().unwrap().contains("exact, 5 of 6");
            // The time follows from bytes / bandwidth.
            assert_eq!(is_exact, figure == "totalTime", "{access} {figure}: {words}");
        }
    }
}
