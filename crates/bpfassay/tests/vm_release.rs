// SPDX-License-Identifier: MIT OR Apache-2.0
//! A release of this command and of the guest's programs in the cache, used by somebody who has neither a checkout nor a cache.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and says aloud what it skips")]

mod common;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use common::{guests_wanted, printed};
use serde_json::Value;

#[test]
fn a_release_is_all_that_its_user_needs() {
    // It boots none, but needs the programs of guests.
    if !guests_wanted() {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let directory = work.path().join("release");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(root.join("ci/release"));
    command.args(["--no-testbed", "--command", env!("CARGO_BIN_EXE_bpfassay")]).arg(env!("CARGO_PKG_VERSION"));
    // Its last step uses it from the directory `/`, with an empty cache, offline.
    let output = command.arg(&directory).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let provenance: Value = serde_json::from_slice(&fs::read(directory.join("provenance.json")).unwrap()).unwrap();
    assert_eq!(provenance["version"], env!("CARGO_PKG_VERSION"));
    for arch in ["x86_64", "aarch64", "riscv64"] {
        let programs = &provenance["guest_programs"][arch];
        assert!(programs["toolchain"].as_array().is_some_and(|packages| packages.len() > 10), "{programs}");
    }
    let sums = fs::read_to_string(directory.join("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 8, "{sums}");

    let mut again = Command::new(root.join("ci/release"));
    let output = again.args(["--no-testbed", "0.0.0"]).arg(&directory).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.code() == Some(2) && printed(&output).contains("is not empty"), "{}", printed(&output));
}
