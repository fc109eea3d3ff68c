// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay testbed payload`: builds, packs and verifies the guest's programs.

use std::collections::BTreeSet;

use bpfassay_packages::error::human;
use bpfassay_protocol::Arch;
use bpfassay_results::plain;
use bpfassay_runner::{Store, missing_packages};
use bpfassay_testbed::{
    payload::{self, Built, Verified},
    toolchain::HOST_PACKAGES,
};

use crate::{
    cli::{self, PayloadCommand},
    exit::{CommandFailure, CommandOutcome, NOT_REPRODUCED, SUCCESS},
    host, output,
    progress::Display,
    selection::store_options,
};

/// Executes the command. Programs that differ from a build of their sources are a result, and no
/// failure.
///
/// # Errors
/// An infrastructure failure, if the cache cannot be opened, packages of the host are missing, or
/// programs cannot be built, fetched from `--from`, packed or read.
pub(crate) fn payload(arguments: cli::PayloadArgs, global: &cli::Global) -> CommandOutcome {
    let display = Display::begin(cli::MessageFormat::Human);
    let store = Store::open(&store_options(global))?.with_stages(display.stages());
    match arguments.command {
        PayloadCommand::Build { arch, output, .. } => {
            let built = prepare(&store, arch, global)?;
            if let Some(directory) = &output {
                payload::write_files(&built, directory)?;
            }
            display.finish();
            for built in built {
                super::print(&programs(&built))?;
            }
            if let Some(directory) = output {
                super::print(&format!("programs: {}\n", output::path(&directory)))?;
            }
        }
        PayloadCommand::Pack { directory, arch, .. } => {
            let built = prepare(&store, arch, global)?;
            display.finish();
            for (index, built) in payload::pack(&built, &directory)?.iter().zip(&built) {
                super::print(&programs(built))?;
                super::print(&format!("  packed: {}, SHA-256 {}\n", human(index.archive.size), index.archive.sha256))?;
            }
            super::print(&format!("assets: {}; use them with --from\n", output::path(&directory)))?;
        }
        PayloadCommand::Verify { arch, .. } => {
            install(&store, global)?;
            let found = payload::verify(&store.apt(), &store.programs, &all_or(arch))?;
            display.finish();
            return verified(&found);
        }
    }
    Ok(SUCCESS)
}

/// Returns the programs for `archs`, or for all architectures.
///
/// # Errors
/// An infrastructure failure, if the host lacks packages for the build, or programs cannot be built
/// or fetched from `--from`.
fn prepare(store: &Store, archs: Vec<Arch>, global: &cli::Global) -> Result<Vec<Built>, CommandFailure> {
    let archs = all_or(archs);
    if store.programs.from.is_empty() && !payload::is_cached(&store.cache, &store.programs, &archs)? {
        install(store, global)?;
    }
    Ok(payload::prepare(&store.apt(), &store.programs, &archs)?)
}

/// Installs what the host lacks for the build.
///
/// # Errors
/// An infrastructure failure, if the host has no dpkg, and those of [`host::install`].
fn install(store: &Store, global: &cli::Global) -> Result<(), CommandFailure> {
    let missing = missing_packages(HOST_PACKAGES, &BTreeSet::new(), None)?;
    host::install(&missing, host::answers_yes(global.yes), &store.stages)
}

fn all_or(archs: Vec<Arch>) -> Vec<Arch> {
    let chosen: BTreeSet<Arch> =
        if archs.is_empty() { Arch::ALL.iter().copied().collect() } else { archs.into_iter().collect() };
    chosen.into_iter().collect()
}

fn programs(built: &Built) -> String {
    let origin =
        built.asset.as_ref().map_or_else(String::new, |asset| format!(", taken from {}", plain::line(&asset.from)));
    let mut text = format!("{} of the sources {}{origin}\n", built.payload.arch, built.payload.source);
    for (name, object) in built.payload.programs() {
        text += &format!("  {name:<15} {:>8}  SHA-256 {}\n", human(object.size), object.digest);
    }
    text
}

/// Prints the result of the verification.
///
/// # Errors
/// An infrastructure failure, if it cannot be printed.
fn verified(verified: &Verified) -> CommandOutcome {
    let mut text = format!("sources {}\n", verified.source);
    let mut differ = 0;
    for compared in &verified.compared {
        let is_same = compared.found == compared.built;
        differ += usize::from(!is_same);
        let verdict = if is_same { "same" } else { "DIFFERS" };
        text +=
            &format!("  {verdict:<7} {:<7} {:<15} in {}\n", compared.arch, compared.program, plain::line(&compared.of));
        if !is_same {
            text += &format!("          SHA-256 {}, built now: {}\n", compared.found, compared.built);
        }
    }
    for line in &verified.differences {
        text += &format!("  {}\n", plain::line(line));
    }
    let all = verified.compared.len();
    text += &match differ {
        0 => format!("all {all} programs are what their sources give\n"),
        _ => format!("{differ} of {all} programs are not what their sources give with this toolchain\n"),
    };
    super::print(&text)?;
    Ok(if differ == 0 { SUCCESS } else { NOT_REPRODUCED })
}

#[cfg(test)]
mod tests {
    use bpfassay_packages::digest::Digest;
    use bpfassay_testbed::payload::ComparedProgram;

    use super::*;

    #[test]
    fn one_program_that_differs_is_not_reproduced() {
        let compared = |built: &[u8]| ComparedProgram {
            arch: Arch::X86_64,
            program: "bpfassay-guest",
            of: "the cache".to_owned(),
            found: Digest::of(b"a"),
            built: Digest::of(built),
        };
        let outcome =
            |compared| verified(&Verified { source: Digest::of(b"s"), compared, differences: Vec::new() }).unwrap();
        assert_eq!(outcome(vec![compared(b"a"), compared(b"a")]), SUCCESS);
        assert_eq!(outcome(vec![compared(b"a"), compared(b"b")]), NOT_REPRODUCED);
    }
}
