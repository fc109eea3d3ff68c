// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracer's eBPF programs in Rust: one object per map layout and architecture, because programs
//! read the architecture's registers. The tracer's build embeds the objects.
//!
//! The same cargo compiles them from the same stage for the target `bpfel-unknown-none`, with the
//! `core` library that Debian ships for it. They have their own cache records, because they change
//! less often than the programs that embed them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use bpfassay_packages::{cache::Cache, digest::Digest, stages::ProgressStep};
use bpfassay_protocol::Arch;
use serde::{Deserialize, Serialize};

use super::{Building, PROFILE, Stage, build_environment::Reuse, logged::LoggedBuild};
use crate::{
    error::{Error, Result},
    toolchain::toolchain_sandbox,
};

/// The package with the programs. Each of its binaries is one object.
const PACKAGE: &str = bpfassay_stage::EBPF;

/// The environment variable that gives the directory of the objects to the tracer's build script.
pub(super) const VARIABLE: &str = "BPFASSAY_EBPF_OBJECTS";

/// Directory of the objects in the target directory. It has one directory per architecture.
pub(super) const DIRECTORY: &str = "ebpf";

/// The linker that rustc calls.
pub(super) const LINKER: &str = include_str!("link.sh");

/// File name of the linker in the target directory.
const LINKER_FILE: &str = "link.sh";

/// Change this version when the same source, linker and toolchain give other objects than before.
const KEY_VERSION: &str = "1";

/// Kind of cache record that maps source and architecture to objects.
const RECORD: &str = "ebpf";

const TARGET: &str = "bpfel-unknown-none";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedObjects {
    /// Objects by name of the binary, which is the name of the map layout.
    objects: BTreeMap<String, Digest>,
    toolchain_key: Digest,
}

/// Puts the objects for `arch` below [`DIRECTORY`] in the target directory of `building`, from the
/// cache or by building them.
///
/// # Errors
/// [`Error::Build`] for a failed build, [`Error::Stage`], and the errors of the cache.
pub(super) fn provide(building: &Building<'_>, stage: &Stage, arch: Arch) -> Result<()> {
    let cache = building.apt.cache();
    // Taken from the stage, because the workspace may have changed since it was staged.
    let source = stage.part(&[PACKAGE])?;
    let digest = Digest::from(source.digest());
    let key = Digest::of_parts([KEY_VERSION, LINKER, PROFILE, arch.name(), &digest.to_string()]);
    let directory = building.target.join(DIRECTORY).join(arch.name());
    fs::create_dir_all(&directory).map_err(Error::io("create", &directory))?;
    if building.reuse == Reuse::Known && take(cache, &key, building.toolchain.key, &directory)? {
        return Ok(());
    }
    build(building, arch)?;
    let mut objects = BTreeMap::new();
    for name in source.binaries(PACKAGE) {
        let (path, copy) = (object(building, name), directory.join(format!("{name}.o")));
        fs::copy(&path, &copy).map_err(Error::io("write", &copy))?;
        if building.reuse == Reuse::Known {
            objects.insert(name.to_owned(), cache.add_file(&format!("{name} for {arch}"), &path, None)?.digest);
        }
    }
    match building.reuse {
        Reuse::Known => {
            let recorded = RecordedObjects { objects, toolchain_key: building.toolchain.key };
            Ok(cache.record(RECORD, &key, &recorded)?)
        }
        Reuse::Nothing => Ok(()),
    }
}

/// Copies the objects of `key` into `directory`, if the cache has all of them.
fn take(cache: &Cache, key: &Digest, toolchain: Digest, directory: &Path) -> Result<bool> {
    let Some(recorded) = cache.recorded::<RecordedObjects>(RECORD, key)? else { return Ok(false) };
    if recorded.toolchain_key != toolchain {
        return Ok(false);
    }
    for (name, digest) in &recorded.objects {
        let Some(object) = cache.object(digest)? else { return Ok(false) };
        let copy = directory.join(format!("{name}.o"));
        fs::copy(&object.path, &copy).map_err(Error::io("write", &copy))?;
    }
    Ok(true)
}

/// Returns cargo's path of an object. It is the same for every architecture.
fn object(building: &Building<'_>, name: &str) -> PathBuf {
    building.target.join(TARGET).join(PROFILE).join(name)
}

fn build(building: &Building<'_>, arch: Arch) -> Result<()> {
    // Objects of the previous architecture have the same names and must not be mistaken for new
    // ones.
    let left = building.target.join(TARGET);
    if left.exists() {
        fs::remove_dir_all(&left).map_err(Error::io("remove", &left))?;
    }
    let linker = building.target.join(LINKER_FILE);
    fs::write(&linker, LINKER).map_err(Error::io("write", &linker))?;
    fs::set_permissions(&linker, fs::Permissions::from_mode(0o755)).map_err(Error::io("make executable", &linker))?;
    let mut variables = building.variables.clone();
    variables.extend(variables_for(arch));
    let mut command = building.root.command("/usr/bin/cargo", "/src", &variables);
    command.args(["build", "--frozen", "--profile", PROFILE, "--bins", "--target", TARGET, "--package", PACKAGE]);
    let log = building.log.with_extension("ebpf.log");
    let run = LoggedBuild { program: toolchain_sandbox::PROGRAM, package: toolchain_sandbox::PACKAGE, log: &log };
    run.build(command, ProgressStep::CompileEbpf, building.apt.stage(), "build the tracer's eBPF programs in Rust")
}

/// Returns Cargo variables for the eBPF build, in addition to those of every build.
fn variables_for(arch: Arch) -> Vec<(String, String)> {
    let linker = format!("/target/{LINKER_FILE}");
    [
        // All crates become one file of bitcode, from which the linker makes the object.
        ("CARGO_PROFILE_PAYLOAD_LTO", "fat"),
        ("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &linker),
        ("BPFASSAY_LLVM_SUFFIX", "-22"),
        // Replaces the flags of the other programs: `+crt-static` means nothing for this target.
        ("RUSTFLAGS", "-C debuginfo=0"),
        // aya-ebpf has one empty `asm!` block, which is not yet stable for this target.
        ("RUSTC_BOOTSTRAP", "1"),
        // aya-ebpf's build script selects the registers of a kprobe's context by it.
        ("AYA_BPF_TARGET_ARCH", arch.name()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}
