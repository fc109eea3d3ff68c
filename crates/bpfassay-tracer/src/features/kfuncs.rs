// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of the kernel that programs can call (kfuncs). A program that calls each one with
//! valid arguments is loaded.

use bpfassay_bpf::MapSpec;
use bpfassay_protocol::kernel_feature::FeatureKind;
use libbpf_sys as bpf;

use super::{
    insn::Reg::{Fp, R0, R1, R2, R3, R4, R5, R6},
    probe_env::{Context, ProbeEnv, ProgramBuilder},
    trial_calls::Result,
};

type Build = for<'a> fn(ProgramBuilder<'a>) -> ProgramBuilder<'a>;

/// Program type, function, and a program that calls it.
const KFUNCS: &[(Context, &str, Build)] = &[
    // Strings (kernel/bpf/helpers.c). The verifier does not check the arguments: bad addresses fail
    // at run time.
    (Context::Fexit, "bpf_strcmp", |builder| builder.with(|code| code.mov(R1, 0).mov(R2, 0)).kfunc("bpf_strcmp")),
    (Context::Fexit, "bpf_strcasecmp", |builder| {
        builder.with(|code| code.mov(R1, 0).mov(R2, 0)).kfunc("bpf_strcasecmp")
    }),
    (Context::Fexit, "bpf_strlen", |builder| builder.with(|code| code.mov(R1, 0)).kfunc("bpf_strlen")),
    (Context::Fexit, "bpf_strnlen", |builder| builder.with(|code| code.mov(R1, 0).mov(R2, 8)).kfunc("bpf_strnlen")),
    (Context::Fexit, "bpf_strchr", |builder| builder.with(|code| code.mov(R1, 0).mov(R2, 0x61)).kfunc("bpf_strchr")),
    (Context::Fexit, "bpf_strstr", |builder| builder.with(|code| code.mov(R1, 0).mov(R2, 0)).kfunc("bpf_strstr")),
    (Context::Fexit, "bpf_strnstr", |builder| {
        builder.with(|code| code.mov(R1, 0).mov(R2, 0).mov(R3, 8)).kfunc("bpf_strnstr")
    }),
    (Context::Kprobe, "bpf_strlen", |builder| builder.with(|code| code.mov(R1, 0)).kfunc("bpf_strlen")),
    // Critical sections.
    (Context::Fexit, "bpf_rcu_read_lock", |builder| builder.kfunc("bpf_rcu_read_lock").kfunc("bpf_rcu_read_unlock")),
    (Context::Fexit, "bpf_preempt_disable", |builder| builder.kfunc("bpf_preempt_disable").kfunc("bpf_preempt_enable")),
    (Context::Fexit, "bpf_local_irq_save", |builder| {
        builder
            .with(|code| code.stack(R1, -8))
            .kfunc("bpf_local_irq_save")
            .with(|code| code.stack(R1, -8))
            .kfunc("bpf_local_irq_restore")
    }),
    // Tasks, cgroups, CPUs.
    (Context::Fexit, "bpf_task_from_pid", task_from_pid),
    (Context::Kprobe, "bpf_task_from_pid", task_from_pid),
    (Context::Fexit, "bpf_task_from_vpid", |builder| {
        builder
            .with(|code| code.mov(R1, 1))
            .kfunc("bpf_task_from_vpid")
            .with(|code| code.if_equal(R0, 0, 2).copy(R1, R0))
            .kfunc("bpf_task_release")
    }),
    (Context::Fexit, "bpf_task_acquire", |builder| {
        builder
            .with(|code| code.helper(bpf::BPF_FUNC_get_current_task_btf).copy(R1, R0))
            .kfunc("bpf_task_acquire")
            .with(|code| code.if_equal(R0, 0, 2).copy(R1, R0))
            .kfunc("bpf_task_release")
    }),
    (Context::Fexit, "bpf_cgroup_from_id", |builder| {
        builder
            .with(|code| code.mov(R1, 1))
            .kfunc("bpf_cgroup_from_id")
            .with(|code| code.if_equal(R0, 0, 2).copy(R1, R0))
            .kfunc("bpf_cgroup_release")
    }),
    (Context::Fexit, "bpf_cpumask_create", |builder| {
        builder
            .kfunc("bpf_cpumask_create")
            .with(|code| code.if_equal(R0, 0, 2).copy(R1, R0))
            .kfunc("bpf_cpumask_release")
    }),
    // Iterators.
    (Context::Fexit, "bpf_iter_num_new", |builder| {
        builder
            .with(|code| code.stack(R1, -8).mov(R2, 0).mov(R3, 10))
            .kfunc("bpf_iter_num_new")
            .with(|code| code.stack(R1, -8))
            .kfunc("bpf_iter_num_destroy")
    }),
    (Context::Fexit, "bpf_iter_bits_new", |builder| {
        builder
            .with(|code| code.stack(R1, -16).mov(R2, 0).mov(R3, 1))
            .kfunc("bpf_iter_bits_new")
            .with(|code| code.stack(R1, -16))
            .kfunc("bpf_iter_bits_destroy")
    }),
    (Context::Fexit, "bpf_iter_task_new", |builder| {
        builder
            // BPF_TASK_ITER_ALL_PROCS is 0.
            .with(|code| code.helper(bpf::BPF_FUNC_get_current_task_btf).copy(R2, R0).stack(R1, -24).mov(R3, 0))
            .kfunc("bpf_iter_task_new")
            .with(|code| code.stack(R1, -24))
            .kfunc("bpf_iter_task_destroy")
    }),
    (Context::Fexit, "bpf_iter_task_vma_new", |builder| {
        builder
            .with(|code| code.helper(bpf::BPF_FUNC_get_current_task_btf).copy(R2, R0).stack(R1, -8).mov(R3, 0))
            .kfunc("bpf_iter_task_vma_new")
            .with(|code| code.stack(R1, -8))
            .kfunc("bpf_iter_task_vma_destroy")
    }),
    (Context::Syscall, "bpf_iter_kmem_cache_new", |builder| {
        builder
            .with(|code| code.stack(R1, -8))
            .kfunc("bpf_iter_kmem_cache_new")
            .with(|code| code.stack(R1, -8))
            .kfunc("bpf_iter_kmem_cache_destroy")
    }),
    // Dynamic pointers.
    (Context::Fexit, "bpf_dynptr_size", |builder| {
        builder.dynptr(-16).with(|code| code.stack(R1, -16)).kfunc("bpf_dynptr_size")
    }),
    (Context::Fexit, "bpf_dynptr_is_null", |builder| {
        builder.dynptr(-16).with(|code| code.stack(R1, -16)).kfunc("bpf_dynptr_is_null")
    }),
    (Context::Fexit, "bpf_dynptr_adjust", |builder| {
        builder.dynptr(-16).with(|code| code.stack(R1, -16).mov(R2, 0).mov(R3, 8)).kfunc("bpf_dynptr_adjust")
    }),
    (Context::Fexit, "bpf_dynptr_clone", |builder| {
        builder.dynptr(-16).with(|code| code.stack(R1, -16).stack(R2, -32)).kfunc("bpf_dynptr_clone")
    }),
    (Context::Fexit, "bpf_dynptr_slice", |builder| {
        builder
            .dynptr(-16)
            .with(|code| code.store_value(Fp, -24, 0).stack(R1, -16).mov(R2, 0).stack(R3, -24).mov(R4, 8))
            .kfunc("bpf_dynptr_slice")
    }),
    (Context::Fexit, "bpf_dynptr_copy", |builder| {
        builder
            .dynptr(-16)
            .with(|code| code.stack(R1, -16).mov(R2, 0).stack(R3, -16).mov(R4, 8).mov(R5, 8))
            .kfunc("bpf_dynptr_copy")
    }),
    (Context::Fexit, "bpf_dynptr_memset", |builder| {
        builder.dynptr(-16).with(|code| code.stack(R1, -16).mov(R2, 0).mov(R3, 8).mov(R4, 0)).kfunc("bpf_dynptr_memset")
    }),
    // Types.
    (Context::Fexit, "bpf_rdonly_cast", |builder| {
        builder.with(|code| code.mov(R1, 0)).structure(R2, "task_struct").kfunc("bpf_rdonly_cast")
    }),
    (Context::Kprobe, "bpf_cast_to_kern_ctx", |builder| builder.kfunc("bpf_cast_to_kern_ctx")),
    // Memory of user space, files, security labels, in sleepable programs.
    (Context::Syscall, "bpf_copy_from_user_str", |builder| {
        builder
            .with(|code| code.store_value(Fp, -8, 0).stack(R1, -8).mov(R2, 8).mov(R3, 0).mov(R4, 0))
            .kfunc("bpf_copy_from_user_str")
    }),
    (Context::Lsm, "bpf_get_task_exe_file", |builder| {
        builder
            .with(|code| code.helper(bpf::BPF_FUNC_get_current_task_btf).copy(R1, R0))
            .kfunc("bpf_get_task_exe_file")
            .with(|code| code.if_equal(R0, 0, 2).copy(R1, R0))
            .kfunc("bpf_put_file")
    }),
    (Context::Lsm, "bpf_get_file_xattr", |builder| {
        builder
            .with(|code| code.load(R6, R1, 0))
            .dynptr(-16)
            .constant_string(R2, "user.bpfassay")
            .with(|code| code.copy(R1, R6).stack(R3, -16))
            .kfunc("bpf_get_file_xattr")
    }),
    (Context::Lsm, "bpf_get_fsverity_digest", |builder| {
        builder
            .with(|code| code.load(R6, R1, 0))
            .dynptr(-16)
            .with(|code| code.copy(R1, R6).stack(R2, -16))
            .kfunc("bpf_get_fsverity_digest")
    }),
    // Maps and sessions.
    (Context::Fexit, "bpf_map_sum_elem_count", |builder| {
        let hash = MapSpec { kind: bpf::BPF_MAP_TYPE_HASH, ..MapSpec::array(8) };
        builder.map(R1, hash).kfunc("bpf_map_sum_elem_count")
    }),
    (Context::KprobeSession, "bpf_session_is_return", |builder| builder.kfunc("bpf_session_is_return")),
    (Context::KprobeSession, "bpf_session_cookie", |builder| builder.kfunc("bpf_session_cookie")),
];

fn task_from_pid(builder: ProgramBuilder<'_>) -> ProgramBuilder<'_> {
    builder
        .with(|code| code.mov(R1, 1))
        .kfunc("bpf_task_from_pid")
        .with(|code| code.if_equal(R0, 0, 2).copy(R1, R0))
        .kfunc("bpf_task_release")
}

pub(super) fn try_all(env: &mut ProbeEnv) {
    for &(context, name, build) in KFUNCS {
        let tried = call(env, context, build);
        env.tried(FeatureKind::Kfunc, format!("{}/{name}", context.name()), tried);
    }
}

fn call(env: &ProbeEnv, context: Context, build: Build) -> Result<()> {
    // The function is checked first: if it is missing, the program type does not matter.
    let builder = build(ProgramBuilder::new(env.kernel()?));
    let builder = builder.complete()?;
    builder.load(env.program(context)?).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_listed_once_per_program_type() {
        let mut names: Vec<_> = KFUNCS.iter().map(|(context, name, _)| (context.name(), *name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KFUNCS.len());
    }
}
