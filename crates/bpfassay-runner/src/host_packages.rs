// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian packages that this host lacks, and installing them.
//!
//! Not here: asking whether they may be installed (the command).

use std::{collections::BTreeSet, process::Stdio};

use bpfassay_protocol::Arch;
use bpfassay_testbed::{
    apt::missing_host_packages,
    stages::{Kind, Stages, Step},
};
use bpfassay_vm::qemu::{is_of_packages, is_on_path};

use crate::{Error, QemuSource};

/// The Debian packages of `needed`, and of QEMU for `archs`, that this host lacks. Where nothing is
/// `needed`, the guests are made elsewhere, and QEMU need not come from Debian's packages; nor does
/// it where it comes from the lock, or `PATH` names another one than theirs.
///
/// On a host without dpkg, which is no Debian, nothing is missing here: what lacks a program
/// reports that.
///
/// # Errors
/// [`Error::Testbed`] never, unless the lock that is compiled in is wrong.
pub fn missing_packages(
    needed: &[&str],
    archs: &BTreeSet<Arch>,
    qemu: Option<QemuSource>,
) -> Result<Vec<String>, Error> {
    let mut wanted = needed.to_vec();
    for &arch in archs {
        let is_host = QemuSource::resolved(qemu, arch)? == QemuSource::Host;
        // That of the packages needs firmware, which other packages have.
        if is_host && (!is_on_path(arch) || (!needed.is_empty() && is_of_packages(arch))) {
            wanted.extend(arch.facts().qemu_packages.split_whitespace());
        }
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    match missing_host_packages(&wanted) {
        Err(bpfassay_testbed::Error::Program { .. }) => Ok(Vec::new()),
        missing => Ok(missing?),
    }
}

/// The command that installs `packages`.
#[must_use]
pub fn install_command(packages: &[String]) -> String {
    format!("apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Installs the Debian packages `packages` on this host as a stage, which only root can do.
///
/// # Errors
/// Why they could not be installed.
pub fn install_packages(packages: &[String], stages: &Stages) -> Result<(), String> {
    tracing::info!("installing {}", packages.join(" "));
    stages.during(Kind::HostPackages, "", |stage| {
        stage.step(Step::Install, 0);
        install(packages)
    })
}

fn install(packages: &[String]) -> Result<(), String> {
    for arguments in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends"][..]] {
        // Packages that are installed in part are worse than a program that goes on.
        let mut apt = bpfassay_child::lasting("apt-get", &[bpfassay_child::NETWORK, &["APT_CONFIG"]]);
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        if arguments[0] == "install" {
            apt.args(packages);
        }
        let output = apt.output().map_err(|error| format!("apt-get cannot be run: {error}"))?;
        // A mirror of one suite may fail to answer while the packages are in another: only the
        // installation decides.
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
