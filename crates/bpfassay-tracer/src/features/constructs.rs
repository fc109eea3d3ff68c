// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constructs of programs: instructions, loops, calls, callbacks, objects in map values. Programs
//! that can run are run, and must return the right value: a JIT compiler can accept an instruction
//! and get it wrong.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use bpfassay_bpf::{FunctionInfo, MapSpec, ProgramSpec};
use bpfassay_protocol::kernel_feature::FeatureKind;
use libbpf_sys as bpf;

use super::{
    insn::{
        Atomic, Code,
        Reg::{Fp, R0, R1, R2, R3, R4, R5, R6},
    },
    probe_env::{Context, ProbeEnv, ProgramBuilder},
    trial_calls::{self, Result, TrialFailure},
    type_builder::TypeBuilder,
};
use crate::loader::plan::usual::SYSCALL_PREFIX;

type ConstructTrial = fn(&ProbeEnv) -> Result<()>;

const CONSTRUCTS: &[(&str, ConstructTrial)] = &[
    ("bounded-loop", |env| runs(env, Code::default().mov(R0, 0).add(R0, 1).if_below(R0, 10, -2).exit(), 10)),
    // A comparison and an addition in 32 bits, as clang emits from -mcpu=v3 on.
    ("cpu-v3", |env| runs(env, Code::default().mov(R0, 1).if_equal_32(R0, 1, 2).exit_zero().add_32(R0, 4).exit(), 5)),
    // Instructions of -mcpu=v4: signed division, sign-extending moves and loads, byte swap, long
    // jump. -7 / 2 is -3. Its lower half, 0xfffd, swapped is 0xfdff.
    ("cpu-v4", |env| {
        let code = Code::default()
            .mov(R1, -7)
            .divide_signed(R1, 2)
            .store(Fp, -8, R1)
            .load_sign_extended(R2, Fp, -8)
            .copy_sign_extended(R3, R2)
            .swap_bytes(R3, 16)
            // The code that the long jump skips must be reachable, though it is never executed.
            .if_equal(R3, 1, 1)
            .go_far(1)
            .mov(R3, 0)
            .copy(R0, R3)
            .exit();
        runs(env, code, 0xfdff)
    }),
    ("atomic-add", |env| {
        let code =
            Code::default().store_value(Fp, -8, 40).mov(R1, 2).atomic(Atomic::Add, Fp, -8, R1).load(R0, Fp, -8).exit();
        runs(env, code, 42)
    }),
    // Memory is 5, then 8, 14, 6, 7. The old value is returned each time.
    ("atomic-fetch", |env| {
        let code = Code::default()
            .store_value(Fp, -8, 5)
            .mov(R1, 3)
            .atomic(Atomic::FetchAdd, Fp, -8, R1)
            .mov(R1, 6)
            .atomic(Atomic::FetchOr, Fp, -8, R1)
            .mov(R1, 7)
            .atomic(Atomic::FetchAnd, Fp, -8, R1)
            .mov(R1, 1)
            .atomic(Atomic::FetchXor, Fp, -8, R1)
            .load(R0, Fp, -8)
            .if_equal(R1, 6, 1)
            .mov(R0, 0)
            .exit();
        runs(env, code, 7)
    }),
    // Memory 5 becomes 8 because it is 5. Then it becomes 9, and the 8 is returned.
    ("atomic-exchange", |env| {
        let code = Code::default()
            .store_value(Fp, -8, 5)
            .mov(R0, 5)
            .mov(R1, 8)
            .atomic(Atomic::CompareExchange, Fp, -8, R1)
            .mov(R2, 9)
            .atomic(Atomic::Exchange, Fp, -8, R2)
            .copy(R0, R2)
            .exit();
        runs(env, code, 8)
    }),
    ("load-acquire", |env| {
        let code = Code::default()
            .mov(R1, 42)
            .atomic(Atomic::StoreRelease, Fp, -8, R1)
            .atomic(Atomic::LoadAcquire, R0, -8, Fp)
            .exit();
        runs(env, code, 42)
    }),
    // This is only loaded: the budget of the loop is millions of iterations.
    ("may-goto", |env| {
        let code = Code::default().mov(R0, 0).may_go(1).go(-2).exit();
        trial_calls::load(env.program(Context::RawTracepoint)?, &code).map(drop)
    }),
    ("subprogram", |env| runs(env, Code::default().call(1).exit().mov(R0, 7).exit(), 7)),
    ("global-function", global_function),
    ("callback", callback),
    ("tail-call", |env| tail_call(env, Code::default(), &[])),
    // The caller of the function with the tail call continues with the other program's return
    // value.
    ("tail-call-in-subprogram", |env| tail_call(env, Code::default().call(1).exit(), &[(0, true), (2, false)])),
    ("exception", |env| {
        let kernel = env.kernel()?;
        let builder = ProgramBuilder::new(kernel).with(|code| code.mov(R1, 64)).kfunc("bpf_throw").complete()?;
        returns(builder.load(env.program(Context::Syscall)?)?, 64)
    }),
    ("sleepable-lsm", |env| trial_calls::load(env.program(Context::Lsm)?, &Code::default().exit_zero()).map(drop)),
    ("sleepable-fentry", |env| {
        let program = ProgramSpec {
            attach: bpf::BPF_TRACE_FENTRY,
            // Sleepable trampolines can only hook functions that permit error injection, such as
            // system calls.
            target: env.kernel()?.function(&format!("{SYSCALL_PREFIX}sys_getpgid"))?,
            flags: bpf::BPF_F_SLEEPABLE,
            ..ProgramSpec::new(bpf::BPF_PROG_TYPE_TRACING)
        };
        trial_calls::load(program, &Code::default().exit_zero()).map(drop)
    }),
    ("sleepable-uprobe", |_| {
        let program = ProgramSpec { flags: bpf::BPF_F_SLEEPABLE, ..ProgramSpec::new(bpf::BPF_PROG_TYPE_KPROBE) };
        trial_calls::load(program, &Code::default().exit_zero()).map(drop)
    }),
    ("timer", |env| {
        let (map, program) = (special_map(c"bpf_timer", 16)?, env.program(Context::Fexit)?);
        // CLOCK_MONOTONIC is 1.
        let code = Code::default().map_value(R1, map.as_fd()).map(R2, map.as_fd()).mov(R3, 1);
        trial_calls::load(program, &code.helper(bpf::BPF_FUNC_timer_init).exit_zero()).map(drop)
    }),
    ("work-queue", |env| {
        let kernel = env.kernel()?;
        kernel.function("bpf_wq_init")?;
        let map = special_map(c"bpf_wq", 16)?;
        ProgramBuilder::new(kernel)
            .with(|code| code.map_value(R1, map.as_fd()).map(R2, map.as_fd()).mov(R3, 0))
            .kfunc("bpf_wq_init")
            .load(env.program(Context::Fexit)?)
            .map(drop)
    }),
    ("resilient-lock", |env| {
        let kernel = env.kernel()?;
        kernel.function("bpf_res_spin_lock")?;
        let map = special_map(c"bpf_res_spin_lock", 4)?;
        ProgramBuilder::new(kernel)
            .with(|code| code.map_value(R6, map.as_fd()).copy(R1, R6))
            .kfunc("bpf_res_spin_lock")
            .with(|code| code.if_equal(R0, 0, 1).go(2).copy(R1, R6))
            .kfunc("bpf_res_spin_unlock")
            .load(env.program(Context::Fexit)?)
            .map(drop)
    }),
    ("kptr", |_| kptr().map(drop)),
    ("percpu-kptr", percpu_kptr),
    ("arena", |env| {
        let map = MapSpec { key: 0, flags: bpf::BPF_F_MMAPABLE, kind: bpf::BPF_MAP_TYPE_ARENA, ..MapSpec::array(0) };
        let map = trial_calls::create(map)?;
        trial_calls::settle_arena(map.as_fd())?;
        ProgramBuilder::new(env.kernel()?)
            // One page, on any node of memory (-1).
            .with(|code| code.map(R1, map.as_fd()).mov(R2, 0).mov(R3, 1).mov(R4, -1).mov(R5, 0))
            .kfunc("bpf_arena_alloc_pages")
            .load(env.program(Context::Syscall)?)
            .map(drop)
    }),
];

pub(super) fn try_all(env: &mut ProbeEnv) {
    for &(name, trial) in CONSTRUCTS {
        let tried = trial(env);
        env.tried(FeatureKind::Construct, name, tried);
    }
}

/// Loads `code`, runs it once, and compares the return value with `expected`.
fn runs(env: &ProbeEnv, code: Code, expected: u32) -> Result<()> {
    returns(trial_calls::load(env.program(Context::RawTracepoint)?, &code)?, expected)
}

fn returns(program: OwnedFd, expected: u32) -> Result<()> {
    match trial_calls::test_run(&program)? {
        value if value == expected => Ok(()),
        value => Err(TrialFailure::missing(format!("it ran, but returned {value} in place of {expected}"))),
    }
}

/// Loads a program of type raw tracepoint with typed functions. `functions` are their first
/// instructions, and whether each is global.
fn load_typed(env: &ProbeEnv, code: &Code, functions: &[(u32, bool)]) -> Result<OwnedFd> {
    let types = TypeBuilder::new()?;
    let int = types.integer(c"int", 4)?;
    let mut infos = Vec::new();
    for (&(instruction, global), name) in functions.iter().zip([c"first", c"second"]) {
        infos.push(FunctionInfo { instruction, type_id: types.function(name, global, int, &[])? as u32 });
    }
    let types = types.load()?;
    let program = ProgramSpec { types: Some((types.as_fd(), &infos)), ..env.program(Context::RawTracepoint)? };
    trial_calls::load(program, code)
}

/// Tries a function that the verifier checks separately from its callers.
fn global_function(env: &ProbeEnv) -> Result<()> {
    let code = Code::default().call(1).exit().mov(R0, 7).exit();
    returns(load_typed(env, &code, &[(0, true), (2, true)])?, 7)
}

/// Tries a callback that a helper calls ten times.
fn callback(env: &ProbeEnv) -> Result<()> {
    let code =
        Code::default().mov(R1, 10).function(R2, 4).mov(R3, 0).mov(R4, 0).helper(bpf::BPF_FUNC_loop).exit().exit_zero();
    returns(load_typed(env, &code, &[(0, true), (7, false)])?, 10)
}

/// Tries a tail call to a program that returns 7. The calling program has these functions, and the
/// instructions `before`.
fn tail_call(env: &ProbeEnv, before: Code, functions: &[(u32, bool)]) -> Result<()> {
    let kind = env.program(Context::RawTracepoint)?;
    let called = trial_calls::load(kind, &Code::default().mov(R0, 7).exit())?;
    let map = trial_calls::create(MapSpec { kind: bpf::BPF_MAP_TYPE_PROG_ARRAY, ..MapSpec::array(4) })?;
    let code = before.map(R2, map.as_fd()).mov(R3, 0).helper(bpf::BPF_FUNC_tail_call).mov(R0, 1).exit();
    let caller =
        if functions.is_empty() { trial_calls::load(kind, &code)? } else { load_typed(env, &code, functions)? };
    trial_calls::update(&map, 0, called.as_raw_fd() as u32)?;
    returns(caller, 7)
}

/// Creates an array whose value is an object that the kernel recognises by the name of its type.
fn special_map(name: &std::ffi::CStr, size: u32) -> Result<OwnedFd> {
    let types = TypeBuilder::new()?;
    let int = types.integer(c"unsigned int", 4)?;
    let (unit, step) = match size.is_multiple_of(8) {
        true => (types.integer(c"unsigned long long", 8)?, 8),
        false => (int, 4),
    };
    let special = types.structure(name, size)?;
    for (member, offset) in [c"a", c"b"].into_iter().zip((0..size).step_by(step)) {
        types.member(member, unit, offset)?;
    }
    let value = types.structure(c"value", size)?;
    types.member(c"special", special, 0)?;
    let types = types.load()?;
    trial_calls::create(MapSpec { types: Some((types.as_fd(), int as u32, value as u32)), ..MapSpec::array(size) })
}

/// Creates a map whose value holds a pointer to one of the kernel's objects.
fn kptr() -> Result<OwnedFd> {
    let types = TypeBuilder::new()?;
    let int = types.integer(c"unsigned int", 4)?;
    let task = types.structure(c"task_struct", 0)?;
    let pointer = types.pointer(types.tag(c"kptr", task)?)?;
    let value = types.structure(c"value", 8)?;
    types.member(c"task", pointer, 0)?;
    let types = types.load()?;
    trial_calls::create(MapSpec { types: Some((types.as_fd(), int as u32, value as u32)), ..MapSpec::array(8) })
}

/// Allocates and drops an object of the program's own type, one per CPU.
fn percpu_kptr(env: &ProbeEnv) -> Result<()> {
    let kernel = env.kernel()?;
    // From 7.0 on, the verifier supplies the last argument, and the names have no `_impl`.
    let (make, drop_it) = match kernel.function("bpf_percpu_obj_new_impl") {
        Ok(_) => ("bpf_percpu_obj_new_impl", "bpf_percpu_obj_drop_impl"),
        Err(_) => ("bpf_percpu_obj_new", "bpf_percpu_obj_drop"),
    };
    kernel.function(make)?;
    let types = TypeBuilder::new()?;
    let int = types.integer(c"int", 4)?;
    let long = types.integer(c"unsigned long long", 8)?;
    let object = types.structure(c"object", 8)?;
    types.member(c"count", long, 0)?;
    let infos = [FunctionInfo { instruction: 0, type_id: types.function(c"first", true, int, &[])? as u32 }];
    let types = types.load()?;
    let program = ProgramSpec { types: Some((types.as_fd(), &infos)), ..env.program(Context::Fexit)? };
    ProgramBuilder::new(kernel)
        .with(|code| code.mov(R1, object).mov(R2, 0))
        .kfunc(make)
        .with(|code| code.if_equal(R0, 0, 3).copy(R1, R0).mov(R2, 0))
        .kfunc(drop_it)
        .load(program)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_without_blanks_and_occur_once() {
        let mut names: Vec<&str> = CONSTRUCTS.iter().map(|(name, _)| *name).collect();
        assert!(names.iter().all(|name| !name.contains(char::is_whitespace)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONSTRUCTS.len());
    }
}
