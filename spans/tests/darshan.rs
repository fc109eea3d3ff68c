// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the spans of an IOR run with the log of Darshan. Both files were recorded in one run of
//! IOR 4.1 with MPICH 4.0 and Darshan 3.5 on two ranks (`ci/checks/spans` repeats that). Only the
//! lines on MPI-IO are kept of darshan-parser's output.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/darshan").join(name)
}

fn compare(spans: &Path, parsed: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bpfassay-spans"));
    command.arg("darshan").arg("--spans").arg(spans).arg("--parsed").arg(parsed);
    command.output().unwrap()
}

#[test]
fn a_real_log_has_the_bytes_of_the_spans() {
    let output = compare(&recorded("otlp.jsonl"), &recorded("parsed.txt"));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = fs::read_to_string(recorded("expected.jsonl")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn another_log_differs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("parsed.txt");
    let text = fs::read_to_string(recorded("parsed.txt")).unwrap();
    let changed = text.replacen("MPIIO_BYTES_READ\t262144", "MPIIO_BYTES_READ\t262145", 1);
    assert_ne!(changed, text);
    fs::write(&path, changed).unwrap();
    let output = compare(&recorded("otlp.jsonl"), &path);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stdout).contains(r#""equal":false"#));
}

#[test]
fn files_of_another_kind_are_refused() {
    let (spans, parsed) = (recorded("otlp.jsonl"), recorded("parsed.txt"));
    for (one, other, problem) in [
        (&parsed, &parsed, "parsed.txt: line 1 is not of OTLP in JSON"),
        (&spans, &spans, "otlp.jsonl: it has no record of the module MPI-IO"),
        (&recorded("gone"), &parsed, "gone: cannot read it"),
    ] {
        let output = compare(one, other);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(problem), "{error}");
    }
}
