// SPDX-License-Identifier: MIT OR Apache-2.0
//! `chaos`: draws faults by seed and injects them into bpfassay.

use bpfassay_protocol::with_causes;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use bpfassay_chaos::{
    agent::stand_in,
    chaos_study::ChaosError,
    chaos_summary::{FaultSummary, TrialLine},
    drive::Driver,
    fault,
    guests::GuestDriver,
    stranger::workshop::Workshop,
};
use clap::Parser;

/// The environment variable that is set inside this program's mount namespace.
const OWN_MOUNTS: &str = "CHAOS_OWN_MOUNTS";

/// Draws faults by seed, injects them into a study, and compares the outcome with the allowed ones.
#[derive(Debug, Parser)]
struct ChaosArguments {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many seeds, one fault each
    #[arg(long, default_value_t = 1)]
    faults: u64,

    /// Each fault once, by the first of these seeds that draws it
    #[arg(long, conflicts_with = "guests")]
    once: bool,

    /// Only faults with this in their names
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,

    /// The command [default: next to this program]
    #[arg(long, value_name = "FILE")]
    bpfassay: Option<PathBuf>,

    /// Trials side by side [default: 2; with real guests 1]
    #[arg(long, value_name = "N")]
    parallel: Option<u32>,

    /// Use real guests, those of --manifest
    #[arg(long, requires = "manifest")]
    guests: bool,

    /// The testbed's manifest, for --guests
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,

    /// Show what the commands printed where a trial has violations
    #[arg(long)]
    verbose: bool,

    /// Only name the faults that would be drawn
    #[arg(long)]
    list: bool,

    /// Print a page of Markdown at the end, like results/chaos.md
    #[arg(long)]
    markdown: bool,
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.first().is_some_and(stand_in::is_started_as_qemu) {
        return stand_in::run(&args);
    }
    let arguments = ChaosArguments::parse();
    match run(&arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            print_line(&format!("chaos: {}", with_causes(&*error)));
            ExitCode::from(2)
        }
    }
}

/// Prints one line. A closed standard output is not an error.
fn print_line(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Returns the seeds of the trials.
///
/// # Errors
/// If the plan of a study for a fault cannot be made.
fn seeds(arguments: &ChaosArguments) -> Result<Vec<u64>, ChaosError> {
    let all = arguments.seed..arguments.seed.saturating_add(arguments.faults);
    if !arguments.once {
        return Ok(all.collect());
    }
    let mut firsts = BTreeMap::new();
    for seed in all {
        if let Some(drawn) = fault::draw(seed, &arguments.only)? {
            firsts.entry(drawn.fault.name).or_insert(seed);
        }
    }
    Ok(firsts.into_values().collect())
}

/// Returns how many trials had violations.
///
/// # Errors
/// If the plan of a study cannot be created, `bpfassay` or anything else that trials need is
/// missing, or a trial itself fails.
fn run(arguments: &ChaosArguments) -> Result<u32, Box<dyn std::error::Error>> {
    let seeds = seeds(arguments)?;
    if arguments.list {
        for seed in seeds {
            if let Some(drawn) = fault::draw(seed, &arguments.only)? {
                print_line(&format!("{seed} {} ({}, {})", drawn.fault.name, drawn.study.shape, drawn.trial.parameters));
            }
        }
        return Ok(0);
    }
    let cannot_mount = own_mounts();
    let beside = || Ok::<_, io::Error>(std::env::current_exe()?.with_file_name("bpfassay"));
    let bpfassay = arguments.bpfassay.clone().map_or_else(beside, Ok)?;
    if !bpfassay.is_file() {
        return Err(format!("{} does not exist: build it, or name it with --bpfassay", bpfassay.display()).into());
    }
    let bpfassay = std::path::absolute(bpfassay)?;
    let driver = match &arguments.manifest {
        Some(manifest) if arguments.guests => {
            Either::Guests(GuestDriver::new(bpfassay, std::path::absolute(manifest)?))
        }
        _ => Either::Scripted(Box::new(Driver::new(Workshop::new(bpfassay)?, cannot_mount))),
    };
    let parallel = arguments.parallel.unwrap_or(if arguments.guests { 1 } else { 2 });
    let next = Mutex::new(seeds.into_iter());
    let summary = Mutex::new(FaultSummary::default());
    let broken = Mutex::new(None);
    let work = || {
        // A closure, so that the lock is released before the trial.
        let drawn = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(seed) = drawn() {
            match trial(&driver, seed, arguments) {
                Ok(Some(line)) => summary.lock().unwrap_or_else(PoisonError::into_inner).add(&line),
                Ok(None) => {}
                Err(error) => {
                    *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("seed {seed}: {error}"));
                    break;
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..parallel {
            scope.spawn(work);
        }
    });
    let summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    if arguments.markdown {
        let args: Vec<_> = std::env::args().skip(1).collect();
        print_line(&summary.markdown(&format!("chaos {}", args.join(" "))));
    }
    print_line(&summary.text());
    match broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.into()),
        None => Ok(summary.violated()),
    }
}

/// The driver for scripted or real guests.
enum Either {
    Scripted(Box<Driver>),
    Guests(GuestDriver),
}

fn trial(driver: &Either, seed: u64, arguments: &ChaosArguments) -> Result<Option<TrialLine>, String> {
    let since = Instant::now();
    let (fault, parameters, result) = match driver {
        Either::Scripted(driver) => {
            let Some(drawn) = fault::draw(seed, &arguments.only).map_err(|error| with_causes(&error))? else {
                return Ok(None);
            };
            let result = driver.run(&drawn).map_err(|error| with_causes(&error))?;
            (drawn.fault.name, format!("{}, {}", drawn.study.shape, drawn.trial.parameters), result)
        }
        Either::Guests(driver) => match driver.run(seed, &arguments.only).map_err(|error| with_causes(&error))? {
            Some(made) => made,
            None => return Ok(None),
        },
    };
    let line = TrialLine { seed, fault, parameters, result, seconds: since.elapsed().as_secs_f64() };
    let mut text = line.text();
    if !line.result.violations.is_empty() {
        let only = if arguments.only.is_empty() { String::new() } else { format!(" --only {}", arguments.only) };
        let guests = match &arguments.manifest {
            Some(manifest) if arguments.guests => format!(" --guests --manifest {}", manifest.display()),
            _ => String::new(),
        };
        text.push_str(&format!("\n    again: chaos --seed {seed}{only}{guests} --verbose"));
        if arguments.verbose {
            text.push_str(&format!("\n{}", line.result.printed));
        }
    }
    print_line(&text);
    Ok(Some(line))
}

/// Re-executes this program in a mount namespace, so no mount remains. Returns why it cannot.
fn own_mounts() -> Option<String> {
    if std::env::var_os(OWN_MOUNTS).is_some() {
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    let args: Vec<OsString> = std::env::args_os().collect();
    let probe = Command::new("unshare").args(["--mount", "true"]).output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(output) => return Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => return Some(format!("unshare: {error}")),
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Some(error.to_string()),
    };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(program).args(&args[1..]).env(OWN_MOUNTS, "1");
    Some(command.exec().to_string())
}
