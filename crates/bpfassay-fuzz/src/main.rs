// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles inputs of fuzz targets by hand:
//!
//! - `bpfassay-fuzz list` names the targets.
//! - `bpfassay-fuzz seeds TARGET DIRECTORY` writes the seed inputs of a target into a directory,
//!   for libFuzzer.
//! - `bpfassay-fuzz run TARGET FILE…` passes files to a target. A failure ends the program.

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use bpfassay_fuzz::{TARGETS, Target, corpus, target};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => TARGETS.iter().try_for_each(|target| writeln!(io::stdout(), "{}", target.name)),
        ["seeds", name, directory] => named(name).and_then(|target| seeds(target, Path::new(directory))),
        ["run", name, files @ ..] if !files.is_empty() => named(name).and_then(|target| run(target, files)),
        _ => Err(io::Error::other("usage: bpfassay-fuzz list | seeds TARGET DIRECTORY | run TARGET FILE…")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if this fails, too.
            let _ = writeln!(io::stderr(), "bpfassay-fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> io::Result<&'static Target> {
    target(name).ok_or_else(|| io::Error::other(format!("no target is called {name}: `bpfassay-fuzz list` names them")))
}

fn seeds(target: &Target, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (number, input) in corpus::read(target)?.into_iter().enumerate() {
        fs::write(directory.join(format!("seed-{number}")), input)?;
    }
    Ok(())
}

fn run(target: &Target, files: &[&str]) -> io::Result<()> {
    for file in files {
        let input =
            fs::read(file).map_err(|error| io::Error::new(error.kind(), format!("cannot read {file}: {error}")))?;
        writeln!(io::stdout(), "{file}: {} bytes", input.len())?;
        target.run(&input);
    }
    Ok(())
}
