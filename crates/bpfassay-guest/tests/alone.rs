//! The agent outside a guest.

use std::process::Command;

/// Started by hand on somebody's machine it must not mount anything or power off.
#[test]
fn outside_a_guest_it_refuses_to_run() {
    let output = Command::new(env!("CARGO_BIN_EXE_bpfassay-guest")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("runs as process 1 only"));
}
