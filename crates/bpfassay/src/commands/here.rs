// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay here`: runs a study on this machine itself, without guests.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt as _,
    process::Command,
};

use bpfassay_here::{AllocationRequest, Cluster, HereSelection, Placement, ThisMachine, on_first_node};
use bpfassay_runner::EventObserver;
use bpfassay_study::Narrowing;

use super::run;
use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, USAGE},
    progress::{Display, Reporter, Reporting},
    stop,
};

/// Executes the command.
///
/// # Errors
/// - A usage failure for a study that this machine cannot execute, an unusable mount point, tool or
///   IOR, and a results directory that has a journal
/// - An infrastructure failure, if `PATH` lacks a program, the agent cannot be started, Slurm
///   cannot be used, or the journal or the results cannot be written
pub(crate) async fn here(arguments: cli::Here) -> CommandOutcome {
    let tools = arguments.tool.iter().map(|name| bpfassay_tool::load(name).map_err(CommandFailure::usage));
    let cluster = match arguments.slurm {
        true => Some(cluster(&arguments)?),
        false => None,
    };
    let overlays = overlays(&arguments);
    let machine = ThisMachine::set_up(&HereSelection {
        study: arguments.study.clone(),
        narrowing: Narrowing {
            probes: arguments.probe,
            cells: arguments.cell,
            replicates: arguments.replicates,
            ..Narrowing::default()
        },
        mount: arguments.mount,
        ior: arguments.ior,
        tools: tools.collect::<Result<_, _>>()?,
        cluster,
        deny: arguments.deny,
    })?;
    let work = machine.begin(arguments.output.as_deref())?;
    let (directory, opened) = (work.directory.clone(), work.journal.directory().clone());
    let display = Display::begin(arguments.message_format);
    let reporter = Reporter(Reporting {
        study: Some(&arguments.study),
        clock: machine.plan().study.clock,
        overlays: &overlays,
        display: &display,
        here: Some(machine.mount()),
    });
    let observer = EventObserver::new(machine.plan(), machine.provenance(), &reporter);
    let summary = machine.execute(work, &observer, &stop::on_signals()).await;
    display.finish();
    let how_to_continue = "; what was measured is kept".to_owned();
    let end = run::RunEnd { summary: summary?, how_to_continue, against: None };
    run::report(&directory, run::concluded(&opened)?, &end, arguments.message_format)
}

/// The environment variable for a command that runs again inside a job that it created.
const MADE: &str = "BPFASSAY_SLURM_JOB_IS_OWN";

/// Returns the nodes that measure together. If this machine is not the first node, the command is
/// started again on that node, and this function does not return.
///
/// # Errors
/// - A usage failure, if a job must be made without a known number of nodes, or if the number is
///   given inside a job
/// - An infrastructure failure, if Slurm cannot be used
fn cluster(arguments: &cli::Here) -> Result<Cluster, CommandFailure> {
    let usage = |report: miette::Report| CommandFailure { code: USAGE, report };
    let placement = Placement::of_this_process().map_err(CommandFailure::infrastructure)?;
    if placement != Placement::Outside && arguments.nodes.is_some() && env::var_os(MADE).is_none() {
        return Err(usage(miette::miette!(
            help = "leave --nodes out: all nodes of the job are measured",
            "this is in a job of Slurm already, and --nodes makes another one"
        )));
    }
    let nodes = match (placement, arguments.nodes) {
        (Placement::First { nodes }, _) => nodes,
        (Placement::Elsewhere { first }, _) => return Err(start_again(&on_first_node(&first, &own_command()?))),
        (Placement::Outside, None) => {
            return Err(usage(miette::miette!(
                help = "name the number of nodes with --nodes, or call this in a job (salloc, sbatch)",
                "this is in no job of Slurm, and how many nodes one is to have is not known"
            )));
        }
        (Placement::Outside, Some(nodes)) => {
            let request = AllocationRequest {
                nodes,
                ranks_per_node: arguments.ranks_per_node,
                partition: arguments.partition.clone(),
                options: arguments.salloc.clone(),
            };
            return Err(start_again(&request.salloc(&own_command()?)));
        }
    };
    let launcher: Vec<String> = arguments.launcher.split_whitespace().map(str::to_owned).collect();
    if launcher.is_empty() {
        return Err(usage(miette::miette!(
            help = "name what starts an MPI program, such as mpiexec",
            "--launcher names no program"
        )));
    }
    Ok(Cluster { nodes, ranks_per_node: arguments.ranks_per_node, launcher })
}

/// Returns the command line of this process.
fn own_command() -> Result<Vec<OsString>, CommandFailure> {
    let program = env::current_exe().map_err(CommandFailure::infrastructure)?;
    Ok(std::iter::once(program.into_os_string()).chain(env::args_os().skip(1)).collect())
}

/// Replaces this process by `command`; returns the failure if that is not possible.
fn start_again(command: &[OsString]) -> CommandFailure {
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let error = Command::new(program).args(command.iter().skip(1)).env(MADE, "1").exec();
    let report = miette::miette!(
        help =
            "`bpfassay here --slurm` is for a machine from which jobs of Slurm are submitted, or a node of such a job",
        "cannot start {}: {error}",
        program.to_string_lossy()
    );
    CommandFailure { code: INFRASTRUCTURE, report }
}

/// Returns the options that a command for a part of the study needs, too.
fn overlays(arguments: &cli::Here) -> Vec<String> {
    let mut options: Vec<String> = arguments.tool.iter().flat_map(|tool| ["--tool".to_owned(), tool.clone()]).collect();
    options.extend(arguments.ior.iter().flat_map(|ior| ["--ior".to_owned(), ior.display().to_string()]));
    if arguments.slurm {
        options.push("--slurm".to_owned());
        options.extend(arguments.nodes.iter().flat_map(|nodes| ["--nodes".to_owned(), nodes.to_string()]));
        options.extend(["--ranks-per-node".to_owned(), arguments.ranks_per_node.to_string()]);
        options.extend(["--launcher".to_owned(), arguments.launcher.clone()]);
    }
    options
}
