// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian packages that this host lacks, and installing them.
//!
//! Not here: asking whether they may be installed (the command).

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use bpfassay_protocol::Arch;
use bpfassay_testbed::{
    apt::missing_host_packages,
    stages::{Kind, Stages, Step},
};
use bpfassay_vm::qemu::is_on_path;

use crate::Error;

/// The Debian packages of `needed`, and of QEMU for `archs`, that this host lacks. Where nothing is `needed`, the guests are made
/// elsewhere, and QEMU need not come from Debian's packages.
///
/// # Errors
/// [`Error::Testbed`] where packages are needed and the host has no dpkg.
pub fn missing_packages(needed: &[&str], archs: &BTreeSet<Arch>) -> Result<Vec<String>, Error> {
    let is_wanted = |arch: &&Arch| !needed.is_empty() || !is_on_path(**arch);
    let qemu = archs.iter().filter(is_wanted).flat_map(|&arch| arch.facts().qemu_packages.split_whitespace());
    let wanted: Vec<&str> = needed.iter().copied().chain(qemu).collect();
    match missing_host_packages(&wanted) {
        // No Debian: the search for QEMU reports what is missing.
        Err(bpfassay_testbed::Error::Program { .. }) if needed.is_empty() => Ok(Vec::new()),
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
        let mut apt = Command::new("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        if arguments[0] == "install" {
            apt.args(packages);
        }
        let output = apt.output().map_err(|error| format!("apt-get cannot be run: {error}"))?;
        // A mirror of one suite may fail to answer while the packages are in another: only the installation decides.
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
