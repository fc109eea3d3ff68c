// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel functions that are known to be on probes' paths, and what they do. Names differ between
//! kernels, so an entry can match nothing on most of them.

use bpfassay_results::Role;

/// Beginning of the names of functions through which a kernel with retpolines makes indirect calls.
const THUNK: &str = "__x86_indirect_thunk_";

/// Prefixes of names. The first match counts.
const BEGINNINGS: &[(&str, Role)] = &[
    ("__bpf_prog_run", Role::Program),
    ("___bpf_prog_run", Role::Program),
    ("__bpf_prog_enter", Role::Entry),
    ("__bpf_prog_exit", Role::Entry),
    ("__bpf_tramp_", Role::Entry),
    ("__bpf_trace_", Role::Entry),
    ("bpf_trace_run", Role::Entry),
    ("trace_call_bpf", Role::Entry),
    ("update_prog_stats", Role::Entry),
    ("perf_trace_", Role::Entry),
    // Readings of the clock for the statistics of programs (`bpf_prog_start_time`).
    ("sched_clock", Role::Entry),
    ("migrate_disable", Role::Entry),
    ("migrate_enable", Role::Entry),
    ("__rcu_read_", Role::Entry),
    ("rcu_read_unlock_", Role::Entry),
    ("rcu_is_watching", Role::Entry),
    ("__traceiter_", Role::Trampoline),
    ("perf_syscall_", Role::Trampoline),
    // The slow path of all system calls while a tracepoint of one is in use (kernel/entry/common.c,
    // arch/arm64/kernel/ptrace.c).
    ("syscall_trace_", Role::Trampoline),
    ("syscall_exit_work", Role::Trampoline),
    ("kprobe", Role::Trampoline),
    ("get_kprobe", Role::Trampoline),
    ("kretprobe", Role::Trampoline),
    ("pre_handler_kretprobe", Role::Trampoline),
    ("arch_prepare_kretprobe", Role::Trampoline),
    ("rethook_", Role::Trampoline),
    ("arch_rethook_", Role::Trampoline),
    // Source of rethooks' instances (lib/objpool.c, since 6.7), which walks the possible CPUs.
    ("objpool_", Role::Trampoline),
    ("_find_next_bit", Role::Trampoline),
    ("fprobe_", Role::Trampoline),
    ("ftrace_", Role::Trampoline),
    ("arch_ftrace_", Role::Trampoline),
    ("optimized_callback", Role::Trampoline),
    ("opt_pre_handler", Role::Trampoline),
    ("exc_int3", Role::Trampoline),
    ("asm_exc_int3", Role::Trampoline),
    ("do_int3", Role::Trampoline),
    ("brk_handler", Role::Trampoline),
    ("call_break_hook", Role::Trampoline),
    ("call_el1_break_hook", Role::Trampoline),
    ("do_el1_brk64", Role::Trampoline),
    ("do_debug_exception", Role::Trampoline),
    ("el1_dbg", Role::Trampoline),
    ("el1_brk64", Role::Trampoline),
    ("el1h_64_sync", Role::Trampoline),
    ("ret_to_kernel", Role::Trampoline),
    ("vectors", Role::Trampoline),
    ("__bp_harden_el1_vectors", Role::Trampoline),
    ("handle_exception", Role::Trampoline),
    ("ret_from_exception", Role::Trampoline),
    ("irqentry_nmi_", Role::Trampoline),
    ("ct_nmi_", Role::Trampoline),
    ("setup_singlestep", Role::Trampoline),
    ("do_trap_break", Role::Trampoline),
    ("handle_break", Role::Trampoline),
    ("simulate_", Role::Trampoline),
    ("arch_simulate_insn", Role::Trampoline),
    (THUNK, Role::Trampoline),
    ("bpf_", Role::Helpers),
    ("__bpf_", Role::Helpers),
    ("htab_", Role::Helpers),
    ("__htab_", Role::Helpers),
    ("array_map_", Role::Helpers),
    ("percpu_array_map_", Role::Helpers),
    ("lookup_nulls_elem_raw", Role::Helpers),
    ("lookup_elem_raw", Role::Helpers),
    ("alloc_htab_elem", Role::Helpers),
    ("free_htab_elem", Role::Helpers),
    ("prealloc_lru_pop", Role::Helpers),
    ("pcpu_init_value", Role::Helpers),
    ("pcpu_copy_value", Role::Helpers),
    ("pcpu_freelist_", Role::Helpers),
    ("__pcpu_freelist_", Role::Helpers),
    ("___pcpu_freelist_", Role::Helpers),
    ("check_and_free_fields", Role::Helpers),
    // `bpf_ktime_get_ns` and similar helpers, and the clock sources that they read.
    ("ktime_get_", Role::Helpers),
    ("read_tsc", Role::Helpers),
    ("arch_counter_", Role::Helpers),
    ("copy_from_kernel_nofault", Role::Helpers),
    ("strncpy_from_kernel_nofault", Role::Helpers),
    ("__copy_from_kernel_nofault", Role::Helpers),
];

/// Suffixes of names, for functions with a prefix that names an architecture or platform.
const ENDS: &[(&str, Role)] = &[("_sched_clock", Role::Entry), ("_clocksource_rdtime", Role::Helpers)];

/// Returns the role of the function `NAME` or `NAME [MODULE]`; `None` if it is unknown.
pub(crate) fn of(function: &str) -> Option<Role> {
    let by_beginning = BEGINNINGS.iter().find(|(beginning, _)| function.starts_with(beginning));
    by_beginning.or_else(|| ENDS.iter().find(|(end, _)| function.ends_with(end))).map(|&(_, role)| role)
}

/// Whether code that has to do with no probe enters the function in the same way.
pub(crate) fn is_common(function: &str) -> bool {
    function.starts_with(THUNK)
}

/// Whether the function is the interpreter, each of whose entries is an entry of a program.
pub(crate) fn is_interpreter(function: &str) -> bool {
    function.starts_with("__bpf_prog_run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_roles_by_their_names() {
        assert_eq!(of("kprobe_ftrace_handler"), Some(Role::Trampoline));
        assert_eq!(of("__bpf_prog_enter_recur"), Some(Role::Entry));
        assert_eq!(of("___bpf_prog_run"), Some(Role::Program));
        assert_eq!(of("bpf_get_current_cgroup_id"), Some(Role::Helpers));
        assert_eq!(of("perf_trace_run_bpf_submit"), Some(Role::Entry));
        assert_eq!(of("sched_clock_noinstr"), Some(Role::Entry));
        assert_eq!(of("native_sched_clock"), Some(Role::Entry));
        assert_eq!(of("riscv_sched_clock"), Some(Role::Entry));
        assert_eq!(of("riscv_clocksource_rdtime"), Some(Role::Helpers));
        assert_eq!(of("ktime_get_mono_fast_ns"), Some(Role::Helpers));
        assert_eq!(of("_find_next_bit"), Some(Role::Trampoline));
        // Tools that trace another system call enter no program in this one.
        assert_eq!(of("syscall_trace_enter"), Some(Role::Trampoline));
        assert_eq!(of("vfs_read"), None);
    }
}
