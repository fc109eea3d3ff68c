//! `bpfassay shell`: an interactive guest.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    PROTOCOL_VERSION,
    job::{FileSystem, Job, Task},
    message::GuestMessage,
};
use bpfassay_study::{Plan, Study};
use bpfassay_vm::{BootOptions, Event, Guest, Machine};

use crate::{
    cli,
    exit::{Failure, INFRASTRUCTURE, INTERNAL, Outcome, SUCCESS},
    setup::{self, Store},
};

pub(crate) async fn shell(arguments: cli::Shell, global: &cli::Global) -> Outcome {
    // The guest of `quick` on this one target, baseline only: same file system, same kernel parameters.
    let selection = cli::Selection {
        study: "quick".to_owned(),
        arch: Vec::new(),
        kernel: vec![arguments.kernel.clone()],
        modules: arguments.modules.clone(),
        probe: Vec::new(),
        replicates: Some(1),
    };
    let plan = plan(&selection, &arguments)?;
    let target = plan
        .targets()
        .first()
        .map(|target| (*target).clone())
        .ok_or_else(|| Failure { code: INTERNAL, report: miette::miette!("the plan of one guest has no target") })?;
    setup::host_packages(&plan, global)?;
    let store = Store::open(global)?;
    let testbed = setup::testbed(&store, &selection, &arguments.overlays, &plan, setup::Shell::With)?;
    let rig = setup::rig(&store, testbed.images, &plan, cli::AcceleratorChoice::Auto, setup::Trial::Boot).await?;
    let image = rig.image(&target).map_err(|error| Failure::new(INTERNAL, error))?;
    let (qemu, choice) = rig.qemu(target.arch).map_err(|error| Failure::new(INTERNAL, error))?;

    let file_system =
        plan.blocks.first().map_or(FileSystem::Tmpfs { size_mib: 256 }, |block| block.file_system.clone());
    let modules = image.module_paths(&file_system).map_err(Failure::usage)?;
    let job = Job { protocol: PROTOCOL_VERSION, modules, file_system, task: Task::Shell };
    let scratch = store.cache.scratch()?;
    let initrd = scratch.path().join("initramfs.cpio");
    image.write_initramfs(&job, &initrd)?;
    let mut machine = Machine::new(target.arch, image.kernel());
    machine.accelerator = choice.accelerator;
    machine.cpus = arguments.cpus;
    machine.memory_mib = arguments.memory;
    machine.initrd = Some(initrd);
    machine.kernel_parameters.clone_from(&plan.study.guest.kernel_parameters);
    machine.verbose = global.verbose > 0;

    let log = scratch.path().join("console.log");
    let mut options = BootOptions::new(&log);
    options.interactive = true;
    let guest = Guest::boot(qemu, &machine, options).await.map_err(Failure::infrastructure)?;
    let mut said = None;
    let ending = guest
        .interact(|event| {
            if let Event::Message(GuestMessage::Failed { message }) = event {
                said = Some(message.clone());
            }
        })
        .await
        .map_err(Failure::infrastructure)?;
    if ending.reason.is_done() {
        return Ok(SUCCESS);
    }
    let report = match said {
        Some(message) => miette::miette!("the guest failed: {message}"),
        None => miette::miette!("the guest ended otherwise than by the shell's end: {ending}"),
    };
    Err(Failure { code: INFRASTRUCTURE, report })
}

/// A plan for any kernel of the catalogue, or an image of the user's, whether or not `quick` names it.
fn plan(selection: &cli::Selection, arguments: &cli::Shell) -> Result<Plan, Failure> {
    if arguments.kernel.contains('/') {
        return setup::expand(selection, &arguments.overlays);
    }
    let study = bpfassay_study::load("quick").map_err(Failure::usage)?;
    let target = bpfassay_study::Target { arch: arguments.arch, kernel: arguments.kernel.clone() };
    let study = Study { targets: vec![target], ..study };
    let available = bpfassay_study::Available { external_ior: BTreeMap::new() };
    bpfassay_study::expand(&study, &bpfassay_study::Narrowing { replicates: Some(1), ..Default::default() }, &available)
        .map_err(Failure::usage)
}
