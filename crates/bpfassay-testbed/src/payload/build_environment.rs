// SPDX-License-Identifier: MIT OR Apache-2.0
//! The build environment of the guest's programs: toolchain, sources and third-party crates.

use std::{
    env,
    ffi::OsString,
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use bpfassay_packages::{
    apt::Apt,
    cache::Scratch,
    digest::Digest,
    stages::{ProgressStep, StageKind},
};
use bpfassay_protocol::Arch;
use bpfassay_stage::{PROFILE, Stage};

use super::{PayloadProgram, logged::LoggedBuild, payload_sources::Checkout};
use crate::{
    error::{Error, Result},
    toolchain::Toolchain,
};

/// The environment variable that names a target directory to keep between builds. Developers of the
/// programs use it to compile only what changed. Two builds must not use the directory at once.
const TARGET_VARIABLE: &str = "BPFASSAY_PAYLOAD_TARGET";

/// Temporary disk space of a build, in bytes: per architecture, and in common.
const SPACE_PER_ARCH: u64 = 250_000_000;
const SPACE: u64 = 400_000_000;

/// Which results of earlier builds a build can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// The cache and `BPFASSAY_PAYLOAD_TARGET`.
    Known,
    Nothing,
}

/// The toolchain and directories that build the programs of every architecture.
pub(super) struct BuildEnvironment {
    pub(super) toolchain: Toolchain,
    /// The directories that the build sees. They are deleted when this is dropped.
    pub(super) scratch: Scratch,
    pub(super) target: PathBuf,
    pub(super) reuse: Reuse,
}

impl BuildEnvironment {
    /// Collects the sources and crates for `archs` architectures while `toolchain` builds the
    /// toolchain.
    ///
    /// # Errors
    /// `PackagesError::DiskFull` and `PackagesError::Io` of the directories, [`Error::Build`] if
    /// crates cannot be collected, and the errors of `toolchain`.
    pub(super) fn prepare(
        apt: &Apt<'_>,
        checkout: &Checkout,
        toolchain: impl FnOnce() -> Result<Toolchain>,
        archs: usize,
        reuse: Reuse,
    ) -> Result<Self> {
        let Checkout { workspace, stage } = checkout;
        apt.cache().require_space("building the guest's programs", SPACE + SPACE_PER_ARCH * archs as u64)?;
        let scratch = apt.cache().scratch()?;
        let kept = env::var_os(TARGET_VARIABLE).filter(|_| reuse == Reuse::Known);
        let target = kept.map_or_else(|| scratch.path().join("target"), PathBuf::from);
        fs::create_dir_all(&target).map_err(Error::io("create", &target))?;
        let (source, vendor) = (scratch.path().join("src"), scratch.path().join("vendor"));
        stage.write(&source)?;
        let collect = || {
            apt.during(StageKind::Sources, "", |apt| {
                apt.stage().step(ProgressStep::Collect, 0);
                run_vendor(
                    workspace.as_deref().unwrap_or(&source),
                    &source,
                    &vendor,
                    apt.options().offline,
                    &log(apt, stage, "vendor"),
                )
            })
        };
        let toolchain = thread::scope(|scope| {
            let collected = scope.spawn(collect);
            let toolchain = toolchain();
            collected.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            toolchain
        })?;
        Ok(Self { toolchain, scratch, target, reuse })
    }

    /// Returns the path of a compiled program.
    pub(super) fn program(&self, arch: Arch, program: &PayloadProgram) -> PathBuf {
        self.target.join(arch.facts().rust_target).join(PROFILE).join(program.binary)
    }
}

/// Returns the path of the log of one `part` of the build of `stage`.
pub(super) fn log(apt: &Apt<'_>, stage: &Stage, part: &str) -> PathBuf {
    let name = format!("payload-{}.{part}.log", &Digest::from(stage.digest()).to_string()[..16]);
    apt.cache().root().join("logs").join(name)
}

/// Puts the packages that the stage needs into `vendor`. Runs the host's cargo, because it is
/// configured for the registries that this host can reach. Runs it in the workspace, if there is
/// one, to apply the workspace's configuration.
fn run_vendor(workspace: &Path, source: &Path, vendor: &Path, offline: bool, log: &Path) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = bpfassay_child::command(&cargo, &[bpfassay_child::CARGO, bpfassay_child::NETWORK]);
    command.current_dir(workspace).args(["vendor", "--quiet", "--versioned-dirs", "--manifest-path"]);
    command.arg(source.join("Cargo.toml")).arg(vendor);
    if offline {
        command.arg("--offline");
    }
    let run = LoggedBuild { program: &cargo.to_string_lossy(), package: "cargo", log };
    run.to_end(command, "collect the packages that the guest's programs need")?;
    let configuration = source.join(".cargo");
    fs::create_dir_all(&configuration).map_err(Error::io("create", &configuration))?;
    let path = configuration.join("config.toml");
    let text = "[source.crates-io]\nreplace-with = \"vendored\"\n\n[source.vendored]\ndirectory = \"/vendor\"\n";
    fs::write(&path, text).map_err(Error::io("write", &path))
}
