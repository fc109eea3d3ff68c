// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracer's eBPF programs in Rust: one object per map layout and architecture (whose registers
//! the programs read), which the tracer's build embeds.
//!
//! They are compiled by the same cargo from the same stage, for the target `bpfel-unknown-none`,
//! with the standard library's `core` that Debian ships for it. They change less often than the
//! programs around them, so the cache keeps them apart.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use bpfassay_protocol::Arch;
use serde::{Deserialize, Serialize};

use super::{Building, PROFILE, Reuse, Stage, logged::Logged};
use crate::{
    Error, Result,
    cache::{Cache, Digest},
    stages::Step,
    toolchain::sandbox,
};

/// The package with the programs; each of its binaries is one object.
const PACKAGE: &str = bpfassay_stage::EBPF;

/// The environment variable with the directory of the objects, for the tracer's build script.
pub(super) const VARIABLE: &str = "BPFASSAY_EBPF_OBJECTS";

/// Their place in the target directory: a directory for each architecture.
pub(super) const DIRECTORY: &str = "ebpf";

/// The linker that rustc calls.
pub(super) const LINKER: &str = include_str!("link.sh");

/// Its place in the target directory.
const LINKER_FILE: &str = "link.sh";

/// To be changed whenever other objects are built of the same source, linker and toolchain.
const KEY_VERSION: &str = "1";

/// Kind of cache record: source and architecture → objects.
const RECORD: &str = "ebpf";

/// Rust's name of the target.
const TARGET: &str = "bpfel-unknown-none";

/// What the cache remembers of a build.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// By the name of the binary, which is that of the map layout.
    objects: BTreeMap<String, Digest>,
    toolchain_key: Digest,
}

/// Puts the objects for `arch` below [`DIRECTORY`] in the target directory of `building`: from the
/// cache, or built.
///
/// # Errors
/// [`Error::Build`] for a build that fails, [`Error::Stage`], and those of the cache.
pub(super) fn provide(building: &Building<'_>, stage: &Stage, arch: Arch) -> Result<()> {
    let cache = building.apt.cache();
    // Of what is being built: the workspace may have changed since it was staged.
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
        Reuse::Known => cache.record(RECORD, &key, &Recorded { objects, toolchain_key: building.toolchain.key }),
        Reuse::Nothing => Ok(()),
    }
}

/// Copies the objects of `key` into `directory`, if the cache has them all.
fn take(cache: &Cache, key: &Digest, toolchain: Digest, directory: &Path) -> Result<bool> {
    let Some(recorded) = cache.recorded::<Recorded>(RECORD, key)? else { return Ok(false) };
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

/// Where cargo leaves an object, whichever architecture it is for.
fn object(building: &Building<'_>, name: &str) -> PathBuf {
    building.target.join(TARGET).join(PROFILE).join(name)
}

fn build(building: &Building<'_>, arch: Arch) -> Result<()> {
    // The previous architecture's objects have the same names: none of them may be taken for this
    // one's.
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
    let run = Logged { program: sandbox::PROGRAM, package: sandbox::PACKAGE, log: &log };
    run.build(command, Step::CompileEbpf, building.apt.stage(), "build the tracer's eBPF programs in Rust")
}

/// Cargo's environment besides the one for every program.
fn variables_for(arch: Arch) -> Vec<(String, String)> {
    let linker = format!("/target/{LINKER_FILE}");
    [
        // All crates become one file of bitcode, from which the linker makes the object.
        ("CARGO_PROFILE_PAYLOAD_LTO", "fat"),
        ("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &linker),
        ("BPFASSAY_LLVM_SUFFIX", "-22"),
        // Not those of the other programs: `+crt-static` means nothing here.
        ("RUSTFLAGS", "-C debuginfo=0"),
        // aya-ebpf writes one empty `asm!` block, which is not yet stable for this target.
        ("RUSTC_BOOTSTRAP", "1"),
        // Whose registers a kprobe's context has: read by aya-ebpf's build script.
        ("AYA_BPF_TARGET_ARCH", arch.name()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}
