// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions before any program is loaded, for both loaders: how many copies of a program are
//! attached, and what programs are allowed to do on this kernel.

use bpfassay_protocol::{
    Arch,
    finding_name::{Finding, Pitfall},
};
use bpfassay_tracer_common::COPIES;

use crate::kernel::{jit::has_jit, preemption};

/// Returns the number of copies of programs that the kernel skips while they already run on the CPU
/// (trampolines, raw tracepoints). One copy is enough, unless tasks can be preempted inside the
/// programs. The code that decides which copy counts needs the JIT compiler on some kernels
/// (riscv64 7.2: "program requires BPF JIT compiler"). If it is missing, there is one copy, whose
/// misses are reported as possible losses.
pub(crate) fn copies() -> u32 {
    if preemption::is_preemptible() && has_jit() { COPIES } else { 1 }
}

/// Returns whether programs can get the calling task. Some kernels refuse this to programs without
/// JIT compilation.
pub(crate) fn is_task_known() -> bool {
    !Arch::BUILT_FOR.facts().current_task_needs_jit || has_jit()
}

/// Returns the finding for kernels on which they cannot.
pub(crate) fn fsync_without_mount() -> Finding {
    Finding {
        pitfall: Pitfall::NotChecked,
        subject: "fsync".to_owned(),
        detail:
            "counted without mount and device, which --mount leaves out: programs may not ask for the calling task \
                 without the JIT compiler (net.core.bpf_jit_enable)"
                .to_owned(),
    }
}

/// Returns the finding that `function` is not hooked, and why.
pub(crate) fn not_counted(function: &str, why: &str) -> Finding {
    Finding {
        pitfall: Pitfall::SymbolMissing,
        subject: function.to_owned(),
        detail: format!("not hooked, its calls are not counted: {why}"),
    }
}
