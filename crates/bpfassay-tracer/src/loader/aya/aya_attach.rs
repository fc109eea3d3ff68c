// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads and attaches the programs of one probe.

use std::{
    any::Any,
    collections::BTreeSet,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use ::aya::{
    Btf, Ebpf,
    programs::{
        KProbe, ProbeKind, Program, ProgramError, TracePoint, UProbe,
        kprobe::KProbeError,
        links::{FdLink, LinkError},
        trace_point::TracePointError,
        uprobe::{UProbeAttachLocation, UProbeScope},
    },
    util::KernelVersion,
};
use bpfassay_protocol::{
    finding_name::Finding,
    probe::Probe,
    tracer_messages::{Refusal, Step},
};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, read::elf::ElfFile64};

use super::aya_refusal::refuse;
use crate::{
    kernel::{bpf_objects, jit::has_jit},
    loader::plan::{
        attach_order,
        hooked::{AttachKind, AttachedPrograms, Hooked, KprobeMode, ProgramCounts},
        probes::{BEHIND_FTRACE_SITE, REQUIRED, SYSCALLS},
        return_probe::ReturnProbe,
        settings::not_counted,
        tracer_options::TracerOptions,
        uprobes::{Files, FunctionEnd},
    },
};

/// An object that must exist while a program is attached.
type Keep = Box<dyn Any>;

/// An attached program.
struct HookLink {
    /// The function, with the offset if it is not the entry.
    place: String,
    kind: AttachKind,
    link_fd: Option<OwnedFd>,
    keep: Keep,
}

/// Returns the names of the programs of `probe` to load, sorted.
pub(super) fn programs_of(ebpf: &Ebpf, probe: Probe, copies: u32, options: &TracerOptions) -> Vec<String> {
    let is_compiled = has_jit();
    let names = ebpf
        .programs()
        .map(|(name, _)| name)
        .filter(|name| parse(name, probe).is_some_and(|name| is_wanted(name, copies, is_compiled, options)));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Returns the names of the sections with programs of `probe` in the object file `elf`. Empty if
/// the file cannot be read, which loading reports.
pub(crate) fn sections_of(elf: &[u8], probe: Probe) -> Vec<String> {
    let Ok(object) = ElfFile64::<Endianness>::parse(elf) else { return Vec::new() };
    let programs = object.symbols().filter(|symbol| symbol.name().is_ok_and(|name| parse(name, probe).is_some()));
    let sections = programs.filter_map(|symbol| object.section_by_index(symbol.section_index()?).ok());
    let names: BTreeSet<String> = sections.filter_map(|section| section.name().ok().map(str::to_owned)).collect();
    names.into_iter().collect()
}

/// The parts of a program's name, `PROBE__FUNCTION` or `PROBE__FUNCTION__PART`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name<'a> {
    function: &'a str,
    /// `entry`, `return`, `begin` or `mark`, and the number of a copy from the second on. Empty for
    /// the program that counts. Kernels that do not compile programs need `return_interpreted` in
    /// place of `return`.
    part: &'a str,
}

/// Returns the parts of `name`, if it is a program of `probe`.
fn parse(name: &str, probe: Probe) -> Option<Name<'_>> {
    let rest = name.strip_prefix(&probe.name().replace('-', "_"))?.strip_prefix("__")?;
    let (function, part) = rest.split_once("__").unwrap_or((rest, ""));
    Some(Name { function, part })
}

/// Returns the function of the program `name`, if it is one of `probe`.
pub(crate) fn function_of(name: &str, probe: Probe) -> Option<&str> {
    parse(name, probe).map(|name| name.function)
}

/// Returns whether to load a program of that name, if there are `copies` of the programs that can
/// be preempted.
fn is_wanted(name: Name<'_>, copies: u32, is_compiled: bool, options: &TracerOptions) -> bool {
    match name.part {
        "return_interpreted" => !is_compiled,
        "return" => is_compiled,
        "begin" => options.latency,
        "mark" => copies > 1,
        part => part.rsplit('_').next().and_then(|copy| copy.parse::<u32>().ok()).is_none_or(|copy| copy <= copies),
    }
}

/// Loads the programs `names` of `probe`. Optional programs whose function the kernel does not have
/// are removed from `names`, with a finding for each such function.
///
/// # Errors
/// The first [`Refusal`], by the kernel or by aya.
pub(super) fn load(
    ebpf: &mut Ebpf,
    probe: Probe,
    names: &mut Vec<String>,
    options: &TracerOptions,
    btf: &Btf,
) -> Result<Vec<Finding>, Refusal> {
    let mut findings = Vec::new();
    let mut loaded = Vec::new();
    for name in names.drain(..) {
        let named = function_of(&name, probe);
        let function = named.map(|function| options.function(function));
        let outcome = match (ebpf.program_mut(&name), function) {
            (Some(Program::KProbe(program)), _) => program.load(),
            (Some(Program::FEntry(program)), Some(function)) => program.load(function, btf),
            (Some(Program::FExit(program)), Some(function)) => program.load(function, btf),
            (Some(Program::TracePoint(program)), _) => program.load(),
            (Some(Program::RawTracePoint(program)), _) => program.load(),
            (Some(Program::UProbe(program)), _) => program.load(),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        match (outcome, function) {
            (Err(ProgramError::Btf(_)), Some(function)) if !named.is_some_and(|named| REQUIRED.contains(&named)) => {
                findings.push(not_counted(function, "the kernel has no type information on it"));
            }
            (outcome, _) => {
                outcome.map_err(|error| refuse(Step::Load, Some(&name), &error))?;
                loaded.push(name);
            }
        }
    }
    *names = loaded;
    Ok(findings)
}

/// Attaches the programs `names` of `probe`.
///
/// # Errors
/// The first [`Refusal`]. Earlier attachments are detached.
pub(super) fn all(
    ebpf: &mut Ebpf,
    probe: Probe,
    names: &[String],
    options: &TracerOptions,
) -> Result<AttachedPrograms, Refusal> {
    let mut all = AttachedPrograms::default();
    // uprobes need these files.
    let mut files = None;
    let mut names: Vec<&String> = names.iter().collect();
    names.sort_by_key(|name| attach_order::key(options.attach_order, function_of(name, probe).unwrap_or_default()));
    for name in names {
        let refused = |error: ProgramError| refuse(Step::Attach, Some(name), &error);
        let (program, function) =
            ebpf.program_mut(name).zip(function_of(name, probe)).ok_or_else(|| refused(ProgramError::NotLoaded))?;
        let is_required = REQUIRED.contains(&function);
        let function = options.function(function);
        let attached = match attach(program, function, options, &mut files) {
            Err(error) if !is_required && is_missing(&error) => {
                all.findings.push(not_counted(function, "the kernel has no such function, or it cannot be hooked"));
                continue;
            }
            outcome => outcome.map_err(refused)?,
        };
        for HookLink { place, kind, link_fd, keep } in attached {
            let program_fd = program.fd().and_then(|fd| Ok(fd.as_fd().try_clone_to_owned()?)).map_err(refused)?;
            all.links.push(keep);
            all.hooked.push(Hooked {
                program: name.clone(),
                function: function.to_owned(),
                attached_to: place,
                kind,
                program_fd,
                link_fd,
                earlier: ProgramCounts::default(),
            });
        }
    }
    Ok(all)
}

fn attach(
    program: &mut Program,
    function: &str,
    options: &TracerOptions,
    files: &mut Option<Files>,
) -> Result<Vec<HookLink>, ProgramError> {
    let one = |kind, keep: Keep| vec![HookLink { place: function.to_owned(), kind, link_fd: None, keep }];
    match program {
        Program::KProbe(program) => Ok(vec![match program.kind() {
            ProbeKind::Entry => kprobe(program, function)?,
            ProbeKind::Return => return_probe(program, function, options)?,
        }]),
        Program::FEntry(program) => {
            let link = program.attach().and_then(|id| program.take_link(id))?;
            Ok(one(AttachKind::Trampoline, Box::new(link)))
        }
        Program::FExit(program) => {
            let link = program.attach().and_then(|id| program.take_link(id))?;
            Ok(one(AttachKind::Trampoline, Box::new(link)))
        }
        Program::RawTracePoint(program) => {
            let link = program.attach(function).and_then(|id| program.take_link(id))?;
            Ok(one(AttachKind::RawTracepoint, Box::new(link)))
        }
        Program::TracePoint(program) => syscalls(program, function),
        Program::UProbe(program) => {
            let files = match files {
                Some(files) => files,
                None => files.insert(Files::open(&options.uprobe)?),
            };
            functions(program, function, files)
        }
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// Attaches to the tracepoint of each system call, at the end that `end` names (`enter`, `exit`).
fn syscalls(program: &mut TracePoint, end: &str) -> Result<Vec<HookLink>, ProgramError> {
    let mut all = Vec::new();
    for call in SYSCALLS {
        let place = format!("sys_{end}_{call}");
        let link = match program.attach("syscalls", &place) {
            Ok(id) => program.take_link(id)?,
            // Some architectures lack some calls.
            Err(ProgramError::TracePointError(TracePointError::FileError { io_error, .. }))
                if io_error.kind() == io::ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        let (link_fd, keep): (_, Keep) = if ::aya::features().bpf_perf_link() {
            let link = FdLink::try_from(link).map_err(link_failed)?;
            (Some(bpf_objects::link_by_id(link.info().map_err(link_failed)?.id())?), Box::new(link))
        } else {
            (None, Box::new(link))
        };
        all.push(HookLink { place, kind: AttachKind::Tracepoint, link_fd, keep });
    }
    if all.is_empty() {
        let message = format!("no tracepoint sys_{end}_* of system calls: CONFIG_FTRACE_SYSCALLS may be missing");
        return Err(io::Error::other(message).into());
    }
    Ok(all)
}

/// Attaches to the functions of programs and libraries that belong to `target`. Their offsets are
/// determined here, as for libbpf: aya's own search would mistake a function that a file imports
/// for one that it defines.
fn functions(program: &mut UProbe, target: &str, files: &Files) -> Result<Vec<HookLink>, ProgramError> {
    let end = match program.kind() {
        ProbeKind::Entry => FunctionEnd::Entry,
        ProbeKind::Return => FunctionEnd::Return,
    };
    let mut all = Vec::new();
    for place in files.places(target, end)? {
        let location = UProbeAttachLocation::AbsoluteOffset(place.offset);
        let id = program.attach(location, &place.file, UProbeScope::AllProcesses)?;
        let keep = Box::new(program.take_link(id)?);
        all.push(HookLink { place: place.describe(end), kind: AttachKind::Uprobe, link_fd: None, keep });
    }
    Ok(all)
}

/// Attaches at the entry, or behind the ftrace site if the entry is refused.
fn kprobe(program: &mut KProbe, function: &str) -> Result<HookLink, ProgramError> {
    let (id, offset) = match (program.attach(function, 0), BEHIND_FTRACE_SITE) {
        (Err(error), Some(offset)) if is_invalid(&error) => (program.attach(function, offset as u64)?, offset as u64),
        (outcome, _) => (outcome?, 0),
    };
    let link = program.take_link(id)?;
    let kind = AttachKind::Kprobe(KprobeMode::Perf);
    let place = if offset == 0 { function.to_owned() } else { format!("{function}+{offset:#x}") };
    if !has_kprobe_links() {
        return Ok(HookLink { place, kind, link_fd: None, keep: Box::new(link) });
    }
    let link = FdLink::try_from(link).map_err(link_failed)?;
    let link_fd = Some(bpf_objects::link_by_id(link.info().map_err(link_failed)?.id())?);
    Ok(HookLink { place, kind, link_fd, keep: Box::new(link) })
}

/// Returns whether aya attaches kprobes by links, which report misses. It does not before 5.15, or
/// if it cannot parse the kernel's version. It then makes kprobes through tracefs, as before 4.17.
/// A version must have three numbers (aya 0.14, `KernelVersion::parse_kernel_version_string`), but
/// Debian's `7.3~rc7-1` has two.
fn has_kprobe_links() -> bool {
    ::aya::features().bpf_perf_link() && KernelVersion::current().is_ok()
}

/// Attaches at the return. aya has no option for how many calls are watched at once.
fn return_probe(program: &KProbe, function: &str, options: &TracerOptions) -> Result<HookLink, ProgramError> {
    let probe = ReturnProbe::attach(program.fd()?.as_fd(), function, options.maxactive)?;
    let place = format!("{function} (return)");
    Ok(HookLink { place, kind: probe.kind(), link_fd: probe.link()?, keep: Box::new(probe) })
}

fn link_failed(error: LinkError) -> ProgramError {
    match error {
        LinkError::SyscallError(error) => ProgramError::SyscallError(error),
        other => ProgramError::IOError(io::Error::other(other)),
    }
}

fn number(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        ProgramError::KProbeError(KProbeError::FileError { io_error, .. }) => io_error.raw_os_error(),
        ProgramError::IOError(error) => error.raw_os_error(),
        _ => None,
    }
}

/// Returns whether the kernel's error is EINVAL.
fn is_invalid(error: &ProgramError) -> bool {
    number(error) == Some(libc::EINVAL)
}

/// Returns whether the kernel has no such function, or several, or none that can be hooked.
fn is_missing(error: &ProgramError) -> bool {
    let number = number(error);
    // tracefs returns this error for the return of a function that does not exist (observed on
    // 7.3-rc7).
    let by_tracefs = matches!(error, ProgramError::KProbeError(_)) && number == Some(libc::EINVAL);
    by_tracefs || matches!(number, Some(libc::ENOENT | libc::EADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use bpfassay_tracer_common::functions;

    use super::*;

    #[test]
    fn programs_are_known_by_their_names() {
        assert_eq!(parse("fexit__vfs_read", Probe::Fexit), Some(Name { function: "vfs_read", part: "" }));
        assert_eq!(parse("fexit__vfs_read__2", Probe::Fexit), Some(Name { function: "vfs_read", part: "2" }));
        assert_eq!(parse("uprobe__bytes__return", Probe::Uprobe), Some(Name { function: "bytes", part: "return" }));
        assert_eq!(function_of("fexit__vfs_read", Probe::Kprobe), None);
        assert_eq!(function_of("kprobe", Probe::Kprobe), None);
    }

    /// This reads the source, because builds on a host have no objects to check.
    #[test]
    fn every_function_of_user_space_has_its_programs() {
        const SOURCE: &str = include_str!("../../../../bpfassay-tracer-ebpf/src/tracer/uprobe.rs");
        for function in functions::C_LIBRARY.iter().chain(functions::MPI_IO) {
            let (entry, back) = (function.entry, function.returns.target());
            for program in [format!("uprobe__{entry}__entry"), format!("uprobe__{back}__return")] {
                assert!(SOURCE.contains(&program), "{program}");
            }
        }
    }

    #[test]
    fn copies_and_clocks_are_loaded_where_they_are_used() {
        let wanted = |part, copies, latency| {
            is_wanted(
                Name { function: "vfs_read", part },
                copies,
                true,
                &TracerOptions { latency, ..TracerOptions::default() },
            )
        };
        assert!(wanted("", 1, false) && wanted("entry", 1, false));
        assert!(!wanted("2", 1, false) && wanted("2", 2, false) && !wanted("3", 2, false));
        assert!(!wanted("begin", 3, false) && wanted("begin", 1, true));
        assert!(!wanted("mark", 1, false) && wanted("mark", 3, false));
        assert!(!wanted("mark_2", 1, false) && wanted("mark_2", 3, false));
    }

    #[test]
    fn one_of_two_programs_at_a_return_is_loaded() {
        for is_compiled in [false, true] {
            let wanted = |part| is_wanted(Name { function: "bytes", part }, 1, is_compiled, &TracerOptions::default());
            assert_eq!((wanted("return"), wanted("return_interpreted")), (is_compiled, !is_compiled));
        }
    }
}
