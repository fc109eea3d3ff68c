// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the accelerator by booting with it.
//!
//! An existing /dev/kvm that opens is not enough: processors can refuse the CPU model, and nested
//! KVM can hang before the first instruction. Therefore a kernel is booted under KVM without a root
//! file system. KVM is chosen only if that kernel reaches its regular end, a panic, in time.

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

use std::{path::Path, time::Duration};

use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    boot_progress::GuestDeadlines,
    console::KernelIncidentKind,
    error::VmError,
    guest::{BootOptions, Guest},
    guest_ending::{EndReason, GuestEnding},
    machine::{Accelerator, Machine},
    qemu::Qemu,
    vm_event::VmEvent,
};

/// The accelerator that the user requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AcceleratorWish {
    /// KVM if it works, else TCG.
    #[default]
    Auto,
    /// KVM, or an error.
    Kvm,
    /// TCG, without trying KVM.
    Tcg,
}

/// The chosen accelerator with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceleratorChoice {
    /// The accelerator to boot with.
    pub accelerator: Accelerator,
    /// The reason for the choice, for people.
    pub reason: String,
}

/// Everything that a choice depends on. A cached choice is valid while none of it changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AcceleratorKey {
    /// Architecture of the guest.
    pub arch: Arch,
    /// QEMU's version, with the distribution's revision.
    pub qemu: String,
    /// `uname -r` and `uname -v` of the host.
    pub host_kernel: String,
    /// The host's processor, according to /proc/cpuinfo.
    pub processor: String,
}

impl AcceleratorKey {
    /// Returns the key of this host.
    #[must_use]
    pub fn of_host(qemu: &Qemu) -> Self {
        let uname = rustix::system::uname();
        Self {
            arch: qemu.arch,
            qemu: qemu.version_text.clone(),
            host_kernel: format!("{} {}", uname.release().to_string_lossy(), uname.version().to_string_lossy()),
            // Hosts with an unknown processor share this part of the key. A change of kernel or
            // QEMU still invalidates the choice.
            processor: std::fs::read_to_string("/proc/cpuinfo").map(|text| processor(&text)).unwrap_or_default(),
        }
    }
}

/// Returns the lines of /proc/cpuinfo that identify the first processor.
pub(crate) fn processor(cpuinfo: &str) -> String {
    const KEYS: &[&str] = &[
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "stepping",
        "microcode",
        "CPU implementer",
        "CPU architecture",
        "CPU variant",
        "CPU part",
        "CPU revision",
        "isa",
        "mmu",
        "uarch",
    ];
    let first = cpuinfo.lines().skip_while(|line| line.trim().is_empty()).take_while(|line| !line.trim().is_empty());
    let values = first.filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        KEYS.contains(&key.trim()).then(|| value.trim())
    });
    values.collect::<Vec<_>>().join(" / ")
}

/// Chooses the accelerator for guests like `machine`. Boots its kernel without an initramfs for
/// this purpose. Keeps the console of the trial at `log_path`. `patience` bounds the trial.
///
/// # Errors
/// [`VmError::NoKvm`] if KVM does not work and [`AcceleratorWish::Kvm`] demands it. Otherwise only
/// errors that prevent the trial ([`VmError::Log`], [`VmError::Input`], [`VmError::System`]). A
/// failed trial is the reason of a choice, not an error.
pub async fn choose(
    qemu: &Qemu,
    machine: &Machine,
    wish: AcceleratorWish,
    log_path: &Path,
    patience: Duration,
) -> Result<AcceleratorChoice, VmError> {
    if wish == AcceleratorWish::Tcg {
        return Ok(AcceleratorChoice { accelerator: Accelerator::Tcg, reason: "requested".to_owned() });
    }
    let refusal = if is_native(machine.arch) {
        match try_kvm(qemu, machine, log_path, patience).await? {
            Ok(reason) => return Ok(AcceleratorChoice { accelerator: Accelerator::Kvm, reason }),
            Err(refusal) => refusal,
        }
    } else {
        format!("KVM runs no {} guests on this {} host", machine.arch, std::env::consts::ARCH)
    };
    if wish == AcceleratorWish::Kvm {
        return Err(VmError::NoKvm { reason: refusal });
    }
    Ok(AcceleratorChoice { accelerator: Accelerator::Tcg, reason: refusal })
}

/// Returns whether this host's processor can accelerate a guest of `arch`.
#[must_use]
pub fn is_native(arch: Arch) -> bool {
    arch.name() == std::env::consts::ARCH
}

/// Boots under KVM. Returns `Ok(Ok)` if it works, and `Ok(Err)` with the reason if it does not.
async fn try_kvm(
    qemu: &Qemu,
    machine: &Machine,
    log_path: &Path,
    patience: Duration,
) -> Result<Result<String, String>, VmError> {
    let machine = Machine { accelerator: Accelerator::Kvm, initrd: None, verbose: true, ..machine.clone() };
    let mut options = BootOptions::new(log_path);
    options.deadlines = GuestDeadlines { boot: Some(patience.as_secs().max(1)), ..GuestDeadlines::default() };
    let mut guest = match Guest::boot(qemu, &machine, options).await {
        Ok(guest) => guest,
        Err(VmError::Refused { stderr, .. }) => {
            let lines: Vec<_> = stderr.lines().map(str::trim).collect();
            return Ok(Err(format!("QEMU refused to start under KVM: {}", lines.join("; "))));
        }
        Err(VmError::MonitorSilent { seconds }) => {
            return Ok(Err(format!("QEMU with KVM did not answer within {seconds} s")));
        }
        Err(error) => return Err(error),
    };
    loop {
        if let VmEvent::Ended(ending) = guest.next_event().await {
            return Ok(verdict(&ending));
        }
    }
}

/// Draws the conclusion about KVM from the end of the trial.
fn verdict(ending: &GuestEnding) -> Result<String, String> {
    match &ending.reason {
        // The kernel found no root, after it had initialised every CPU and itself.
        EndReason::KernelDied { incident }
            if incident.kind == KernelIncidentKind::Panic && incident.line.contains("Unable to mount root fs") =>
        {
            Ok(format!("a kernel booted under KVM in {} ms", ending.lived_ms))
        }
        EndReason::BootTimeout { seconds } if ending.console_tail.is_empty() => {
            Err(format!("a kernel booted under KVM wrote nothing to its console within {seconds} s"))
        }
        reason => Err(format!("a kernel booted under KVM did not reach its own end: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_identified_by_what_does_not_change() {
        let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R)\ncpu MHz\t\t: 2300.1\n\nprocessor\t: 1\nmodel name : other";
        assert_eq!(processor(x86), "GenuineIntel / Intel(R) Xeon(R)");
        let arm = "processor\t: 0\nBogoMIPS\t: 125.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n";
        assert_eq!(processor(arm), "0x41 / 0xd0c");
        assert_eq!(processor(""), "");
    }
}
