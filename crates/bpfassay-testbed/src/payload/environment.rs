// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest's programs are built in: the toolchain, the sources, and the crates of others.

use std::{
    env,
    ffi::OsString,
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use bpfassay_protocol::Arch;
use bpfassay_stage::{PROFILE, Stage};

use super::{Program, Reuse, logged::Logged, sources::Checkout};
use crate::{
    Error, Result,
    apt::Apt,
    cache::{Digest, Scratch},
    stages::{Kind, Step},
    toolchain::Toolchain,
};

/// The environment variable that names a target directory to keep between builds, for those who
/// work on the programs:
/// only what changed is compiled again then. One build at a time may use it.
const TARGET_VARIABLE: &str = "BPFASSAY_PAYLOAD_TARGET";

/// Bytes that building takes for a while: intermediate files, per architecture and for all.
const SPACE_PER_ARCH: u64 = 250_000_000;
const SPACE: u64 = 400_000_000;

/// The toolchain and directories with which programs of every architecture are built.
pub(super) struct BuildEnvironment {
    pub(super) toolchain: Toolchain,
    /// The directories that the build sees, until this is dropped.
    pub(super) scratch: Scratch,
    pub(super) target: PathBuf,
    pub(super) reuse: Reuse,
}

impl BuildEnvironment {
    /// Collects what is compiled for `archs` architectures, while `toolchain` makes the toolchain.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and [`Error::Io`] of the directories, [`Error::Build`] where crates
    /// cannot be collected, and those of
    /// `toolchain`.
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
            apt.during(Kind::Sources, "", |apt| {
                apt.stage().step(Step::Collect, 0);
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

    /// Where a program is when it has been compiled.
    pub(super) fn program(&self, arch: Arch, program: &Program) -> PathBuf {
        self.target.join(arch.facts().rust_target).join(PROFILE).join(program.binary)
    }
}

/// Where the output of a part of the build of `stage` goes.
pub(super) fn log(apt: &Apt<'_>, stage: &Stage, part: &str) -> PathBuf {
    let name = format!("payload-{}.{part}.log", &Digest::from(stage.digest()).to_string()[..16]);
    apt.cache().root().join("logs").join(name)
}

/// Puts the packages that the stage needs into `vendor`, by the host's cargo, which is configured
/// for the registries that can be reached
/// here. It runs in the workspace, if there is one, so that its configuration counts.
fn run_vendor(workspace: &Path, source: &Path, vendor: &Path, offline: bool, log: &Path) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = bpfassay_child::command(&cargo, &[bpfassay_child::CARGO, bpfassay_child::NETWORK]);
    command.current_dir(workspace).args(["vendor", "--quiet", "--versioned-dirs", "--manifest-path"]);
    command.arg(source.join("Cargo.toml")).arg(vendor);
    if offline {
        command.arg("--offline");
    }
    let run = Logged { program: &cargo.to_string_lossy(), package: "cargo", log };
    run.to_end(command, "collect the packages that the guest's programs need")?;
    let configuration = source.join(".cargo");
    fs::create_dir_all(&configuration).map_err(Error::io("create", &configuration))?;
    let path = configuration.join("config.toml");
    let text = "[source.crates-io]\nreplace-with = \"vendored\"\n\n[source.vendored]\ndirectory = \"/vendor\"\n";
    fs::write(&path, text).map_err(Error::io("write", &path))
}
