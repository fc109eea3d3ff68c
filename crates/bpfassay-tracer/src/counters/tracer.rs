// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tracer that is attached and counts, whichever library loaded it. It is read through file descriptors only.

use std::{any::Any, collections::BTreeMap, fmt, os::fd::BorrowedFd};

use bpfassay_bpf::{Map, RunTime, program_info};
use bpfassay_protocol::{
    finding::Finding,
    probe::Probe,
    program_set::EventRow,
    tracer::{Attached, CounterRow, Losses, ProgramStatistics},
};

use super::{
    error::ReadError,
    maps::CounterMaps,
    misses,
    no_preempt::NoPreempt,
    sets::Summaries,
    task_io::{self, TaskIo},
};
use crate::{
    diagnostics::{self, ProgramMisses},
    loader::plan::{
        hooked::{Hooked, Kind},
        options::{Loaded, Options},
    },
};

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
    /// Over what was loaded.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn new(loaded: Loaded, options: &Options) -> Result<Self, ReadError> {
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
            let info = program_info(hooked.program_fd())
                .map_err(|source| ReadError::Program { program: hooked.program.clone(), source })?;
            let program = hooked.program.clone();
            let RunTime { runs, nanoseconds } = info.run_time.unwrap_or_default();
            Ok(ProgramStatistics { program, runs, run_time_ns: nanoseconds })
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
        Ok(diagnostics::after(&losses, &programs))
    }
}
