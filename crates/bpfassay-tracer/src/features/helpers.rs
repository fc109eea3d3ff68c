// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that tracers use, in the program types in which they use them.

use bpfassay_bpf::LoadError;
use bpfassay_protocol::kernel_feature::FeatureKind;
use libbpf_sys as bpf;

use super::{
    insn::Code,
    probe_env::{Context, ProbeEnv},
    trial_calls::{self, Result, TrialFailure},
};

/// The program types in which every helper is tried.
const CONTEXTS: [Context; 3] = [Context::Kprobe, Context::RawTracepoint, Context::Fexit];

/// Lists helpers by their name without `bpf_`, and their number.
macro_rules! helpers {
    ($($name:ident = $id:ident),+ $(,)?) => {
        const HELPERS: &[(&str, u32)] = &[$((stringify!($name), bpf::$id)),+];
    };
}

helpers! {
    map_lookup_percpu_elem = BPF_FUNC_map_lookup_percpu_elem,
    for_each_map_elem = BPF_FUNC_for_each_map_elem,
    probe_read_kernel = BPF_FUNC_probe_read_kernel,
    probe_read_user_str = BPF_FUNC_probe_read_user_str,
    ktime_get_ns = BPF_FUNC_ktime_get_ns,
    ktime_get_boot_ns = BPF_FUNC_ktime_get_boot_ns,
    ktime_get_tai_ns = BPF_FUNC_ktime_get_tai_ns,
    jiffies64 = BPF_FUNC_jiffies64,
    get_smp_processor_id = BPF_FUNC_get_smp_processor_id,
    get_current_pid_tgid = BPF_FUNC_get_current_pid_tgid,
    get_ns_current_pid_tgid = BPF_FUNC_get_ns_current_pid_tgid,
    get_current_comm = BPF_FUNC_get_current_comm,
    get_current_cgroup_id = BPF_FUNC_get_current_cgroup_id,
    get_current_ancestor_cgroup_id = BPF_FUNC_get_current_ancestor_cgroup_id,
    current_task_under_cgroup = BPF_FUNC_current_task_under_cgroup,
    get_current_task = BPF_FUNC_get_current_task,
    get_current_task_btf = BPF_FUNC_get_current_task_btf,
    task_pt_regs = BPF_FUNC_task_pt_regs,
    task_storage_get = BPF_FUNC_task_storage_get,
    cgrp_storage_get = BPF_FUNC_cgrp_storage_get,
    get_stackid = BPF_FUNC_get_stackid,
    get_stack = BPF_FUNC_get_stack,
    get_task_stack = BPF_FUNC_get_task_stack,
    d_path = BPF_FUNC_d_path,
    get_attach_cookie = BPF_FUNC_get_attach_cookie,
    get_func_ip = BPF_FUNC_get_func_ip,
    get_func_arg = BPF_FUNC_get_func_arg,
    get_func_ret = BPF_FUNC_get_func_ret,
    get_branch_snapshot = BPF_FUNC_get_branch_snapshot,
    override_return = BPF_FUNC_override_return,
    send_signal = BPF_FUNC_send_signal,
    perf_event_output = BPF_FUNC_perf_event_output,
    perf_event_read_value = BPF_FUNC_perf_event_read_value,
    ringbuf_output = BPF_FUNC_ringbuf_output,
    ringbuf_reserve = BPF_FUNC_ringbuf_reserve,
    ringbuf_query = BPF_FUNC_ringbuf_query,
    ringbuf_reserve_dynptr = BPF_FUNC_ringbuf_reserve_dynptr,
    user_ringbuf_drain = BPF_FUNC_user_ringbuf_drain,
    dynptr_from_mem = BPF_FUNC_dynptr_from_mem,
    loop = BPF_FUNC_loop,
    strncmp = BPF_FUNC_strncmp,
    strtol = BPF_FUNC_strtol,
    snprintf = BPF_FUNC_snprintf,
    trace_printk = BPF_FUNC_trace_printk,
    trace_vprintk = BPF_FUNC_trace_vprintk,
    tail_call = BPF_FUNC_tail_call,
    kptr_xchg = BPF_FUNC_kptr_xchg,
    per_cpu_ptr = BPF_FUNC_per_cpu_ptr,
    find_vma = BPF_FUNC_find_vma,
    get_numa_node_id = BPF_FUNC_get_numa_node_id,
}

/// Helpers that are only available in other program types.
const ELSEWHERE: &[(Context, &str, u32)] = &[
    (Context::Lsm, "copy_from_user", bpf::BPF_FUNC_copy_from_user),
    (Context::Lsm, "d_path", bpf::BPF_FUNC_d_path),
    (Context::Lsm, "inode_storage_get", bpf::BPF_FUNC_inode_storage_get),
    (Context::Syscall, "kallsyms_lookup_name", bpf::BPF_FUNC_kallsyms_lookup_name),
];

pub(super) fn try_all(env: &mut ProbeEnv) {
    let everywhere =
        CONTEXTS.into_iter().flat_map(|context| HELPERS.iter().map(move |&(name, id)| (context, name, id)));
    for (context, name, id) in everywhere.chain(ELSEWHERE.iter().copied()) {
        let tried = available(env, context, id);
        env.tried(FeatureKind::Helper, format!("{}/bpf_{name}", context.name()), tried);
    }
}

/// Checks that a program can call the helper. The program passes arbitrary register contents. A
/// kernel that permits the call in this program type rejects the arguments, if anything.
fn available(env: &ProbeEnv, context: Context, id: u32) -> Result<()> {
    /// Messages of the verifier about a helper that it does not have, or not for this program type
    /// (kernel/bpf/verifier.c, `check_helper_call`). The third message is of 6.9 and later. The
    /// last one concerns helpers with which only some functions can be traced.
    const UNAVAILABLE: [&str; 4] = [
        "invalid func ",
        "unknown func ",
        "program of this type cannot use helper ",
        "helper call is not allowed in probe",
    ];
    let program = env.program(context)?;
    match bpfassay_bpf::load(program, &Code::default().helper(id).exit_zero().0) {
        Ok(_) => Ok(()),
        Err(LoadError { source: error, log }) => {
            match log.lines().find(|line| UNAVAILABLE.iter().any(|message| line.contains(message))) {
                Some(line) => {
                    Err(TrialFailure::Refused { errno: error.raw_os_error(), message: line.trim().to_owned() })
                }
                // The kernel rejects the arguments of the call, so it has accepted the helper.
                None if log.contains("(85) call") => Ok(()),
                None => Err(trial_calls::refusal(&error, &log)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_helper_is_listed_once_under_its_own_number() {
        let mut ids: Vec<u32> = HELPERS.iter().map(|&(_, id)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), HELPERS.len());
        assert_eq!(HELPERS.iter().find(|(name, _)| *name == "get_current_cgroup_id").map(|(_, id)| *id), Some(80));
    }
}
