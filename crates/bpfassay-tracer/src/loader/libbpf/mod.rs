// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loader `libbpf`: objects written in C with CO-RE, loaded through libbpf-rs.

pub(crate) mod bare;
mod fprobe_capacity;
pub(crate) mod libbpf_attach;
pub(crate) mod libbpf_log;
pub(crate) mod libbpf_sets;
pub(crate) mod prepare;
mod sys;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use bpfassay_protocol::{
    finding_name::Finding,
    tracer_messages::{Refusal, Step},
};
use libbpf_rs::{MapCore as _, Object, ObjectBuilder, OpenObject};

use crate::{
    diagnostics::{self, SearchTime},
    loader::plan::{
        hooked::AttachedPrograms,
        loaded::{LoadedTracer, PreparedPrograms, Since},
        object_files,
        probes::{self, Attachment},
        refusal::Failure,
        tracer_options::TracerOptions,
    },
};

/// The kernel's error for programs that call kfuncs if no JIT compiler supports such calls
/// (`add_kfunc_call`, kernel/bpf/verifier.c of 5.13 and later). It occurs even if the verifier
/// would remove the call. The number is from include/linux/errno.h, which is not part of the
/// interface.
const ENOTSUPP: i32 = 524;

/// Loads the programs of `object`.
///
/// Programs on functions that are `absent` from the kernel are left out if the other programs work
/// without them.
///
/// # Errors
/// A [`Refusal`] if the object cannot be opened or the kernel refuses a map or a program.
pub(crate) fn load(
    object: &object_files::ObjectFile,
    options: &TracerOptions,
    absent: &BTreeSet<&str>,
) -> Result<LoadedTracer, Refusal> {
    let mut log = libbpf_log::capture();
    let mut outcome = load_object(object.elf, options, absent);
    if let Err(Failure { step: Step::Load, error, .. }) = &outcome
        && error.raw_os_error() == Some(ENOTSUPP)
        && let Some(elf) = object_files::without_casts(object.elf)
    {
        log = libbpf_log::capture();
        outcome = load_object(&elf, options, absent);
    }
    let elf = object.elf;
    outcome.map_err(|failure| log.refusal(failure)).map(|(object, maps, load_ns, findings)| LoadedTracer {
        maps,
        load_ns,
        findings,
        programs: Box::new(LibbpfObject { object, elf }),
    })
}

type Maps = BTreeMap<String, OwnedFd>;

fn load_object(
    elf: &[u8],
    options: &TracerOptions,
    absent: &BTreeSet<&str>,
) -> Result<(Object, Maps, u64, Vec<Finding>), Failure> {
    let start = Since::now();
    let mut open = open(elf)?;
    let findings = prepare::prepare(&mut open, options, absent)?;
    set_functions(&mut open, options)?;
    let loading = |error| Failure { step: Step::Load, program: None, error };
    let object = sys::load(open).map_err(loading)?;
    let load_ns = start.nanoseconds();
    let maps = maps(&object).map_err(loading)?;
    Ok((object, maps, load_ns, findings))
}

fn open(elf: &[u8]) -> Result<OpenObject, Failure> {
    ObjectBuilder::default().name("bpfassay").and_then(|builder| builder.open_memory(elf)).map_err(|error| Failure {
        step: Step::Open,
        program: None,
        error: io::Error::other(format!("{error:#}")),
    })
}

struct LibbpfObject {
    object: Object,
    /// The file from which the object was loaded.
    elf: &'static [u8],
}

impl PreparedPrograms for LibbpfObject {
    fn attach(&mut self, options: &TracerOptions) -> Result<AttachedPrograms, Refusal> {
        let log = libbpf_log::capture();
        libbpf_attach::all(&self.object, options).map_err(|failure| log.refusal(failure))
    }

    fn look(&self, options: &TracerOptions, when: SearchTime) -> Vec<Finding> {
        diagnostics::look_for(self.elf, options, when)
    }
}

/// Sets the functions to hook in place of those in the programs' sections. The function of a
/// trampoline must be known when the program is loaded.
fn set_functions(open: &mut OpenObject, options: &TracerOptions) -> Result<(), Failure> {
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        let Some((Attachment::Trampoline, function)) = probes::attachment(&section) else { continue };
        if let Some(other) = options.functions.get(function) {
            program.set_attach_target(0, Some(other.clone())).map_err(|error| Failure {
                step: Step::Open,
                program: Some(program.name().to_string_lossy().into_owned()),
                error: io::Error::other(format!("{error:#}")),
            })?;
        }
    }
    Ok(())
}

/// Duplicates the descriptors of all maps that were created, by name.
fn maps(object: &Object) -> io::Result<BTreeMap<String, OwnedFd>> {
    // A map that was not created has a placeholder descriptor.
    let created = object.maps().filter(|map| map.autocreate());
    let named = created.map(|map| Ok((map.name().to_string_lossy().into_owned(), map.as_fd().try_clone_to_owned()?)));
    named.collect()
}
