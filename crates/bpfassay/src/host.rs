// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own packages: what is missing, and installing it when the user agrees.

use std::{
    collections::BTreeSet,
    io::{BufRead, IsTerminal, Write},
    process::{Command, Stdio},
};

use bpfassay_study::Plan;
use bpfassay_testbed::stages::{Kind, Stages, Step};

use crate::{
    cli,
    exit::{Failure, INFRASTRUCTURE},
    output,
};

/// Finds what the host lacks for `plan`, and installs it as a stage: the Debian packages of `needed`, and QEMU.
///
/// # Errors
/// As with [`install`]; where dpkg cannot be asked.
pub(crate) fn install_for(plan: &Plan, needed: &[&str], global: &cli::Global, stages: &Stages) -> Result<(), Failure> {
    let archs: BTreeSet<_> = plan.cells.iter().map(|cell| cell.target.arch).collect();
    install(&bpfassay_runner::missing_packages(needed, &archs)?, answers_yes(global.yes), stages)
}

/// Whether questions are answered with yes: by `--yes`, or by CI systems that set `CI=true`.
pub(crate) fn answers_yes(flag: bool) -> bool {
    flag || std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

/// The command that installs `packages`.
pub(crate) fn install_command(packages: &[String]) -> String {
    format!("apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Installs `packages`, after a question, unless the user has agreed already.
///
/// # Errors
/// An infrastructure failure with the command to run: not root, the user declines, or apt-get fails.
pub(crate) fn install(packages: &[String], yes: bool, stages: &Stages) -> Result<(), Failure> {
    if packages.is_empty() {
        return Ok(());
    }
    let command = install_command(packages);
    let by_hand = |why: &str| {
        let or = if rustix::process::geteuid().is_root() { "answer with --yes, or run" } else { "run as root:" };
        let report = miette::miette!(
            help = format!("{or} apt-get update && {command}"),
            "packages are missing on this host ({}) and {why}",
            packages.join(", ")
        );
        Failure { code: INFRASTRUCTURE, report }
    };
    if !rustix::process::geteuid().is_root() {
        return Err(by_hand("only root can install them"));
    }
    if !yes {
        if !std::io::stdin().is_terminal() || !output::stderr().into_inner().is_terminal() {
            return Err(by_hand("there is no terminal to ask on whether to install them"));
        }
        if !ask(&format!("Install from Debian's packages: {}?", packages.join(" ")))? {
            return Err(by_hand("installing them was declined"));
        }
    }
    stages.during(Kind::HostPackages, packages.join(" "), |stage| {
        stage.step(Step::Install, 0);
        install_now(packages).map_err(|why| by_hand(&why))
    })
}

/// Installs `packages`.
///
/// # Errors
/// Why they could not be installed.
fn install_now(packages: &[String]) -> Result<(), String> {
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

/// Asks on the terminal.
fn ask(question: &str) -> Result<bool, Failure> {
    let failed = |error: std::io::Error| Failure {
        code: INFRASTRUCTURE,
        report: miette::miette!("could not ask on the terminal: {error}"),
    };
    let mut terminal = output::stderr();
    write!(terminal, "{question} [Y/n] ").and_then(|()| terminal.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes") && !answer.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_missing_asks_nothing() {
        assert!(install(&[], false, &Stages::default()).is_ok());
    }

    #[test]
    fn the_command_names_every_package() {
        assert_eq!(
            install_command(&["opensbi".to_owned(), "xz-utils".to_owned()]),
            "apt-get install --no-install-recommends opensbi xz-utils"
        );
    }
}
