// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tracer that is attached and counts, whichever library loaded it. It is read through file
//! descriptors only.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    os::fd::BorrowedFd,
};

use bpfassay_bpf::{BpfMap, RunTime};
use bpfassay_protocol::{
    ProbeConfiguration,
    finding_name::Finding,
    probe::Probe,
    program_set::EventRow,
    tracer_messages::{Attached, CounterRow, Losses, ProgramStatistics, Refusal, Step},
    with_causes,
};

use super::{
    error::ReadError,
    maps::CounterMaps,
    misses,
    no_preempt::NoPreempt,
    sets::Summaries,
    task_io::{self, TaskIo},
    written::Written,
};
use crate::{
    diagnostics::{self, ProgramMisses},
    loader::{
        self, LoadedConfiguration,
        plan::{
            hooked::{AttachKind, AttachedPrograms, Hooked, ProgramCounts},
            tracer_options::TracerOptions,
        },
    },
};

/// Loaded programs, which count while they are attached. Dropping this detaches them.
pub(crate) struct Tracer {
    attached: Attached,
    counters: CounterMaps,
    task_io: Option<TaskIo>,
    /// Readers of program sets.
    summaries: Option<Summaries>,
    written: Written,
    hooked: Vec<Hooked>,
    /// Links, which detach when they are dropped. Fields are dropped in order, so this happens
    /// before the programs are closed.
    links: Vec<Box<dyn Any>>,
    /// The kernel's counts of each program when it was detached.
    earlier: BTreeMap<String, ProgramCounts>,
    loaded: LoadedConfiguration,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("attached", &self.attached).field("hooked", &self.hooked).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Loads and attaches the programs of `configuration`.
    ///
    /// # Errors
    /// A [`Refusal`]. In that case, no program stays loaded.
    pub(crate) fn bring_up(configuration: ProbeConfiguration, options: &TracerOptions) -> Result<Self, Refusal> {
        let loaded = loader::load(configuration, options)?;
        let mut tracer = Self::over(loaded, configuration, options).map_err(unreadable)?;
        tracer.hook()?;
        Ok(tracer)
    }

    /// Creates a tracer from loaded programs.
    fn over(
        mut loaded: LoadedConfiguration,
        configuration: ProbeConfiguration,
        options: &TracerOptions,
    ) -> Result<Self, ReadError> {
        let mut maps = loaded.take_maps();
        let written = Written::new(&maps)?;
        let (mut task_io, mut summaries) = (None, None);
        if configuration.probe == Probe::Programs {
            summaries = Some(Summaries::new(configuration.sets.iter(), mem::take(&mut maps))?);
        } else if let Some(exited) = maps.remove(task_io::EXITED) {
            let exited = BpfMap::new(exited);
            let exited = exited.map_err(|source| ReadError::Map { map: task_io::EXITED.to_owned(), source })?;
            task_io = Some(TaskIo::new(exited, options.cgroup));
        }
        Ok(Self {
            attached: Attached::none(configuration),
            counters: CounterMaps::new(maps)?,
            task_io,
            summaries,
            written,
            hooked: Vec::new(),
            links: Vec::new(),
            earlier: BTreeMap::new(),
            loaded,
        })
    }

    /// Attaches the programs, whose maps are empty.
    fn hook(&mut self) -> Result<(), Refusal> {
        let (attached, AttachedPrograms { mut hooked, links, .. }) = self.loaded.attach()?;
        for hooked in &mut hooked {
            hooked.earlier = self.earlier.get(&hooked.program).copied().unwrap_or_default();
        }
        (self.attached, self.hooked, self.links) = (attached, hooked, links);
        let iterator = self.hooked.iter().find(|hooked| hooked.program == task_io::LIVE_TASKS);
        if let (Some(task_io), Some(link)) = (&mut self.task_io, iterator.and_then(|hooked| hooked.link_fd.as_ref())) {
            let failed = |source| ReadError::Map { map: task_io::EXITED.to_owned(), source };
            link.try_clone().map_err(failed).and_then(|link| task_io.begin(link)).map_err(unreadable)?;
        }
        Ok(())
    }

    /// Detaches the programs, which stay loaded.
    ///
    /// # Errors
    /// [`ReadError`] if the kernel's counts of a program cannot be read.
    pub(crate) fn detach(&mut self) -> Result<(), ReadError> {
        if let Some(task_io) = &mut self.task_io {
            task_io.end();
        }
        // A link exists for as long as one of its descriptors is open.
        for hooked in &mut self.hooked {
            hooked.link_fd = None;
        }
        self.links.clear();
        for hooked in mem::take(&mut self.hooked) {
            let counted = hooked.counted_ever();
            let counted = counted.map_err(|source| ReadError::Program { program: hooked.program.clone(), source })?;
            self.earlier.insert(hooked.program, counted);
        }
        Ok(())
    }

    /// Attaches programs that were detached. They count from zero, as after loading.
    ///
    /// # Errors
    /// A [`Refusal`]. In that case, no program stays attached.
    pub(crate) fn attach_again(&mut self) -> Result<(), Refusal> {
        // Events that tasks were writing while the programs were detached are complete by now.
        self.counters.reset().and_then(|()| self.written.empty()).map_err(unreadable)?;
        self.hook()
    }

    /// Returns what was attached, and how.
    pub(crate) fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Returns the counters since attaching, one row per key, sorted by key.
    ///
    /// # Errors
    /// [`ReadError`] if a map or the mount table cannot be read, or a map contains bytes that no
    /// program of the tracer writes.
    pub(crate) fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
        let _undisturbed = NoPreempt::begin();
        match &mut self.task_io {
            Some(task_io) => task_io.rows(),
            None => self.counters.rows(),
        }
    }

    /// Returns the counts of program sets since attaching, sorted by cgroup and event.
    ///
    /// # Errors
    /// [`ReadError`] if a map cannot be read, or contains bytes that no program of the tracer
    /// writes.
    pub(crate) fn event_rows(&mut self) -> Result<Vec<EventRow>, ReadError> {
        let _undisturbed = NoPreempt::begin();
        self.summaries.as_ref().map_or_else(|| Ok(Vec::new()), Summaries::rows)
    }

    /// Returns a descriptor that is readable when [`Tracer::drain`] has work to do; `None` if it
    /// never has.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.counters.fd()
    }

    /// Makes room in the ring buffer.
    ///
    /// # Errors
    /// [`ReadError`] if the ring buffer cannot be read.
    pub(crate) fn drain(&mut self) -> Result<(), ReadError> {
        self.counters.drain()
    }

    /// Returns the events that are known to be lost since attaching.
    ///
    /// # Errors
    /// [`ReadError`] if a map or the kernel's counts of misses cannot be read.
    pub(crate) fn losses(&mut self) -> Result<Losses, ReadError> {
        let _undisturbed = NoPreempt::begin();
        match &self.summaries {
            Some(summaries) => summaries.losses(&self.hooked),
            None => self.counters.losses(&self.hooked),
        }
    }

    /// Returns number and time of the runs of each program while the kernel kept statistics.
    ///
    /// # Errors
    /// [`ReadError`] if the kernel's counts of a program cannot be read.
    pub(crate) fn statistics(&self) -> Result<Vec<ProgramStatistics>, ReadError> {
        let of = |hooked: &Hooked| {
            let program = hooked.program.clone();
            let counted = hooked.counted();
            let counted = counted.map_err(|source| ReadError::Program { program: program.clone(), source })?;
            let RunTime { runs, nanoseconds } = counted.run_time;
            Ok(ProgramStatistics { program, runs, run_time_ns: nanoseconds })
        };
        // A program can have several hooks.
        let mut seen = BTreeSet::new();
        self.hooked.iter().filter(|hooked| seen.insert(hooked.program.as_str())).map(of).collect()
    }

    /// Returns the calls counted since attaching, of all keys together.
    ///
    /// # Errors
    /// [`ReadError`] if the counters cannot be read.
    pub(crate) fn events(&mut self) -> Result<u64, ReadError> {
        let of_sets = self.event_rows()?.into_iter().map(|row| row.totals.calls);
        let calls = self.rows()?.into_iter().map(|row| row.totals.calls).chain(of_sets);
        Ok(calls.fold(0, u64::wrapping_add))
    }

    /// Returns the pitfalls that follow from what was lost since attaching.
    ///
    /// # Errors
    /// [`ReadError`] if a map or the kernel's counts of misses cannot be read.
    pub(crate) fn findings(&mut self) -> Result<Vec<Finding>, ReadError> {
        let losses = self.losses()?;
        let mut programs = Vec::new();
        for hooked in &self.hooked {
            let misses = misses::of(hooked)?;
            programs.push(ProgramMisses {
                program: hooked.program.clone(),
                attached_to: hooked.attached_to.clone(),
                // In both loaders, programs at a function's return have names of this form.
                kretprobe: matches!(hooked.kind, AttachKind::Kprobe(_) | AttachKind::KprobeMulti)
                    && hooked.program.ends_with("_return"),
                probes: misses.probes,
                recursion: misses.recursion,
            });
        }
        Ok(diagnostics::after(&losses, &programs))
    }
}

fn unreadable(error: ReadError) -> Refusal {
    Refusal::new(Step::Attach, with_causes(&error))
}
