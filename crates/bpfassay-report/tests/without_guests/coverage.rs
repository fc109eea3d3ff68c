// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coverage of each path of the workload `io-paths`, and how reports show it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{IoPath, message::RunFigures};
use bpfassay_report::{
    derive,
    render::{Style, markdown, text},
};
use bpfassay_results::{Figure, Outcome, PathCoverage, Results};

use crate::common::{
    contents,
    paths::{SIZE, paths, results, study},
};

fn coverage<'a>(results: &'a Results, probe: &str, path: IoPath) -> Vec<&'a PathCoverage> {
    let run =
        results.runs.iter().find(|run| run.record.cell == format!("x86_64_6.12_io-paths_nfs4.2_{probe}")).unwrap();
    run.derived.as_ref().unwrap().coverage.iter().filter(|row| row.path == path).collect()
}

#[test]
fn differences_are_exact_and_of_the_right_rows() {
    let results = results();
    let difference = |probe, path| {
        let rows = coverage(&results, probe, path);
        let difference = rows[0].difference.value().unwrap();
        (difference.bytes, difference.calls, difference.errors)
    };
    assert_eq!(difference("fexit", IoPath::Pread), (0, Some(0), 0));
    assert_eq!(difference("fexit", IoPath::FailedRead), (0, Some(0), 0));
    assert_eq!(difference("fexit", IoPath::PosixAioRead), (-100, Some(-1), 0));
    assert_eq!(difference("fexit", IoPath::SpliceOut), (SIZE as i64, Some(4), 1));
    assert_eq!(difference("fexit", IoPath::MapRead), (-(SIZE as i64), None, 0));
    assert_eq!(difference("kprobe", IoPath::ShortRead), (SIZE as i64, Some(0), 0));
    assert_eq!(coverage(&results, "fexit", IoPath::CopyFileRange).len(), 2);
}

#[test]
fn what_was_not_done_has_no_figures_but_its_error() {
    let results = results();
    let row = coverage(&results, "fexit", IoPath::Preadv2Nowait)[0];
    assert_eq!(row.refused.as_ref().unwrap().errno, 95);
    assert!(row.moved.reason().unwrap().starts_with("not done: preadv2: Operation not supported"));
    assert!(row.difference.value().is_none());
    assert!(matches!(&coverage(&results, "none", IoPath::Read)[0].traced, Figure::NotMeasured(_)));
}

#[test]
fn a_summary_that_cannot_be_read_leaves_nothing_measured() {
    let contents = contents(&study(), |_, run| {
        Outcome::Measured(Box::new(RunFigures { summary: "{".to_owned(), ..paths(run.spec.probe) }))
    });
    let results = derive(&contents);
    let row = coverage(&results, "fexit", IoPath::Read)[0];
    assert!(row.difference.reason().unwrap().starts_with("the workload's summary cannot be read"));
    let shown = text(&results, Style::default());
    assert!(shown.lines().any(|line| line.starts_with(" read ") && line.contains("not measured")), "{shown}");
}

#[test]
fn coverage_as_text() {
    insta::assert_snapshot!(text(&results(), Style::default()));
}

#[test]
fn coverage_as_markdown() {
    insta::assert_snapshot!(markdown(&results()));
}

/// If only tools are under test, each column has the name of its tool.
#[test]
fn the_columns_of_tools_have_their_names() {
    let mut results = results();
    for cell in results.cells.iter_mut().filter(|cell| !cell.is_baseline()) {
        cell.tool = Some(format!("tool-{}", cell.probe));
        cell.probe = bpfassay_protocol::ProbeConfiguration::BASELINE;
    }
    let shown = text(&results, Style::default());
    let head = shown.lines().find(|line| line.trim_start().starts_with("path ")).unwrap();
    assert!(head.contains("tool-fexit") && head.contains("tool-kprobe"), "{head}");
}
