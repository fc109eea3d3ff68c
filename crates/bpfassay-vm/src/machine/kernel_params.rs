// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel parameters that make a guest boot fast, and die fast with a clear message.

use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{device::MachineDevice, guest_clock::GuestClock, machine::Accelerator};

/// Whether kernel and processes have the same addresses on every boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aslr {
    /// `nokaslr norandmaps`: the same addresses every time.
    #[default]
    Fixed,
    /// Addresses of processes vary, and so does the offset of the kernel's stack within each system
    /// call. Addresses of the kernel do not.
    Processes,
    /// The kernel's default.
    Random,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelParams {
    pub(crate) arch: Arch,
    pub(crate) accelerator: Accelerator,
    pub(crate) clock: GuestClock,
    pub(crate) cpus: u32,
    pub(crate) aslr: Aslr,
}

impl MachineDevice for KernelParams {
    fn kernel_parameters(&self) -> Vec<String> {
        let mut parameters = vec![
            // A panic resets the machine at once, and `-no-reboot` makes QEMU exit. The trace is
            // already on the console.
            "panic=-1",
            // After an oops no measurement is valid, and a guest with a dead nfsd thread would only
            // hang.
            "oops=panic",
            // Skips the self-tests of crypto algorithms before init, which take 0.3 s under TCG.
            "cryptomgr.notests",
            // Keeps the audit subsystem from filling the log. Guests have no audit daemon.
            "audit=0",
            // Trusts the seed from firmware or processor, so that nothing blocks on an empty pool.
            "random.trust_cpu=on",
            "random.trust_bootloader=on",
        ];
        parameters.extend(self.arch.facts().kernel_parameters);
        if self.accelerator == Accelerator::Tcg && self.cpus == 1 {
            parameters.extend(self.arch.facts().single_tcg_cpu_parameters);
        }
        if self.accelerator == Accelerator::Tcg && self.clock == GuestClock::Wall {
            parameters.extend(self.arch.facts().emulated_wall_clock_parameters);
        }
        match self.aslr {
            Aslr::Fixed => parameters.extend(["nokaslr", "norandmaps"]),
            // Linux has the parameter since 5.13 (39218ff4c625), at first not for every
            // architecture. Other kernels ignore it.
            Aslr::Processes => parameters.extend(["nokaslr", "randomize_kstack_offset=on"]),
            Aslr::Random => parameters.push("randomize_kstack_offset=on"),
        }
        parameters.into_iter().map(str::to_owned).collect()
    }
}
