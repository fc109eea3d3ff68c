// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the QEMU for tests as the command does: on `PATH`, or the one of `testbed.lock`.
//!
//! The QEMU of the lock is in the user's cache. A test's QEMU can run as another user without
//! access to the cache. So QEMU is copied, and a script starts the copy.

use std::{
    env, fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use bpfassay_packages::{
    apt::{Apt, AssetSource, FetchOptions},
    cache::Cache,
};
use bpfassay_testbed::{
    Arch,
    locked_qemu::{Emulator, TrustedPackages},
};

/// Why a test has no QEMU.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// The QEMU of the lock is not in the cache and cannot be created there.
    #[error("no {program} on PATH, and that of testbed.lock cannot be had: install QEMU, or make the cache reachable")]
    Lock {
        /// The program that `PATH` lacks.
        program: String,
        /// The error of the testbed.
        #[source]
        source: bpfassay_testbed::Error,
    },
    /// The QEMU of the lock cannot be copied.
    #[error("cannot copy the QEMU of testbed.lock to {}: free space there, or name another place with TMPDIR", directory.display())]
    Copy {
        /// The destination.
        directory: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Finds the QEMU for guests of `arch`. Any user with access to `directory` can start the result.
/// The QEMU of the lock is copied to `directory`, once.
///
/// # Errors
/// [`QemuError`] if `PATH` has none, and the QEMU of the lock cannot be downloaded or copied.
pub fn program(arch: Arch, directory: &Path) -> Result<PathBuf, QemuError> {
    let name = format!("qemu-system-{arch}");
    let paths = env::var_os("PATH").unwrap_or_default();
    if let Some(found) = env::split_paths(&paths).map(|path| path.join(&name)).find(|path| path.is_file()) {
        return Ok(found);
    }
    let emulator = of_lock().map_err(|source| QemuError::Lock { program: name.clone(), source })?;
    let root = directory.join("qemu-of-lock");
    let script = root.join(&name);
    placed(&emulator, arch, &root, &script).map_err(|source| QemuError::Copy { directory: root, source })?;
    Ok(script)
}

/// Returns the QEMU of the lock from the cache, or makes it there. It honours the command's
/// environment variables for sources.
fn of_lock() -> bpfassay_testbed::Result<Emulator> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let place = |name: &str| variable(name).and_then(|text| text.parse::<AssetSource>().ok());
    let options = FetchOptions {
        from: place("BPFASSAY_FROM").into_iter().collect(),
        mirror: variable("BPFASSAY_MIRROR"),
        archive: place("BPFASSAY_ARCHIVE"),
        ..FetchOptions::default()
    };
    let cache = Cache::open(Cache::locate(variable("BPFASSAY_CACHE").as_deref().map(Path::new))?)?;
    Emulator::prepare(&Apt::new(&cache, options), &TrustedPackages::default())
}

/// Copies `emulator` to `root` unless it exists, and writes `script`, which starts the copy for
/// guests of `arch`.
///
/// # Errors
/// The system's error if a file cannot be read or made.
fn placed(emulator: &Emulator, arch: Arch, root: &Path, script: &Path) -> io::Result<()> {
    if !root.exists() {
        copy(&emulator.root, root)?;
    }
    let at = |path: &Path| quoted(&root.join(path));
    let libraries: Vec<_> = emulator.libraries.iter().map(|path| root.join(path).display().to_string()).collect();
    let firmware: String = emulator.firmware.iter().map(|path| format!(" -L {}", at(path))).collect();
    // Options of `bpfassay_vm::OwnRoot`: the host's libraries do not replace those of QEMU.
    let text = format!(
        "#!/bin/sh\nexec {} --inhibit-cache --library-path {} {}{firmware} \"$@\"\n",
        at(emulator.loader()),
        quoted(Path::new(&libraries.join(":"))),
        at(&emulator.program(arch)),
    );
    fs::write(script, text)?;
    fs::set_permissions(script, fs::Permissions::from_mode(0o755))
}

/// Quotes the path as one word for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", String::from_utf8_lossy(path.as_os_str().as_bytes()).replace('\'', r"'\''"))
}

/// Copies the directory `from`, with hard links to its files where one file system holds both.
///
/// # Errors
/// The system's error if a file cannot be read or made.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_copy_is_whole_and_starts_with_its_own_loader() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("it's a tree");
        for path in ["usr/bin", "lib/x", "usr/share/qemu"] {
            fs::create_dir_all(tree.join(path)).unwrap();
        }
        let loader = tree.join("usr/bin/loader");
        fs::write(&loader, "#!/bin/sh\nfor word; do echo \"$word\"; done\n").unwrap();
        fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(tree.join("lib/x/lib.so.1"), "library").unwrap();
        symlink("lib.so.1", tree.join("lib/x/lib.so")).unwrap();
        let emulator = Emulator {
            root: tree.clone(),
            packages: Vec::new(),
            libraries: vec!["lib/x".into(), "usr/lib/x".into()],
            firmware: vec!["usr/share/qemu".into()],
        };
        let root = directory.path().join("another's");
        let script = root.join("qemu-system-riscv64");
        for _ in 0..2 {
            placed(&emulator, Arch::Riscv64, &root, &script).unwrap();
        }
        fs::remove_dir_all(tree).unwrap();
        assert_eq!(fs::read(root.join("lib/x/lib.so")).unwrap(), b"library");
        let output = Command::new(&script).args(["-S", "two words"]).output().unwrap();
        let at = root.display();
        let expected = format!(
            "--inhibit-cache\n--library-path\n{at}/lib/x:{at}/usr/lib/x\n{at}/usr/bin/qemu-system-riscv64\n-L\n\
             {at}/usr/share/qemu\n-S\ntwo words\n"
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }
}
