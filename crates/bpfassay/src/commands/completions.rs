// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay generate completions`: the options, and the values that are names: architectures,
//! kernels, studies, probes, tools, findings.

use bpfassay_protocol::{Arch, Operation, probe::Probe};
use bpfassay_study::Clock;
use bpfassay_testbed::catalogue::Catalogue;
use bpfassay_tool::finding::Kind;
use clap::{Arg, Command, CommandFactory as _, builder::PossibleValuesParser};
use clap_complete::Shell;

use crate::{
    cli::Cli,
    exit::{CommandFailure, CommandOutcome, INTERNAL, SUCCESS},
};

/// Marks arguments that can also be files, until the script is written: clap supports either values
/// or files.
const FILES: &str = "@FILES@";

/// Prints the completion script for `shell`.
///
/// # Errors
/// An infrastructure failure, if the script cannot be printed. An error in the bundled catalogue is
/// an internal failure, which a test excludes.
pub(crate) fn completions(shell: Shell) -> CommandOutcome {
    let kernels = kernels().map_err(|error| CommandFailure::new(INTERNAL, error))?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_values(Cli::command(), &kernels), "bpfassay", &mut script);
    super::print(&with_files(shell, &String::from_utf8_lossy(&script)))?;
    Ok(SUCCESS)
}

/// Returns the names of all kernels of the catalogue.
fn kernels() -> Result<Vec<&'static str>, bpfassay_testbed::error::catalogue_error::CatalogueError> {
    let catalogue = Catalogue::bundled()?;
    let mut names: Vec<&'static str> = Vec::new();
    for &arch in Arch::ALL {
        for name in catalogue.names(arch) {
            if !names.contains(&name) {
                // clap needs names with a static lifetime, and the program ends after this.
                names.push(name.to_owned().leak());
            }
        }
    }
    Ok(names)
}

/// Adds to `command` and all its subcommands the values that their arguments accept.
fn with_values(command: Command, kernels: &[&'static str]) -> Command {
    let below: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = command.mut_args(|argument| match values(&argument, kernels) {
        Some(values) => argument.value_parser(PossibleValuesParser::new(values)),
        None => argument,
    });
    below.into_iter().fold(command, |command, name| command.mut_subcommand(name, |below| with_values(below, kernels)))
}

/// Returns the names that `argument` accepts; `None`: no names, or clap has them already.
fn values(argument: &Arg, kernels: &[&'static str]) -> Option<Vec<&'static str>> {
    let value_name = argument.get_value_names().and_then(|names| names.first())?.as_str();
    let or_files = |names: &[&'static str]| [names, &[FILES]].concat();
    Some(match (argument.get_id().as_str(), value_name) {
        (_, "ARCH") => Arch::ALL.iter().map(|arch| arch.name()).collect(),
        (_, "KERNEL") => or_files(kernels),
        (_, "PROBE") => Probe::ALL.iter().map(|probe| probe.name()).collect(),
        (_, "FINDING") => Kind::ALL.iter().map(|kind| kind.name()).chain(["all"]).collect(),
        (_, "CLOCK") => Clock::NAMES.iter().map(|(name, _)| *name).collect(),
        (_, "ACCESS") => Operation::ALL.iter().map(|operation| operation.name()).collect(),
        ("study", _) => or_files(bpfassay_study::bundled_studies::NAMES),
        ("tool" | "tools", _) => or_files(&bpfassay_tool::bundled::names().collect::<Vec<_>>()),
        _ => return None,
    })
}

/// Replaces [`FILES`] in `script` by files, in the way of each shell. For other shells only the
/// names are left.
fn with_files(shell: Shell, script: &str) -> String {
    if shell == Shell::Fish {
        return with_files_of_fish(script);
    }
    let mut text = String::with_capacity(script.len());
    for line in script.lines() {
        let is_marked = line.contains(FILES);
        let bare = line.replace(&format!(" {FILES}"), "");
        text.push_str(&match shell {
            // `$(compgen -W "a b" -- "${cur}")`; positional arguments are among the options, where
            // bash completes files by default.
            Shell::Bash if is_marked => bare.replace("compgen -W ", "compgen -f -W "),
            // `:STUDY:(a b)'`
            Shell::Zsh if is_marked => {
                match bare.rsplit_once(":(").and_then(|(before, rest)| Some((before, rest.split_once(')')?))) {
                    Some((before, (names, after))) => format!("{before}:{{compadd -- {names}; _files}}{after}"),
                    None => bare,
                }
            }
            _ => bare,
        });
        text.push('\n');
    }
    text
}

/// fish has a line for each value: `-r -f -a "a\t''`, …, `@FILES@\t''"`. `-f` excludes files and
/// `-F` includes them.
fn with_files_of_fish(script: &str) -> String {
    let mut text = String::with_capacity(script.len());
    let mut rest = script;
    while let Some((before, after)) = rest.split_once(&format!("\n{FILES}\\t''")) {
        match before.rsplit_once(" -f -a \"") {
            Some((start, values)) => text.extend([start, " -F -a \"", values]),
            None => text.push_str(before),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_values_and_files_where_both_are_taken() {
        let kernels = kernels().unwrap();
        assert!(kernels.contains(&"6.12"), "{kernels:?}");
        let archs: Vec<&str> = Arch::ALL.iter().map(|arch| arch.name()).collect();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut with_values(Cli::command(), &kernels), "bpfassay", &mut script);
            let script = with_files(shell, &String::from_utf8(script).unwrap());
            assert!(!script.contains(FILES), "{shell}: {script}");
            let (with_files, names) = match shell {
                Shell::Bash => ("compgen -f -W \"ceems-layout", format!("compgen -W \"{}\"", archs.join(" "))),
                Shell::Zsh => (":{compadd -- ceems-layout", archs.join(" ")),
                Shell::Fish => {
                    let archs: Vec<_> = archs.iter().map(|arch| format!("{arch}\\t''")).collect();
                    (" -r -F -a \"ceems-layout\\t''", format!(" -r -f -a \"{}\"", archs.join("\n")))
                }
                _ => continue,
            };
            assert!(script.contains(with_files) && script.contains(&names), "{shell}: {script}");
            assert!(script.contains("events-dropped") && script.contains("kprobe-multi"), "{shell}");
        }
    }
}
