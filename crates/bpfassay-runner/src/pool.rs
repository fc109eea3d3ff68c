//! The pool: blocks waiting, guests side by side.

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    path::Path,
    sync::{Mutex, PoisonError},
};

use bpfassay_report::Journal;
use bpfassay_study::{Block, Study};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    Observer, Rig,
    block::{self, BlockError, Context, LOGS},
};

/// Why a plan could not be carried out to its end. What was measured before is in the journal.
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

/// What carrying out a plan came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs measured.
    pub measured: usize,
    /// Runs whose tracer the kernel refused.
    pub refused: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Whether it was cancelled before its end.
    pub cancelled: bool,
}

impl Summary {
    /// Counts the runs of `part`, too.
    pub(crate) fn add(&mut self, part: &Self) {
        self.measured += part.measured;
        self.refused += part.refused;
        self.failed += part.failed;
    }
}

/// What is to be carried out, with what, and where its logs go.
#[derive(Debug)]
pub struct Order<'a> {
    /// The study that the blocks come from.
    pub study: &'a Study,
    /// The blocks to do, each with the number of boots that it had before.
    pub blocks: Vec<(Block, u32)>,
    /// What boots them.
    pub rig: &'a Rig,
    /// Guests side by side.
    pub slots: NonZeroU32,
    /// The results directory; console logs go to [`LOGS`] in it.
    pub directory: &'a Path,
}

/// Makes the directory of logs in `directory`.
fn make_logs(directory: &Path) -> Result<(), RunnerError> {
    let logs = directory.join(LOGS);
    std::fs::create_dir_all(&logs).map_err(|source| RunnerError::Directory { what: logs.display().to_string(), source })
}

/// Makes the directory of logs in `directory`, and a temporary one.
pub(crate) fn directories(directory: &Path) -> Result<tempfile::TempDir, RunnerError> {
    make_logs(directory)?;
    tempfile::Builder::new()
        .prefix("bpfassay-")
        .tempdir()
        .map_err(|source| RunnerError::Directory { what: "a temporary directory".to_owned(), source })
}

/// Carries out `order` and writes everything that comes of it to `journal`.
///
/// When `cancel` is cancelled, all guests are stopped; the runs in flight stay unrecorded, so that they are done again
/// on resuming.
///
/// # Errors
/// [`RunnerError`]; guests and runs that fail are no errors but records.
pub async fn carry_out(
    order: Order<'_>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<Summary, RunnerError> {
    let Order { study, blocks, rig, slots, directory } = order;
    make_logs(directory)?;
    let journal = Mutex::new(journal);
    let context = Context { study, directory, journal: &journal, observer, cancel };
    let waiting = Mutex::new(VecDeque::from(blocks));

    let worker = async || {
        let mut summary = Summary::default();
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((block, boots)) = next else { break };
            if cancel.is_cancelled() {
                break;
            }
            match block::carry_out(&context, rig, &block, boots).await {
                Ok(tally) => summary.add(&tally),
                Err(error) => {
                    // The other workers stop their guests and come home.
                    cancel.cancel();
                    return Err(error);
                }
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
    Ok(total)
}
