// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool: blocks waiting, guests side by side.

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    path::Path,
    sync::{Mutex, PoisonError},
};

use bpfassay_results::{Journal, Outcome, RunFailure, RunRecord, ToDo};
use bpfassay_study::{Block, Study};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    HostSetup, Observer, Progress, block,
    boot::{Tally, record_run},
    context::{BlockError, Context, LOGS, unix_ms},
    repeated::RepeatedFailures,
};

/// Why a plan could not be executed to its end. What was measured before is in the journal.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// Something every block needs failed.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A directory could not be made.
    #[error("could not create {what}")]
    Directory {
        /// Which.
        what: String,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
}

/// What the execution of a plan came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs measured.
    pub measured: usize,
    /// Runs whose tracer the kernel refused.
    pub refused: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Whether it was cancelled before its end.
    pub cancelled: bool,
    /// Why no further block was begun before the end, if so: the host fails them all.
    pub paused: Option<String>,
}

impl Summary {
    /// Counts the runs of `part`, too.
    pub(crate) fn add(&mut self, part: &Self) {
        self.measured += part.measured;
        self.refused += part.refused;
        self.failed += part.failed;
    }
}

/// What is to be executed, with what, and where its logs go.
#[derive(Debug)]
pub(crate) struct RunnerConfig<'a> {
    /// The study that the blocks come from.
    pub(crate) study: &'a Study,
    /// The blocks to do, each with what is known of it.
    pub(crate) blocks: Vec<ToDo>,
    /// Blocks that were given up before, because no guest of theirs was ever ready, and how.
    pub(crate) never_ready: Vec<(Block, RunFailure)>,
    /// What boots them.
    pub(crate) host_setup: &'a HostSetup,
    /// Guests side by side.
    pub(crate) slots: NonZeroU32,
    /// The results directory; console logs go to [`LOGS`] in it.
    pub(crate) directory: &'a Path,
}

/// Makes the directory of logs in `directory`.
pub(crate) fn make_logs(directory: &Path) -> Result<(), RunnerError> {
    let logs = directory.join(LOGS);
    std::fs::create_dir_all(&logs).map_err(|source| RunnerError::Directory { what: logs.display().to_string(), source })
}

/// Executes `config` and writes all that happens to `journal`.
///
/// When `cancel` is cancelled, all guests are stopped; the blocks in flight are not complete then, and are done again on resuming.
///
/// # Errors
/// [`RunnerError`]; guests and runs that fail are no errors but records.
pub(crate) async fn execute(
    config: RunnerConfig<'_>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<Summary, RunnerError> {
    let RunnerConfig { study, blocks, never_ready, host_setup, slots, directory } = config;
    make_logs(directory)?;
    let journal = Mutex::new(journal);
    let context = Context { study, directory, journal: &journal, observer, cancel };
    let waiting = Mutex::new(VecDeque::from(blocks));
    let mut known = RepeatedFailures::default();
    for (block, failure) in &never_ready {
        known.never_ready(block, failure);
    }
    let repeated = Mutex::new(known);
    let repeated = || repeated.lock().unwrap_or_else(PoisonError::into_inner);

    let worker = async || {
        let mut summary = Summary::default();
        loop {
            if cancel.is_cancelled() || repeated().pause().is_some() {
                break;
            }
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(todo) = next else { break };
            let mut tally = Tally::default();
            let not_tried = repeated().not_tried(&todo.block);
            let done = match not_tried {
                Some(failure) => not_begun(&context, &todo, &failure, &mut tally),
                None => block::execute(&context, host_setup, &todo, &mut tally)
                    .await
                    .map(|attempt| repeated().done(&todo.block, &attempt)),
            };
            summary.add(&tally.summary());
            if let Err(error) = done {
                // The other workers stop their guests and come home.
                cancel.cancel();
                return Err(error);
            }
        }
        Ok(summary)
    };
    // Guests are processes of their own and the workers only wait for them: one task serves them all.
    let outcomes = join_all((0..slots.get()).map(|_| worker())).await;
    let mut total = Summary { cancelled: cancel.is_cancelled(), ..Summary::default() };
    for outcome in outcomes {
        total.add(&outcome?);
    }
    let left = waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
    total.paused = repeated().pause().filter(|_| left > 0).map(|why| format!("{why}; {left} blocks are left"));
    if let Some(why) = &total.paused {
        observer.progress(&Progress::Paused(why));
    }
    Ok(total)
}

/// The runs of a block that no guest is booted for fail with `failure`.
fn not_begun(context: &Context<'_>, todo: &ToDo, failure: &RunFailure, tally: &mut Tally) -> Result<(), BlockError> {
    for run in todo.open() {
        let outcome = Outcome::Failed(failure.clone());
        let record = RunRecord::new(&todo.block, run, todo.past.boots, unix_ms(), 0, outcome);
        record_run(context, tally, record)?;
    }
    Ok(())
}
