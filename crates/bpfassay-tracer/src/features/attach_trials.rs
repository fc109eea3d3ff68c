// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways to attach. Each program returns 0 and is attached briefly, to a target that every kernel
//! has.

use std::{
    fs,
    os::fd::{AsFd as _, OwnedFd},
};

use bpfassay_bpf::{LinkTarget, ProgramSpec};
use bpfassay_protocol::kernel_feature::FeatureKind;
use libbpf_sys as bpf;

use super::{
    insn::Code,
    probe_env::{Context, FUNCTION, ProbeEnv},
    trial_calls::{self, Result, TrialFailure, c_string},
};
use crate::kernel::{
    perf::{self, PerfEvent},
    tracefs,
};

type AttachTrial = fn(&ProbeEnv) -> Result<()>;

const ATTACH_TYPES: &[(&str, AttachTrial)] = &[
    ("kprobe", |_| perf(kprobe(false)?, bpf::BPF_PROG_TYPE_KPROBE)),
    ("kretprobe", |_| perf(kprobe(true)?, bpf::BPF_PROG_TYPE_KPROBE)),
    ("uprobe", |_| perf(uprobe(false)?, bpf::BPF_PROG_TYPE_KPROBE)),
    ("uretprobe", |_| perf(uprobe(true)?, bpf::BPF_PROG_TYPE_KPROBE)),
    ("tracepoint", |_| perf(perf_event(PerfEvent::Tracepoint(tracepoint()?))?, bpf::BPF_PROG_TYPE_TRACEPOINT)),
    ("perf_event", |_| perf(perf_event(PerfEvent::CpuClock)?, bpf::BPF_PROG_TYPE_PERF_EVENT)),
    // A link in place of an ioctl (BPF_LINK_CREATE on a perf event), and a cookie for the program.
    ("perf_event.link", |_| perf_link(0)),
    ("perf_event.cookie", |_| perf_link(1)),
    ("kprobe.multi", |_| {
        let program = loaded(ProgramSpec { attach: bpf::BPF_TRACE_KPROBE_MULTI, ..plain(bpf::BPF_PROG_TYPE_KPROBE) })?;
        trial_calls::link(&program, bpf::BPF_TRACE_KPROBE_MULTI, LinkTarget::KprobeMulti(&[c"filp_close", c"vfs_read"]))
            .map(drop)
    }),
    ("kprobe.session", |env| {
        let program = loaded(env.program(Context::KprobeSession)?)?;
        trial_calls::link(&program, bpf::BPF_TRACE_KPROBE_SESSION, LinkTarget::KprobeMulti(&[c"filp_close"])).map(drop)
    }),
    ("uprobe.multi", |_| uprobe_multi(bpf::BPF_TRACE_UPROBE_MULTI)),
    ("uprobe.session", |_| uprobe_multi(bpf::BPF_TRACE_UPROBE_SESSION)),
    ("raw_tracepoint", |_| {
        let program = loaded(plain(bpf::BPF_PROG_TYPE_RAW_TRACEPOINT))?;
        trial_calls::raw_tracepoint(&program, Some(c"sys_enter")).map(drop)
    }),
    ("tp_btf", |env| {
        let target = env.kernel()?.typedef("btf_trace_sys_enter")?;
        tracing(ProgramSpec { attach: bpf::BPF_TRACE_RAW_TP, target, ..plain(bpf::BPF_PROG_TYPE_TRACING) })
    }),
    ("fentry", |env| trampoline(env, bpf::BPF_TRACE_FENTRY)),
    ("fexit", |env| trampoline(env, bpf::BPF_TRACE_FEXIT)),
    ("fsession", |env| trampoline(env, bpf::BPF_TRACE_FSESSION)),
    ("fentry.cookie", |env| {
        let target = env.kernel()?.function(FUNCTION)?;
        let program =
            loaded(ProgramSpec { attach: bpf::BPF_TRACE_FENTRY, target, ..plain(bpf::BPF_PROG_TYPE_TRACING) })?;
        trial_calls::link(&program, bpf::BPF_TRACE_FENTRY, LinkTarget::Tracing { cookie: 1 }).map(drop)
    }),
    ("fmod_ret", |env| {
        let target = env.kernel()?.function("security_file_open")?;
        tracing(ProgramSpec { attach: bpf::BPF_MODIFY_RETURN, target, ..plain(bpf::BPF_PROG_TYPE_TRACING) })
    }),
    ("lsm", |env| {
        let target = env.kernel()?.function("bpf_lsm_file_open")?;
        tracing(ProgramSpec { attach: bpf::BPF_LSM_MAC, target, ..plain(bpf::BPF_PROG_TYPE_LSM) })
    }),
    ("lsm.s", |env| tracing(env.program(Context::Lsm)?)),
    ("iter", |env| {
        let target = env.kernel()?.function("bpf_iter_task")?;
        let program = loaded(ProgramSpec { attach: bpf::BPF_TRACE_ITER, target, ..plain(bpf::BPF_PROG_TYPE_TRACING) })?;
        let link = trial_calls::link(&program, bpf::BPF_TRACE_ITER, LinkTarget::Program)?;
        trial_calls::iterate(link.as_fd())
    }),
];

pub(super) fn try_all(env: &mut ProbeEnv) {
    for &(name, trial) in ATTACH_TYPES {
        let tried = trial(env);
        env.tried(FeatureKind::AttachType, name, tried);
    }
}

const fn plain(kind: bpf::bpf_prog_type) -> ProgramSpec<'static> {
    ProgramSpec::new(kind)
}

fn loaded(program: ProgramSpec<'_>) -> Result<OwnedFd> {
    trial_calls::load(program, &Code::default().exit_zero())
}

/// Attaches a program of this type to a perf event by ioctl, which every kernel supports.
fn perf(event: OwnedFd, kind: bpf::bpf_prog_type) -> Result<()> {
    let program = loaded(plain(kind))?;
    perf::set_program(event.as_fd(), program.as_fd())
        .and_then(|()| perf::enable(event.as_fd()))
        .map_err(|error| TrialFailure::kernel("attach", &error))
}

fn perf_link(cookie: u64) -> Result<()> {
    let program = loaded(plain(bpf::BPF_PROG_TYPE_TRACEPOINT))?;
    let event = perf_event(PerfEvent::Tracepoint(tracepoint()?))?;
    trial_calls::link(&program, bpf::BPF_PERF_EVENT, LinkTarget::PerfEvent { event: event.as_fd(), cookie }).map(drop)
}

fn trampoline(env: &ProbeEnv, attach: bpf::bpf_attach_type) -> Result<()> {
    let target = env.kernel()?.function(FUNCTION)?;
    tracing(ProgramSpec { attach, target, ..plain(bpf::BPF_PROG_TYPE_TRACING) })
}

/// Loads and attaches a program that names its target.
fn tracing(program: ProgramSpec<'_>) -> Result<()> {
    let program = loaded(program)?;
    trial_calls::raw_tracepoint(&program, None).map(drop)
}

fn kprobe(returns: bool) -> Result<OwnedFd> {
    let function = c_string(FUNCTION);
    perf_event(PerfEvent::Kprobe { kind: event_source("kprobe")?, returns, function: &function })
}

fn uprobe(returns: bool) -> Result<OwnedFd> {
    let (path, offset) = own_code()?;
    perf_event(PerfEvent::Uprobe { kind: event_source("uprobe")?, returns, path: &path, offset })
}

fn uprobe_multi(attach: bpf::bpf_attach_type) -> Result<()> {
    let program = loaded(ProgramSpec { attach, ..plain(bpf::BPF_PROG_TYPE_KPROBE) })?;
    let (path, offset) = own_code()?;
    trial_calls::link(&program, attach, LinkTarget::UprobeMulti { path: &path, offset }).map(drop)
}

fn perf_event(event: PerfEvent<'_>) -> Result<OwnedFd> {
    perf::open(event).map_err(|error| TrialFailure::kernel("perf_event_open", &error))
}

/// Returns the number of a source of perf events.
fn event_source(name: &str) -> Result<u32> {
    perf::source(name).map_err(|error| TrialFailure::kernel(perf::source_path(name), &error))
}

/// Returns the id of a tracepoint that every kernel has.
fn tracepoint() -> Result<u64> {
    tracefs::event_id("sched/sched_process_exec").map_err(|error| TrialFailure::NotTried(error.to_string()))
}

/// Returns the file and the offset of a function of this program.
fn own_code() -> Result<(std::ffi::CString, u64)> {
    let address = own_code as fn() -> Result<(std::ffi::CString, u64)> as usize as u64;
    let maps = fs::read_to_string("/proc/self/maps")
        .map_err(|error| TrialFailure::NotTried(format!("/proc/self/maps: {error}")))?;
    maps.lines()
        .find_map(|line| offset_in_file(line, address))
        .map(|(path, offset)| (c_string(path), offset))
        .ok_or_else(|| TrialFailure::NotTried("/proc/self/maps does not list this program's code".to_owned()))
}

/// Finds `address` in a line of `/proc/PID/maps`. Returns the mapped file, and the offset in it.
pub(crate) fn offset_in_file(line: &str, address: u64) -> Option<(&str, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
    let path = line.find('/').and_then(|at| line.get(at..))?;
    if !(start..end).contains(&address) {
        return None;
    }
    Some((path, (address - start).checked_add(offset)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_file() {
        let line = "55d0c4a02000-55d0c4a09000 r-xp 00002000 08:01 1234                       /usr/bin/a b";
        assert_eq!(offset_in_file(line, 0x55d0_c4a0_2010), Some(("/usr/bin/a b", 0x2010)));
        assert_eq!(offset_in_file(line, 0x55d0_c4a0_9000), None);
        assert_eq!(offset_in_file("7ffd-7fff rw-p 00000000 00:00 0 [stack]", 0x7ffe), None);
        assert_eq!(offset_in_file("", 1), None);
    }

    #[test]
    fn this_program_finds_itself() {
        let (path, offset) = own_code().unwrap();
        assert!(offset > 0 && fs::metadata(path.to_str().unwrap()).unwrap().len() > offset);
    }
}
