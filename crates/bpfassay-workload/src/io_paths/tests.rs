// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::io_path::{Amount, Expected};

use super::*;

/// Runs `path` in `directory` and returns what its phase moved, or the refusal.
fn one(
    path: IoPath,
    size: usize,
    directory: &std::path::Path,
) -> Result<std::collections::BTreeMap<Operation, bpfassay_protocol::operation::Totals>, RefusedCall> {
    let mut stage = PathStage::new(path, size, directory, None);
    match run_path(&mut stage) {
        Ok(()) => {
            assert_eq!(stage.phases.len(), 1, "{path}");
            Ok(stage.phases.remove(0))
        }
        Err(PathFailure::Refused { call, source }) => Err(refusal(call, &source)),
        Err(PathFailure::Failed(error)) => panic!("{error}"),
    }
}

/// Returns whether every file system and kernel has this path.
fn is_everywhere(path: IoPath) -> bool {
    let calls = path.calls();
    !["io_uring", "io_submit", "O_DIRECT", "RWF_", "copy_file_range", "fallocate"]
        .iter()
        .any(|name| calls.contains(name))
        && path != IoPath::SendfilePipe
}

#[test]
fn each_phase_moves_what_the_table_expects() {
    let directory = tempfile::tempdir().unwrap();
    // The second size is not a multiple of the transfer size.
    for size in [4096, 5 * stage::CHUNK + 8192] {
        for &path in IoPath::ALL {
            let place = directory.path().join(format!("{size}-{path}"));
            fs::create_dir(&place).unwrap();
            let moved = match one(path, size, &place) {
                Ok(moved) => moved,
                Err(refused) => {
                    assert!(!is_everywhere(path) && refused.errno > 0, "{path}: {refused:?}");
                    continue;
                }
            };
            assert_eq!(moved.len(), path.expected().len(), "{path}: {moved:?}");
            for &Expected { operation, amount } in path.expected() {
                let totals = moved[&operation];
                let transfers = size.div_ceil(stage::CHUNK) as u64;
                let (bytes, errors) = (totals.bytes, totals.errors);
                match amount {
                    Amount::Whole => assert_eq!((bytes, errors), (size as u64, 0), "{path}"),
                    Amount::Pages => assert_eq!((totals.calls, bytes, errors), (0, size as u64, 0), "{path}"),
                    Amount::Nothing => {
                        assert_eq!((totals.calls, bytes, errors), (path_names::COUNT as u64, 0, 0), "{path}")
                    }
                    Amount::Errors => {
                        assert_eq!(
                            (totals.calls, bytes, errors),
                            (path_names::COUNT as u64, 0, path_names::COUNT as u64),
                            "{path}"
                        );
                    }
                    Amount::NoCall => assert_eq!((totals.calls, bytes, errors), (0, 0, 0), "{path}"),
                }
                assert!(amount != Amount::Whole || totals.calls >= transfers, "{path}: {totals:?}");
            }
        }
    }
}

#[test]
fn a_run_leaves_a_summary_and_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    let file = directory.path().join("summary.json");
    let run = IoPathsRun { directory: data.clone(), size: 32 << 10, summary: Some(file.clone()) };
    let summary = run.start().unwrap();
    assert_eq!(summary.paths.iter().map(|report| report.path).collect::<Vec<_>>(), IoPath::ALL);
    assert!(summary.paths.iter().all(|report| report.refused.is_none() || !is_everywhere(report.path)));
    assert_eq!(serde_json::from_slice::<IoPathsSummary>(&fs::read(file).unwrap()).unwrap(), summary);
    assert_eq!(fs::read_dir(data).unwrap().count(), 0);
}

#[test]
fn sizes_that_no_path_can_move_are_refused() {
    for size in [0, 1, 4095, 6000, MAX_SIZE + 4096] {
        let run = IoPathsRun { directory: "/nowhere".into(), size, summary: None };
        assert!(matches!(run.start(), Err(PathsError::Size { .. })), "{size}");
    }
}

#[test]
fn a_call_that_is_refused_is_reported_with_its_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut stage = PathStage::new(IoPath::Pread, 4096, directory.path(), None);
    let refused =
        reading(&mut stage, 0, "pread64", Operation::Read, |_, _, _| Err(io::Error::from_raw_os_error(libc::ENOSYS)));
    let Err(PathFailure::Refused { call, source }) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal(call, &source).errno, libc::ENOSYS);
    // The phase ended nevertheless, and the call was counted.
    assert_eq!(stage.phases[0][&Operation::Read].errors, 1);
}

#[test]
fn data_that_did_not_arrive_end_the_workload() {
    let directory = tempfile::tempdir().unwrap();
    let mut stage = PathStage::new(IoPath::Pread, 8192, directory.path(), None);
    let lost = reading(&mut stage, 0, "pread64", Operation::Read, |_, into, _| Ok(into.len()));
    let Err(PathFailure::Failed(error)) = lost else { panic!("{lost:?}") };
    assert_eq!(error.to_string(), "pread: wrong data at offset 0 of 8192 bytes");
    let none = reading(&mut stage, 0, "pread64", Operation::Read, |_, _, _| Ok(0));
    assert!(matches!(none, Err(PathFailure::Failed(PathsError::Call { .. }))));
}
