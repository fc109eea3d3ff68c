//! What the rest of the program knows of a tracer, whichever library loaded it.
//!
//! A loader is one module with a function that takes an [`TracerConfig`](crate::args::TracerConfig)'s configuration and [`Options`]
//! and yields [`Loaded`]; it has a line in [`bring_up`]. What is read afterwards goes through file descriptors only.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
};

use bpfassay_protocol::{
    ProbeConfiguration,
    finding::Finding,
    probe::{Loader, Probe},
    program_set::EventRow,
    tracer::{Attached, CounterRow, Losses, ProgramStatistics, Refusal, Step},
};

use crate::{
    aya,
    counter_maps::CounterMaps,
    decode::DecodeError,
    descriptors,
    hooked::{Hooked, Kind},
    kernel::{self, Map},
    libbpf, misses,
    mounts::MountsError,
    no_preempt::NoPreempt,
    objects,
    pitfalls::{self, ProgramMisses, When},
    renamed,
    sets::{SetError, Summaries},
    task_io::{self, TaskIo},
};

/// What to count and how, beside the probe configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Only tasks in this very cgroup (v2) are counted; 0: any.
    pub(crate) cgroup: u64,
    /// Only this mount is counted; 0: any.
    pub(crate) mount: u64,
    /// Measure durations, where the probe sees both ends.
    pub(crate) latency: bool,
    /// Most keys of the counters' map (events of the ring buffer, times 64 bytes); `None`: as the layout has it.
    pub(crate) map_entries: Option<u32>,
    /// Calls that a kretprobe watches at once; `None`: as the kernel has it.
    pub(crate) maxactive: Option<u32>,
    /// The programs and libraries whose functions uprobes are put on; none: the libc that the dynamic linker would take.
    pub(crate) uprobe: Vec<PathBuf>,
    /// Hook functions in the order that follows from this number; `None`: as the object file has them.
    pub(crate) attach_order: Option<u64>,
    /// Kernel functions to hook in place of those that the programs name.
    pub(crate) functions: BTreeMap<String, String>,
    /// A file to keep what the symbol table said of functions in, between tracers of one boot.
    pub(crate) symbol_cache: Option<PathBuf>,
}

impl Options {
    /// The function to hook where a program names `function`.
    pub(crate) fn function<'a>(&'a self, function: &'a str) -> &'a str {
        self.functions.get(function).map_or(function, String::as_str)
    }
}

/// What a loader yields.
pub(crate) struct Loaded {
    /// What was attached.
    pub(crate) attached: Attached,
    /// Descriptors of the maps by name ([`bpfassay_tracer_common::map`]); duplicates will do.
    pub(crate) maps: BTreeMap<String, OwnedFd>,
    /// The programs that are attached.
    pub(crate) hooked: Vec<Hooked>,
    /// Whatever must stay alive while the programs count. Dropping it detaches them.
    pub(crate) keep: Box<dyn Any>,
}

/// Programs that are attached and count. Dropping it detaches them.
pub(crate) struct Tracer {
    attached: Attached,
    counters: CounterMaps,
    task_io: Option<TaskIo>,
    /// Of program sets.
    summaries: Option<Summaries>,
    hooked: Vec<Hooked>,
    _keep: Box<dyn Any>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("attached", &self.attached).field("hooked", &self.hooked).finish_non_exhaustive()
    }
}

impl Tracer {
    fn new(loaded: Loaded, options: &Options) -> Result<Self, ReadError> {
        let Loaded { attached, mut maps, hooked, keep } = loaded;
        if attached.configuration.probe == Probe::Programs {
            let summaries = Some(Summaries::new(attached.configuration.sets.iter(), maps)?);
            let counters = CounterMaps::new(BTreeMap::new())?;
            return Ok(Self { attached, counters, task_io: None, summaries, hooked, _keep: keep });
        }
        let iterator = hooked.iter().find(|hooked| hooked.program == task_io::LIVE_TASKS);
        let task_io = match (iterator.and_then(|hooked| hooked.link_fd.as_ref()), maps.remove(task_io::EXITED)) {
            (Some(link), Some(exited)) => {
                let failed = |source| ReadError::Map { map: task_io::EXITED.to_owned(), source };
                let exited = Map::new(exited).map_err(failed)?;
                Some(TaskIo::new(link.try_clone().map_err(failed)?, exited, options.cgroup)?)
            }
            _ => None,
        };
        Ok(Self { attached, counters: CounterMaps::new(maps)?, task_io, summaries: None, hooked, _keep: keep })
    }

    /// What was attached.
    pub(crate) fn attached(&self) -> &Attached {
        &self.attached
    }

    /// The counters since attaching, one row per key, sorted by key.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
        let _undisturbed = NoPreempt::begin();
        match &mut self.task_io {
            Some(task_io) => task_io.rows(),
            None => self.counters.rows(),
        }
    }

    /// What program sets counted since attaching, sorted by cgroup and event.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn event_rows(&mut self) -> Result<Vec<EventRow>, ReadError> {
        let _undisturbed = NoPreempt::begin();
        self.summaries.as_ref().map_or_else(|| Ok(Vec::new()), Summaries::rows)
    }

    /// Becomes readable when [`Tracer::drain`] has something to do; `None` where it never has.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.counters.fd()
    }

    /// Makes room for events that are passed one by one.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn drain(&mut self) -> Result<(), ReadError> {
        self.counters.drain()
    }

    /// Events known to be lost since attaching.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn losses(&mut self) -> Result<Losses, ReadError> {
        let _undisturbed = NoPreempt::begin();
        match &self.summaries {
            Some(summaries) => summaries.losses(&self.hooked),
            None => self.counters.losses(&self.hooked),
        }
    }

    /// Runs and run time of each program while the kernel kept statistics.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn statistics(&self) -> Result<Vec<ProgramStatistics>, ReadError> {
        let of = |hooked: &Hooked| {
            let info = kernel::program_info(hooked.program_fd())
                .map_err(|source| ReadError::Program { program: hooked.program.clone(), source })?;
            let program = hooked.program.clone();
            Ok(ProgramStatistics { program, runs: info.runs, run_time_ns: info.run_time_ns })
        };
        // A program may have several hooks.
        let mut seen = std::collections::BTreeSet::new();
        self.hooked.iter().filter(|hooked| seen.insert(hooked.program.as_str())).map(of).collect()
    }

    /// Calls counted since attaching, of all keys together.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn events(&mut self) -> Result<u64, ReadError> {
        let of_sets = self.event_rows()?.into_iter().map(|row| row.totals.calls);
        let calls = self.rows()?.into_iter().map(|row| row.totals.calls).chain(of_sets);
        Ok(calls.fold(0, u64::wrapping_add))
    }

    /// Pitfalls that show in what was lost since attaching.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn findings(&mut self) -> Result<Vec<Finding>, ReadError> {
        let losses = self.losses()?;
        let mut programs = Vec::new();
        for hooked in &self.hooked {
            let misses = misses::of(hooked)?;
            programs.push(ProgramMisses {
                program: hooked.program.clone(),
                attached_to: hooked.attached_to.clone(),
                // Both loaders' programs at a function's return are called so.
                kretprobe: matches!(hooked.kind, Kind::Kprobe(_) | Kind::KprobeMulti)
                    && hooked.program.ends_with("_return"),
                probes: misses.probes,
                recursion: misses.recursion,
            });
        }
        Ok(pitfalls::after(&losses, &programs))
    }
}

/// A reading of the counters that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read the map `{map}`")]
    Map { map: String, source: std::io::Error },
    #[error("the map `{map}` holds what no probe writes")]
    Content { map: String, source: DecodeError },
    #[error("the map `{map}` holds what no program set writes")]
    Set { map: String, source: SetError },
    #[error("cannot ask the kernel about the program `{program}`")]
    Program { program: String, source: std::io::Error },
    #[error("cannot read the misses of kprobes from {path}: leave tracefs mounted while the tracer runs")]
    Profile { path: &'static str, source: std::io::Error },
    #[error(transparent)]
    Mounts(MountsError),
    #[error("{path} does not list the kprobe on `{function}`: something else removed it")]
    Unlisted { path: &'static str, function: String },
}

/// Loads and attaches one probe configuration.
///
/// # Errors
/// A [`Refusal`] that says which step failed and in whose words; nothing stays attached then.
pub(crate) fn bring_up(configuration: ProbeConfiguration, options: &Options) -> Result<Tracer, Refusal> {
    descriptors::make_room();
    let refusal =
        |step, message| Refusal { step, program: None, errno: None, message, verifier: None, findings: Vec::new() };
    if configuration.probe == Probe::Programs {
        if let Some(why) = not_for_sets(configuration, options) {
            return Err(refusal(Step::Open, why.to_owned()));
        }
        return libbpf::sets::bring_up(configuration, options).and_then(|loaded| attached(loaded, options));
    }
    if options.mount != 0 && !configuration.probe.tells_mounts() {
        let message = format!("`{}` cannot tell mounts apart: leave out --mount", configuration.probe);
        return Err(refusal(Step::Open, message));
    }
    if !configuration.probe.tells_mounts() && configuration != ProbeConfiguration::with_defaults(configuration.probe) {
        let message =
            format!("`{}` counts no calls in maps: leave out the map layout and the loader", configuration.probe);
        return Err(refusal(Step::Open, message));
    }
    if options.maxactive.is_some() && configuration.probe != Probe::Kretprobe {
        let message = format!("`{configuration}` has no kretprobes that take --maxactive: `kretprobe` has");
        return Err(refusal(Step::Open, message));
    }
    let options = &renamed::for_this_kernel(options);
    let loaded = match configuration.loader {
        Loader::Libbpf => {
            let Some(object) = objects::find(configuration.probe, configuration.map) else {
                let message = format!("this build of the tracer has no programs for `{configuration}`");
                return Err(refusal(Step::Open, message));
            };
            // Before anything is loaded: the tracer's own hooks are none of its pitfalls.
            let findings = pitfalls::look_for(object.elf, options, When::Before);
            match libbpf::bring_up(configuration, object, options, &pitfalls::absent(&findings)) {
                Ok(mut loaded) => {
                    loaded.attached.findings.extend(findings);
                    loaded
                }
                Err(mut refusal) => {
                    refusal.findings.extend(pitfalls::look_for(object.elf, options, When::Refused));
                    return Err(refusal);
                }
            }
        }
        Loader::Aya => aya::bring_up(configuration, options)?,
    };
    attached(loaded, options)
}

/// The tracer over what was loaded.
fn attached(loaded: Loaded, options: &Options) -> Result<Tracer, Refusal> {
    Tracer::new(loaded, options).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        let message = format!("{error}{cause}");
        Refusal { step: Step::Attach, program: None, errno: None, message, verifier: None, findings: Vec::new() }
    })
}

/// What was asked for that program sets cannot do.
fn not_for_sets(configuration: ProbeConfiguration, options: &Options) -> Option<&'static str> {
    let plain = Options {
        attach_order: options.attach_order,
        symbol_cache: options.symbol_cache.clone(),
        ..Options::default()
    };
    let default = ProbeConfiguration { sets: configuration.sets, ..ProbeConfiguration::with_defaults(Probe::Programs) };
    if configuration != default {
        Some("program sets have maps of their own and one loader: leave out the map layout and the loader")
    } else if *options != plain {
        Some("program sets count everything, in all cgroups: leave out the options of other probes")
    } else {
        None
    }
}
