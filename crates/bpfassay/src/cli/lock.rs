// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `lock`.

use std::path::PathBuf;

use bpfassay_testbed::testbed_lock::Wanted;
use clap::Args;

/// Arguments of `lock`.
#[derive(Debug, Args)]
pub(crate) struct Lock {
    /// Choose anew, print what changes, and write the file: everything, or only what is named
    #[arg(long)]
    pub(crate) update: bool,

    /// With --update: a kernel of the catalogue (6.12), which then means its newest build, or the one named (6.12=6.12.107); or `toolchain`
    #[arg(value_name = "WHAT", requires = "update")]
    pub(crate) what: Vec<Wanted>,

    /// The file to update; made where it does not exist
    #[arg(long, value_name = "FILE", default_value = "testbed.lock", requires = "update")]
    pub(crate) file: PathBuf,
}
