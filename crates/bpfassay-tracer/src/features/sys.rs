//! System calls of the feature trials. All that is unsafe of them is here, below, and in `token.rs`.

mod link;

use std::{
    ffi::{CStr, CString},
    fmt, io,
    mem::size_of,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    ptr,
};

use bpfassay_protocol::feature::Support;
use libbpf_sys::{
    bpf_attach_type, bpf_func_info, bpf_insn, bpf_map_create_opts, bpf_map_type, bpf_prog_load_opts, bpf_prog_type,
};

pub(super) use self::link::{link, link_kprobe_multi, link_uprobe_multi, raw_tracepoint};
use super::insn::Code;
use crate::kernel;

/// The verifier's log of such small programs fits in here; a longer one is cut by the kernel, with ENOSPC.
const LOG: usize = 64 << 10;

/// Why a trial came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The kernel said no.
    Refused { errno: Option<i32>, message: String },
    /// It could not be tried.
    NotTried(String),
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The kernel's error, with what it was about.
    pub(super) fn kernel(what: impl fmt::Display, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let words = match errno {
            // A number that user space was never meant to see (include/linux/errno.h), so libc has no words for it.
            Some(524) => "operation is not supported by this kernel (ENOTSUPP)".to_owned(),
            _ => error.to_string(),
        };
        // The number stands beside.
        let words = words.split(" (os error ").next().unwrap_or_default();
        Self::Refused { errno, message: format!("{what}: {words}") }
    }

    /// Something that the kernel does not have.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::Refused { errno: None, message: message.into() }
    }
}

/// What a trial says of its feature.
pub(super) fn support<T>(tried: Result<T>) -> Support {
    match tried {
        Ok(_) => Support::Works { value: None },
        Err(failure) => failure.into(),
    }
}

impl From<Failure> for Support {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { errno, message } => Self::Refused { errno, message },
            Failure::NotTried(reason) => Self::NotTried { reason },
        }
    }
}

/// A program to load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program<'a> {
    pub(super) kind: bpf_prog_type,
    pub(super) attach: bpf_attach_type,
    /// BTF id of what it attaches to, 0 for none.
    pub(super) target: u32,
    pub(super) flags: u32,
    /// Types of its functions: the BTF and the function infos, sorted.
    pub(super) types: Option<(BorrowedFd<'a>, &'a [bpf_func_info])>,
}

impl Program<'_> {
    /// A program of this type that attaches to nothing in particular.
    pub(super) const fn plain(kind: bpf_prog_type) -> Self {
        Self { kind, attach: 0, target: 0, flags: 0, types: None }
    }
}

/// Loads `code`; on refusal the failure carries the telling line of the verifier's log.
///
/// # Errors
/// The kernel's.
pub(super) fn load(program: Program<'_>, code: &Code) -> Result<OwnedFd> {
    load_with_log(program, code).map_err(|(error, log)| refusal(&error, &log))
}

/// Loads `code`; fails with the error and the verifier's log.
pub(super) fn load_with_log(program: Program<'_>, code: &Code) -> std::result::Result<OwnedFd, (io::Error, String)> {
    let mut log = vec![0u8; LOG];
    let (types, infos) = program.types.map_or((0, &[][..]), |(types, infos)| (types.as_raw_fd(), infos));
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: program.attach,
        prog_flags: program.flags,
        attach_btf_id: program.target,
        prog_btf_fd: types as u32,
        func_info: if infos.is_empty() { ptr::null() } else { infos.as_ptr().cast() },
        func_info_cnt: infos.len() as u32,
        func_info_rec_size: if infos.is_empty() { 0 } else { size_of::<bpf_func_info>() as u32 },
        log_level: 1,
        log_size: LOG as u32,
        log_buf: log.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: `Insn` is laid out as `bpf_insn` (a test looks); all pointers outlive the call, with their lengths beside.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            program.kind,
            c"bpfassay".as_ptr(),
            c"GPL".as_ptr(),
            code.0.as_ptr().cast::<bpf_insn>(),
            code.0.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    own(fd).map_err(|error| {
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        (error, String::from_utf8_lossy(&log[..end]).into_owned())
    })
}

/// The kernel's error in the words of the verifier, where it had any.
pub(super) fn refusal(error: &io::Error, log: &str) -> Failure {
    match telling_line(log) {
        Some(line) => Failure::Refused { errno: error.raw_os_error(), message: line.to_owned() },
        None => Failure::kernel("load", error),
    }
}

/// The last line of a verifier's log that says something of the program and not of the verifier's work. Linux 7.3 explains
/// it at length below (`Verification failed: …`).
pub(crate) fn telling_line(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 3] = ["processed ", "verification time ", "stack depth "];
    let log = log.split("\nVerification failed:").next().unwrap_or(log);
    log.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !STATISTICS.iter().any(|word| line.starts_with(word)))
        .map(|line| &line[..line.floor_char_boundary(300)])
}

/// Type ids of a map's keys and values.
pub(super) type MapTypes<'a> = (BorrowedFd<'a>, u32, u32);

/// A map to create.
#[derive(Debug, Clone, Copy)]
pub(super) struct Map<'a> {
    pub(super) kind: bpf_map_type,
    pub(super) key: u32,
    pub(super) value: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
    pub(super) types: Option<MapTypes<'a>>,
}

impl Map<'_> {
    /// An array of one value of `size` bytes.
    pub(super) const fn array(size: u32) -> Self {
        Self { kind: libbpf_sys::BPF_MAP_TYPE_ARRAY, key: 4, value: size, entries: 1, flags: 0, types: None }
    }
}

/// Creates a map.
///
/// # Errors
/// The kernel's.
pub(super) fn create(map: Map<'_>) -> Result<OwnedFd> {
    let (types, key_type, value_type) = map.types.map_or((0, 0, 0), |(fd, key, value)| (fd.as_raw_fd(), key, value));
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_sys::size_t,
        btf_fd: types as u32,
        btf_key_type_id: key_type,
        btf_value_type_id: value_type,
        map_flags: map.flags,
        ..Default::default()
    };
    // SAFETY: name and options outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(map.kind, c"bpfassay".as_ptr(), map.key, map.value, map.entries, &raw const options)
    };
    own(fd).map_err(|error| Failure::kernel("map", &error))
}

/// Sets the only value of an array and freezes the map, so that programs may take it for a constant.
///
/// # Errors
/// The kernel's.
pub(super) fn fill_and_freeze(map: BorrowedFd<'_>, value: &[u8]) -> Result<()> {
    let key = 0u32;
    // SAFETY: the caller's map has keys of 4 bytes and values of `value`'s length; both outlive the call.
    let status =
        unsafe { libbpf_sys::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), value.as_ptr().cast(), 0) };
    check(status).map_err(|error| Failure::kernel("fill a map", &error))?;
    // SAFETY: no pointers.
    check(unsafe { libbpf_sys::bpf_map_freeze(map.as_raw_fd()) })
        .map_err(|error| Failure::kernel("freeze a map", &error))
}

/// Sets the value of `key` in a map of numbers of 32 bits.
///
/// # Errors
/// The kernel's.
pub(super) fn update(map: BorrowedFd<'_>, key: u32, value: u32) -> Result<()> {
    // SAFETY: the caller's map has keys and values of 4 bytes; both outlive the call.
    let status = unsafe {
        libbpf_sys::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0)
    };
    check(status).map_err(|error| Failure::kernel("update a map", &error))
}

/// Maps one page of an arena, at an address of the kernel's choice, until the process ends: programs can only use an arena
/// whose address is settled.
///
/// # Errors
/// The kernel's.
pub(super) fn settle_arena(map: BorrowedFd<'_>) -> Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let length = rustix::param::page_size();
    // SAFETY: a new mapping, of which nobody uses the memory.
    unsafe { mmap(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, map, 0) }
        .map(drop)
        .map_err(|error| Failure::kernel("map an arena", &error.into()))
}

/// Whether programs of this type load, by libbpf's own trial.
pub(super) fn program_type(kind: bpf_prog_type) -> Result<()> {
    // SAFETY: no options are passed.
    trial("load", || unsafe { libbpf_sys::libbpf_probe_bpf_prog_type(kind, ptr::null()) })
}

/// Whether maps of this type can be created, by libbpf's own trial.
pub(super) fn map_type(kind: bpf_map_type) -> Result<()> {
    // SAFETY: no options are passed.
    trial("map", || unsafe { libbpf_sys::libbpf_probe_bpf_map_type(kind, ptr::null()) })
}

/// Whether maps of operations can be created. libbpf 1.7 tries that with a field that kernels before 6.9 refuse whatever
/// the type of the map, so it is tried here: for a type that is no structure of operations, a kernel that has such maps says
/// ENOTSUPP and not EINVAL (kernel/bpf/bpf_struct_ops.c, `bpf_struct_ops_map_alloc`).
pub(super) fn struct_ops_map() -> Result<()> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_sys::size_t,
        btf_vmlinux_value_type_id: 1,
        ..Default::default()
    };
    let kind = libbpf_sys::BPF_MAP_TYPE_STRUCT_OPS;
    // SAFETY: name and options outlive the call.
    let fd = unsafe { libbpf_sys::bpf_map_create(kind, c"bpfassay".as_ptr(), 4, 4, 1, &raw const options) };
    match own(fd) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(524) => Ok(()),
        Err(error) => Err(Failure::kernel("map", &error)),
    }
}

/// A trial of libbpf: 1 for yes, 0 for no, below that for a trial that failed.
fn trial(what: &'static str, attempt: impl FnOnce() -> i32) -> Result<()> {
    clear_errno();
    match attempt() {
        0 => {
            // libbpf hides the kernel's error, but makes no other failing call after it.
            let error = io::Error::last_os_error();
            Err(match error.raw_os_error() {
                Some(0) | None => Failure::missing(format!("{what}: refused")),
                Some(_) => Failure::kernel(what, &error),
            })
        }
        1.. => Ok(()),
        // The library does not know how to try this type, or its own preparations failed.
        negative => Err(Failure::NotTried(format!("{what}: libbpf: {}", io::Error::from_raw_os_error(-negative)))),
    }
}

fn clear_errno() {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = 0 };
}

/// What libbpf calls a program type: `kprobe`.
pub(super) fn program_type_name(kind: bpf_prog_type) -> Option<&'static str> {
    // SAFETY: a null pointer, or a string that lives as long as the program.
    name(unsafe { libbpf_sys::libbpf_bpf_prog_type_str(kind) })
}

/// What libbpf calls a map type: `ringbuf`.
pub(super) fn map_type_name(kind: bpf_map_type) -> Option<&'static str> {
    // SAFETY: a null pointer, or a string that lives as long as the program.
    name(unsafe { libbpf_sys::libbpf_bpf_map_type_str(kind) })
}

fn name(text: *const libc::c_char) -> Option<&'static str> {
    // SAFETY: the callers pass null or a static string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().ok()).flatten()
}

/// Makes an iterator from a link and reads from it until its end.
///
/// # Errors
/// The kernel's.
pub(super) fn iterate(link: BorrowedFd<'_>) -> Result<()> {
    let iterator = kernel::bpf::iterator(link).map_err(|error| Failure::kernel("make an iterator", &error))?;
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(&iterator, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::kernel("read an iterator", &error.into())),
        }
    }
}

/// Runs `program` once with nothing but zeros as its context and gives what it returned.
///
/// # Errors
/// The kernel's.
pub(super) fn test_run(program: BorrowedFd<'_>) -> Result<u32> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: null pointers with lengths of 0.
    let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    check(status).map_err(|error| Failure::kernel("run", &error))?;
    Ok(options.retval)
}

/// Bytes of machine code that the kernel made of `program`; 0 where it interprets it.
///
/// # Errors
/// The kernel's.
pub(super) fn machine_code(program: BorrowedFd<'_>) -> Result<u32> {
    let info = kernel::bpf::program_info(program).map_err(|error| Failure::kernel("program information", &error))?;
    Ok(info.jited_bytes)
}

/// `text` with a zero at its end.
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Takes over a descriptor that libbpf returned: below 0 is the negated error number.
fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A status of libbpf: below 0 is the negated error number.
fn check(status: i32) -> io::Result<()> {
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_telling_line_is_the_last_about_the_program() {
        let log = "0: (85) call bpf_loop#181\nunknown func bpf_loop#181\nprocessed 1 insns (limit 1000000) max_states_per_insn 0\n";
        assert_eq!(telling_line(log), Some("unknown func bpf_loop#181"));
        assert_eq!(telling_line("processed 0 insns\n\n"), None);
        let log = "calling kernel function f is not allowed\n\nVerification failed: Policy: …\n\nSuggestion:\n  Use a kfunc\n";
        assert_eq!(telling_line(log), Some("calling kernel function f is not allowed"));
        assert_eq!(
            refusal(&io::Error::from_raw_os_error(22), ""),
            Failure::Refused { errno: Some(22), message: "load: Invalid argument".to_owned() }
        );
    }

    #[test]
    fn a_number_without_words_gets_its_name() {
        let Failure::Refused { errno, message } = Failure::kernel("attach", &io::Error::from_raw_os_error(524)) else {
            unreachable!()
        };
        assert_eq!(errno, Some(524));
        assert!(message.ends_with("(ENOTSUPP)"), "{message}");
    }
}
