// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures along a series of kernels.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::Arch;
use bpfassay_report::{
    render::{Style, trend_markdown, trend_text},
    trend::{Quantity, trend},
};
use bpfassay_results::Results;
use bpfassay_study::Clock;

use crate::common::made_up::series;

#[test]
fn the_kernel_that_made_it_costlier_is_found() {
    let trend = trend(&[("one".to_owned(), series(Clock::Instructions))]).unwrap();
    let is_fexit = |series: &&bpfassay_report::trend::TrendSeries| series.under_test == "fexit";
    let found = trend.series.iter().find(is_fexit).unwrap();
    assert_eq!(found.quantity, Quantity::InstructionsPerCall);
    let labels: Vec<&str> = found.points.iter().map(|point| point.label.as_str()).collect();
    assert_eq!((labels[0], labels[3], labels[23]), ("6.18.1", "6.18.4", "6.18.24"));
    assert!(found.points[3].value.value().is_none(), "what was refused is not measured");
    let segmentation = found.segmentation.value().unwrap();
    let [change] = segmentation.changes.as_slice() else { panic!("{segmentation:?}") };
    assert_eq!((labels[change.last_before], labels[change.first_after]), ("6.18.12", "6.18.13"));
    assert!((change.ratio.value - 1.1).abs() < 0.005, "{change:?}");
    assert!(trend.changes().all(|(series, _)| series.under_test == "fexit"), "the others do not change");
}

#[test]
fn without_counted_instructions_there_are_overheads() {
    let trend = trend(&[("one".to_owned(), series(Clock::Wall))]).unwrap();
    let quantities: Vec<Quantity> = trend.series.iter().map(|series| series.quantity).collect();
    assert!(quantities.contains(&Quantity::Overhead) && !quantities.contains(&Quantity::InstructionsPerCall));
}

#[test]
fn several_results_follow_one_another() {
    let one = series(Clock::Instructions);
    let trend_of_two = trend(&[("may".to_owned(), one.clone()), ("june".to_owned(), one.clone())]).unwrap();
    let points = &trend_of_two.series[0].points;
    assert_eq!((points.len(), points[0].label.as_str(), points[24].label.as_str()), (48, "6.18.1 may", "6.18.1 june"));
    assert!(trend::<Results>(&[]).is_err());
    assert!(trend(&[("a".to_owned(), one), ("b".to_owned(), series(Clock::Wall))]).is_err());
}

#[test]
fn trends_as_they_look() {
    let trend = trend(&[("one".to_owned(), series(Clock::Instructions))]).unwrap();
    insta::assert_snapshot!(trend_text(&trend, Style::default()));
    insta::assert_snapshot!(trend_markdown(&trend));
}

/// The stored series has two steps that a permutation test with a pooled variance did not find.
/// `fexit` reads from 6.17.13 to 6.18.5 take 7 % less on x86_64 and 21 % less on aarch64.
#[test]
fn steps_between_quiet_stretches_of_the_stored_series_are_found() {
    let stored = crate::common::quick::results_of("kernel-series");
    let trend = trend(&[("stored".to_owned(), stored)]).unwrap();
    for (arch, ratio) in [(Arch::X86_64, 0.929), (Arch::Aarch64, 0.785)] {
        let is_meant = |series: &&bpfassay_report::trend::TrendSeries| {
            series.arch == arch && series.under_test == "fexit" && &*series.metric == "read"
        };
        let series = trend.series.iter().find(is_meant).unwrap();
        let label = |index: usize| series.points[index].label.as_str();
        let found = series.segmentation.value().unwrap();
        let change = found.changes.iter().find(|change| label(change.first_after) == "6.18.5");
        let change = change.unwrap_or_else(|| panic!("{arch}: {found:?}"));
        assert_eq!(label(change.last_before), "6.17.13");
        assert!((change.ratio.value - ratio).abs() < 0.01, "{arch}: {change:?}");
    }
}
