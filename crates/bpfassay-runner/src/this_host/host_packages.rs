// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the Debian packages that this host lacks, and installs them. The command asks first.

use std::{collections::BTreeSet, process::Stdio};

use bpfassay_packages::{
    apt::missing_host_packages,
    error::PackagesError,
    stages::{ProgressStep, StageKind, Stages},
};
use bpfassay_protocol::Arch;
use bpfassay_vm::qemu::{is_of_packages, is_on_path};

use crate::{error::Error, this_host::qemu_source::QemuSource};

/// Returns the packages that this host lacks: those of `needed`, and QEMU for `archs`.
///
/// QEMU's packages are not needed if QEMU comes from the lock, or if `PATH` has another QEMU than
/// Debian's. If nothing is `needed`, the guests come from elsewhere, and any QEMU on `PATH` is
/// enough. Nothing is missing on a host without dpkg, where whatever lacks a program reports it.
///
/// # Errors
/// [`Error::Testbed`] if the compiled-in lock is invalid.
pub fn missing_packages(
    needed: &[&str],
    archs: &BTreeSet<Arch>,
    qemu: Option<QemuSource>,
) -> Result<Vec<String>, Error> {
    let mut wanted = needed.to_vec();
    for &arch in archs {
        let is_host = QemuSource::resolved(qemu, arch)? == QemuSource::Host;
        // Debian's QEMU needs firmware, which is in other packages.
        if is_host && (!is_on_path(arch) || (!needed.is_empty() && is_of_packages(arch))) {
            wanted.extend(arch.facts().qemu_packages.split_whitespace());
        }
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    match missing_host_packages(&wanted) {
        Err(PackagesError::Program { .. }) => Ok(Vec::new()),
        missing => Ok(missing?),
    }
}

/// Returns the command that installs `packages`.
#[must_use]
pub fn install_command(packages: &[String]) -> String {
    format!("apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Installs the Debian packages `packages` on this host as a stage. This requires root.
///
/// # Errors
/// The reason why they could not be installed.
pub fn install_packages(packages: &[String], stages: &Stages) -> Result<(), String> {
    tracing::info!("installing {}", packages.join(" "));
    stages.during(StageKind::HostPackages, "", |stage| {
        stage.step(ProgressStep::Install, 0);
        install(packages)
    })
}

fn install(packages: &[String]) -> Result<(), String> {
    for arguments in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends"][..]] {
        // Half-installed packages are worse than an apt-get that outlives this program.
        let mut apt = bpfassay_child::lasting("apt-get", &[bpfassay_child::NETWORK, &["APT_CONFIG"]]);
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        if arguments[0] == "install" {
            apt.args(packages);
        }
        let output = apt.output().map_err(|error| format!("apt-get cannot be run: {error}"))?;
        // The update can fail for one suite's mirror. The installation decides.
        if !output.status.success() && arguments[0] == "install" {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed no reason");
            return Err(format!("apt-get failed: {last}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_every_package() {
        assert_eq!(
            install_command(&["opensbi".to_owned(), "xz-utils".to_owned()]),
            "apt-get install --no-install-recommends opensbi xz-utils"
        );
    }
}
