// SPDX-License-Identifier: MIT OR Apache-2.0
//! One test: its repetitions, each with writing, checking, reading and removing in IOR's order.

mod reorder;

use std::{ffi::CString, fs, time::Duration};

use bpfassay_protocol::control::{PhaseEvent, PhaseName};

use super::{
    EngineError,
    backend::Backend,
    control_channel::{Control, RankResults},
    data_pattern::Pattern,
    file_names::{self, Owner},
    io::{AlignedBuffer, Io},
    phase::{Counts, EnginePhase, PhaseAccess},
    ranks::Team,
    report_writer::ReportWriter,
    result::{Figures, PhaseResult, TestResult},
    timed::Timed,
    warn,
};
use bpfassay_ior::{AccessOrder, Options, ReorderRandom};

/// The additional tasks of rank 0.
pub(crate) struct Lead<'a> {
    pub(crate) report: &'a mut ReportWriter,
    pub(crate) control: Option<&'a mut Control>,
}

/// One rank in one test.
pub(crate) struct TestRun<'a, I> {
    pub(crate) backend: Backend<'a, I>,
    /// The ranks that take part.
    pub(crate) team: &'a Team,
    pub(crate) index: u32,
    /// Whether the agent holds the run between phases.
    pub(crate) is_controlled: bool,
    /// On rank 0 only.
    pub(crate) lead: Option<Lead<'a>>,
    /// Distance to the rank whose data are read.
    rank_offset: i64,
    repetition: Option<u32>,
    seed: Option<i32>,
    wear_out_iterations: u64,
    stamp: u32,
    file_size: u64,
    buffer: AlignedBuffer,
    timed: Timed<'a>,
    result: TestResult,
}

/// When a phase opened, moved data and closed. The times count from a moment common to all ranks.
#[derive(Default, Clone, Copy)]
struct Timers {
    open: (Duration, Duration),
    transfer: (Duration, Duration),
    close: (Duration, Duration),
}

impl<'a, I: Io> TestRun<'a, I> {
    pub(crate) fn new(
        backend: Backend<'a, I>,
        team: &'a Team,
        index: u32,
        is_controlled: bool,
        lead: Option<Lead<'a>>,
    ) -> Result<Self, EngineError> {
        let options = backend.options;
        let buffer = usize::try_from(options.transfer_size).ok().and_then(AlignedBuffer::new).ok_or_else(|| {
            let what = format!("no memory for a transfer of {} bytes: make it smaller (-t)", options.transfer_size);
            EngineError::Test { rank: backend.rank, what }
        })?;
        Ok(Self {
            rank_offset: 0,
            repetition: None,
            seed: options.random_seed,
            wear_out_iterations: options.wear_out_iterations,
            stamp: options.signature as u32,
            file_size: 0,
            buffer,
            timed: Timed::new(team),
            result: TestResult::default(),
            backend,
            team,
            index,
            is_controlled,
            lead,
        })
    }

    const fn options(&self) -> &'a Options {
        self.backend.options
    }

    const fn rank(&self) -> u32 {
        self.backend.rank
    }

    /// Returns the rank whose data this rank works on.
    fn task(&self) -> u32 {
        let tasks = i64::from(self.team.tasks());
        // The result is in 0..tasks, so it fits.
        (i64::from(self.rank()) + self.rank_offset).rem_euclid(tasks) as u32
    }

    fn file_name(&mut self) -> Result<CString, EngineError> {
        let owner = Owner { rank: self.rank(), task: self.task(), repetition: self.repetition };
        file_names::test_file(&mut self.backend.io, self.backend.options, owner)
    }

    /// Runs the test. Returns the receiver of the calls and, on rank 0, the result.
    pub(crate) fn run(mut self) -> Result<(I, TestResult), EngineError> {
        if self.lead.as_ref().is_some_and(|lead| lead.report.shows_tests()) {
            let path = self.file_name()?;
            let directory = report_directory(&path);
            let space = self.backend.io.space(&directory).inspect_err(|error| {
                warn(format_args!("cannot ask for the capacity of {}: {error}", directory.to_string_lossy()));
            });
            let (options, index) = (self.options(), self.index);
            if let Some(lead) = &mut self.lead {
                lead.report.begin_test(options, index, self.team.size(), &path.to_string_lossy(), space.ok())?;
            }
        }
        let options = self.options();
        let start = self.backend.io.now();
        let mut name = CString::default();
        if (options.write || options.check_write) && (options.file_per_process || self.rank() == 0) {
            name = self.file_name()?;
            if self.backend.io.size(&name).is_ok() {
                let fate = if options.use_existing { "overwritten" } else { "deleted" };
                warn(format_args!("the file {} exists already and will be {fate}", name.to_string_lossy()));
            }
        }
        for repetition in 0..options.repetitions {
            self.repeat(repetition, start, &mut name)?;
        }
        if let Some(lead) = &mut self.lead {
            lead.report.end_test(options, &self.result)?;
        }
        if let (Some(file), 0, true) = (&options.status_file, self.rank(), options.wear_out) {
            let pairs = self.result.first_write_pairs;
            fs::write(file, pairs.to_string()).map_err(|source| EngineError::File {
                action: "write",
                path: file.clone(),
                source,
            })?;
        }
        Ok((self.backend.io, self.result))
    }

    fn repeat(&mut self, repetition: u32, start: Duration, name: &mut CString) -> Result<(), EngineError> {
        let options = self.options();
        if options.signature == 0 {
            // The stamp is the seconds since 1970, cut to 32 bits as in IOR.
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec as u32;
            self.stamp = self.team.value_of_first(now.into())? as u32;
        }
        if let (Some(lead), 0) = (&mut self.lead, repetition) {
            lead.report.begin_results()?;
        }
        let task = self.task();
        self.pattern().fill(self.buffer.bytes(), task);
        if options.multi_file {
            self.repetition = Some(repetition);
        }
        let budget = (options.max_time != 0).then(|| Duration::from_secs(u64::from(options.max_time) * 60));
        let over = |test: &Self| budget.is_some_and(|budget| test.backend.io.now() >= start + budget);
        let mut found_errors = false;
        if options.write && !over(self) {
            *name = self.file_name()?;
            self.delay();
            if !options.use_existing {
                self.remove(name)?;
            }
            self.wear_out_iterations = options.wear_out_iterations;
            self.team.barrier()?;
            let counts = self.timed(PhaseAccess::Write, repetition, name)?;
            if options.deadline > 0 {
                self.wear_out_iterations = counts.pairs;
            }
        }
        if options.check_write && !over(self) {
            self.team.barrier()?;
            if options.reorder_tasks {
                self.rank_offset = self.distance(options.task_per_node_offset.saturating_add(1));
            }
            *name = self.file_name()?;
            self.begin(PhaseAccess::WriteCheck, repetition)?;
            let mut opened = self.backend.open(name)?;
            let counts = self.phase(PhaseAccess::WriteCheck)?.run(&mut opened)?;
            self.backend.close(opened)?;
            self.end(PhaseAccess::WriteCheck, repetition, None)?;
            found_errors |= self.count_errors("write", counts.errors);
            if repetition == 0 {
                self.result.first_write_pairs = counts.pairs;
            }
            self.rank_offset = 0;
        }
        if (options.read || options.check_read) && !over(self) {
            if let Some(file) = &options.status_file {
                self.wear_out_iterations = self.read_status(file)?;
            }
            self.reorder(repetition)?;
            *name = self.file_name()?;
            if options.order == AccessOrder::Random {
                self.file_size = self.backend.size(name)?;
            }
            self.delay();
            self.team.barrier()?;
            let access = if options.check_read { PhaseAccess::ReadCheck } else { PhaseAccess::Read };
            let counts = self.timed(access, repetition, name)?;
            found_errors |= self.count_errors("read", counts.errors);
        }
        let is_kept = options.keep || (found_errors && options.keep_with_error);
        if !is_kept {
            let start = self.backend.io.now();
            self.meet()?;
            self.remove(name)?;
            self.meet()?;
            let seconds = self.backend.io.now().saturating_sub(start).as_secs_f64();
            if let Some(lead) = &mut self.lead {
                lead.report.removed(repetition, seconds)?;
            }
        } else {
            self.meet()?;
        }
        self.rank_offset = 0;
        Ok(())
    }

    /// Waits until every rank has arrived, also ranks of other nodes: the agent makes rank 0 wait
    /// for them.
    fn meet(&mut self) -> Result<(), EngineError> {
        self.team.barrier()?;
        if self.team.nodes() == 1 {
            return Ok(());
        }
        if let Some(control) = self.lead.as_mut().and_then(|lead| lead.control.as_deref_mut()) {
            control.announce(&PhaseEvent::Meet)?;
        }
        self.team.barrier()
    }

    /// Executes a phase whose time counts.
    fn timed(&mut self, access: PhaseAccess, repetition: u32, name: &mut CString) -> Result<Counts, EngineError> {
        let options = self.options();
        self.begin(access, repetition)?;
        let mut timers = Timers::default();
        timers.open.0 = self.backend.io.now();
        let mut opened =
            if access == PhaseAccess::Write { self.backend.create(name)? } else { self.backend.open(name)? };
        timers.open.1 = self.backend.io.now();
        if options.intra_test_barriers {
            self.meet()?;
        }
        timers.transfer.0 = self.backend.io.now();
        let counts = self.phase(access)?.run(&mut opened)?;
        timers.transfer.1 = self.backend.io.now();
        if options.intra_test_barriers {
            self.meet()?;
        }
        timers.close.0 = self.backend.io.now();
        self.backend.close(opened)?;
        timers.close.1 = self.backend.io.now();
        if access == PhaseAccess::Write {
            self.team.barrier()?;
        }
        self.end(access, repetition, Some(timers.close.1.saturating_sub(timers.open.0)))?;
        self.collect(access, repetition, &counts, &timers, name)?;
        Ok(counts)
    }

    fn phase(&mut self, access: PhaseAccess) -> Result<EnginePhase<'_, 'a, I>, EngineError> {
        let task = self.task();
        let seed = match self.options().order {
            AccessOrder::Sequential => 0,
            AccessOrder::Shuffled | AccessOrder::Random => self.draw_seed(task)?,
        };
        Ok(EnginePhase {
            pattern: self.pattern(),
            task,
            wear_out_iterations: self.wear_out_iterations,
            file_size: self.file_size,
            seed,
            access,
            backend: &mut self.backend,
            team: self.team,
            buffer: &mut self.buffer,
            timed: &mut self.timed,
        })
    }

    const fn pattern(&self) -> Pattern {
        let options = self.backend.options;
        Pattern { packet: options.packet, stamp: self.stamp, signature: options.signature }
    }

    /// Returns the number of transfers that a stonewalled write recorded for the read; 0 if there
    /// is no record.
    fn read_status(&self, file: &str) -> Result<u64, EngineError> {
        let mut pairs = 0;
        if self.rank() == 0 {
            pairs = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| {
                warn(format_args!("cannot read the number of transfers from {file}: the read is not cut short by it"));
                0
            });
        }
        self.team.value_of_first(pairs)
    }

    /// Adds up transfers with wrong data. Returns whether there were any.
    fn count_errors(&mut self, what: &str, errors: u64) -> bool {
        if errors != 0 && self.rank() == 0 {
            warn(format_args!("incorrect data on {what}: {errors} transfers (time stamp {} in the data)", self.stamp));
        }
        self.result.errors += errors;
        errors != 0
    }

    fn delay(&self) {
        let seconds = self.options().inter_test_delay;
        if self.rank() == 0 && seconds > 0 {
            std::thread::sleep(Duration::from_secs(seconds.into()));
        }
    }

    /// Removes this rank's file, or on rank 0 the shared file, if it exists.
    fn remove(&mut self, name: &mut CString) -> Result<(), EngineError> {
        let options = self.options();
        let is_own = options.file_per_process && options.reorder_random == ReorderRandom::Draw;
        let offset = self.rank_offset;
        if is_own {
            // Several ranks may have read the same file. Each removes the file that it wrote.
            self.rank_offset = 0;
            *name = self.file_name()?;
        }
        if (options.file_per_process || self.rank() == 0) && self.backend.exists(name) {
            self.backend.remove(name)?;
        }
        if is_own {
            self.rank_offset = offset;
            *name = self.file_name()?;
        }
        Ok(())
    }

    fn event(&self, access: PhaseAccess, repetition: u32) -> PhaseName {
        PhaseName { phase: access.name().to_owned(), test: self.index, repetition }
    }

    /// Reports to the agent that a phase begins, and holds all ranks in the meantime.
    fn begin(&mut self, access: PhaseAccess, repetition: u32) -> Result<(), EngineError> {
        self.backend.moved = RankResults::default();
        self.timed.clear();
        if !self.is_controlled {
            return Ok(());
        }
        let phase = self.event(access, repetition);
        self.team.barrier()?;
        if let Some(control) = self.lead.as_mut().and_then(|lead| lead.control.as_deref_mut()) {
            control.announce(&PhaseEvent::Begin(phase))?;
        }
        self.team.barrier()
    }

    /// Reports to the agent that a phase has ended, and what it did. A phase whose time counts
    /// `took` this rank so long; its call times are then reported, too. Holds all ranks meanwhile.
    fn end(&mut self, access: PhaseAccess, repetition: u32, took: Option<Duration>) -> Result<(), EngineError> {
        if !self.is_controlled {
            return Ok(());
        }
        let phase = self.event(access, repetition);
        let moved = RankResults::sum(&self.team.exchange(self.backend.moved.numbers())?);
        if let Some(control) = self.lead.as_mut().and_then(|lead| lead.control.as_deref_mut()) {
            control.announce(&PhaseEvent::End {
                phase: phase.clone(),
                moved,
                events: Default::default(),
                mount: None,
            })?;
        }
        let calls = took.map(|took| self.timed.of_all(took)).transpose()?.flatten();
        if let Some(control) = self.lead.as_mut().and_then(|lead| lead.control.as_deref_mut())
            && let Some(calls) = calls
        {
            control.announce(&PhaseEvent::Calls { phase, calls })?;
        }
        self.team.barrier()
    }

    /// Combines the ranks' figures of a phase and reports them.
    fn collect(
        &mut self,
        access: PhaseAccess,
        repetition: u32,
        counts: &Counts,
        timers: &Timers,
        name: &CString,
    ) -> Result<(), EngineError> {
        let options = self.options();
        let size = self.backend.size(name)?;
        let nanos = bpfassay_protocol::nanoseconds;
        let Timers { open, transfer, close } = timers;
        let latency = (transfer.1.saturating_sub(transfer.0)).as_secs_f64() / counts.pairs as f64;
        let times = self.team.exchange([open.0, open.1, transfer.0, transfer.1, close.0, close.1].map(nanos))?;
        let numbers = self.team.exchange([size, counts.moved, latency.to_bits()])?;
        let is_write = access == PhaseAccess::Write;
        if is_write && repetition == 0 {
            self.result.first_write_pairs = counts.pairs;
        }
        let Some(lead) = &mut self.lead else { return Ok(()) };
        let least = |index: usize| times.iter().map(|times| times[index]).min().unwrap_or_default();
        let most = |index: usize| times.iter().map(|times| times[index]).max().unwrap_or_default();
        let span = |from: usize, to: usize| (most(to) as f64 - least(from) as f64) / 1e9;
        let moved: u64 = numbers.iter().map(|numbers| numbers[1]).sum();
        let sizes = numbers.iter().map(|numbers| numbers[0]);
        // The share of this node. All nodes have equal parts of a file that they share.
        let nodes = u64::from(self.team.nodes());
        let expected = self.backend.aggregate / nodes;
        let on_disk = if options.file_per_process {
            sizes.sum()
        } else {
            if sizes.clone().min() != sizes.clone().max() {
                warn(format_args!("ranks see different sizes of the test file"));
            }
            sizes.min().unwrap_or_default() / nodes
        };
        if moved != expected || on_disk != moved {
            let why = if options.deadline == 0 { "" } else { ", perhaps because of the deadline" };
            warn(format_args!("expected {expected} bytes, moved {moved}, the files hold {on_disk}{why}"));
        }
        let point = PhaseResult {
            moved,
            figures: Figures {
                total_s: span(0, 5),
                open_s: span(0, 1),
                transfer_s: span(2, 3),
                close_s: span(4, 5),
                // NaN (no transfers) is not a minimum.
                latency_s: numbers
                    .iter()
                    .map(|numbers| f64::from_bits(numbers[2]))
                    .reduce(f64::min)
                    .unwrap_or(f64::NAN),
            },
            stonewall: counts.stonewall,
        };
        lead.report.result(options, is_write, repetition, self.team.size(), &point)?;
        self.result.add(is_write, repetition, point);
        Ok(())
    }
}

/// Returns the directory of a test file, determined as in IOR.
fn report_directory(path: &CString) -> CString {
    let bytes = path.as_bytes();
    let directory = match bytes.iter().rposition(|&byte| byte == b'/') {
        Some(end) => bytes.get(..end).unwrap_or_default(),
        None => b".",
    };
    CString::new(directory).unwrap_or_default()
}
