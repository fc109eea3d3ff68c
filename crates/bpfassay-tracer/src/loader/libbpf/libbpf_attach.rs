// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaches the programs of a loaded object.

use std::{
    any::Any,
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use bpfassay_protocol::tracer_messages::Step;
use libbpf_rs::{Link, Object, ProgramMut};

use super::{fprobe_capacity, sys};
use crate::{
    kernel::{
        bpf_objects,
        tracefs::{self, profile},
    },
    loader::plan::{
        attach_order,
        hooked::{AttachKind, AttachedPrograms, Hooked, KprobeMode, ProgramCounts},
        probes::{self, Attachment, BEHIND_FTRACE_SITE, CallEnd, REQUIRED, SYSCALLS},
        refusal::Failure,
        return_probe::ReturnProbe,
        settings::not_counted,
        tracer_options::TracerOptions,
        uprobes,
    },
};

impl AttachedPrograms {
    fn add(&mut self, program: &ProgramMut<'_>, link: Link, at: At) -> io::Result<()> {
        let link_fd = link.as_fd().try_clone_to_owned()?;
        self.add_kept(program, Some(link_fd), Box::new(link), at)
    }

    fn add_kept(
        &mut self,
        program: &ProgramMut<'_>,
        link_fd: Option<OwnedFd>,
        keep: Box<dyn Any>,
        at: At,
    ) -> io::Result<()> {
        self.hooked.push(Hooked {
            program: program.name().to_string_lossy().into_owned(),
            function: at.function,
            attached_to: at.place,
            kind: at.kind,
            program_fd: program.as_fd().try_clone_to_owned()?,
            link_fd,
            earlier: ProgramCounts::default(),
        });
        self.links.push(keep);
        Ok(())
    }
}

/// The target to which a program was attached.
struct At {
    function: String,
    place: String,
    kind: AttachKind,
}

impl At {
    fn new(function: &str, kind: AttachKind) -> Self {
        Self { function: function.to_owned(), place: function.to_owned(), kind }
    }
}

/// Attaches all programs of `object` or none, except for functions that this kernel does not have
/// and that [`REQUIRED`] does not name.
///
/// # Errors
/// The first [`Failure`]. Earlier attachments are detached.
pub(super) fn all(object: &Object, options: &TracerOptions) -> Result<AttachedPrograms, Failure> {
    let mut programs: Vec<_> = object.progs_mut().filter(|program| program.autoload()).collect();
    programs.sort_by_key(|program| {
        let section = program.section().to_string_lossy();
        attach_order::key(options.attach_order, probes::attachment(&section).map_or("", |(_, target)| target))
    });
    let mut attached = AttachedPrograms::default();
    // This comes before the first attachment: it makes a thousand reads, for which programs at
    // entries would record calls whose returns are not watched yet.
    let watches_returns = |program: &ProgramMut<'_>| {
        matches!(probes::attachment(&program.section().to_string_lossy()), Some((Attachment::KretprobeMulti, _)))
    };
    let companions = if programs.iter().any(watches_returns) { fprobe_capacity::others(options) } else { Vec::new() };
    // If the kernel only counts misses for kprobes made through tracefs, the first program
    // determines that.
    let mut mode = KprobeMode::Perf;
    // uprobes need these files.
    let mut files = None;
    for program in programs {
        let name = program.name().to_string_lossy().into_owned();
        let failed = |error| Failure { step: Step::Attach, program: Some(name.clone()), error };
        let section = program.section().to_string_lossy().into_owned();
        let (attachment, target) = probes::attachment(&section)
            .ok_or_else(|| failed(io::Error::other(format!("its section `{section}` names no target"))))?;
        let function = options.function(target);
        match attachment {
            Attachment::Syscalls(end) => syscalls(&program, end, &mut attached).map_err(failed)?,
            Attachment::Uprobe | Attachment::Uretprobe => {
                let files = match &files {
                    Some(files) => files,
                    None => files.insert(uprobes::Files::open(&options.uprobe).map_err(failed)?),
                };
                let end = if attachment == Attachment::Uretprobe {
                    uprobes::FunctionEnd::Return
                } else {
                    uprobes::FunctionEnd::Entry
                };
                for place in files.places(target, end).map_err(failed)? {
                    let link = sys::attach_uprobe(&program, &place, end).map_err(failed)?;
                    let at = At { place: place.describe(end), ..At::new(place.name, AttachKind::Uprobe) };
                    attached.add(&program, link, at).map_err(failed)?;
                }
            }
            Attachment::Tracepoint => tracepoint(&program, target, &mut attached).map_err(failed)?,
            // An iterator misses nothing. The kernel counts no misses of links for either kind.
            Attachment::RawTracepoint | Attachment::Iterator => {
                let link = sys::attach(&program).map_err(failed)?;
                attached.add(&program, link, At::new(function, AttachKind::RawTracepoint)).map_err(failed)?;
            }
            _ => match hook(&program, attachment, function, options, &companions, &mut mode, &mut attached) {
                Ok(()) => {}
                Err(error) if !REQUIRED.contains(&function) && is_missing(&error) => {
                    attached.findings.push(not_counted(function, &format!("the kernel cannot hook it ({error})")));
                }
                Err(error) => return Err(failed(error)),
            },
        }
    }
    attached.findings.sort_unstable();
    attached.findings.dedup();
    Ok(attached)
}

/// Returns whether the kernel has no such function, or more than one (`__trace_kprobe_create`,
/// `ftrace_lookup_symbols`).
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EADDRNOTAVAIL))
}

/// Attaches to a function of the kernel.
fn hook(
    program: &ProgramMut<'_>,
    attachment: Attachment,
    function: &str,
    options: &TracerOptions,
    companions: &[CString],
    mode: &mut KprobeMode,
    attached: &mut AttachedPrograms,
) -> io::Result<()> {
    let symbol = CString::new(function)?;
    let at_return = |kind| At { place: format!("{function} (return)"), ..At::new(function, kind) };
    let (link, at) = match attachment {
        Attachment::Kprobe => {
            let (link, offset) = kprobe(program, &symbol, mode)?;
            let place = if offset == 0 { function.to_owned() } else { format!("{function}+{offset:#x}") };
            (link, At { place, ..At::new(function, AttachKind::Kprobe(*mode)) })
        }
        Attachment::Kretprobe => {
            let probe = ReturnProbe::attach(program.as_fd(), function, options.maxactive)?;
            let (link_fd, at) = (probe.link()?, at_return(probe.kind()));
            return attached.add_kept(program, link_fd, Box::new(probe), at);
        }
        Attachment::KprobeMulti => {
            (sys::attach_kprobe_multi(program, &[&symbol], false)?, At::new(function, AttachKind::KprobeMulti))
        }
        Attachment::KretprobeMulti => {
            let functions: Vec<&CStr> =
                [symbol.as_c_str()].into_iter().chain(companions.iter().map(CString::as_c_str)).collect();
            let link = match sys::attach_kprobe_multi(program, &functions, true) {
                // One of the other functions cannot be hooked here. Hook fewer.
                Err(_) if functions.len() > 1 => sys::attach_kprobe_multi(program, &[&symbol], true)?,
                outcome => outcome?,
            };
            (link, at_return(AttachKind::KprobeMulti))
        }
        _ => (sys::attach(program)?, At::new(function, AttachKind::Trampoline)),
    };
    attached.add(program, link, at)
}

/// Attaches at the entry, or behind the ftrace site if the entry is refused. Returns the offset.
fn kprobe(program: &ProgramMut<'_>, symbol: &CString, mode: &mut KprobeMode) -> io::Result<(Link, usize)> {
    let at = |offset, mode| sys::attach_kprobe(program, symbol, offset, mode);
    let (link, offset) = match (at(0, *mode), BEHIND_FTRACE_SITE) {
        (Err(error), Some(offset)) if error.raw_os_error() == Some(libc::EINVAL) => (at(offset, *mode)?, offset),
        (outcome, _) => (outcome?, 0),
    };
    if *mode == KprobeMode::Perf && profile::is_there() && bpf_objects::link_missed(link.as_fd())?.is_none() {
        // Detach first: two handlers on one function would count twice.
        drop(link);
        *mode = KprobeMode::Tracefs;
        return Ok((at(offset, *mode)?, offset));
    }
    Ok((link, offset))
}

/// Attaches to the tracepoint that `target` names, `SUBSYSTEM/NAME`.
fn tracepoint(program: &ProgramMut<'_>, target: &str, attached: &mut AttachedPrograms) -> io::Result<()> {
    let (subsystem, name) = target.split_once('/').unwrap_or(("", target));
    let link = sys::attach_tracepoint(program, &CString::new(subsystem)?, &CString::new(name)?)?;
    attached.add(program, link, At::new(name, AttachKind::Tracepoint))
}

/// Attaches to one end of each system call that has tracepoints here.
fn syscalls(program: &ProgramMut<'_>, end: CallEnd, attached: &mut AttachedPrograms) -> io::Result<()> {
    let prefix = match end {
        CallEnd::Enter | CallEnd::Enter3 => "sys_enter_",
        CallEnd::Exit => "sys_exit_",
    };
    let Some(events) = tracefs::path("events/syscalls") else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "tracefs has no events/syscalls: mount it at /sys/kernel/tracing, and the kernel needs CONFIG_FTRACE_SYSCALLS",
        ));
    };
    let before = attached.links.len();
    for name in SYSCALLS.into_iter().filter(|name| end.has(name)) {
        let event = format!("{prefix}{name}");
        if events.join(&event).is_dir() {
            let link = sys::attach_tracepoint(program, c"syscalls", &CString::new(event.as_str())?)?;
            attached.add(program, link, At::new(&event, AttachKind::Tracepoint))?;
        }
    }
    if attached.links.len() == before {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "tracefs has no tracepoint of any system call that is counted",
        ));
    }
    Ok(())
}
