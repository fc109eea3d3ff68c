// SPDX-License-Identifier: MIT OR Apache-2.0
//! The embedded engine: IOR's work without IOR and MPI, for the POSIX and MMAP interfaces.
//!
//! The engine makes the same system calls on the test files as the real IOR with the same options,
//! rank by rank and in the same order. It writes the same JSON summary. Ranks are processes that
//! are forked before any work. Barriers and reductions use shared memory and futexes, so that only
//! the test itself does file I/O.
//!
//! The engine stops with a message in cases in which IOR would crash, wait forever, or continue
//! after a failure.

mod backend;
pub(crate) mod control_channel;
mod data_pattern;
mod error;
mod file_names;
mod host_facts;
mod io;
mod ior_random;
mod json_writer;
mod phase;
pub(crate) mod ranks;
mod report_writer;
mod result;
mod results_table;
mod rows;
mod test_run;
mod timed;
mod write_record;

use std::{fmt::Arguments, io::Write as _, path::PathBuf};

pub use error::EngineError;
pub use ranks::{MAX_RANKS, NodeOf};

use backend::Backend;
use bpfassay_ior::{Api, IorPlan, Options, OptionsError};
use control_channel::{Control, RankResults};
use io::{Io, KernelCalls};
use ranks::Team;
use report_writer::ReportWriter;
use result::TestResult;
use test_run::{Lead, TestRun};
use write_record::Recorder;

/// Exit status of a run that found wrong data (`-W`, `-R`).
pub const DATA_ERRORS: u8 = 1;

/// Exit status of a rank that stopped because another rank failed. The run has the status of that
/// other rank.
const ABORTED: u8 = 6;

/// One run of the engine.
#[derive(Debug)]
pub struct EngineRun {
    /// The tests.
    pub plan: IorPlan,
    /// Number of ranks on this node, at most [`MAX_RANKS`].
    pub ranks: u32,
    /// Which of several nodes this is. Each node has the same number of ranks.
    pub node: NodeOf,
    /// The command line of the run, for the report.
    pub args: Vec<String>,
    /// Directory into which each rank writes a record of its calls on test files, as `rank.N`.
    pub record: Option<PathBuf>,
}

impl EngineRun {
    /// Runs all tests. Returns the exit status: 0, [`DATA_ERRORS`], or the status of a rank's error
    /// ([`EngineError::exit_status`]). The rank has written the error to standard error.
    ///
    /// The environment names the control channel (`bpfassay_protocol::control`). Several ranks are
    /// made by forking, so the program must be single-threaded.
    ///
    /// # Errors
    /// [`EngineError`] for problems before any rank begins, and for ranks that die.
    pub fn start(self) -> Result<u8, EngineError> {
        if let Some(test) = self.plan.tests.iter().find(|test| test.api == Api::MpiIo) {
            return Err(EngineError::Api { api: test.api.name() });
        }
        for test in &self.plan.tests {
            self.check_tasks(test)?;
        }
        let descriptor = control_channel::descriptor()?;
        if descriptor.is_none() && self.node != NodeOf::ALONE {
            let rule = "ranks of several nodes meet through the agent of a guest, and none started this program";
            return Err(OptionsError::Rule { rule }.into());
        }
        ranks::launch(self.ranks, timed::room(&self.plan.tests, self.ranks), |team| {
            let team = team.on(self.node);
            let rank = team.rank();
            let result = match &self.record {
                None => self.rank(&team, descriptor, KernelCalls).map(|(_, status)| status),
                Some(directory) => {
                    self.rank(&team, descriptor, Recorder::new(KernelCalls)).and_then(|(recorder, status)| {
                        let failed = |source| EngineError::File {
                            action: "write records to",
                            path: directory.display().to_string(),
                            source,
                        };
                        recorder.save(directory, rank).map(|()| status).map_err(failed)
                    })
                }
            };
            result.unwrap_or_else(|error| {
                if !matches!(error, EngineError::Aborted) {
                    print(format_args!("error: {}", bpfassay_protocol::with_causes(&error)));
                }
                error.exit_status()
            })
        })
    }

    /// Returns how many tasks on this node take part in `test`.
    fn tasks(&self, test: &Options) -> u32 {
        if self.node.count > 1 { self.ranks } else { test.tasks.unwrap_or(self.ranks).min(self.ranks) }
    }

    /// Checks the rules that depend on the number of tasks.
    fn check_tasks(&self, test: &Options) -> Result<(), EngineError> {
        let tasks =
            self.tasks(test).checked_mul(self.node.count).ok_or(OptionsError::Rule { rule: "too many tasks" })?;
        if self.node.count > 1 {
            test.fits_nodes(tasks)?;
        }
        let with_tasks = Options { tasks: Some(tasks), ..test.clone() };
        with_tasks.validate()?;
        let page = rustix::param::page_size() as u64;
        if test.api == Api::Mmap && test.fsync_per_write && !test.transfer_size.is_multiple_of(page) {
            let rule = "with MMAP, -Y needs a transfer size (-t) that is a multiple of the page size";
            return Err(OptionsError::Rule { rule }.into());
        }
        Ok(())
    }

    /// Does the work of one rank.
    fn rank<I: Io>(&self, world: &Team, descriptor: Option<i32>, mut calls: I) -> Result<(I, u8), EngineError> {
        let is_first = world.rank() == 0;
        let mut control = descriptor.filter(|_| is_first).map(Control::take);
        let mut report = None;
        if is_first {
            let mut new = ReportWriter::open(&self.plan.output, world.size())?;
            new.begin(&self.args, self.plan.tests.first().map_or(0, |test| test.verbose))?;
            report = Some(new);
        }
        let mut results = Vec::new();
        for (index, options) in self.plan.tests.iter().enumerate() {
            let tasks = self.tasks(options);
            if is_first && options.tasks.is_some_and(|asked| asked > tasks) {
                warn(format_args!("test {index} asks for more tasks than there are ranks: it runs with {tasks}"));
            }
            if world.rank() < tasks {
                let team = world.first(tasks);
                let backend = Backend {
                    io: calls,
                    options,
                    rank: team.task(),
                    aggregate: options.aggregate_size(team.tasks()).unwrap_or_default(),
                    moved: RankResults::default(),
                };
                let lead = report.as_mut().map(|report| Lead { report, control: control.as_mut() });
                let test = TestRun::new(backend, &team, index as u32, descriptor.is_some(), lead)?;
                let (io, result) = test.run()?;
                calls = io;
                results.push((options, tasks, result));
            }
            world.barrier()?;
        }
        let errors = results.iter().map(|(_, _, TestResult { errors, .. })| errors).sum::<u64>();
        if let Some(report) = report {
            report.finish(&results)?;
        }
        Ok((calls, if errors == 0 { 0 } else { DATA_ERRORS }))
    }
}

/// Prints a line on standard error. A failure of that cannot be reported.
fn print(message: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "bpfassay-ior: {message}");
}

fn warn(message: Arguments<'_>) {
    print(format_args!("warning: {message}"));
}
