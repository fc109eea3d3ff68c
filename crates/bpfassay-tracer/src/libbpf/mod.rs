//! The loader `libbpf`: objects written in C with CO-RE, loaded through libbpf-rs.

pub(crate) mod attach;
pub(crate) mod log;
mod sys;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use bpfassay_ledger::Settings;
use bpfassay_protocol::{
    ProbeConfiguration,
    tracer::{Attached, Refusal, Step},
};
use libbpf_rs::{MapCore as _, ObjectBuilder, OpenObject};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    objects,
    probes::Attachment,
    tracer::{Loaded, Options},
};

/// The section of [`Settings`], which is a map of its own.
const SETTINGS: &str = ".rodata.settings";

/// A step that failed, before it is put into the words of a [`Refusal`].
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) program: Option<String>,
    /// Carries the kernel's error number, if it was the kernel that refused.
    pub(super) error: io::Error,
}

/// Loads `object` and attaches its programs.
///
/// # Errors
/// A [`Refusal`].
pub(crate) fn bring_up(
    configuration: ProbeConfiguration,
    object: &objects::Object,
    attachment: Attachment,
    options: &Options,
) -> Result<Loaded, Refusal> {
    let log = log::capture();
    load_and_attach(configuration, object, attachment, options).map_err(|failure| log.refusal(failure))
}

fn load_and_attach(
    configuration: ProbeConfiguration,
    object: &objects::Object,
    attachment: Attachment,
    options: &Options,
) -> Result<Loaded, Failure> {
    let start = monotonic();
    let mut open = ObjectBuilder::default()
        .name("bpfassay")
        .and_then(|builder| builder.open_memory(object.elf))
        .map_err(|error| Failure { step: Step::Open, program: None, error: io::Error::other(format!("{error:#}")) })?;
    let settings = Settings {
        cgroup: options.cgroup,
        mount: options.mount,
        latency: u32::from(options.latency),
        ..Settings::default()
    };
    set_settings(&mut open, settings)?;
    if attachment == Attachment::Trampoline {
        set_functions(&mut open, options)?;
    }
    let object = sys::load(open).map_err(|error| Failure { step: Step::Load, program: None, error })?;
    let loaded = monotonic();
    let (hooked, links) = attach::all(&object, attachment, options)?;
    let attached = monotonic();
    let mut programs = Vec::new();
    for hooked in &hooked {
        let failed = |error| Failure { step: Step::Attach, program: Some(hooked.program.clone()), error };
        programs.push(hooked.describe().map_err(failed)?);
    }
    let maps = maps(&object).map_err(|error| Failure { step: Step::Load, program: None, error })?;
    Ok(Loaded {
        attached: Attached {
            configuration,
            load_ns: nanoseconds(loaded.saturating_sub(start)),
            attach_ns: nanoseconds(attached.saturating_sub(loaded)),
            programs,
            findings: Vec::new(),
        },
        maps,
        hooked,
        // Detached before the object is closed: elements are dropped in order.
        keep: Box::new((links, object)),
    })
}

/// Names the functions that are to be hooked in place of those in the programs' sections. A trampoline's function has to
/// be known when its program is loaded.
fn set_functions(open: &mut OpenObject, options: &Options) -> Result<(), Failure> {
    for mut program in open.progs_mut() {
        let function = attach::function_of(program.section()).map(str::to_owned).unwrap_or_default();
        if let Some(other) = options.functions.get(&function) {
            program.set_attach_target(0, Some(other.clone())).map_err(|error| Failure {
                step: Step::Open,
                program: Some(program.name().to_string_lossy().into_owned()),
                error: io::Error::other(format!("{error:#}")),
            })?;
        }
    }
    Ok(())
}

fn set_settings(open: &mut OpenObject, settings: Settings) -> Result<(), Failure> {
    let bytes = settings.to_bytes();
    let written = open.maps_mut().find(|map| map.name() == OsStr::new(SETTINGS)).is_some_and(|mut map| {
        map.initial_value_mut().is_some_and(|value| {
            // The section is padded at its end, if at all.
            value.get_mut(..bytes.len()).map(|value| value.copy_from_slice(&bytes)).is_some()
        })
    });
    if written {
        return Ok(());
    }
    let error = io::Error::other(format!("the object has no `{SETTINGS}` of {} bytes", bytes.len()));
    Err(Failure { step: Step::Open, program: None, error })
}

/// Duplicates of the descriptors of all maps, by name.
fn maps(object: &libbpf_rs::Object) -> io::Result<BTreeMap<String, OwnedFd>> {
    let named =
        object.maps().map(|map| Ok((map.name().to_string_lossy().into_owned(), map.as_fd().try_clone_to_owned()?)));
    named.collect()
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock does not go below zero.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
