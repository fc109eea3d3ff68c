//! Attaching the programs of a loaded object.

use std::{
    ffi::{CString, OsStr},
    io,
    os::fd::AsFd as _,
};

use bpfassay_protocol::tracer::Step;
use libbpf_rs::{Link, Object, ProgramMut};

use super::{Failure, sys};
use crate::{
    hooked::{Hooked, Kind, KprobeMode},
    kernel, misses,
    probes::Attachment,
    tracer::Options,
};

/// Where a kprobe can be put when the entry of a function is refused, in bytes.
///
/// On riscv64 the first eight bytes of a function are its ftrace site (`auipc` and `jalr`, or no-ops). Linux 6.12
/// refuses kprobes there with EINVAL and does not serve them through ftrace either; 7.2 takes them. The instruction
/// behind the site is the first of the function proper: arguments are still in their registers there, and each call
/// passes it exactly once.
pub(crate) const BEHIND_FTRACE_SITE: Option<usize> = if cfg!(target_arch = "riscv64") { Some(8) } else { None };

/// Attaches every program of `object`; all or none.
///
/// # Errors
/// The first [`Failure`]; what was attached before is detached.
pub(super) fn all(
    object: &Object,
    attachment: Attachment,
    options: &Options,
) -> Result<(Vec<Hooked>, Vec<Link>), Failure> {
    let (mut hooked, mut links) = (Vec::new(), Vec::new());
    // Where the kernel tells of misses only for kprobes made through tracefs, the first program finds out.
    let mut mode = KprobeMode::Perf;
    for program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let failed = |error| Failure { step: Step::Attach, program: Some(name.clone()), error };
        let function = function_of(program.section()).ok_or_else(|| {
            failed(io::Error::other(format!("its section {:?} names no function", program.section())))
        })?;
        let function = options.function(function);
        let (link, attached_to, kind) = match attachment {
            Attachment::Trampoline => (sys::attach(&program).map_err(failed)?, function.to_owned(), Kind::Trampoline),
            // Asked for and dropped at each reading, the iterator misses nothing; neither kind counts misses of links.
            Attachment::TaskAccounting => {
                (sys::attach(&program).map_err(failed)?, function.to_owned(), Kind::RawTracepoint)
            }
            Attachment::KprobeEntry => {
                let (link, offset) = kprobe(&program, function, &mut mode).map_err(failed)?;
                let at = if offset == 0 { function.to_owned() } else { format!("{function}+{offset:#x}") };
                (link, at, Kind::Kprobe(mode))
            }
        };
        let program_fd = program.as_fd().try_clone_to_owned().map_err(failed)?;
        hooked.push(Hooked {
            program: name.clone(),
            function: function.to_owned(),
            attached_to,
            kind,
            program_fd,
            link_fd: Some(link.as_fd().try_clone_to_owned().map_err(failed)?),
        });
        links.push(link);
    }
    Ok((hooked, links))
}

/// The function that a section `KIND/FUNCTION` names.
pub(super) fn function_of(section: &OsStr) -> Option<&str> {
    section.to_str()?.split_once('/').map(|(_, function)| function).filter(|function| !function.is_empty())
}

/// Attaches at the entry, or behind the ftrace site where the entry is refused; returns the offset used.
fn kprobe(program: &ProgramMut<'_>, function: &str, mode: &mut KprobeMode) -> io::Result<(Link, usize)> {
    let symbol = CString::new(function)?;
    let at = |offset, mode| sys::attach_kprobe(program, &symbol, offset, mode);
    let (link, offset) = match (at(0, *mode), BEHIND_FTRACE_SITE) {
        (Err(error), Some(offset)) if error.raw_os_error() == Some(libc::EINVAL) => (at(offset, *mode)?, offset),
        (outcome, _) => (outcome?, 0),
    };
    if *mode == KprobeMode::Perf && misses::profile().is_some() && kernel::link_missed(link.as_fd())?.is_none() {
        // Detach first: two handlers on one function would count twice.
        drop(link);
        *mode = KprobeMode::Tracefs;
        return Ok((at(offset, *mode)?, offset));
    }
    Ok((link, offset))
}
