// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of several nodes: reports show their figures next to the sums, and results without nodes
//! are unchanged.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{
    Operation,
    message::{Interval, RunFigures},
    tracer_messages::Losses,
};
use bpfassay_report::{
    derive,
    render::{Style, html, text},
};
use bpfassay_results::{Figure, JournalContents, JournalEntry, NodeRun, Outcome};

use crate::common::{MOVED, contents, outcome, reading, study};

/// Creates a journal of runs of two nodes. The second node moved all bytes except for `first`, and
/// its tracer counted `lost` bytes too few.
fn of_two_nodes(first: u64, lost: u64) -> JournalContents {
    let mut contents = contents(&study(None, 2, 1), outcome);
    for entry in &mut contents.entries {
        let JournalEntry::Run(record) = entry else { continue };
        let Outcome::Measured(all) = &mut record.outcome else { continue };
        let whole = |bytes: u64| Interval {
            before: reading(all.probe, 500_000_000, 0, 0),
            after: reading(all.probe, 4_500_000_000, bytes, bytes),
        };
        let part = |bytes: u64| {
            let mut figures =
                RunFigures { phases: Vec::new(), summary: String::new(), whole: whole(bytes), ..(**all).clone() };
            if let Some(tracer) = &mut figures.whole.after.tracer {
                tracer.losses = Losses { recursion_misses: Some(u64::from(bytes != first)), ..Losses::default() };
            }
            figures
        };
        let node = |name: &str, ranks, figures| NodeRun { node: name.to_owned(), ranks, figures };
        let nodes = vec![node("n1", 1, part(first)), node("n2", 3, part(MOVED - first - lost))];
        all.whole = whole(MOVED - lost);
        all.phases = Vec::new();
        record.nodes = nodes;
    }
    contents
}

/// Returns the table of nodes in a report.
fn table(contents: &JournalContents) -> String {
    let all = text(&derive(contents), Style::default());
    let from = all.find("\nnodes: ").unwrap_or_else(|| panic!("no table of nodes: {all}"));
    let table = &all[from + 1..];
    table.split("\n\n").next().unwrap().to_owned()
}

#[test]
fn nodes_stand_beside_their_sum() {
    insta::assert_snapshot!(table(&of_two_nodes(MOVED / 4, 0)));
}

#[test]
fn bytes_that_one_node_did_not_count_are_missing_in_the_sum() {
    let contents = of_two_nodes(MOVED / 4, 4096);
    let shown = table(&contents);
    assert!(shown.contains("-4096 bytes in each run") && !shown.contains("exact "), "{shown}");
    let results = derive(&contents);
    let is_traced = |run: &&bpfassay_results::RunResult| match &run.record.outcome {
        Outcome::Measured(figures) => !figures.probe.is_baseline(),
        _ => false,
    };
    let run = results.runs.iter().find(is_traced).unwrap();
    let nodes = &run.derived.as_ref().unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.ranks).collect::<Vec<_>>(), [1, 3]);
    let written: Vec<_> = nodes
        .iter()
        .flat_map(|node| &node.bytes)
        .filter(|bytes| bytes.operation == Operation::Write)
        .map(|bytes| bytes.traced.clone().map(|totals| totals.bytes))
        .collect();
    assert_eq!(written, [Figure::Value(MOVED / 4), Figure::Value(MOVED / 4 * 3 - 4096)]);
}

#[test]
fn pages_have_the_table_and_machines_alone_have_none() {
    assert!(html(&derive(&of_two_nodes(MOVED / 2, 0))).unwrap().contains("nodes: "));
    let alone = derive(&contents(&study(None, 2, 1), outcome));
    assert!(!text(&alone, Style::default()).contains("nodes: "));
    let json = serde_json::to_string(&alone).unwrap();
    assert!(!json.contains("\"nodes\""), "results of one machine are as before");
}
