// SPDX-License-Identifier: MIT OR Apache-2.0
//! The option for which QEMU boots guests.

use bpfassay_runner::{NotAQemuSource, QemuSource};
use clap::Args;

use super::GUESTS;
use crate::exit::{Failure, USAGE};

/// The variable of the environment in place of `--qemu`.
const VARIABLE: &str = "BPFASSAY_QEMU";

/// Which QEMU boots guests.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct QemuChoice {
    /// QEMU of testbed.lock, or of this host
    ///
    /// `lock`: the QEMU of testbed.lock, which is unpacked into the cache, runs with its own
    /// libraries, and is the same on every machine. `host`: the QEMU on PATH. Default: that of the
    /// host, or of testbed.lock where the host has none. The variable BPFASSAY_QEMU stands for this
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

/// The source that the environment names, for a command whose option `--qemu` says more than that.
///
/// # Errors
/// A usage failure for a value that is none.
pub(crate) fn qemu_of_environment() -> Result<Option<QemuSource>, Failure> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
    let refuse =
        |error: NotAQemuSource| Failure { code: USAGE, report: miette::miette!("the variable {VARIABLE}: {error}") };
    value.to_string_lossy().parse().map(Some).map_err(refuse)
}
