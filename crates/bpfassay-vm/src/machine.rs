// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine as data, and its QEMU command line. Each part of a machine is a file in `machine/` and
//! a line of `Machine::devices`.

pub(crate) mod agent_port;
pub(crate) mod board;
pub(crate) mod clock_and_seed;
pub(crate) mod console;
pub(crate) mod cpu;
pub(crate) mod kernel_boot;
pub(crate) mod kernel_params;
pub(crate) mod memory_device;
pub(crate) mod monitor_device;
pub(crate) mod network_device;
pub(crate) mod no_defaults;
pub(crate) mod plugin_device;
pub(crate) mod sandbox;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use bpfassay_protocol::{Arch, job_nodes::Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::{
    agent_port::AgentPort, board::Board, clock_and_seed::ClockAndSeed, console::Console, cpu::Cpu,
    kernel_boot::BootFiles, kernel_params::KernelParams,
};
pub use self::{board::Accelerator, kernel_params::Aslr, memory_device::MachineMemory};
use crate::{
    device::{MachineDevice, descriptor, path_of},
    guest_clock::GuestClock,
};

/// The kernel parameters are longer than the kernel accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel command line for {arch} has {length} bytes, and kernels for {arch} take {most}: \
     shorten or remove kernel parameters"
)]
pub struct CommandLineTooLong {
    /// The guest's architecture.
    pub arch: Arch,
    /// Length of the command line in bytes.
    pub length: usize,
    /// Largest length that the kernel accepts, in bytes.
    pub most: usize,
}

/// The place of a machine's initramfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Initramfs {
    /// The initramfs is at this path.
    Path(PathBuf),
    /// In the open file of the boot: [`crate::BootOptions::initramfs`].
    OpenFile,
}

/// Everything that decides the QEMU command line of one guest. It is only data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Architecture of the guest.
    pub arch: Arch,
    /// The executor of the guest's instructions.
    pub accelerator: Accelerator,
    /// The guest's clock.
    pub clock: GuestClock,
    /// Seed of everything random in the machine, used under [`GuestClock::Instructions`].
    #[serde(default)]
    pub seed: u64,
    /// Number of vCPUs, at least 1.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Kernel image in a form that QEMU boots on the architecture. For x86_64, the uncompressed ELF
    /// `vmlinux` boots seconds faster under TCG than its bzImage.
    pub kernel: PathBuf,
    /// Initramfs, if any.
    pub initrd: Option<Initramfs>,
    /// Whether addresses are the same on every boot.
    #[serde(default)]
    pub aslr: Aslr,
    /// Whether the kernel prints all messages on the console, not only warnings and worse.
    #[serde(default)]
    pub verbose: bool,
    /// Whether QEMU's filter of system calls is on. [`crate::Guest::boot`] turns it off if QEMU has
    /// none.
    #[serde(default = "on")]
    pub sandbox: bool,
    /// Whether a plugin ([`crate::BootOptions::plugin`]) counts executed instructions, which
    /// requires TCG.
    #[serde(default)]
    pub plugin: bool,
    /// The plugin's model of caches and branches, in the plugin's notation (`Model::argument` of
    /// bpfassay-study).
    #[serde(default)]
    pub model: Option<String>,
    /// The guest's place among several nodes. Absent for a single guest, which has no network.
    #[serde(default)]
    pub node: Option<Node>,
    /// Further kernel parameters, for example `mitigations=off`. They come last, because the kernel
    /// uses the last of several values.
    #[serde(default)]
    pub kernel_parameters: Vec<String>,
}

const fn on() -> bool {
    true
}

impl Machine {
    /// Creates a machine with one vCPU, 1024 MiB, TCG, wall clock and no initramfs.
    #[must_use]
    pub fn new(arch: Arch, kernel: impl Into<PathBuf>) -> Self {
        Self {
            arch,
            accelerator: Accelerator::Tcg,
            clock: GuestClock::Wall,
            seed: 0,
            cpus: 1,
            memory_mib: 1024,
            kernel: kernel.into(),
            initrd: None,
            aslr: Aslr::Fixed,
            verbose: false,
            sandbox: true,
            plugin: false,
            model: None,
            node: None,
            kernel_parameters: Vec::new(),
        }
    }

    /// Returns the parts other than the kernel, in the order of their arguments.
    fn devices(&self) -> Vec<Box<dyn MachineDevice>> {
        let Self { arch, accelerator, clock, seed, cpus, memory_mib, aslr, verbose, sandbox: on, plugin, .. } = *self;
        vec![
            Box::new(sandbox::SyscallFilter { on }),
            Box::new(no_defaults::NoDefaults),
            Box::new(Board { arch, accelerator }),
            Box::new(Cpu { arch, accelerator, count: cpus }),
            Box::new(MachineMemory { mib: memory_mib }),
            Box::new(ClockAndSeed { clock, seed }),
            Box::new(plugin_device::TranslatorPlugin { on: plugin, model: self.model.clone() }),
            Box::new(monitor_device::Monitor),
            Box::new(Console { arch, verbose, clock }),
            Box::new(AgentPort { clock }),
            Box::new(network_device::Network { node: self.node }),
            Box::new(KernelParams { arch, accelerator, clock, cpus, aslr }),
        ]
    }

    /// Returns the processor model, as an argument of QEMU.
    #[must_use]
    pub fn cpu_model(&self) -> &'static str {
        Cpu { arch: self.arch, accelerator: self.accelerator, count: self.cpus }.model()
    }

    /// Returns the machine type with its properties, as an argument of QEMU.
    #[must_use]
    pub fn machine_type(&self) -> &'static str {
        Board { arch: self.arch, accelerator: self.accelerator }.machine_type()
    }

    /// Returns the kernel command line.
    #[must_use]
    pub fn kernel_command_line(&self) -> String {
        let mut parameters: Vec<String> = self.devices().iter().flat_map(|device| device.kernel_parameters()).collect();
        parameters.extend(self.kernel_parameters.iter().cloned());
        parameters.join(" ")
    }

    /// Checks that the kernel keeps the whole command line.
    ///
    /// # Errors
    /// [`CommandLineTooLong`] if the kernel would drop the end, or not boot.
    pub fn check_command_line(&self) -> Result<(), CommandLineTooLong> {
        let (length, most) = (self.kernel_command_line().len(), self.arch.longest_command_line());
        if length <= most { Ok(()) } else { Err(CommandLineTooLong { arch: self.arch, length, most }) }
    }

    /// Returns QEMU's arguments, without the program. QEMU inherits kernel and initramfs
    /// ([`crate::device::descriptor`]), so that the arguments do not depend on their paths.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let initrd = self.initrd.as_ref().map(|_| path_of(descriptor::INITRD));
        self.arguments_with(path_of(descriptor::KERNEL), initrd)
    }

    fn arguments_with(&self, kernel: OsString, initrd: Option<OsString>) -> Vec<OsString> {
        let boot = BootFiles { kernel, initrd, command_line: self.kernel_command_line() };
        self.devices().iter().flat_map(|device| device.arguments()).chain(boot.arguments()).collect()
    }

    /// Returns the whole command for people, quoted for a POSIX shell. It begins with `start`
    /// ([`crate::Qemu::command_line`]), and has the paths of kernel and initramfs if they have
    /// paths. Running it by hand requires the sockets of [`crate::device::descriptor`].
    #[must_use]
    pub fn shell_command(&self, start: &[OsString]) -> String {
        let initrd = self.initrd.as_ref().map(|initrd| match initrd {
            Initramfs::Path(path) => path.clone().into_os_string(),
            Initramfs::OpenFile => path_of(descriptor::INITRD),
        });
        let arguments = self.arguments_with(self.kernel.clone().into_os_string(), initrd);
        shell_command(start.iter().chain(&arguments))
    }
}

/// Quotes `args` for a POSIX shell. Bytes that are not UTF-8 become the replacement character.
pub fn shell_command<'a>(args: impl IntoIterator<Item = &'a (impl AsRef<OsStr> + ?Sized + 'a)>) -> String {
    args.into_iter().map(|arg| quoted(arg.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Quotes `arg` as one argument of a shell command.
fn quoted(arg: &OsStr) -> String {
    let arg = arg.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        arg.into_owned()
    } else {
        format!("'{}'", arg.replace('\'', r"'\''"))
    }
}
