// SPDX-License-Identifier: MIT OR Apache-2.0
//! The option that selects the QEMU for guests.

use bpfassay_runner::{NotAQemuSource, QemuSource};
use clap::Args;

use super::GUESTS;
use crate::exit::{CommandFailure, USAGE};

/// The environment variable that replaces `--qemu`.
const VARIABLE: &str = "BPFASSAY_QEMU";

/// Selects the QEMU that boots guests.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct QemuChoice {
    /// QEMU of testbed.lock, or of this host
    ///
    /// `lock`: the QEMU of testbed.lock, which is unpacked into the cache, runs with its own
    /// libraries, and is the same on every machine. `host`: the QEMU on PATH. Default: the host's
    /// QEMU, or that of testbed.lock if the host has none. The variable BPFASSAY_QEMU replaces this
    /// option.
    #[arg(long, value_name = "lock|host", env = VARIABLE, hide_env = true, help_heading = GUESTS)]
    pub(crate) qemu: Option<QemuSource>,
}

/// Consent to start the QEMU of a bundle.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct EmulatorTrust {
    /// Start the QEMU of the bundle on this machine although testbed.lock does not name its
    /// packages: whoever made the bundle can then run any program here. Without this option you are
    /// asked on a terminal; elsewhere, with --yes and in CI the QEMU is refused
    #[arg(long, requires = "bundle", help_heading = GUESTS, hide_short_help = true)]
    pub(crate) trust_emulator: bool,
}

/// Returns the source that the environment names, for a command whose option `--qemu` means more.
///
/// # Errors
/// A usage failure for an invalid value.
pub(crate) fn qemu_of_environment() -> Result<Option<QemuSource>, CommandFailure> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
    let refuse = |error: NotAQemuSource| CommandFailure {
        code: USAGE,
        report: miette::miette!("the variable {VARIABLE}: {error}"),
    };
    value.to_string_lossy().parse().map(Some).map_err(refuse)
}
