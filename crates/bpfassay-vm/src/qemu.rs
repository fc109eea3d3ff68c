// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds QEMU and its version.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a directory of this program")]

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    confine::{self, Confinement, PluginUse},
    error::VmError,
    own_root::{self, OwnRoot},
    qemu_version::QemuVersion,
};

/// Time for QEMU to print its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// The oldest supported QEMU, from Debian 12. Its machine types are used.
pub const MINIMUM: QemuVersion = QemuVersion { major: 7, minor: 2, micro: 0 };

/// A QEMU program and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Qemu {
    /// Architecture of the guests that it runs.
    pub arch: Arch,
    /// Path of the program.
    pub program: PathBuf,
    /// The root directory, if QEMU is not installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_root: Option<OwnRoot>,
    /// The version as a number.
    pub version: QemuVersion,
    /// The full version, with the distribution's revision: `7.2.22 (Debian
    /// 1:7.2+dfsg-7+deb12u18+b3)`.
    pub version_text: String,
    /// How this host can confine QEMU.
    pub confinement: Confinement,
}

/// Returns the name of QEMU's program for guests of `arch`.
#[must_use]
pub fn program_name(arch: Arch) -> String {
    format!("qemu-system-{arch}")
}

/// Returns whether a program with the name of the QEMU for guests of `arch` is on `PATH`.
#[must_use]
pub fn is_on_path(arch: Arch) -> bool {
    which::which(program_name(arch)).is_ok()
}

/// Returns whether the QEMU for guests of `arch` on `PATH` is where Debian's packages put it.
#[must_use]
pub fn is_of_packages(arch: Arch) -> bool {
    let is_their_place =
        |path: PathBuf| ["/usr/bin", "/bin"].iter().any(|place| path.parent() == Some(Path::new(place)));
    which::which(program_name(arch)).is_ok_and(is_their_place)
}

impl Qemu {
    /// Finds the QEMU for guests of `arch`: `program` if given, else the one on `PATH`.
    ///
    /// # Errors
    /// [`VmError::NoQemu`] if there is none. [`VmError::Spawn`] if it cannot be started.
    /// [`VmError::NotQemu`] and [`VmError::VersionSilent`] for another program.
    /// [`VmError::OldQemu`] if it is older than [`MINIMUM`].
    pub async fn find(arch: Arch, program: Option<&Path>) -> Result<Self, VmError> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => which::which(program_name(arch)).map_err(|_| VmError::NoQemu {
                arch,
                program: program_name(arch),
                packages: arch.facts().qemu_packages,
            })?,
        };
        Self::examine(arch, program, None).await
    }

    /// Examines the QEMU for guests of `arch` in its own root directory.
    ///
    /// # Errors
    /// The errors of [`Qemu::find`].
    pub async fn in_root(arch: Arch, own_root: OwnRoot) -> Result<Self, VmError> {
        Self::examine(arch, own_root.directory.join(&own_root.program), Some(own_root)).await
    }

    async fn examine(arch: Arch, program: PathBuf, own_root: Option<OwnRoot>) -> Result<Self, VmError> {
        let is_version = |printed: &str| parse_version(printed).is_some();
        let printed = confine::print((&program, own_root.as_ref()), "--version", PATIENCE, is_version).await;
        let printed = printed.map_err(|error| match error {
            VmError::Spawn { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                VmError::NoQemu { arch, program: program.display().to_string(), packages: arch.facts().qemu_packages }
            }
            VmError::Spawn { source, .. } => VmError::Spawn { program: program.clone(), source },
            error => error,
        })?;
        let Some(printed) = printed else {
            return Err(VmError::VersionSilent { program, seconds: PATIENCE.as_secs() });
        };
        let Some((version, version_text)) = parse_version(&printed) else {
            let printed =
                printed.lines().next().unwrap_or_default().replace(char::is_control, " ").chars().take(80).collect();
            return Err(VmError::NotQemu { program, printed });
        };
        if version < MINIMUM {
            return Err(VmError::OldQemu { program, version, minimum: MINIMUM });
        }
        let confinement = Confinement::find(&program, own_root.as_ref(), arch).await;
        for lacking in &confinement.lacking {
            tracing::warn!("{}: {lacking}", program.display());
        }
        Ok(Self { arch, program, own_root, version, version_text, confinement })
    }
}

impl Qemu {
    /// Starts QEMU with `plugin`, a shared object, for this `plugin_use`, and makes it quit.
    ///
    /// # Errors
    /// The reason in one line, such as QEMU's output, if QEMU does not load the plugin.
    pub async fn try_plugin(&self, plugin: &[u8], plugin_use: PluginUse) -> Result<(), String> {
        let program = (self.program.as_path(), self.own_root.as_ref());
        self.confinement.try_plugin(program, self.arch, plugin, plugin_use).await
    }

    /// Returns the beginning of the command line that starts QEMU. The arguments of a
    /// [`crate::Machine`] follow it.
    #[must_use]
    pub fn command_line(&self) -> Vec<OsString> {
        own_root::command_line(&self.program, self.own_root.as_ref())
    }
}

/// Parses number and full text of the version from the output of `--version`.
pub(crate) fn parse_version(output: &str) -> Option<(QemuVersion, String)> {
    let text = output.lines().next()?.strip_prefix("QEMU emulator version ")?.trim();
    let number = text.split([' ', '-']).next()?.parse().ok()?;
    Some((number, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_parsed() {
        for (printed, number) in [
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c)", "7.2.22"),
            ("QEMU emulator version 10.0.2\n", "10.0.2"),
            ("QEMU emulator version 9.2.50 (v9.2.0-1234-gabcdef)", "9.2.50"),
            ("QEMU emulator version 8.2.2-rc1", "8.2.2"),
        ] {
            let (version, _) = parse_version(printed).unwrap();
            assert_eq!(version.to_string(), number, "{printed}");
        }
        assert!(parse_version("QEMU emulator version seven").is_none());
        assert!(parse_version("").is_none());
        assert!("7.2".parse::<QemuVersion>().is_err());
        assert!("7.2.0.1".parse::<QemuVersion>().is_err());
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let older: QemuVersion = "9.2.0".parse().unwrap();
        assert!(older < "10.0.0".parse().unwrap());
        assert!(older > MINIMUM);
    }

    #[tokio::test]
    async fn a_missing_qemu_names_the_packages() {
        let error = Qemu::find(Arch::Riscv64, Some(Path::new("/nonexistent/qemu"))).await.unwrap_err();
        assert!(error.to_string().contains("qemu-system-misc opensbi"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_prints_its_version_for_ever_is_given_up() {
        let since = std::time::Instant::now();
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("qemu");
        std::fs::write(&program, "#!/bin/sh\nexec yes\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = Qemu::find(Arch::X86_64, Some(&program)).await.unwrap_err();
        assert!(matches!(error, VmError::VersionSilent { .. }), "{error}");
        assert!(since.elapsed() < 2 * PATIENCE);
    }

    #[tokio::test]
    async fn another_program_is_refused() {
        let error = Qemu::find(Arch::X86_64, Some(Path::new("/bin/true"))).await.unwrap_err();
        assert!(matches!(error, VmError::NotQemu { .. }), "{error}");
    }
}
