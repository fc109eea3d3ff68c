//! `bpfassay shell`: an interactive guest.

use std::{io::IsTerminal, sync::Arc};

use bpfassay_protocol::{
    Arch, PROTOCOL_VERSION,
    job::{FileSystem, Job, Task},
    message::GuestMessage,
};
use bpfassay_study::{Clock, Plan, Study};
use bpfassay_vm::{BootOptions, EndReason, Event, Guest, Initramfs, Machine, shell_words};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    chosen::{Chosen, is_image},
    cli,
    exit::{Failure, INFRASTRUCTURE, INTERNAL, INTERRUPTED, Outcome, SUCCESS, USAGE},
    setup::{self, Store},
};

pub(crate) async fn shell(arguments: cli::Shell, global: &cli::Global) -> Outcome {
    // The guest of a cell, or that of `quick` on one target: same file system, same kernel parameters.
    let selection = cli::Selection {
        tool: arguments.tool.clone(),
        deny: Vec::new(),
        study: arguments.study.clone().unwrap_or_else(|| "quick".to_owned()),
        arch: arguments.arch.into_iter().collect(),
        kernel: kernel(&arguments).into_iter().collect(),
        modules: arguments.modules.clone(),
        probe: Vec::new(),
        cell: arguments.cell.clone().into_iter().collect(),
        clock: None,
        replicates: Some(1),
        until: None,
    };
    if !std::io::stdin().is_terminal() {
        let help = "run it in a terminal; `run` needs none";
        let report = miette::miette!(help = help, "a shell needs a terminal, and standard input is none");
        return Err(Failure { code: USAGE, report });
    }
    let chosen = Chosen::read(&selection)?;
    let plan = plan(&chosen, &arguments, global)?;
    let target = plan
        .targets()
        .first()
        .map(|target| (*target).clone())
        .ok_or_else(|| Failure { code: INTERNAL, report: miette::miette!("the plan of one guest has no target") })?;
    let store = Store::open(global)?;
    setup::host_packages(&plan, setup::needed(&store, &chosen, &arguments.overlays)?, global)?;
    let testbed = setup::testbed(&store, &chosen, &arguments.overlays, &plan, setup::Shell::With)?;
    let host_setup =
        setup::rig(&store, testbed.images, &plan, bpfassay_vm::AcceleratorWish::Auto, setup::Trial::Boot).await?;
    let image = host_setup.image(&target).map_err(|error| Failure::new(INTERNAL, error))?;
    let (qemu, choice) = host_setup.qemu(target.arch).map_err(|error| Failure::new(INTERNAL, error))?;

    let file_system =
        plan.blocks.first().map_or(FileSystem::Tmpfs { size_mib: 256 }, |block| block.file_system.clone());
    let modules = image.module_paths(&file_system).map_err(Failure::usage)?;
    let job = Job { protocol: PROTOCOL_VERSION, modules, file_system, settle_ms: 0, task: Task::Shell };
    let scratch = store.cache.scratch()?;
    let initramfs = host_setup.initramfs(&target, &job).map_err(Failure::infrastructure)?;
    let mut machine = Machine::new(target.arch, image.kernel());
    machine.accelerator = choice.accelerator;
    machine.cpus = arguments.cpus.unwrap_or(plan.study.guest.cpus);
    let memory = host_setup.memory_mib(&plan.study, &target).map_err(|error| Failure::new(INTERNAL, error))?;
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
    let guest = Guest::boot(qemu, &machine, options).await.map_err(Failure::infrastructure)?;
    tracing::info!("booting {target} under {}; Ctrl-] powers the guest off", choice.accelerator);
    for (tool, command) in chosen.commands(target.arch) {
        match command {
            Ok(command) => tracing::info!("{tool} is started there with: {}", shell_words(&command)),
            Err(reason) => tracing::warn!("{tool} is not there: {reason}"),
        }
    }
    let mut said = None;
    let talk = guest.interact(|event| {
        if let Event::Message(GuestMessage::Failed { message }) = event {
            said = Some(message.clone());
        }
    });
    // Dropping the conversation puts the terminal back as it was, and kills the guest.
    let ending = tokio::select! {
        ending = talk => ending.map_err(Failure::infrastructure)?,
        () = told_to_end() => return Ok(INTERRUPTED),
    };
    if matches!(ending.reason, EndReason::Done | EndReason::Stopped) {
        return Ok(SUCCESS);
    }
    let report = match said {
        Some(message) => miette::miette!("the guest failed: {message}"),
        None => miette::miette!("the guest ended otherwise than by the shell's end: {ending}"),
    };
    Err(Failure { code: INFRASTRUCTURE, report })
}

/// Waits for SIGTERM or the end of the terminal. Keys send no signals while the terminal is the guest's.
async fn told_to_end() {
    let (Ok(mut terminate), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// Guests under the other clock take no input.
const WALL: Clock = Clock::Wall;

/// The kernel's name or the path of its image; a cell names by itself which of the catalogue it is.
fn kernel(arguments: &cli::Shell) -> Option<String> {
    match (&arguments.kernel, &arguments.cell) {
        (None, None) => Some("6.12".to_owned()),
        (kernel, _) => kernel.clone(),
    }
}

/// A plan for a cell of a study, or for any kernel of the catalogue, or an image of the user's, whether or not `quick` names it.
fn plan(chosen: &Chosen, arguments: &cli::Shell, global: &cli::Global) -> Result<Plan, Failure> {
    let kernel = kernel(arguments).unwrap_or_default();
    if arguments.cell.is_some() || is_image(&kernel) || arguments.modules.is_some() {
        return setup::expand(chosen, &arguments.overlays, Some(WALL), global);
    }
    let study = bpfassay_study::load("quick").map_err(Failure::usage)?;
    let target = bpfassay_study::Target { arch: arguments.arch.unwrap_or(Arch::X86_64), kernel };
    let study = Study { targets: vec![target], clock: WALL, clock_of_host: false, ..study };
    let available = bpfassay_study::Available::default();
    bpfassay_study::expand(&study, &bpfassay_study::Narrowing { replicates: Some(1), ..Default::default() }, &available)
        .map_err(Failure::usage)
}
