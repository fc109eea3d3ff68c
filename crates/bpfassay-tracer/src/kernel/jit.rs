// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel JIT-compiles BPF programs.

use std::{fs, io};

/// The setting, which is a whole number (Documentation/admin-guide/sysctl/net.rst).
const ENABLE: &str = "/proc/sys/net/core/bpf_jit_enable";

/// Reads the text of the setting.
///
/// # Errors
/// The kernel was built without the setting. It then always compiles, or has no JIT compiler.
pub(crate) fn setting() -> io::Result<String> {
    fs::read_to_string(ENABLE).map(|text| text.trim().to_owned())
}

/// Returns whether the kernel compiles programs. A kernel without the setting always does.
pub(crate) fn has_jit() -> bool {
    setting().map_or(true, |text| text != "0")
}
