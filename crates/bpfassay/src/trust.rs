// SPDX-License-Identifier: MIT OR Apache-2.0
//! Consent to run foreign programs on this machine: the QEMU of a bundle.

use std::{
    io::{BufRead as _, IsTerminal as _, Write as _},
    path::Path,
};

use bpfassay_packages::apt::Package;

use crate::{
    cli,
    exit::{CommandFailure, INFRASTRUCTURE, USAGE},
    host::answers_yes,
    output,
};

/// Makes sure that the user trusts `packages` of the QEMU in `bundle`, by `--trust-emulator`
/// (`trusts`) or by a question on the terminal. `--yes` and CI are no consent: with them nothing is
/// asked.
///
/// # Errors
/// - A usage failure, if the user does not trust the packages, or cannot be asked
/// - An infrastructure failure, if the terminal cannot be written to or read
pub(crate) fn agree(
    bundle: &Path,
    packages: &[Package],
    trusts: bool,
    global: &cli::Global,
) -> Result<(), CommandFailure> {
    if trusts {
        tracing::warn!(
            "the QEMU of {} runs on this machine, and testbed.lock does not name its packages: {}",
            bundle.display(),
            list(packages)
        );
        return Ok(());
    }
    let is_asked =
        !answers_yes(global.yes) && std::io::stdin().is_terminal() && output::stderr().into_inner().is_terminal();
    if is_asked && ask(bundle, packages)? {
        return Ok(());
    }
    let help = "--trust-emulator starts it all the same, if you trust whoever made the bundle: its programs run on this machine as you; --qemu host takes the QEMU of \
                this machine, --qemu lock without --bundle that of testbed.lock";
    let report = miette::miette!(
        help = help,
        "the bundle {} has a QEMU of packages that testbed.lock does not name, and it is not started on this machine: {}",
        bundle.display(),
        list(packages)
    );
    Err(CommandFailure { code: USAGE, report })
}

/// Lists `packages` by names and content.
fn list(packages: &[Package]) -> String {
    let one = |package: &Package| format!("{} {} (SHA-256 {})", package.name, package.version, package.sha256);
    packages.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Asks on the terminal. Consent is `yes`, and no other answer.
///
/// # Errors
/// An infrastructure failure, if the terminal cannot be written to or read.
fn ask(bundle: &Path, packages: &[Package]) -> Result<bool, CommandFailure> {
    let failed = |error: std::io::Error| CommandFailure {
        code: INFRASTRUCTURE,
        report: miette::miette!("cannot ask on the terminal whether to start the QEMU of the bundle: {error}"),
    };
    let mut terminal = output::stderr();
    let lines: String = packages.iter().map(|package| format!("  {}\n", list(std::slice::from_ref(package)))).collect();
    let question = format!(
        "The bundle {} has a QEMU of packages that testbed.lock does not name:\n{lines}Whoever made them can run any program on this machine as you. \
         Start it? [yes/No] ",
        bundle.display()
    );
    write!(terminal, "{question}").and_then(|()| terminal.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim().eq_ignore_ascii_case("yes"))
}
