// SPDX-License-Identifier: MIT OR Apache-2.0
//! A QEMU that is not installed. Its root directory contains a dynamic loader, libraries, modules
//! and firmware, which the host's files never replace.
//!
//! QEMU can run as another user than this program, and that user cannot reach a directory in root's
//! home. Therefore QEMU inherits the directory as an open descriptor, and all its paths begin with
//! it.

#![allow(clippy::disallowed_methods, reason = "joins fixed names to a directory of this program")]

use std::{
    ffi::OsString,
    os::fd::{OwnedFd, RawFd},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::{
    device::{descriptor, path_of},
    error::VmError,
    limits::QemuLimits,
};

/// Environment variable with the directory of QEMU's modules (util/module.c of QEMU). Without it,
/// QEMU searches its built-in path.
const MODULES: &str = "QEMU_MODULE_DIR";
/// The directory of QEMU's modules, in a directory of libraries.
const MODULES_IN_LIBRARIES: &str = "qemu";

/// The root directory of a QEMU that is not installed, and paths in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnRoot {
    /// The root directory.
    pub directory: PathBuf,
    /// The dynamic loader (ld.so(8)), relative to the root directory.
    pub loader: PathBuf,
    /// Directories with libraries, relative to the root directory, in the order of their search.
    pub libraries: Vec<PathBuf>,
    /// Directories with firmware, relative to the root directory.
    pub firmware: Vec<PathBuf>,
    /// The QEMU program, relative to the root directory.
    pub program: PathBuf,
}

impl OwnRoot {
    /// Returns the command line, which begins with the loader, for the directory at `root`.
    fn command_line(&self, root: &Path) -> Vec<OsString> {
        let libraries: Vec<_> = self.libraries.iter().map(|path| root.join(path).into_os_string()).collect();
        let mut line = vec![
            root.join(&self.loader).into_os_string(),
            // Ignores the host's libraries, which have other versions.
            "--inhibit-cache".into(),
            "--library-path".into(),
            libraries.join(std::ffi::OsStr::new(":")),
            root.join(&self.program).into_os_string(),
        ];
        for directory in &self.firmware {
            line.extend(["-L".into(), root.join(directory).into_os_string()]);
        }
        line
    }

    /// Returns the directory of QEMU's modules, if there is one.
    fn modules(&self) -> Option<PathBuf> {
        let places = self.libraries.iter().map(|path| path.join(MODULES_IN_LIBRARIES));
        places.into_iter().find(|path| self.directory.join(path).is_dir())
    }
}

/// Returns the command that starts a QEMU program, with or without its own root directory. It is
/// for people and for a journal.
pub(crate) fn command_line(program: &Path, own_root: Option<&OwnRoot>) -> Vec<OsString> {
    own_root.map_or_else(|| vec![program.into()], |root| root.command_line(&root.directory))
}

/// Returns a command without arguments that starts `program` with the environment of `limits`, and
/// the descriptor that it must inherit.
///
/// # Errors
/// [`VmError::Input`] if the root directory cannot be opened.
pub(crate) fn command(
    program: &Path,
    own_root: Option<&OwnRoot>,
    limits: &QemuLimits,
) -> Result<(Command, Option<(OwnedFd, RawFd)>), VmError> {
    let Some(root) = own_root else {
        let mut command = Command::new(absolute(program));
        limits.environment(&mut command);
        return Ok((command, None));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&root.directory, flags, Mode::empty()).map_err(|error| VmError::Input {
        what: "the directory of QEMU",
        path: root.directory.clone(),
        source: error.into(),
    })?;
    let place = PathBuf::from(path_of(descriptor::QEMU));
    let mut line = root.command_line(&place).into_iter();
    let mut command = Command::new(line.next().unwrap_or_default());
    command.args(line);
    limits.environment(&mut command);
    command.env_remove("LD_LIBRARY_PATH");
    if let Some(modules) = root.modules() {
        command.env(MODULES, place.join(modules));
    }
    Ok((command, Some((opened, descriptor::QEMU))))
}

/// Returns a path of `program` that is valid in any directory.
fn absolute(program: &Path) -> PathBuf {
    if program.components().count() < 2 {
        // A name to be searched for on `PATH`.
        return program.to_owned();
    }
    std::path::absolute(program).unwrap_or_else(|_| program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{confine::Confinement, machine::Accelerator};

    fn own_root(directory: &Path) -> OwnRoot {
        OwnRoot {
            directory: directory.to_owned(),
            loader: "usr/bin/loader".into(),
            libraries: vec!["lib/x".into(), "usr/lib/x".into()],
            firmware: vec!["usr/share/qemu".into()],
            program: "usr/bin/qemu-system-x86_64".into(),
        }
    }

    #[test]
    fn the_command_line_for_people_has_paths_that_exist_and_the_other_the_inherited_directory() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("usr/lib/x/qemu")).unwrap();
        let root = own_root(directory.path());
        let shown =
            crate::machine::shell_command(&command_line(Path::new("ignored"), Some(&own_root(Path::new("/q")))));
        let expected = "/q/usr/bin/loader --inhibit-cache --library-path /q/lib/x:/q/usr/lib/x /q/usr/bin/qemu-system-x86_64 -L /q/usr/share/qemu";
        assert_eq!(shown, expected);
        let (limits, _) =
            Confinement { sandbox: true, own_user: false, lacking: Vec::new() }.limits(Accelerator::Tcg, 1);
        let (command, inherited) = command(Path::new("ignored"), Some(&root), &limits).unwrap();
        let command = command.as_std();
        assert_eq!(command.get_program(), "/dev/fd/907/usr/bin/loader");
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        assert_eq!(
            arguments,
            [
                "--inhibit-cache",
                "--library-path",
                "/dev/fd/907/lib/x:/dev/fd/907/usr/lib/x",
                "/dev/fd/907/usr/bin/qemu-system-x86_64",
                "-L",
                "/dev/fd/907/usr/share/qemu"
            ]
        );
        let variable = |name: &str| {
            let mut all = command.get_envs().filter(|(key, _)| *key == name);
            all.next().and_then(|(_, value)| value.map(|value| value.to_string_lossy().into_owned()))
        };
        assert_eq!(variable(MODULES).as_deref(), Some("/dev/fd/907/usr/lib/x/qemu"));
        assert_eq!(variable("LD_LIBRARY_PATH"), None);
        assert_eq!(inherited.unwrap().1, 907);
    }

    #[test]
    fn a_directory_that_is_gone_is_named() {
        let (limits, _) =
            Confinement { sandbox: true, own_user: false, lacking: Vec::new() }.limits(Accelerator::Tcg, 1);
        let error = command(Path::new("x"), Some(&own_root(Path::new("/nonexistent/q"))), &limits).unwrap_err();
        assert!(error.to_string().contains("the directory of QEMU /nonexistent/q"), "{error}");
    }
}
