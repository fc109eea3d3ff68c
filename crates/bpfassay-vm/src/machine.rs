// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine as data, and the command line that builds it. A part of it is a file in `machine/`,
//! and a line of `Machine::devices`.

pub(crate) mod agent_port;
pub(crate) mod board;
pub(crate) mod boot;
pub(crate) mod clock_and_seed;
pub(crate) mod console;
pub(crate) mod cpu;
pub(crate) mod kernel_params;
pub(crate) mod memory;
pub(crate) mod monitor;
pub(crate) mod network;
pub(crate) mod no_defaults;
pub(crate) mod plugin;
pub(crate) mod sandbox;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use bpfassay_protocol::{Arch, nodes::Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::{
    agent_port::AgentPort, board::Board, boot::Boot, clock_and_seed::ClockAndSeed, console::Console, cpu::Cpu,
    kernel_params::KernelParams,
};
pub use self::{board::Accelerator, kernel_params::Aslr, memory::Memory};
use crate::{
    Clock,
    device::{Device, descriptor, path_of},
};

/// The parameters of a kernel are longer than the kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel command line for {arch} has {length} bytes, and kernels for {arch} take {most}: \
     shorten or remove kernel parameters"
)]
pub struct CommandLineTooLong {
    /// The guest's architecture.
    pub arch: Arch,
    /// Bytes of the command line.
    pub length: usize,
    /// Bytes that the kernel takes.
    pub most: usize,
}

/// Where the initramfs of a machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Initramfs {
    /// At this path.
    Path(PathBuf),
    /// In the open file of the boot: [`crate::BootOptions::initramfs`].
    OpenFile,
}

/// Everything that decides the QEMU command line of one guest. Nothing is read or started here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Architecture of the guest.
    pub arch: Arch,
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// Its clock.
    pub clock: Clock,
    /// Seed of all that is random in the machine; only under [`Clock::Instructions`].
    #[serde(default)]
    pub seed: u64,
    /// Number of vCPUs, at least 1.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Kernel image; in a form that QEMU boots on the architecture. For x86_64 the uncompressed ELF
    /// `vmlinux` boots seconds faster under TCG than its bzImage.
    pub kernel: PathBuf,
    /// Initramfs, if any.
    pub initrd: Option<Initramfs>,
    /// Whether addresses are the same on every boot.
    #[serde(default)]
    pub aslr: Aslr,
    /// Whether the kernel prints all its messages on the console, not only warnings and worse.
    #[serde(default)]
    pub verbose: bool,
    /// Whether QEMU's own filter of system calls is on. [`crate::Guest::boot`] turns it off for a
    /// QEMU that has none.
    #[serde(default = "on")]
    pub sandbox: bool,
    /// Whether a plugin counts executed instructions: [`crate::BootOptions::plugin`]. Only under
    /// TCG.
    #[serde(default)]
    pub plugin: bool,
    /// The model of caches and branches that the plugin uses besides, as it reads it
    /// (`Model::argument` of bpfassay-study).
    #[serde(default)]
    pub model: Option<String>,
    /// Which of several nodes it is; `None`: it is alone, without a network.
    #[serde(default)]
    pub node: Option<Node>,
    /// Further kernel parameters, for example `mitigations=off`. They come last: the kernel uses
    /// the last of several.
    #[serde(default)]
    pub kernel_parameters: Vec<String>,
}

const fn on() -> bool {
    true
}

impl Machine {
    /// One vCPU, 1024 MiB, TCG, wall clock, no initramfs.
    #[must_use]
    pub fn new(arch: Arch, kernel: impl Into<PathBuf>) -> Self {
        Self {
            arch,
            accelerator: Accelerator::Tcg,
            clock: Clock::Wall,
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

    /// The parts other than the kernel, in the order of their arguments.
    fn devices(&self) -> Vec<Box<dyn Device>> {
        let Self { arch, accelerator, clock, seed, cpus, memory_mib, aslr, verbose, sandbox: on, plugin, .. } = *self;
        vec![
            Box::new(sandbox::Sandbox { on }),
            Box::new(no_defaults::NoDefaults),
            Box::new(Board { arch, accelerator }),
            Box::new(Cpu { arch, accelerator, count: cpus }),
            Box::new(Memory { mib: memory_mib }),
            Box::new(ClockAndSeed { clock, seed }),
            Box::new(plugin::Plugin { on: plugin, model: self.model.clone() }),
            Box::new(monitor::Monitor),
            Box::new(Console { arch, verbose, clock }),
            Box::new(AgentPort { clock }),
            Box::new(network::Network { node: self.node }),
            Box::new(KernelParams { arch, accelerator, clock, cpus, aslr }),
        ]
    }

    /// The processor model, as an argument of QEMU.
    #[must_use]
    pub fn cpu_model(&self) -> &'static str {
        Cpu { arch: self.arch, accelerator: self.accelerator, count: self.cpus }.model()
    }

    /// The machine type with its properties, as an argument of QEMU.
    #[must_use]
    pub fn machine_type(&self) -> &'static str {
        Board { arch: self.arch, accelerator: self.accelerator }.machine_type()
    }

    /// The kernel command line.
    #[must_use]
    pub fn kernel_command_line(&self) -> String {
        let mut parameters: Vec<String> = self.devices().iter().flat_map(|device| device.kernel_parameters()).collect();
        parameters.extend(self.kernel_parameters.iter().cloned());
        parameters.join(" ")
    }

    /// Checks that the kernel keeps the whole command line.
    ///
    /// # Errors
    /// [`CommandLineTooLong`] where it would drop the end, or not boot.
    pub fn check_command_line(&self) -> Result<(), CommandLineTooLong> {
        let (length, most) = (self.kernel_command_line().len(), self.arch.longest_command_line());
        if length <= most { Ok(()) } else { Err(CommandLineTooLong { arch: self.arch, length, most }) }
    }

    /// QEMU's arguments, without the program. Kernel and initramfs are among what QEMU inherits
    /// ([`crate::device::descriptor`]), so that the arguments are the same wherever the files are.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let initrd = self.initrd.as_ref().map(|_| path_of(descriptor::INITRD));
        self.arguments_with(path_of(descriptor::KERNEL), initrd)
    }

    fn arguments_with(&self, kernel: OsString, initrd: Option<OsString>) -> Vec<OsString> {
        let boot = Boot { kernel, initrd, command_line: self.kernel_command_line() };
        self.devices().iter().flat_map(|device| device.arguments()).chain(boot.arguments()).collect()
    }

    /// The whole command for people to read, which begins as `start` does
    /// ([`crate::Qemu::command_line`]), quoted for a POSIX shell, with the paths of kernel and
    /// initramfs where they have some. Executed by hand it needs the sockets of
    /// [`crate::device::descriptor`].
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

/// `args` quoted for a POSIX shell. Bytes that are not UTF-8 are shown as the replacement
/// character.
pub fn shell_command<'a>(args: impl IntoIterator<Item = &'a (impl AsRef<OsStr> + ?Sized + 'a)>) -> String {
    args.into_iter().map(|arg| quoted(arg.as_ref())).collect::<Vec<_>>().join(" ")
}

/// `arg` as one argument of a shell command.
fn quoted(arg: &OsStr) -> String {
    let arg = arg.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        arg.into_owned()
    } else {
        format!("'{}'", arg.replace('\'', r"'\''"))
    }
}
