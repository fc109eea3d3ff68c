//! Loading and attaching the programs of one probe.

use std::{
    any::Any,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use ::aya::{
    Btf, Ebpf,
    programs::{
        KProbe, ProbeKind, Program, ProgramError,
        links::{FdLink, LinkError},
    },
};
use bpfassay_protocol::{
    probe::Probe,
    tracer::{Refusal, Step},
};
use object::{Endianness, Object as _, ObjectSection as _, read::elf::ElfFile64};

use super::refusal::refuse;
use crate::{
    hooked::{Hooked, Kind, KprobeMode},
    kernel,
    libbpf::attach::BEHIND_FTRACE_SITE,
    tracer::Options,
};

/// Whatever must stay alive while a program is attached.
type Keep = Box<dyn Any>;

/// A program that was attached.
struct Attached {
    kind: Kind,
    /// From the function's entry, in bytes.
    offset: u64,
    link_fd: Option<OwnedFd>,
    keep: Keep,
}

/// Names of the programs of `probe`, sorted.
pub(super) fn programs_of(ebpf: &Ebpf, probe: Probe) -> Vec<String> {
    let names = ebpf.programs().map(|(name, _)| name).filter(|name| function_of(name, probe).is_some());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Names of the sections with programs of `probe` in the object file `elf`; none if it cannot be read, which loading
/// will tell.
pub(super) fn sections_of(elf: &[u8], probe: Probe) -> Vec<String> {
    let object = ElfFile64::<Endianness>::parse(elf);
    let sections = object.iter().flat_map(|object| object.sections());
    let names = sections.filter_map(|section| section.name().ok().map(str::to_owned));
    names.filter(|name| name.split_once('/').is_some_and(|(kind, _)| kind == probe.name())).collect()
}

/// The function that the program `name` is for, if it is one of `probe`.
fn function_of(name: &str, probe: Probe) -> Option<&str> {
    name.strip_prefix(&probe.name().replace('-', "_"))?.strip_prefix('_')
}

/// Loads the programs `names` of `probe`.
///
/// # Errors
/// The first [`Refusal`].
pub(super) fn load(
    ebpf: &mut Ebpf,
    probe: Probe,
    names: &[String],
    options: &Options,
    btf: &Btf,
) -> Result<(), Refusal> {
    for name in names {
        let function = function_of(name, probe).map(|function| options.function(function));
        let outcome = match (ebpf.program_mut(name), function) {
            (Some(Program::KProbe(program)), _) => program.load(),
            (Some(Program::FEntry(program)), Some(function)) => program.load(function, btf),
            (Some(Program::FExit(program)), Some(function)) => program.load(function, btf),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        outcome.map_err(|error| refuse(Step::Load, Some(name), &error))?;
    }
    Ok(())
}

/// Attaches the programs `names` of `probe`; all or none.
///
/// # Errors
/// The first [`Refusal`]; what was attached before is detached.
pub(super) fn all(
    ebpf: &mut Ebpf,
    probe: Probe,
    names: &[String],
    options: &Options,
) -> Result<(Vec<Hooked>, Vec<Keep>), Refusal> {
    let (mut hooked, mut kept) = (Vec::new(), Vec::new());
    for name in names {
        let refused = |error: ProgramError| refuse(Step::Attach, Some(name), &error);
        let (program, function) =
            ebpf.program_mut(name).zip(function_of(name, probe)).ok_or_else(|| refused(ProgramError::NotLoaded))?;
        let function = options.function(function);
        let Attached { kind, offset, link_fd, keep } = attach(program, function).map_err(refused)?;
        let program_fd = program.fd().and_then(|fd| Ok(fd.as_fd().try_clone_to_owned()?)).map_err(refused)?;
        kept.push(keep);
        hooked.push(Hooked {
            program: name.clone(),
            function: function.to_owned(),
            attached_to: if offset == 0 { function.to_owned() } else { format!("{function}+{offset:#x}") },
            kind,
            program_fd,
            link_fd,
        });
    }
    Ok((hooked, kept))
}

fn attach(program: &mut Program, function: &str) -> Result<Attached, ProgramError> {
    match program {
        Program::KProbe(program) => kprobe(program, function),
        Program::FEntry(program) => {
            let link = program.attach().and_then(|id| program.take_link(id))?;
            Ok(Attached { kind: Kind::Trampoline, offset: 0, link_fd: None, keep: Box::new(link) })
        }
        Program::FExit(program) => {
            let link = program.attach().and_then(|id| program.take_link(id))?;
            Ok(Attached { kind: Kind::Trampoline, offset: 0, link_fd: None, keep: Box::new(link) })
        }
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// Attaches at the entry, or behind the ftrace site where the entry is refused.
fn kprobe(program: &mut KProbe, function: &str) -> Result<Attached, ProgramError> {
    let (id, offset) = match (program.attach(function, 0), BEHIND_FTRACE_SITE) {
        (Err(error), Some(offset)) if matches!(program.kind(), ProbeKind::Entry) && is_invalid(&error) => {
            (program.attach(function, offset as u64)?, offset as u64)
        }
        (outcome, _) => (outcome?, 0),
    };
    let link = program.take_link(id)?;
    let kind = Kind::Kprobe(KprobeMode::Perf);
    // Without links for perf events (before 5.15) there is nothing to ask for misses.
    if !::aya::features().bpf_perf_link() {
        return Ok(Attached { kind, offset, link_fd: None, keep: Box::new(link) });
    }
    let link = FdLink::try_from(link).map_err(link_failed)?;
    let link_fd = Some(kernel::link_by_id(link.info().map_err(link_failed)?.id())?);
    Ok(Attached { kind, offset, link_fd, keep: Box::new(link) })
}

fn link_failed(error: LinkError) -> ProgramError {
    match error {
        LinkError::SyscallError(error) => ProgramError::SyscallError(error),
        other => ProgramError::IOError(io::Error::other(other)),
    }
}

/// Whether the kernel said EINVAL.
fn is_invalid(error: &ProgramError) -> bool {
    matches!(error, ProgramError::SyscallError(error) if error.io_error.raw_os_error() == Some(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_names() {
        assert_eq!(function_of("fexit_vfs_read", Probe::Fexit), Some("vfs_read"));
        assert_eq!(function_of("fexit_vfs_read", Probe::Kprobe), None);
        assert_eq!(function_of("kprobe", Probe::Kprobe), None);
    }
}
