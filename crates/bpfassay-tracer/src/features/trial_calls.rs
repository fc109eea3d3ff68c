// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of the feature trials. The kernel's error is part of the messages.

use std::{
    ffi::{CStr, CString},
    fmt, io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    ptr,
};

use bpfassay_bpf::{BpfMap, LinkTarget, MapSpec, ProgramSpec};
use bpfassay_protocol::kernel_feature::Support;
use libbpf_sys::{bpf_attach_type, bpf_map_type, bpf_prog_type};

use super::insn::Code;
use crate::kernel::verifier::{reason, shorten};

/// An error number that is not part of the interface (include/linux/errno.h), so libc has no text
/// for it.
const ENOTSUPP: i32 = 524;

/// Why a trial failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrialFailure {
    /// The kernel refused.
    Refused { errno: Option<i32>, message: String },
    /// The trial was not possible.
    NotTried(String),
}

pub(super) type Result<T> = std::result::Result<T, TrialFailure>;

impl TrialFailure {
    /// Creates a failure from the kernel's error, and what failed.
    pub(super) fn kernel(what: impl fmt::Display, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let message = match errno {
            Some(ENOTSUPP) => "operation is not supported by this kernel (ENOTSUPP)".to_owned(),
            _ => error.to_string(),
        };
        // The error number is reported separately.
        let message = message.split(" (os error ").next().unwrap_or_default();
        Self::Refused { errno, message: format!("{what}: {message}") }
    }

    /// Creates a failure for something that the kernel does not have.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::Refused { errno: None, message: message.into() }
    }
}

/// Returns the support of a feature, given the outcome of its trial.
pub(super) fn support<T>(tried: Result<T>) -> Support {
    match tried {
        Ok(_) => Support::Works { value: None },
        Err(failure) => failure.into(),
    }
}

impl From<TrialFailure> for Support {
    fn from(failure: TrialFailure) -> Self {
        match failure {
            TrialFailure::Refused { errno, message } => Self::Refused { errno, message },
            TrialFailure::NotTried(reason) => Self::NotTried { reason },
        }
    }
}

/// Loads `code`. On refusal, the failure contains the reason in the verifier's log.
///
/// # Errors
/// The kernel's error.
pub(super) fn load(program: ProgramSpec<'_>, code: &Code) -> Result<OwnedFd> {
    bpfassay_bpf::load(program, &code.0).map_err(|error| refusal(&error.source, &error.log))
}

/// Returns the verifier's reason, or the kernel's error if the verifier gave none.
pub(super) fn refusal(error: &io::Error, log: &str) -> TrialFailure {
    match reason(&log.lines().collect::<Vec<_>>()) {
        Some(line) => TrialFailure::Refused { errno: error.raw_os_error(), message: shorten(line) },
        None => TrialFailure::kernel("load", error),
    }
}

/// Creates a map.
///
/// # Errors
/// The kernel's error.
pub(super) fn create(map: MapSpec<'_>) -> Result<OwnedFd> {
    map.create().map_err(|error| TrialFailure::kernel("map", &error))
}

/// Creates a map with one value and freezes it, so that programs can treat the value as a constant.
///
/// # Errors
/// The kernel's error, at creating, setting or freezing the map.
pub(super) fn constant(map: MapSpec<'_>, value: &[u8]) -> Result<OwnedFd> {
    let fd = create(map)?;
    let map = open(&fd)?;
    map.update(&0u32.to_ne_bytes(), value).map_err(|error| TrialFailure::kernel("fill a map", &error))?;
    map.freeze().map_err(|error| TrialFailure::kernel("freeze a map", &error))?;
    Ok(fd)
}

/// Sets the value of `key` in a map of 32-bit numbers.
///
/// # Errors
/// The kernel's error.
pub(super) fn update(map: &OwnedFd, key: u32, value: u32) -> Result<()> {
    open(map)?
        .update(&key.to_ne_bytes(), &value.to_ne_bytes())
        .map_err(|error| TrialFailure::kernel("update a map", &error))
}

fn open(map: &OwnedFd) -> Result<BpfMap> {
    map.try_clone().and_then(BpfMap::new).map_err(|error| TrialFailure::kernel("map information", &error))
}

/// Maps one page of an arena, at an address that the kernel chooses, until the process ends.
/// Programs can only use an arena with a fixed address.
///
/// # Errors
/// The kernel's error.
pub(super) fn settle_arena(map: BorrowedFd<'_>) -> Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let length = rustix::param::page_size();
    // SAFETY: a new mapping, whose memory is not used.
    unsafe { mmap(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, map, 0) }
        .map(drop)
        .map_err(|error| TrialFailure::kernel("map an arena", &error.into()))
}

/// Tries whether programs of this type load, by libbpf's own trial.
pub(super) fn program_type(kind: bpf_prog_type) -> Result<()> {
    // SAFETY: no options are passed.
    trial("load", || unsafe { libbpf_sys::libbpf_probe_bpf_prog_type(kind, ptr::null()) })
}

/// Tries whether maps of this type can be created, by libbpf's own trial.
pub(super) fn map_type(kind: bpf_map_type) -> Result<()> {
    // SAFETY: no options are passed.
    trial("map", || unsafe { libbpf_sys::libbpf_probe_bpf_map_type(kind, ptr::null()) })
}

/// Tries whether struct_ops maps can be created. libbpf 1.7 tries that with a field that kernels
/// before 6.9 refuse whatever the map type. Here a map is requested for a type that is not a
/// struct_ops. Kernels that have such maps then return ENOTSUPP and not EINVAL
/// (kernel/bpf/bpf_struct_ops.c, `bpf_struct_ops_map_alloc`).
pub(super) fn struct_ops_map() -> Result<()> {
    let map = MapSpec { kind: libbpf_sys::BPF_MAP_TYPE_STRUCT_OPS, kernel_type: 1, ..MapSpec::array(4) };
    match map.create() {
        Err(error) if error.raw_os_error() != Some(ENOTSUPP) => Err(TrialFailure::kernel("map", &error)),
        _ => Ok(()),
    }
}

/// Returns the outcome of a trial of libbpf: 1 for yes, 0 for no, negative for a trial that failed.
fn trial(what: &'static str, attempt: impl FnOnce() -> i32) -> Result<()> {
    clear_errno();
    match attempt() {
        0 => {
            // libbpf hides the kernel's error, but makes no other failing call afterwards.
            let error = io::Error::last_os_error();
            Err(match error.raw_os_error() {
                Some(0) | None => TrialFailure::missing(format!("{what}: refused")),
                Some(_) => TrialFailure::kernel(what, &error),
            })
        }
        1.. => Ok(()),
        // libbpf cannot try this type, or its own preparations failed.
        negative => Err(TrialFailure::NotTried(format!("{what}: libbpf: {}", io::Error::from_raw_os_error(-negative)))),
    }
}

fn clear_errno() {
    // SAFETY: the location belongs to this thread and is always valid.
    unsafe { *libc::__errno_location() = 0 };
}

/// Returns libbpf's name of a program type: `kprobe`.
pub(super) fn program_type_name(kind: bpf_prog_type) -> Option<&'static str> {
    // SAFETY: a null pointer, or a string that lives as long as the program.
    name(unsafe { libbpf_sys::libbpf_bpf_prog_type_str(kind) })
}

/// Returns libbpf's name of a map type: `ringbuf`.
pub(super) fn map_type_name(kind: bpf_map_type) -> Option<&'static str> {
    // SAFETY: a null pointer, or a string that lives as long as the program.
    name(unsafe { libbpf_sys::libbpf_bpf_map_type_str(kind) })
}

fn name(text: *const libc::c_char) -> Option<&'static str> {
    // SAFETY: the callers pass null or a static string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().ok()).flatten()
}

/// Creates an iterator from a link and reads from it until its end.
///
/// # Errors
/// The kernel's error, at creating or reading the iterator.
pub(super) fn iterate(link: BorrowedFd<'_>) -> Result<()> {
    let iterator = bpfassay_bpf::iterator(link).map_err(|error| TrialFailure::kernel("make an iterator", &error))?;
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(&iterator, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(TrialFailure::kernel("read an iterator", &error.into())),
        }
    }
}

/// Runs `program` once with zeros as its context. Returns the program's return value.
///
/// # Errors
/// The kernel's error.
pub(super) fn test_run(program: &OwnedFd) -> Result<u32> {
    bpfassay_bpf::test_run(program.as_fd()).map_err(|error| TrialFailure::kernel("run", &error))
}

/// Creates a link of `program`.
///
/// # Errors
/// The kernel's error.
pub(super) fn link(program: &OwnedFd, attach: bpf_attach_type, target: LinkTarget<'_>) -> Result<OwnedFd> {
    bpfassay_bpf::link_create(program.as_fd(), attach, target).map_err(|error| TrialFailure::kernel("attach", &error))
}

/// Attaches to the raw tracepoint `name`. `None` is for a tracing program that names its target
/// itself.
///
/// # Errors
/// The kernel's error.
pub(super) fn raw_tracepoint(program: &OwnedFd, name: Option<&CStr>) -> Result<OwnedFd> {
    bpfassay_bpf::raw_tracepoint(program.as_fd(), name).map_err(|error| TrialFailure::kernel("attach", &error))
}

/// Returns `text` with a NUL at its end.
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_the_reason_or_the_kernels_error() {
        let error = io::Error::from_raw_os_error(22);
        let refused = |message: &str| TrialFailure::Refused { errno: Some(22), message: message.to_owned() };
        let log = "0: (85) call bpf_loop#181\nunknown func bpf_loop#181\nprocessed 1 insns (limit 1000000) max_states_per_insn 0\n";
        assert_eq!(refusal(&error, log), refused("unknown func bpf_loop#181"));
        let log = "calling kernel function f is not allowed\n\nVerification failed: Policy: …\n\nSuggestion:\n  Use a kfunc\n";
        assert_eq!(refusal(&error, log), refused("calling kernel function f is not allowed"));
        assert_eq!(refusal(&error, "processed 0 insns\n\n"), refused("load: Invalid argument"));
        assert_eq!(refusal(&error, ""), refused("load: Invalid argument"));
    }

    #[test]
    fn a_number_without_a_message_gets_its_name() {
        let TrialFailure::Refused { errno, message } =
            TrialFailure::kernel("attach", &io::Error::from_raw_os_error(524))
        else {
            unreachable!()
        };
        assert_eq!(errno, Some(524));
        assert!(message.ends_with("(ENOTSUPP)"), "{message}");
    }
}
