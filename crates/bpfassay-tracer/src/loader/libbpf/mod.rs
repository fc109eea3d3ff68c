// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loader `libbpf`: objects written in C with CO-RE, loaded through libbpf-rs.

pub(crate) mod attach;
pub(crate) mod bare;
mod fprobe_capacity;
pub(crate) mod log;
pub(crate) mod prepare;
pub(crate) mod sets;
mod sys;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use bpfassay_protocol::{
    ProbeConfiguration, nanoseconds,
    tracer::{Attached, Refusal, Step},
};
use libbpf_rs::{MapCore as _, ObjectBuilder, OpenObject};
use rustix::time::{ClockId, clock_gettime};

use crate::loader::plan::{
    hooked::{AttachedPrograms, Hooked},
    objects,
    options::{Loaded, Options},
    probes::{self, Attachment},
    refusal::Failure,
};

/// What the kernel answers to programs that call kfuncs where no JIT compiler takes such calls (`add_kfunc_call`,
/// kernel/bpf/verifier.c of 5.13 and later), even where the verifier would remove the call. From include/linux/errno.h, which
/// is no part of the interface.
const ENOTSUPP: i32 = 524;

/// Loads `object` and attaches its programs.
///
/// Programs on functions that are `absent` from the kernel are left out where others can do without them.
///
/// # Errors
/// A [`Refusal`].
pub(crate) fn bring_up(
    configuration: ProbeConfiguration,
    object: &objects::Object,
    options: &Options,
    absent: &BTreeSet<&str>,
) -> Result<Loaded, Refusal> {
    let mut log = log::capture();
    let mut outcome = load_and_attach(configuration, object.elf, options, absent);
    if let Err(Failure { step: Step::Load, error, .. }) = &outcome
        && error.raw_os_error() == Some(ENOTSUPP)
        && let Some(elf) = objects::without_casts(object.elf)
    {
        log = log::capture();
        outcome = load_and_attach(configuration, &elf, options, absent);
    }
    outcome.map_err(|failure| log.refusal(failure))
}

fn load_and_attach(
    configuration: ProbeConfiguration,
    elf: &[u8],
    options: &Options,
    absent: &BTreeSet<&str>,
) -> Result<Loaded, Failure> {
    let start = monotonic();
    let mut open = ObjectBuilder::default()
        .name("bpfassay")
        .and_then(|builder| builder.open_memory(elf))
        .map_err(|error| Failure { step: Step::Open, program: None, error: io::Error::other(format!("{error:#}")) })?;
    let mut findings = prepare::prepare(&mut open, options, absent)?;
    set_functions(&mut open, options)?;
    let object = sys::load(open).map_err(|error| Failure { step: Step::Load, program: None, error })?;
    let loaded = monotonic();
    let AttachedPrograms { hooked, links, findings: unhooked } = attach::all(&object, options)?;
    findings.extend(unhooked);
    let times = [start, loaded, monotonic()];
    into_loaded(object, (hooked, links), times, Attached { findings, ..Attached::none(configuration) })
}

/// What is loaded and hooked, described in `attached`. `times`: when loading began, when it ended and when all was attached.
fn into_loaded(
    object: libbpf_rs::Object,
    (hooked, links): (Vec<Hooked>, Vec<Box<dyn Any>>),
    [start, loaded, done]: [Duration; 3],
    mut attached: Attached,
) -> Result<Loaded, Failure> {
    for hooked in &hooked {
        let failed = |error| Failure { step: Step::Attach, program: Some(hooked.program.clone()), error };
        attached.programs.push(hooked.describe().map_err(failed)?);
    }
    attached.load_ns = nanoseconds(loaded.saturating_sub(start));
    attached.attach_ns = nanoseconds(done.saturating_sub(loaded));
    let maps = maps(&object).map_err(|error| Failure { step: Step::Load, program: None, error })?;
    // Detached before the object is closed: elements are dropped in order.
    Ok(Loaded { attached, maps, hooked, keep: Box::new((links, object)) })
}

/// Names the functions that are to be hooked in place of those in the programs' sections. A trampoline's function has to
/// be known when its program is loaded.
fn set_functions(open: &mut OpenObject, options: &Options) -> Result<(), Failure> {
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

/// Duplicates of the descriptors of all maps that were created, by name.
fn maps(object: &libbpf_rs::Object) -> io::Result<BTreeMap<String, OwnedFd>> {
    // A map that was not created has a descriptor that stands in for it.
    let created = object.maps().filter(|map| map.autocreate());
    let named = created.map(|map| Ok((map.name().to_string_lossy().into_owned(), map.as_fd().try_clone_to_owned()?)));
    named.collect()
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock does not go below zero.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
