// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own packages: asks the user whether to install missing ones.

use std::{
    collections::BTreeSet,
    io::{BufRead, IsTerminal, Write},
};

use bpfassay_packages::stages::Stages;
use bpfassay_runner::{StoreOptions, install_command};
use bpfassay_study::Plan;
use bpfassay_testbed::toolchain::HOST_PACKAGES;

use crate::{
    cli,
    exit::{CommandFailure, INFRASTRUCTURE},
    output,
};

/// Finds what the host lacks for `plan`, and installs it as a stage: the Debian packages of
/// `needed`, and QEMU unless it comes from the lock.
///
/// # Errors
/// The errors of [`install`], and a dpkg that cannot be queried.
pub(crate) fn install_for(
    plan: &Plan,
    needed: &[&str],
    (global, options): (&cli::Global, &StoreOptions),
    stages: &Stages,
) -> Result<(), CommandFailure> {
    MissingPackages::find(plan, needed, (global, options))?.install(stages)
}

/// Missing packages of the host that can be installed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MissingPackages {
    /// Packages to build guests.
    to_make: Vec<String>,
    /// Packages to boot guests: QEMU.
    to_boot: Vec<String>,
}

impl MissingPackages {
    /// Finds what the host lacks for `plan`, the packages of `needed` and QEMU, and asks whether to
    /// install it. If packages and programs come from a given place, or if nothing may be fetched,
    /// it does not ask for packages that fetch and build. If these are needed nevertheless, a later
    /// error says so.
    ///
    /// # Errors
    /// The errors of [`install`], and a dpkg that cannot be queried.
    pub(crate) fn find(
        plan: &Plan,
        needed: &[&str],
        (global, options): (&cli::Global, &StoreOptions),
    ) -> Result<Self, CommandFailure> {
        let archs: BTreeSet<_> = plan.targets().into_iter().map(|target| target.arch).collect();
        let mut missing = bpfassay_runner::missing_packages(needed, &archs, options.qemu)?;
        if options.packages.offline || !options.packages.from.is_empty() {
            missing.retain(|name| !HOST_PACKAGES.contains(&name.as_str()));
        }
        agree(&missing, answers_yes(global.yes))?;
        Ok(Self::of(missing, needed))
    }

    fn of(missing: Vec<String>, needed: &[&str]) -> Self {
        let (to_make, to_boot) = missing.into_iter().partition(|name| needed.contains(&name.as_str()));
        Self { to_make, to_boot }
    }

    /// Installs the packages that build guests.
    ///
    /// # Errors
    /// An infrastructure failure with the command to run, if apt-get fails.
    pub(crate) fn install_to_make(&self, stages: &Stages) -> Result<(), CommandFailure> {
        install_as_stage(&self.to_make, stages)
    }

    /// Installs the packages that boot guests.
    ///
    /// # Errors
    /// The errors of [`MissingPackages::install_to_make`].
    pub(crate) fn install_to_boot(&self, stages: &Stages) -> Result<(), CommandFailure> {
        install_as_stage(&self.to_boot, stages)
    }

    /// Installs everything.
    ///
    /// # Errors
    /// The errors of [`MissingPackages::install_to_make`].
    fn install(self, stages: &Stages) -> Result<(), CommandFailure> {
        let Self { to_make, to_boot } = self;
        install_as_stage(&[to_make, to_boot].concat(), stages)
    }
}

/// Whether questions are answered with yes, by `--yes` or by a CI system.
pub(crate) fn answers_yes(flag: bool) -> bool {
    flag || is_ci()
}

/// Whether this is a job of a CI system, which sets `CI=true`.
pub(crate) fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

/// Installs `packages`, after a question unless the user has agreed already.
///
/// # Errors
/// An infrastructure failure with the command to run: not root, the user declines, or apt-get
/// fails.
pub(crate) fn install(packages: &[String], yes: bool, stages: &Stages) -> Result<(), CommandFailure> {
    agree(packages, yes)?;
    install_as_stage(packages, stages)
}

/// Creates the failure that `packages` are missing and cannot be installed because of `why`.
fn by_hand(packages: &[String], why: &str) -> CommandFailure {
    let command = install_command(packages);
    let or = if rustix::process::geteuid().is_root() { "answer with --yes, or run" } else { "run as root:" };
    let report = miette::miette!(
        help = format!("{or} apt-get update && {command}"),
        "packages are missing on this host ({}) and {why}",
        packages.join(", ")
    );
    CommandFailure { code: INFRASTRUCTURE, report }
}

/// Makes sure that `packages` may be installed, with a question unless the user has agreed already.
///
/// # Errors
/// An infrastructure failure with the command to run: not root, or the user declines.
fn agree(packages: &[String], yes: bool) -> Result<(), CommandFailure> {
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = |why: &str| by_hand(packages, why);
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
    Ok(())
}

fn install_as_stage(packages: &[String], stages: &Stages) -> Result<(), CommandFailure> {
    if packages.is_empty() {
        return Ok(());
    }
    bpfassay_runner::install_packages(packages, stages).map_err(|why| by_hand(packages, &why))
}

/// Asks on the terminal.
///
/// # Errors
/// An infrastructure failure, if the terminal cannot be written to or read.
fn ask(question: &str) -> Result<bool, CommandFailure> {
    let failed = |error: std::io::Error| CommandFailure {
        code: INFRASTRUCTURE,
        report: miette::miette!(
            help = "answer with --yes",
            "cannot ask on the terminal whether to install packages: {error}"
        ),
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
    fn qemu_is_not_needed_before_there_are_guests() {
        let missing = ["tar", "qemu-system-x86", "mount", "opensbi"].map(str::to_owned).to_vec();
        let MissingPackages { to_make, to_boot } = MissingPackages::of(missing, &["apt", "mount", "tar"]);
        assert_eq!(
            (to_make, to_boot),
            (vec!["tar".into(), "mount".into()], vec!["qemu-system-x86".into(), "opensbi".into()])
        );
    }
}
