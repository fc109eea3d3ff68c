// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results on a terminal of 80 columns: nothing is cut or broken in two, the conclusion comes
//! first, and every report tells when, where and what was measured.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::probe::Probe;
use bpfassay_report::{
    compare::{Question, compare},
    derive,
    render::{Style, comparison_text, github, html, junit, ktap, markdown, openmetrics, text, trend_text},
    trend::trend,
};
use bpfassay_results::{Outcome, Results};
use bpfassay_study::{Clock, Study};

use crate::common::{contents, figures, made_up, matrix, outcome, quick, study};

const WIDTH: u16 = 80;

fn narrow() -> Style {
    Style { width: Some(WIDTH) }
}

#[test]
fn everything_fits_80_columns() {
    let quick = quick::results();
    let series = quick::results_of("kernel-series");
    let mut shown = vec![
        ("kernel_features", text(&derive(&contents(&matrix::study(""), matrix::outcome)), narrow())),
        ("sampled", text(&made_up::sampled(), narrow())),
        ("comparison", comparison_text(&compare(&quick, &quick, &Question::default()).unwrap(), narrow(), true)),
        ("trend", trend_text(&trend(&[("a".to_owned(), &series)]).unwrap(), narrow())),
    ];
    for study in ["quick", "kernel-series", "program-count"] {
        shown.push((study, text(&quick::results_of(study), narrow())));
    }
    for (what, text) in shown {
        let mut count = 0;
        for line in text.lines() {
            // One word of a remark can be longer: the name of a file or a message of a kernel.
            let is_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= usize::from(WIDTH) || is_word, "{what}: {line}");
            count += 1;
        }
        assert!(count > 10, "{what}: {count} lines");
    }
}

#[test]
fn a_row_of_the_recorded_study_takes_two_lines() {
    let text = text(&quick::results(), narrow());
    let (_, table) = text.split_once("study quick, clock instructions, IOR engine embedded\n").unwrap();
    let lines: Vec<&str> = table.lines().take(10).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_conclusion_stands_on_top_in_words() {
    let quick = quick::results();
    let text = text(&quick, Style::default());
    let lines: Vec<&str> = text.lines().take(3).collect();
    assert_eq!(lines[0], "quick: exact, 15 of 16; refused as expected, 1 of 16");
    let fexit = lines.iter().find(|line| line.starts_with("  fexit: ")).unwrap();
    assert_eq!(
        *fexit,
        "  fexit: attaches on 7 of 8, refused as expected on 1; exact; write +0.1 to +0.2%, read +0.4 to +2.9%"
    );
}

#[test]
fn every_report_has_when_where_what_and_versions() {
    let mut quick = quick::results();
    // 2026-11-26 03:24 UTC.
    quick.started_unix_ms = 1_795_663_440_000;
    let reports = [
        ("text", text(&quick, Style::default())),
        ("markdown", markdown(&quick)),
        ("html", html(&quick).unwrap()),
        ("github", github(&quick).summary),
        ("junit", junit(&quick).unwrap()),
        ("ktap", ktap(&quick)),
        ("openmetrics", openmetrics(&quick)),
    ];
    let host = &quick.provenance[0].host;
    for (name, report) in reports {
        // Markdown escapes possible markup.
        let plain = report.replace('\\', "");
        for wanted in [
            "2026-11-26 03:24 UTC",
            &host.cpu_model,
            &host.kernel_release,
            "ior -a POSIX -b 64m -t 256k -w -r, 1 rank",
            "nfs4.2",
            &format!("bpfassay {}", quick.provenance[0].bpfassay.version),
            "QEMU 7.2",
            &quick.provenance[0].targets[0].kernel.version,
        ] {
            assert!(plain.contains(wanted), "{name} has no {wanted:?}");
        }
        let conclusion = "quick: exact, 15 of 16; refused as expected, 1 of 16";
        assert!(name == "openmetrics" || plain.contains(conclusion), "{name} has no conclusion");
        // The matrix tells the same as the sentences of other reports.
        let has_matrix = ["markdown", "html", "github"].contains(&name);
        assert_eq!(plain.contains("attaches on 7 of 8"), !has_matrix && name != "openmetrics", "{name}");
        assert_eq!(plain.contains("bundled tracer by kprobe"), has_matrix, "{name}");
    }
}

#[test]
fn what_is_not_recorded_is_called_so() {
    let results =
        Results { started_unix_ms: 0, provenance: Vec::new(), ..derive(&contents(&study(None, 1, 1), outcome)) };
    let text = text(&results, Style::default());
    assert!(text.contains("measured: a time that is not recorded, on a machine that is not recorded\n"), "{text}");
    assert!(text.contains("versions: not recorded\n"), "{text}");
}

/// Creates results of the made-up study whose runs vary so much that nothing is known.
fn uneven() -> Results {
    let study = Study { clock: Clock::Instructions, ..study(None, 3, 1) };
    derive(&contents(&study, |_, run| {
        let probe = run.spec.probe;
        let is_slow = probe.probe != Probe::None && run.round % 2 == 1;
        let factor = if is_slow { 40.0 } else { 1.0 };
        Outcome::Measured(Box::new(figures(probe, 160.0 / factor, 320.0 / factor)))
    }))
}

#[test]
fn what_the_spread_leaves_open_is_not_known() {
    let text = text(&uneven(), Style::default());
    assert!(text.contains("not known"), "{text}");
    let percents = text.split_whitespace().filter_map(|word| word.strip_suffix('%')?.parse::<f64>().ok());
    let largest = percents.fold(0.0, f64::max);
    assert!(largest <= 100.0, "{largest}%: {text}");
}

#[test]
fn a_comparison_names_its_sides() {
    let mut quick = quick::results();
    quick.started_unix_ms = 1_795_663_440_000;
    let names = ["results/before".to_owned(), "results/after".to_owned()];
    let comparison = compare(&quick, &quick, &Question { names, ..Question::default() }).unwrap();
    let text = comparison_text(&comparison, Style::default(), false);
    let lines: Vec<&str> = text.lines().take(3).collect();
    assert_eq!(lines[0], "base: results/before, quick of 2026-11-26 03:24 UTC");
    assert_eq!(lines[1], "new: results/after, quick of 2026-11-26 03:24 UTC");
    assert!(lines[2].starts_with("new against base, clock instructions: 0 slower"), "{text}");
}
