// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results that are published without their journal.

use std::process::Command;

use bpfassay_report::{
    check_results::{Soundness, check},
    overheads_again,
};
use bpfassay_results::{Figure, Overhead, Results, file};
use bpfassay_stats::Bounds;

use crate::common::quick;

#[test]
fn published_results_are_checked_without_their_journal() {
    let checked = check(&quick::folder());
    assert!(checked.iter().all(|one| one.soundness == Soundness::Sound), "{checked:?}");
    let page = std::fs::read_to_string(quick::folder().join("README.md")).unwrap();
    let fingerprint = checked[0].message.rsplit(' ').next().unwrap();
    assert!(page.contains(fingerprint), "{}", checked[0].message);
    // Unpacked, they look like a results directory that lost its journal.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("results.json"), quick::text_of("quick")).unwrap();
    assert_eq!(check(directory.path())[0].soundness, Soundness::Wrong);
}

/// Returns every overhead and A/A control.
fn overheads(results: &Results) -> impl Iterator<Item = &Overhead> {
    let metrics = results.cells.iter().flat_map(|cell| &cell.metrics);
    metrics.flat_map(|metric| [&metric.overhead, &metric.control]).filter_map(Figure::value)
}

#[test]
fn recorded_overheads_are_those_of_this_version() {
    for study in ["quick", "kernel-series"] {
        let recorded = quick::results_of(study);
        let again = overheads_again(recorded.clone());
        if std::env::var_os("BPFASSAY_UPDATE_REPORT").is_some() {
            let directory = tempfile::tempdir().unwrap();
            let path = file::write(directory.path(), &again).unwrap();
            assert!(Command::new("xz").arg("-9e").arg(&path).status().unwrap().success());
            std::fs::copy(path.with_extension("json.xz"), quick::folder_of(study).join(file::PACKED_NAME)).unwrap();
        }
        let differ = overheads(&quick::results_of(study)).zip(overheads(&again)).filter(|(was, is)| was != is).count();
        assert_eq!(differ, 0, "results/{study}: run BPFASSAY_UPDATE_REPORT=1 cargo test -p bpfassay-report published");
        let intervals = || overheads(&again).filter_map(|one| Some((one, one.estimate.bounds.interval()?)));
        for (overhead, interval) in intervals() {
            let half = (interval.upper / interval.lower).ln() / 2.0;
            assert!(overhead.detectable.is_none_or(|detectable| detectable.ln() > half), "{study}: {overhead:?}");
        }
        let mut bare =
            overheads(&again).filter(|one| matches!(one.estimate.bounds, Bounds::OneObservation | Bounds::NoSpread));
        assert!(bare.all(|one| one.detectable.is_none()), "{study}");
    }
}
