//! Attaching: links, and perf events with programs.

use std::{
    ffi::CStr,
    mem::size_of,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    ptr,
};

use libbpf_sys::{bpf_attach_type, bpf_link_create_opts};

use super::{Failure, Result, own};

/// Creates a link of `program` to `target` (a descriptor, or 0).
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn link(
    program: BorrowedFd<'_>,
    target: i32,
    attach: bpf_attach_type,
    change: impl FnOnce(&mut bpf_link_create_opts),
) -> Result<OwnedFd> {
    let mut options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as libbpf_sys::size_t, ..Default::default() };
    change(&mut options);
    // SAFETY: the options outlive the call; whoever set pointers in them vouches for these.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, attach, &raw const options) };
    own(fd).map_err(|error| Failure::kernel("attach", &error))
}

/// Attaches `program` to the functions of the kernel that `names` lists, through fprobe.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn link_kprobe_multi(
    program: BorrowedFd<'_>,
    attach: bpf_attach_type,
    names: &[&CStr],
) -> Result<OwnedFd> {
    let mut pointers: Vec<*const libc::c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let cookies: Vec<u64> = (1..=names.len() as u64).collect();
    link(program, 0, attach, |options| {
        options.__bindgen_anon_1.kprobe_multi.cnt = pointers.len() as u32;
        options.__bindgen_anon_1.kprobe_multi.syms = pointers.as_mut_ptr();
        options.__bindgen_anon_1.kprobe_multi.cookies = cookies.as_ptr();
    })
}

/// Attaches `program` to an offset of the file at `path`.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn link_uprobe_multi(
    program: BorrowedFd<'_>,
    attach: bpf_attach_type,
    path: &CStr,
    offset: u64,
) -> Result<OwnedFd> {
    let offsets = [offset as libc::c_ulong];
    link(program, 0, attach, |options| {
        options.__bindgen_anon_1.uprobe_multi.path = path.as_ptr();
        options.__bindgen_anon_1.uprobe_multi.offsets = offsets.as_ptr();
        options.__bindgen_anon_1.uprobe_multi.cnt = 1;
    })
}

/// Attaches a raw tracepoint, or a tracing program that names its target itself where `name` is `None`.
///
/// # Errors
/// The kernel's.
pub(in crate::features) fn raw_tracepoint(program: BorrowedFd<'_>, name: Option<&CStr>) -> Result<OwnedFd> {
    let name = name.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the name is null or outlives the call.
    own(unsafe { libbpf_sys::bpf_raw_tracepoint_open(name, program.as_raw_fd()) })
        .map_err(|error| Failure::kernel("attach", &error))
}
