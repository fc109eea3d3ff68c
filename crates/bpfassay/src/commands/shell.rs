// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay shell`: an interactive guest.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a scratch directory")]

use std::{io::IsTerminal, sync::Arc};

use bpfassay_protocol::{
    Arch,
    job::{FileSystem, Job, Task},
    message::GuestMessage,
};
use bpfassay_runner::{AcceleratorTrial, Error, HostSetup, ShellUse, Store, StoreOptions, StudySelection, Testbed};
use bpfassay_study::{Clock, Narrowing, Plan, Target};
use bpfassay_testbed::image::GuestImage;
use bpfassay_vm::{AcceleratorWish, BootOptions, EndReason, Guest, Initramfs, Machine, VmEvent, shell_command};
use tokio::signal::unix::SignalKind;

use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, INTERNAL, INTERRUPTED, SUCCESS, USAGE},
    host,
    progress::Display,
    selection::{selection, store_options},
    stop,
};

/// Executes the command.
///
/// # Errors
/// - A usage failure, if standard input is not a terminal, and for a study, a tool file or an image
///   that cannot be used
/// - An infrastructure failure, if packages of the host are missing, the guest cannot be built or
///   booted, or it ends before its shell does
pub(crate) async fn shell(arguments: cli::ShellArgs, global: &cli::Global) -> CommandOutcome {
    if !std::io::stdin().is_terminal() {
        let help = "run it in a terminal; `run` needs none";
        let report = miette::miette!(help = help, "a shell needs a terminal, and standard input is none");
        return Err(CommandFailure { code: USAGE, report });
    }
    let selection = selection_of(&arguments, global)?;
    let options = StoreOptions { qemu: arguments.qemu.qemu, ..store_options(global) };
    let plan = selection.expand(&options)?;
    let target = plan.targets().first().map(|target| (*target).clone()).ok_or_else(|| CommandFailure {
        code: INTERNAL,
        report: miette::miette!("the plan of one guest has no target"),
    })?;
    let display = Display::begin(cli::MessageFormat::Human);
    let stages = display.stages();
    host::install_for(&plan, selection.host_packages(), (global, &options), &stages)?;
    let store = Store::open(&options)?.with_stages(stages);
    let testbed = Testbed::provide(&store, &selection, &plan, ShellUse::With)?;
    let host_setup =
        HostSetup::find(&store, testbed.images, &plan, AcceleratorWish::Auto, AcceleratorTrial::Boot).await?;
    display.finish();
    let image = host_setup.image(&target).map_err(Error::from)?;
    let (qemu, choice) = host_setup.qemu(target.arch).map_err(Error::from)?;

    let job = job(image, &plan)?;
    let scratch = store.cache.scratch()?;
    let initramfs = host_setup.initramfs(&target, &job).map_err(CommandFailure::infrastructure)?;
    let mut machine = Machine::new(target.arch, image.kernel());
    machine.accelerator = choice.accelerator;
    machine.cpus = arguments.cpus.unwrap_or(plan.study.guest.cpus);
    let memory = host_setup.memory_mib(&plan.study, &target).map_err(Error::from)?;
    machine.memory_mib = arguments.memory.unwrap_or(memory);
    machine.initrd = Some(Initramfs::OpenFile);
    machine.sandbox = qemu.confinement.sandbox;
    machine.kernel_parameters.clone_from(&plan.study.guest.kernel_parameters);
    machine.verbose = global.verbose > 0;

    let log = scratch.path().join("console.log");
    let mut options = BootOptions::new(&log);
    options.interactive = true;
    options.deadlines.whole_boot = None;
    options.initramfs = Some(Arc::new(initramfs));
    let guest = Guest::boot(qemu, &machine, options).await.map_err(CommandFailure::infrastructure)?;
    tracing::info!("booting {target} under {}; Ctrl-] powers the guest off", choice.accelerator);
    for tool in &selection.tools {
        match tool.file.for_target(target.arch, &target.kernel) {
            Ok(order) => tracing::info!("{} is started there with: {}", tool.file.name, shell_command(&order.command)),
            Err(reason) => tracing::warn!("{} is not there: {reason}", tool.file.name),
        }
    }
    talk(guest).await
}

/// Lets the user talk with the guest until its shell ends.
async fn talk(guest: Guest) -> CommandOutcome {
    let mut failed = None;
    let talk = guest.interact(|event| {
        if let VmEvent::Message(GuestMessage::Failed { message }) = event {
            failed = Some(message.clone());
        }
    });
    // Dropping the conversation restores the terminal and kills the guest.
    let ending = tokio::select! {
        ending = talk => ending.map_err(CommandFailure::infrastructure)?,
        () = asked_to_end() => return Ok(INTERRUPTED),
    };
    if matches!(ending.reason, EndReason::Done | EndReason::Stopped) {
        return Ok(SUCCESS);
    }
    let report = match failed {
        Some(message) => miette::miette!("the guest failed: {message}"),
        None => miette::miette!("the guest ended otherwise than by the shell's end: {ending}"),
    };
    Err(CommandFailure { code: INFRASTRUCTURE, report })
}

/// Creates the job of a guest with a shell, and with the file system of the first block of `plan`.
fn job(image: &GuestImage, plan: &Plan) -> Result<Job, CommandFailure> {
    let file_system =
        plan.blocks.first().map_or(FileSystem::Tmpfs { size_mib: 256 }, |block| block.file_system.clone());
    let modules = image.module_paths(&file_system, false).map_err(CommandFailure::usage)?;
    Ok(Job { modules, ..Job::new(file_system, Task::Shell) })
}

/// Waits for SIGTERM or the end of the terminal. Keys send no signals while the guest has the
/// terminal.
async fn asked_to_end() {
    let asked = async |kind| match stop::listen(kind) {
        Ok(Some(mut signal)) => {
            signal.recv().await;
        }
        Ok(None) | Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = asked(SignalKind::terminate()) => {}
        () = asked(SignalKind::hangup()) => {}
    }
}

/// Selects the guest of a cell of a study, or else the guest of `quick` (same file system, same
/// kernel parameters). The latter can have any kernel of the catalogue, or the user's image, even
/// if `quick` does not name it.
///
/// # Errors
/// The errors of [`selection`]: a tool file or an image that cannot be used.
fn selection_of(arguments: &cli::ShellArgs, global: &cli::Global) -> Result<StudySelection, CommandFailure> {
    let kernel = match (&arguments.kernel, &arguments.cell) {
        (None, None) => Some("6.12".to_owned()),
        (kernel, _) => kernel.clone(),
    };
    let of_arguments = cli::SelectionArgs {
        study: arguments.study.clone().unwrap_or_else(|| "quick".to_owned()),
        targets: cli::Targets {
            arch: arguments.arch.into_iter().collect(),
            // A comma separates the packages of a kernel, like in `run`.
            kernel: kernel.iter().flat_map(|kernel| kernel.split(',')).map(str::to_owned).collect(),
            modules: arguments.modules.clone(),
        },
        cell: arguments.cell.clone().into_iter().collect(),
        tool: arguments.tool.clone(),
        // Guests under the other clock accept no input.
        measure: cli::MeasureArgs { replicates: Some(1), clock: Some(Clock::Wall), ..cli::MeasureArgs::default() },
        ..cli::SelectionArgs::default()
    };
    let mut selection = selection(&of_arguments, &arguments.overlays, global)?;
    if let (Some(kernel), None, None) = (kernel, &arguments.cell, &selection.sources.local) {
        selection.targets = vec![Target { arch: arguments.arch.unwrap_or(Arch::X86_64), kernel }];
        selection.narrowing = Narrowing { replicates: Some(1), ..Narrowing::default() };
    }
    Ok(selection)
}
