// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host set-up: the image and the QEMU of each target. Builds a boot's machine and job.

use std::{collections::BTreeMap, fs::File, path::Path};

use crate::boot::{loaded_plugin::LoadedPlugin, study_nodes};
use bpfassay_packages::apt::Package;
use bpfassay_plugin::Plugin;
use bpfassay_protocol::{
    Arch,
    job::{Job, RunSpec, Scheduling, Task},
    job_nodes::Node,
};
use bpfassay_study::{Addresses, Block, Model, Plan, PlannedRun, Study, Target};
use bpfassay_testbed::image::GuestImage;
use bpfassay_vm::{
    Accelerator, AcceleratorChoice, Aslr, CommandLineTooLong, GuestClock, GuestDeadlines, Initramfs, Machine,
    MachineMemory, Qemu, file_for_initramfs,
};

/// Images and QEMU for all targets.
#[derive(Debug)]
pub struct HostSetup {
    /// QEMU and its accelerator per architecture.
    pub qemu: BTreeMap<Arch, (Qemu, AcceleratorChoice)>,
    /// The package of QEMU per architecture, if QEMU comes from the lock.
    pub qemu_packages: BTreeMap<Arch, Package>,
    /// The plugin that QEMU loads, per architecture. Empty under the wall clock.
    pub plugins: BTreeMap<Arch, LoadedPlugin>,
    /// The guest image per target.
    pub images: BTreeMap<Target, GuestImage>,
}

/// The host set-up lacks something that a block needs: a fault of the caller.
#[derive(Debug, thiserror::Error)]
pub enum HostSetupError {
    /// No image was prepared.
    #[error("no guest image was prepared for {0}")]
    NoImage(Target),
    /// No QEMU was chosen.
    #[error("no QEMU was chosen for {0}")]
    NoQemu(Arch),
    /// The kernel lacks a module that the block needs.
    #[error("a guest for {target} cannot have the file system under test")]
    Modules {
        /// The target.
        target: Target,
        /// The missing packages or programs.
        #[source]
        source: Box<bpfassay_testbed::kernel_modules::ModulesError>,
    },
    /// The console log of a boot could not be made.
    #[error("could not make the console log {log} in the results directory")]
    Log {
        /// The log's path in the results directory.
        log: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The initramfs of a boot could not be written.
    #[error("could not write the initramfs of a boot to memory")]
    Initramfs {
        /// Why not.
        #[source]
        source: Box<bpfassay_testbed::Error>,
    },
}

impl HostSetup {
    /// Returns the image for `target`.
    ///
    /// # Errors
    /// [`HostSetupError::NoImage`] if there is none.
    pub fn image(&self, target: &Target) -> Result<&GuestImage, HostSetupError> {
        self.images.get(target).ok_or_else(|| HostSetupError::NoImage(target.clone()))
    }

    /// Returns QEMU for `arch`.
    ///
    /// # Errors
    /// [`HostSetupError::NoQemu`] if there is none.
    pub fn qemu(&self, arch: Arch) -> Result<&(Qemu, AcceleratorChoice), HostSetupError> {
        self.qemu.get(&arch).ok_or(HostSetupError::NoQemu(arch))
    }

    /// Returns the plugin that counts instructions of guests of `arch`; `None` if none are counted.
    #[must_use]
    pub fn plugin(&self, study: &Study, arch: Arch) -> Option<Plugin> {
        let loaded = self.plugins.get(&arch).filter(|loaded| loaded.refusal.is_none());
        loaded.filter(|_| study.counts_instructions()).map(|loaded| loaded.plugin)
    }

    /// Creates the job of a boot that does `runs` of `block`. It is the job of `node` if there are
    /// several; the server does no runs.
    ///
    /// # Errors
    /// [`HostSetupError::NoImage`] if there is no image for the block's target.
    /// [`HostSetupError::Modules`] if its kernel lacks a module for the block's file system.
    pub fn job(
        &self,
        study: &Study,
        block: &Block,
        runs: &[PlannedRun],
        node: Option<Node>,
    ) -> Result<Job, HostSetupError> {
        let modules = self
            .image(&block.target)?
            .module_paths(&block.file_system, node.is_some())
            .map_err(|source| HostSetupError::Modules { target: block.target.clone(), source: Box::new(source) })?;
        let task = match node.is_some_and(Node::is_server) {
            true => Task::Serve,
            false => Task::Runs { runs: runs.iter().map(|run| spec(study, block, run)).collect() },
        };
        Ok(Job {
            modules,
            mounts: study.mounts.iter().filter(|mount| !mount.private).cloned().collect(),
            settle_ms: match study.clock {
                bpfassay_study::Clock::Wall => 0,
                bpfassay_study::Clock::Instructions => SETTLE_MS,
            },
            scheduling: scheduling(study, block),
            symbols: study.counts_instructions(),
            turn_ns: turn_ns(study, block),
            node,
            ..Job::new(block.file_system.clone(), task)
        })
    }

    /// Writes the initramfs of a boot of `target` that does `job` to memory.
    ///
    /// # Errors
    /// [`HostSetupError::NoImage`] if there is no image for `target`. [`HostSetupError::Initramfs`]
    /// if a segment cannot be read, or memory is short.
    pub fn initramfs(&self, target: &Target, job: &Job) -> Result<File, HostSetupError> {
        const SHOWN: &str = "a file in memory";
        let failed = |source| HostSetupError::Initramfs { source: Box::new(source) };
        let file =
            file_for_initramfs().map_err(|source| failed(bpfassay_testbed::Error::io("create", SHOWN)(source)))?;
        self.image(target)?.write_initramfs_to(job, &file, Path::new(SHOWN)).map_err(failed)?;
        Ok(file)
    }

    /// Returns the machine that boots `block` with an initramfs in an open file. It is the machine
    /// of `node` if there are several.
    ///
    /// # Errors
    /// [`HostSetupError::NoImage`] if there is no image for the block's target.
    /// [`HostSetupError::NoQemu`] if there is no QEMU for its architecture.
    pub fn machine(&self, study: &Study, block: &Block, node: Option<Node>) -> Result<Machine, HostSetupError> {
        let arch = block.target.arch;
        let (qemu, choice) = self.qemu(arch)?;
        let mut machine = machine_of(study, block, choice.accelerator, node);
        machine.kernel = self.image(&block.target)?.kernel().into();
        machine.sandbox = qemu.confinement.sandbox;
        machine.plugin = self.plugin(study, arch).is_some();
        machine.memory_mib = self.memory_mib(study, &block.target)?;
        machine.initrd = Some(Initramfs::OpenFile);
        Ok(machine)
    }

    /// Returns the machines of all guests of a boot of `block`, the server last. Each has a name if
    /// there are several.
    ///
    /// # Errors
    /// The errors of [`Self::machine`].
    pub fn machines(&self, study: &Study, block: &Block) -> Result<Vec<(Option<String>, Machine)>, HostSetupError> {
        let all = study_nodes::of(study).into_iter().chain(study_nodes::server(study).map(Some));
        all.map(|node| Ok((node.map(Node::name), self.machine(study, block, node)?))).collect()
    }

    /// Returns the memory of guests for `target` in MiB: the study's and the tools' memory, or more
    /// if QEMU would refuse that.
    ///
    /// # Errors
    /// [`HostSetupError::NoImage`] if there is no image for `target`.
    pub fn memory_mib(&self, study: &Study, target: &Target) -> Result<u32, HostSetupError> {
        let image = self.image(target)?;
        let wanted = study.guest.memory_mib.saturating_add(image.tools_mib());
        Ok(MachineMemory::for_initramfs(target.arch, wanted, image.initramfs_bytes()).mib)
    }

    /// Returns whether guests of `arch` are emulated.
    #[must_use]
    pub fn is_emulated(&self, arch: Arch) -> bool {
        self.qemu.get(&arch).is_none_or(|(_, choice)| choice.accelerator == Accelerator::Tcg)
    }
}

/// Makes the machine that `study` and `block` describe, without kernel and host additions.
fn machine_of(study: &Study, block: &Block, accelerator: Accelerator, node: Option<Node>) -> Machine {
    let mut machine = Machine::new(block.target.arch, "");
    machine.accelerator = accelerator;
    machine.clock = match study.clock {
        bpfassay_study::Clock::Wall => GuestClock::Wall,
        bpfassay_study::Clock::Instructions => {
            // TCG is the only accelerator that counts instructions.
            machine.accelerator = Accelerator::Tcg;
            GuestClock::Instructions
        }
    };
    machine.model = study.model.as_ref().map(Model::argument);
    machine.seed = study.design.seed_of(block.replicate);
    machine.aslr = match study.guest.addresses {
        Addresses::Fixed => Aslr::Fixed,
        Addresses::Processes => Aslr::Processes,
        Addresses::All => Aslr::Random,
    };
    machine.cpus = study.guest.cpus;
    machine.node = node;
    machine.kernel_parameters = kernel_parameters(study, block);
    machine
}

/// Checks that the kernels of `plan` accept their whole command lines with every accelerator.
///
/// # Errors
/// [`CommandLineTooLong`] for the first block whose kernel does not.
pub(crate) fn check_command_lines(plan: &Plan) -> Result<(), CommandLineTooLong> {
    let study = &plan.study;
    for block in &plan.blocks {
        for accelerator in [Accelerator::Tcg, Accelerator::Kvm] {
            for node in study_nodes::of(study).into_iter().chain(study_nodes::server(study).map(Some)) {
                machine_of(study, block, accelerator, node).check_command_line()?;
            }
        }
    }
    Ok(())
}

/// How long guests under the instruction clock wait until the kernel has finished earlier work. It
/// is longer than the delay of memory that is freed through RCU. In Linux 6.12 that is 5 s for
/// `kfree_rcu` (`KFREE_DRAIN_JIFFIES` in mm/slab_common.c) and 10 s for lazy callbacks
/// (`LAZY_FLUSH_JIFFIES` in kernel/rcu/tree_nocb.h).
const SETTLE_MS: u64 = 12_000;

/// Makes slab caches use single pages where objects fit (`slab_max_order`,
/// admin-guide/kernel-parameters.txt). This is the name from before Linux 6.8, which later kernels
/// accept, too. Larger blocks bypass the per-CPU lists of free pages, which the agent fills, and
/// freeing a larger block can drain these lists.
const SINGLE_PAGES: &str = "slub_max_order=0";

/// Factor for the deadlines under the instruction clock, in time of the host. QEMU is up to 3.7
/// times slower while it counts (x86_64), and the host can be busy with other work.
const COUNTING: u32 = 6;

/// Further factor with a model of caches and branches, which sees every block and access of the
/// phases. Whole boots took 1.5 to 2.7 times as long (x86_64, aarch64, riscv64).
const MODELLING: u32 = 4;

/// The tracer's option for the order in which it hooks functions.
const ATTACH_ORDER: &str = "--attach-order";

/// Returns the deadlines of `study` for the supervisor, in whole seconds of the host.
pub fn deadlines(study: &Study) -> GuestDeadlines {
    let seconds = |milliseconds: u64| Some(milliseconds.div_ceil(1000));
    let deadlines = GuestDeadlines {
        boot: seconds(study.deadlines.boot_ms),
        set_up: seconds(study.deadlines.set_up_ms),
        attach: seconds(study.deadlines.attach_ms),
        workload: seconds(study.deadlines.workload_ms),
        tear_down: seconds(study.deadlines.tear_down_ms),
        ..GuestDeadlines::default()
    };
    match study.clock {
        bpfassay_study::Clock::Wall => deadlines,
        bpfassay_study::Clock::Instructions if study.model.is_some() => deadlines.scaled(COUNTING * MODELLING),
        bpfassay_study::Clock::Instructions => deadlines.scaled(COUNTING),
    }
}

/// Returns the longest time that a boot with `runs` runs can take, in whole seconds of the host. It
/// is the sum of the phases' deadlines. So it cuts no phase short, and no guest occupies the host
/// for ever. See [`GuestDeadlines::whole_boot`].
pub(crate) fn whole_boot_seconds(study: &Study, runs: u64) -> u64 {
    let limits = deadlines(study);
    let seconds = |limit: Option<u64>| limit.unwrap_or_default();
    // The deadline for tearing down applies before the run's end is reported, and again after.
    let tear_down = seconds(limits.tear_down).saturating_mul(2);
    let run = seconds(limits.attach).saturating_add(seconds(limits.workload)).saturating_add(tear_down);
    let around =
        [limits.boot, limits.set_up, limits.power_off].map(seconds).iter().fold(0_u64, |a, &b| a.saturating_add(b));
    run.saturating_mul(runs).saturating_add(around)
}

/// Returns the period of the timers that make CPUs take short turns, in nanoseconds: 16 to 24 µs. It
/// depends on the seed in steps that are no multiple of another, so that each seed interrupts other
/// instructions. By the wall clock, CPUs take no turns.
fn turn_ns(study: &Study, block: &Block) -> Option<u64> {
    let takes_turns = study.guest.short_turns && study.clock == bpfassay_study::Clock::Instructions;
    takes_turns.then(|| 16_000 + study.design.seed_of(block.replicate).wrapping_mul(1_787) % 8_009)
}

/// Returns the specification of `run` for the guest. If addresses vary, it also has the order in
/// which to hook functions, which decides where the kernel puts programs and maps.
pub fn spec(study: &Study, block: &Block, run: &PlannedRun) -> RunSpec {
    let mut spec = run.spec.clone();
    let is_given = spec.tracer_arguments.iter().any(|argument| argument.starts_with(ATTACH_ORDER));
    if !spec.probe.is_baseline() && study.guest.addresses != Addresses::Fixed && !is_given {
        spec.tracer_arguments.extend([ATTACH_ORDER.to_owned(), study.design.seed_of(block.replicate).to_string()]);
    }
    spec
}

fn scheduling(study: &Study, block: &Block) -> Scheduling {
    // Older plans have no scheduling.
    block.file_system.scheduling().or(study.guest.scheduling).unwrap_or(Scheduling::Kernel)
}

/// Returns the kernel parameters of `block` in addition to the machine's. The study's parameters
/// come last, so that they take effect.
fn kernel_parameters(study: &Study, block: &Block) -> Vec<String> {
    let fixed = (scheduling(study, block) == Scheduling::Fixed).then(|| SINGLE_PAGES.to_owned());
    fixed.into_iter().chain(study.guest.kernel_parameters.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::{ProbeConfiguration, probe::Probe};
    use bpfassay_study::{Available, Narrowing, WarmUp, expand};

    use super::*;

    /// Returns the tracer's arguments in each replicate, without the baseline. `of_study` are the
    /// study's arguments.
    fn arguments(addresses: Addresses, of_study: &[&str]) -> Vec<(u32, String)> {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.guest.addresses = addresses;
        study.tracer_arguments = of_study.iter().map(|&argument| argument.to_owned()).collect();
        study.design.rounds = 1;
        study.design.warm_up = WarmUp::Runs(0);
        study.design.seed = 40;
        let narrowing = Narrowing {
            archs: vec![Arch::X86_64],
            kernels: vec!["6.12".to_owned()],
            probes: vec![ProbeConfiguration::with_defaults(Probe::Fexit)],
            replicates: Some(2),
            ..Narrowing::default()
        };
        let plan = expand(&study, &narrowing, &Available::default()).unwrap();
        let all = plan.runs().map(|(block, run)| (block, spec(&study, block, run)));
        let (baseline, traced): (Vec<_>, Vec<_>) = all.partition(|(_, spec)| spec.probe.is_baseline());
        assert!(baseline.iter().all(|(_, spec)| spec.tracer_arguments.is_empty()));
        traced.into_iter().map(|(block, spec)| (block.replicate, spec.tracer_arguments.join(" "))).collect()
    }

    /// Kernels for aarch64 dropped the last parameter of 2,176 bytes, and booted.
    #[test]
    fn a_command_line_that_a_kernel_would_cut_is_refused_for_its_architecture() {
        /// All architectures of the study.
        const ALL: &[Arch] = &[];
        let mut study = bpfassay_study::load("quick").unwrap();
        let checked = |study: &Study, archs: &[Arch]| {
            let narrowing = Narrowing { archs: archs.to_vec(), ..Narrowing::default() };
            check_command_lines(&expand(study, &narrowing, &Available::default()).unwrap())
        };
        checked(&study, ALL).unwrap();
        study.guest.kernel_parameters = vec![format!("x={}", "y".repeat(1000)), "lsm=bpf".to_owned()];
        checked(&study, &[Arch::X86_64, Arch::Aarch64]).unwrap();
        let refused = checked(&study, ALL).unwrap_err();
        assert_eq!((refused.arch, refused.most), (Arch::Riscv64, 1023));
        assert!(refused.length > 1023);
        study.guest.kernel_parameters.push(format!("z={}", "y".repeat(1000)));
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let refused = checked(&study, &[arch]).unwrap_err();
            assert_eq!((refused.arch, refused.most), (arch, 2047));
        }
    }

    /// The limit is the number of bytes that the kernel keeps.
    #[test]
    fn the_longest_command_line_is_accepted() {
        let mut machine = Machine::new(Arch::Aarch64, "");
        let rest = 2047 - machine.kernel_command_line().len() - " x=".len();
        machine.kernel_parameters = vec![format!("x={}", "y".repeat(rest))];
        assert_eq!((machine.kernel_command_line().len(), machine.check_command_line()), (2047, Ok(())));
        machine.kernel_parameters[0].push('y');
        let refused = machine.check_command_line().unwrap_err().to_string();
        assert!(refused.contains("has 2048 bytes, and kernels for aarch64 take 2047"), "{refused}");
    }

    #[test]
    fn caches_take_single_pages_where_scheduling_is_fixed_and_the_study_has_the_last_word() {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.guest.kernel_parameters = vec!["slub_max_order=1".to_owned()];
        for (scheduling, expected) in [
            (Scheduling::Fixed, &["slub_max_order=0", "slub_max_order=1"][..]),
            (Scheduling::Kernel, &["slub_max_order=1"]),
        ] {
            study.guest.scheduling = Some(scheduling);
            let plan = expand(&study, &Narrowing::default(), &Available::default()).unwrap();
            let (block, _) = plan.runs().next().unwrap();
            assert_eq!(kernel_parameters(&study, block), expected);
        }
    }

    #[test]
    fn a_boot_may_take_what_its_phases_may_take() {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.clock = bpfassay_study::Clock::Wall;
        study.deadlines.boot_ms = 10_000;
        study.deadlines.set_up_ms = 20_000;
        study.deadlines.attach_ms = 1_000;
        study.deadlines.workload_ms = 1_500;
        study.deadlines.tear_down_ms = 4_000;
        let power_off = GuestDeadlines::default().power_off.unwrap();
        assert_eq!(whole_boot_seconds(&study, 0), 30 + power_off);
        assert_eq!(whole_boot_seconds(&study, 3), 30 + power_off + 3 * (1 + 2 + 2 * 4));
        let wall = whole_boot_seconds(&study, 3);
        study.clock = bpfassay_study::Clock::Instructions;
        assert_eq!(whole_boot_seconds(&study, 3), u64::from(COUNTING) * wall);
        assert_eq!(whole_boot_seconds(&study, u64::MAX), u64::MAX);
        study.use_model(Model::named("cachegrind").unwrap()).unwrap();
        assert_eq!(whole_boot_seconds(&study, 3), u64::from(COUNTING * MODELLING) * wall);
    }

    #[test]
    fn functions_are_hooked_in_another_order_in_every_replicate() {
        let given = |one: &str, two: &str| vec![(1, one.to_owned()), (2, two.to_owned())];
        assert_eq!(arguments(Addresses::Processes, &[]), given("--attach-order 41", "--attach-order 42"));
        assert_eq!(arguments(Addresses::Fixed, &[]), given("", ""));
        let own = arguments(Addresses::Processes, &["--attach-order", "3"]);
        assert_eq!(own, given("--attach-order 3", "--attach-order 3"));
    }
}
