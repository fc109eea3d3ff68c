//! What tests of the command share.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The command, in a directory of its own.
pub(crate) fn bpfassay(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bpfassay"));
    command.current_dir(directory).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A study of `vm-tests/`.
pub(crate) fn study(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vm-tests").join(name)
}

/// Standard output and standard error, for messages of failing tests.
pub(crate) fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
