//! Processor model and number of vCPUs.

use std::ffi::OsString;

use bpfassay_protocol::Arch;

use crate::{Accelerator, device::Device};

/// The guest's processors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// Architecture of the guest.
    pub(crate) arch: Arch,
    /// What runs the guest's instructions.
    pub(crate) accelerator: Accelerator,
    /// Number of vCPUs.
    pub(crate) count: u32,
}

impl Cpu {
    /// The model as QEMU's `-cpu` takes it. Under TCG it is chosen on purpose, because it decides what an instruction does:
    ///
    /// - x86_64: everything that TCG can do, but no fast string operations: kernels that see ERMS or FSRM copy with `rep
    ///   movsb`, where one instruction moves any number of bytes and which TCG ends a translation block for.
    /// - aarch64: Neoverse N1, a server processor with large system extension atomics and without pointer
    ///   authentication, which is slow under TCG (`max` boots 0.2 s slower even with `pauth-impdef=on`).
    /// - riscv64: the generic RV64GC, the only model that QEMU 7.2 offers besides boards' own.
    #[must_use]
    pub(crate) fn model(self) -> &'static str {
        match (self.accelerator, self.arch) {
            (Accelerator::Kvm, _) => "host",
            (Accelerator::Tcg, Arch::X86_64) => "max,-erms,-fsrm",
            (Accelerator::Tcg, Arch::Aarch64) => "neoverse-n1",
            (Accelerator::Tcg, Arch::Riscv64) => "rv64",
        }
    }
}

impl Device for Cpu {
    fn arguments(&self) -> Vec<OsString> {
        vec!["-cpu".into(), self.model().into(), "-smp".into(), self.count.to_string().into()]
    }
}
