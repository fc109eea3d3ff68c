//! Registers that aya-ebpf has no names for.

use aya_ebpf::programs::ProbeContext;

/// The stack pointer. (aya-ebpf declares the context as the registers that the architecture gives to user space.)
#[inline(always)]
pub(super) fn stack_pointer(context: &ProbeContext) -> u64 {
    // SAFETY: the verifier checks the access to the context.
    unsafe {
        #[cfg(bpf_target_arch = "x86_64")]
        return (*context.regs).rsp;
        #[cfg(any(bpf_target_arch = "aarch64", bpf_target_arch = "riscv64"))]
        return (*context.regs).sp;
    }
}
