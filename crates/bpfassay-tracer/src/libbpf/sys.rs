//! Calls into libbpf where libbpf-rs hides the kernel's error number or lacks an option. All that is unsafe is here.

use std::{ffi::CStr, io, mem::size_of, ptr::NonNull};

use libbpf_rs::{AsRawLibbpf as _, Link, Object, OpenObject, ProgramMut};
use libbpf_sys::{bpf_kprobe_opts, bpf_link, probe_attach_mode};

use crate::hooked::KprobeMode;

/// Creates the maps and loads the programs of `open`.
///
/// # Errors
/// The kernel's error, or libbpf's in the same numbers.
pub(super) fn load(open: OpenObject) -> io::Result<Object> {
    // SAFETY: `open` owns a valid object that is open and not loaded.
    let status = unsafe { libbpf_sys::bpf_object__load(open.as_libbpf_object().as_ptr()) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    // SAFETY: the object is loaded now, and `take_ptr` gives up the only ownership of it.
    Ok(unsafe { Object::from_ptr(open.take_ptr()) })
}

/// Attaches `program` as a kprobe to `function` + `offset`.
///
/// # Errors
/// The kernel's error.
pub(super) fn attach_kprobe(
    program: &ProgramMut<'_>,
    function: &CStr,
    offset: usize,
    mode: KprobeMode,
) -> io::Result<Link> {
    let mode: probe_attach_mode = match mode {
        KprobeMode::Perf => libbpf_sys::PROBE_ATTACH_MODE_DEFAULT,
        KprobeMode::Tracefs => libbpf_sys::PROBE_ATTACH_MODE_LEGACY,
    };
    let options = bpf_kprobe_opts {
        sz: size_of::<bpf_kprobe_opts>() as libbpf_sys::size_t,
        offset: offset as libbpf_sys::size_t,
        attach_mode: mode,
        ..Default::default()
    };
    // SAFETY: `program` belongs to a loaded object; the name and the options outlive the call.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_kprobe_opts(program.as_libbpf_object().as_ptr(), function.as_ptr(), &options)
    };
    own(link)
}

/// Attaches `program` to what its section names.
///
/// # Errors
/// The kernel's error.
pub(super) fn attach(program: &ProgramMut<'_>) -> io::Result<Link> {
    // SAFETY: `program` belongs to a loaded object.
    own(unsafe { libbpf_sys::bpf_program__attach(program.as_libbpf_object().as_ptr()) })
}

/// Takes ownership of a link that libbpf just returned.
fn own(link: *mut bpf_link) -> io::Result<Link> {
    // libbpf sets errno whenever it returns a null pointer; nothing may come in between.
    let error = io::Error::last_os_error();
    // SAFETY: the link is valid, and nobody else owns it.
    NonNull::new(link).map(|link| unsafe { Link::from_ptr(link) }).ok_or(error)
}
