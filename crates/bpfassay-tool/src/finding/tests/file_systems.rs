// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures about one type of file system.

use super::*;

fn on(mount: &str, file_system: Option<&str>, calls: u64) -> CallShare {
    let file_system = file_system.map(str::to_owned);
    CallShare { file_system, ..share("a", mount, Operation::Read, calls, 0, 0) }
}

/// 33 reads on NFS, 8 on tmpfs, 5 on an unknown file system, and 100 on pipes.
fn happened() -> Truth {
    let pipes = CallShare { is_file: false, ..on("", None, 100) };
    truth(vec![on("/nfs", Some("nfs4"), 33), on("/tmp", Some("tmpfs"), 8), on("/proc", None, 5), pipes])
}

fn reported(file_systems: &[&str], calls: u64, happened: &Truth) -> Vec<FindingResult> {
    reported_of(Operation::Read, file_systems, calls, happened)
}

fn reported_of(operation: Operation, file_systems: &[&str], calls: u64, happened: &Truth) -> Vec<FindingResult> {
    let file_systems = file_systems.iter().map(|&one| one.to_owned()).collect();
    let figure = ReportedFigure { file_systems, ..figure(&[operation], CountedUnit::Calls, Whose::System) };
    counts(&report(vec![figure]), &readings(&[(10, 0, None, 0), (50, 0, None, calls), (100, 0, None, calls)]), happened)
}

#[test]
fn other_file_systems_do_not_count() {
    assert!(found(&reported(&["nfs4"], 33, &happened())).is_empty());
    assert!(found(&reported(&["nfs4", "tmpfs"], 41, &happened())).is_empty());
    assert!(!found(&reported(&["nfs4"], 41, &happened())).is_empty());
    assert!(!found(&reported(&["nfs4"], 32, &happened())).is_empty());
    // Pipes belong to no file system.
    assert!(!found(&reported(&["nfs4"], 133, &happened())).is_empty());
}

#[test]
fn what_was_done_on_a_file_system_that_is_not_known_may_be_counted() {
    assert!(found(&reported(&["nfs4"], 38, &happened())).is_empty());
    let higher = reported(&["nfs4"], 39, &happened());
    assert_eq!(found(&higher), [Kind::CountsTooHigh]);
    let evidence = evidence_of(&higher, Kind::CountsTooHigh);
    assert!(evidence.contains("39, really 33 to 38"), "{evidence}");
}

/// A file in memory (memfd) has the magic number of tmpfs, and no mount that the reference tracer
/// knows.
#[test]
fn a_figure_of_tmpfs_may_have_the_files_in_memory_of_the_agent() {
    let written = |share: CallShare| CallShare { operation: Operation::Write, ..share };
    let in_memory = CallShare { is_file: false, ..on("", None, 12_547) };
    let shares = [on("/nfs", Some("nfs4"), 33), on("/tmp", Some("tmpfs"), 8), in_memory].map(written).to_vec();
    let happened = Truth { optional: shares.clone(), ..truth(shares) };
    let reported =
        |file_systems: &[&str], calls, happened: &_| reported_of(Operation::Write, file_systems, calls, happened);
    assert!(found(&reported(&["tmpfs"], 8, &happened)).is_empty());
    assert!(found(&reported(&["tmpfs"], 12_555, &happened)).is_empty());
    assert_eq!(found(&reported(&["tmpfs"], 12_556, &happened)), [Kind::CountsTooHigh]);
    assert_eq!(found(&reported(&["nfs4"], 12_580, &happened)), [Kind::CountsTooHigh]);
}
