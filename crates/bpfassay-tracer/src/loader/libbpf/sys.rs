// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls into libbpf for which libbpf-rs hides the kernel's error number or lacks an option. This
//! module has all unsafe code of the loader.

use std::{
    ffi::{CStr, CString},
    io,
    mem::size_of,
    ptr::NonNull,
};

use libbpf_rs::{AsRawLibbpf as _, Link, Map, Object, OpenMapMut, OpenObject, OpenProgramMut, ProgramMut};
use libbpf_sys::{
    bpf_kprobe_multi_opts, bpf_kprobe_opts, bpf_link, bpf_map_skeleton, bpf_object_skeleton, bpf_prog_skeleton,
    bpf_uprobe_opts, probe_attach_mode,
};

use crate::loader::plan::{
    hooked::KprobeMode,
    uprobes::{FunctionEnd, Place},
};

/// Creates the maps and loads the programs of `open`.
///
/// # Errors
/// The kernel's error, or libbpf's with the same numbers.
pub(super) fn load(open: OpenObject) -> io::Result<Object> {
    // SAFETY: `open` owns a valid object that is open and not loaded.
    let status = unsafe { libbpf_sys::bpf_object__load(open.as_libbpf_object().as_ptr()) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    // SAFETY: the object is loaded now, and `take_ptr` gives up the only ownership of it.
    Ok(unsafe { Object::from_ptr(open.take_ptr()) })
}

/// The verifier's log of one program.
#[derive(Debug)]
pub(super) struct ProgramLog(Vec<u8>);

impl ProgramLog {
    /// Returns the text that the log contains so far.
    pub(super) fn text(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

/// Makes the kernel write its statistics of `program` to a log of `size` bytes when the program is
/// loaded. The log must exist until then.
///
/// # Errors
/// libbpf's error, in the kernel's numbers.
pub(super) fn log_statistics(program: &mut OpenProgramMut<'_>, size: usize) -> io::Result<ProgramLog> {
    /// `BPF_LOG_STATS` of include/linux/bpf_verifier.h.
    const STATISTICS: u32 = 4;
    let mut log = ProgramLog(vec![0; size]);
    program.set_log_level(STATISTICS);
    // SAFETY: the program belongs to an object that is open; the log is on the heap, where it stays
    // when it is returned.
    let status = unsafe {
        libbpf_sys::bpf_program__set_log_buf(
            program.as_libbpf_object().as_ptr(),
            log.0.as_mut_ptr().cast(),
            log.0.len() as libbpf_sys::size_t,
        )
    };
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(log) }
}

/// Attaches `program` as a kprobe to `function` + `offset`.
///
/// # Errors
/// The kernel's error, if it refuses the probe.
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

/// Attaches `program` to `functions` through fprobe, in one link. The kernel looks the names up.
/// libbpf's own search would read tracefs' whole list of functions.
///
/// # Errors
/// The kernel's error, if it refuses the link.
pub(super) fn attach_kprobe_multi(program: &ProgramMut<'_>, functions: &[&CStr], retprobe: bool) -> io::Result<Link> {
    let mut symbols: Vec<_> = functions.iter().map(|function| function.as_ptr()).collect();
    let options = bpf_kprobe_multi_opts {
        sz: size_of::<bpf_kprobe_multi_opts>() as libbpf_sys::size_t,
        syms: symbols.as_mut_ptr(),
        cnt: symbols.len() as libbpf_sys::size_t,
        retprobe,
        ..Default::default()
    };
    // SAFETY: `program` belongs to a loaded object; the symbols and the options outlive the call.
    own(unsafe {
        libbpf_sys::bpf_program__attach_kprobe_multi_opts(
            program.as_libbpf_object().as_ptr(),
            std::ptr::null(),
            &options,
        )
    })
}

/// Attaches `program` to a tracepoint.
///
/// # Errors
/// The kernel's error, if it refuses the tracepoint.
pub(super) fn attach_tracepoint(program: &ProgramMut<'_>, category: &CStr, name: &CStr) -> io::Result<Link> {
    // SAFETY: `program` belongs to a loaded object; the names outlive the call.
    own(unsafe {
        libbpf_sys::bpf_program__attach_tracepoint(
            program.as_libbpf_object().as_ptr(),
            category.as_ptr(),
            name.as_ptr(),
        )
    })
}

/// Attaches `program` to a function of a file, in all processes.
///
/// # Errors
/// The kernel's error, if it refuses the probe.
pub(super) fn attach_uprobe(program: &ProgramMut<'_>, place: &Place, end: FunctionEnd) -> io::Result<Link> {
    const EVERY_PROCESS: libc::pid_t = -1;
    let file = CString::new(place.file.as_os_str().as_encoded_bytes())?;
    let options = bpf_uprobe_opts {
        sz: size_of::<bpf_uprobe_opts>() as libbpf_sys::size_t,
        retprobe: end == FunctionEnd::Return,
        ..Default::default()
    };
    // SAFETY: `program` belongs to a loaded object; file and options outlive the call.
    own(unsafe {
        libbpf_sys::bpf_program__attach_uprobe_opts(
            program.as_libbpf_object().as_ptr(),
            EVERY_PROCESS,
            file.as_ptr(),
            place.offset as libbpf_sys::size_t,
            &options,
        )
    })
}

/// Attaches `program` to the target of its section.
///
/// # Errors
/// The kernel's error, if it refuses the target, or libbpf's for a section without a target.
pub(super) fn attach(program: &ProgramMut<'_>) -> io::Result<Link> {
    // SAFETY: `program` belongs to a loaded object.
    own(unsafe { libbpf_sys::bpf_program__attach(program.as_libbpf_object().as_ptr()) })
}

/// Attaches `program` as libbpf's skeletons do. `None` if libbpf cannot attach programs of its
/// section, or the section names no target: a loader has to attach it.
///
/// # Errors
/// The kernel's error, if it refuses the target.
pub(super) fn attach_by_section(program: &ProgramMut<'_>) -> io::Result<Option<Link>> {
    let (mut program, mut link) = (program.as_libbpf_object().as_ptr(), std::ptr::null_mut());
    let mut one = bpf_prog_skeleton { prog: &mut program, link: &mut link, ..Default::default() };
    let mut skeleton = bpf_object_skeleton {
        sz: size_of::<bpf_object_skeleton>() as libbpf_sys::size_t,
        prog_cnt: 1,
        prog_skel_sz: size_of::<bpf_prog_skeleton>() as libc::c_int,
        progs: &mut one,
        ..Default::default()
    };
    // SAFETY: the skeleton has one program, which belongs to an object, and a place for its link.
    let status = unsafe { libbpf_sys::bpf_object__attach_skeleton(&mut skeleton) };
    attached(status, link)
}

/// Attaches a `struct_ops` map, whose programs the kernel then calls.
///
/// # Errors
/// The kernel's error, if it refuses the map.
pub(super) fn attach_struct_ops(map: &Map<'_>) -> io::Result<Option<Link>> {
    let (mut map, mut link) = (map.as_libbpf_object().as_ptr(), std::ptr::null_mut());
    let mut one = bpf_map_skeleton { map: &mut map, link: &mut link, ..Default::default() };
    let mut skeleton = bpf_object_skeleton {
        sz: size_of::<bpf_object_skeleton>() as libbpf_sys::size_t,
        map_cnt: 1,
        map_skel_sz: size_of::<bpf_map_skeleton>() as libc::c_int,
        maps: &mut one,
        ..Default::default()
    };
    // SAFETY: the skeleton has one map, which belongs to an object, and a place for its link.
    let status = unsafe { libbpf_sys::bpf_object__attach_skeleton(&mut skeleton) };
    attached(status, link)
}

/// Takes ownership of the link that a skeleton may have.
fn attached(status: libc::c_int, link: *mut bpf_link) -> io::Result<Option<Link>> {
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    // SAFETY: the link is valid and has no other owner.
    Ok(NonNull::new(link).map(|link| unsafe { Link::from_ptr(link) }))
}

/// Makes libbpf neither reuse a pinned map for `map` nor pin it.
///
/// # Errors
/// libbpf's error, in the kernel's numbers.
pub(super) fn unset_pin_path(map: &OpenMapMut<'_>) -> io::Result<()> {
    // SAFETY: the map belongs to an object that is open.
    let status = unsafe { libbpf_sys::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), std::ptr::null()) };
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(()) }
}

/// Takes ownership of a link that libbpf just returned.
fn own(link: *mut bpf_link) -> io::Result<Link> {
    // libbpf sets errno whenever it returns a null pointer. No other call may happen in between.
    let error = io::Error::last_os_error();
    // SAFETY: the link is valid and has no other owner.
    NonNull::new(link).map(|link| unsafe { Link::from_ptr(link) }).ok_or(error)
}

/// Returns the path at which libbpf pins `map`.
#[cfg(test)]
pub(super) fn pin_path(map: &OpenMapMut<'_>) -> Option<CString> {
    // SAFETY: the map belongs to an object that is open, and so does the path.
    unsafe {
        let path = libbpf_sys::bpf_map__pin_path(map.as_libbpf_object().as_ptr());
        (!path.is_null()).then(|| CStr::from_ptr(path).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ObjectBuilder;

    use super::*;
    use crate::loader::plan::object_files::{BUNDLED, named};

    /// Opens a bundled object whose section for `vfs_read` is named `section` instead, with no
    /// program loaded.
    fn with_section(section: &str) -> Object {
        const WAS: &[u8] = b"fentry/vfs_read\0";
        let mut elf = named(BUNDLED, "vfs-calls").unwrap().to_vec();
        let places: Vec<usize> = (0..elf.len() - WAS.len()).filter(|&at| elf[at..].starts_with(WAS)).collect();
        for at in places {
            elf[at..][..WAS.len()].fill(0);
            elf[at..][..section.len()].copy_from_slice(section.as_bytes());
        }
        let open = ObjectBuilder::default().open_memory(&elf).unwrap();
        // SAFETY: `take_ptr` gives up the only ownership of the object, and nothing here uses
        // descriptors of its programs.
        unsafe { Object::from_ptr(open.take_ptr()) }
    }

    #[test]
    fn a_program_whose_section_names_no_target_is_left_to_its_loader() {
        let attach = |section: &str| {
            let object = with_section(section);
            let program = object.progs_mut().find(|program| program.section() == section).unwrap();
            attach_by_section(&program).map(|link| link.is_some())
        };
        // Sections that libbpf never attaches, and sections of kinds that it attaches, without a
        // target.
        for section in ["xdp", "tc", "socket", "perf_event", "sk_msg", "uprobe", "kprobe", "raw_tp"] {
            assert!(matches!(attach(section), Ok(false)), "{section}");
        }
        // It would be attached, but it is not loaded.
        assert!(attach("fentry/vfs_read").is_err());
    }
}
