//! The loader `libbpf`: objects written in C with CO-RE, loaded through libbpf-rs.

mod attach;
mod log;
mod misses;
mod sys;

use std::{ffi::OsStr, io, time::Duration};

use bpfassay_protocol::{
    ProbeConfiguration,
    tracer::{Attached, CounterRow, Losses, Program, Refusal, Step},
};
use libbpf_rs::{MapCore as _, MapFlags, ObjectBuilder, OpenObject};
use rustix::time::{ClockId, clock_gettime};

use self::attach::Hooked;
use crate::{
    ledger::{self, Filter},
    objects,
    probes::Attachment,
    tracer::{ReadError, Tracer},
};

const COUNTERS: &str = "counters";
const INSERT_FAILURES: &str = "insert_failures";
const FILTER: &str = ".rodata.filter";

/// A tracer that libbpf loaded.
#[derive(Debug)]
pub(crate) struct Libbpf {
    attached: Attached,
    /// Detached before the object is closed: fields are dropped in order.
    hooked: Vec<Hooked>,
    object: libbpf_rs::Object,
}

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
    filter: Filter,
) -> Result<Libbpf, Refusal> {
    let log = log::capture();
    load_and_attach(configuration, object, attachment, filter).map_err(|failure| log.refusal(failure))
}

fn load_and_attach(
    configuration: ProbeConfiguration,
    object: &objects::Object,
    attachment: Attachment,
    filter: Filter,
) -> Result<Libbpf, Failure> {
    let start = monotonic();
    let mut open = ObjectBuilder::default()
        .name("bpfassay")
        .and_then(|builder| builder.open_memory(object.elf))
        .map_err(|error| Failure { step: Step::Open, program: None, error: io::Error::other(format!("{error:#}")) })?;
    set_filter(&mut open, filter)?;
    let object = sys::load(open).map_err(|error| Failure { step: Step::Load, program: None, error })?;
    let loaded = monotonic();
    let hooked = attach::all(&object, attachment)?;
    let attached = monotonic();
    let programs = hooked.iter().map(describe).collect::<Result<_, Failure>>()?;
    Ok(Libbpf {
        attached: Attached {
            configuration,
            load_ns: nanoseconds(loaded.saturating_sub(start)),
            attach_ns: nanoseconds(attached.saturating_sub(loaded)),
            programs,
            findings: Vec::new(),
        },
        hooked,
        object,
    })
}

fn set_filter(open: &mut OpenObject, filter: Filter) -> Result<(), Failure> {
    let bytes = filter.to_bytes();
    let written = open.maps_mut().find(|map| map.name() == OsStr::new(FILTER)).is_some_and(|mut map| {
        map.initial_value_mut().is_some_and(|value| {
            // The section is padded at its end, if at all.
            value.get_mut(..bytes.len()).map(|value| value.copy_from_slice(&bytes)).is_some()
        })
    });
    if written {
        return Ok(());
    }
    let error = io::Error::other(format!("the object has no `{FILTER}` of {} bytes", bytes.len()));
    Err(Failure { step: Step::Open, program: None, error })
}

fn describe(hooked: &Hooked) -> Result<Program, Failure> {
    let info = sys::program_info(hooked.program_fd()).map_err(|error| Failure {
        step: Step::Attach,
        program: Some(hooked.program.clone()),
        error,
    })?;
    Ok(Program {
        name: hooked.program.clone(),
        attached_to: hooked.attached_to.clone(),
        jited_bytes: info.jited_bytes,
        instructions: info.instructions,
        verified_instructions: info.verified_instructions,
    })
}

impl Libbpf {
    fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, ReadError> {
        let missing = || ReadError::Map { map: name, source: io::Error::from(io::ErrorKind::NotFound).into() };
        self.object.maps().find(|map| map.name() == OsStr::new(name)).ok_or_else(missing)
    }
}

impl Tracer for Libbpf {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn rows(&self) -> Result<Vec<CounterRow>, ReadError> {
        let map = self.map(COUNTERS)?;
        let mut rows = Vec::new();
        // Keys are never deleted, so a walk over them sees each one that was there when it began.
        for key in map.keys() {
            let values = map
                .lookup_percpu(&key, MapFlags::ANY)
                .map_err(|source| ReadError::Map { map: COUNTERS, source })?
                .unwrap_or_default();
            rows.push(ledger::row(&key, values).map_err(|source| ReadError::Ledger { map: COUNTERS, source })?);
        }
        ledger::sort(&mut rows);
        Ok(rows)
    }

    fn losses(&self) -> Result<Losses, ReadError> {
        let values = self
            .map(INSERT_FAILURES)?
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| ReadError::Map { map: INSERT_FAILURES, source })?
            .unwrap_or_default();
        let failures = ledger::total(values).map_err(|source| ReadError::Ledger { map: INSERT_FAILURES, source })?;
        let misses = misses::of_all(&self.hooked)?;
        Ok(Losses {
            missed_probes: misses.probes,
            recursion_misses: misses.recursion,
            map_insert_failures: Some(failures),
            ..Losses::default()
        })
    }
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock does not go below zero.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
