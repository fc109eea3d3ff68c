// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `testbed lock`.

use std::path::PathBuf;

use bpfassay_packages::apt::SnapshotTime;
use bpfassay_testbed::lock_update::LockPart;
use clap::Args;

use super::Packages;

/// Arguments of `testbed lock`.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// Choose anew, print what changes, and write the file: everything, or only the named parts
    #[arg(long)]
    pub(crate) update: bool,

    /// With --update: a kernel of the catalogue (6.12) in its newest build, or in the named one
    /// (6.12=6.12.107); `toolchain`; `qemu`; `tools`: the packages of the bundled tools, and
    /// busybox; or `snapshots`: only the time stamps of packages that have none
    #[arg(value_name = "WHAT", requires = "update")]
    pub(crate) what: Vec<LockPart>,

    /// With --update: the time stamp of a snapshot (20251101T000000Z) for packages that have none
    /// and are in no package list of the cache; `--archive` finds them by it
    #[arg(long, value_name = "TIME", requires = "update")]
    pub(crate) snapshot: Option<SnapshotTime>,

    /// The file to update; created if it does not exist
    #[arg(long, value_name = "FILE", default_value = "testbed.lock", requires = "update")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) packages: Packages,
}
