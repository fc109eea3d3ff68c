// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool: blocks waiting, guests side by side.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use bpfassay_results::{Entry, Journal, OpenDirectory, Outcome, RunFailure, RunRecord, ToDo};
use bpfassay_study::{Block, Study};
use futures_util::future::{join, join_all};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    HostSetup, Observer, Progress, block,
    block_store::Reuse,
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

/// How the execution of a plan ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs measured.
    pub measured: usize,
    /// Runs whose tracer the kernel refused.
    pub refused: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Blocks whose records were taken from a store; their runs are among those above.
    pub reused: usize,
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
        self.reused += part.reused;
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
    /// What boots them; more guests may come, until the sender is dropped.
    pub(crate) host_setup: watch::Receiver<Arc<HostSetup>>,
    /// Guests side by side.
    pub(crate) slots: NonZeroU32,
    /// The store in which blocks are looked up before a guest is booted, and which keeps what is
    /// measured.
    pub(crate) reuse: Option<Reuse<'a>>,
}

/// Makes the directory of logs in the results directory `directory`, and opens it.
///
/// # Errors
/// [`RunnerError::Directory`] where the directory cannot be made, or a symbolic link is in its
/// place.
pub(crate) fn make_logs(directory: &OpenDirectory) -> Result<OpenDirectory, RunnerError> {
    let what = directory.path().join(LOGS).display().to_string();
    directory.make_directory(LOGS).map_err(|source| RunnerError::Directory { what, source })
}

/// Executes `config` and writes all that happens to `journal`, and console logs to [`LOGS`] beside
/// it. Meanwhile `grow` adds guests, and returns what it could not add: the blocks
/// of that are left.
///
/// When `cancel` is cancelled, all guests are stopped; the blocks in flight are not complete then,
/// and are done again on resuming.
///
/// # Errors
/// [`RunnerError`]; guests and runs that fail are no errors but records.
pub(crate) async fn execute(
    config: RunnerConfig<'_>,
    grow: impl AsyncFnOnce(&Context<'_>) -> Result<Vec<String>, BlockError>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<Summary, RunnerError> {
    let RunnerConfig { study, blocks, never_ready, host_setup, slots, reuse } = config;
    let logs = make_logs(journal.directory())?;
    let journal = Mutex::new(journal);
    let context = Context { study, logs: &logs, journal: &journal, observer, cancel, recorded: None };
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
            let Some((todo, host_setup)) = next(&waiting, host_setup.clone(), cancel).await else { break };
            let mut tally = Tally::default();
            let kept = match &reuse {
                Some(reuse) => reuse.look_up(&host_setup, &todo).await,
                None => None,
            };
            let not_tried = repeated().not_tried(&todo.block);
            let done = match (kept, not_tried) {
                (Some(kept), _) => {
                    summary.reused += 1;
                    taken(&context, &todo, &kept, &mut tally)
                }
                (None, Some(failure)) => not_begun(&context, &todo, &failure, &mut tally),
                (None, None) => {
                    let recorded = Mutex::default();
                    let context = Context { recorded: reuse.as_ref().map(|_| &recorded), ..context };
                    let attempt = block::execute(&context, &host_setup, &todo, &mut tally).await;
                    if let (Some(reuse), Ok(_)) = (&reuse, &attempt) {
                        let recorded = recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
                        reuse.keep(&todo.block, recorded).await;
                    }
                    attempt.map(|attempt| repeated().done(&todo.block, &attempt))
                }
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
    // Guests are processes of their own and the workers only wait for them: one task serves them
    // all.
    let growing = async { grow(&context).await.inspect_err(|_| cancel.cancel()) };
    let (missing, outcomes) = join(growing, join_all((0..slots.get()).map(|_| worker()))).await;
    let missing = missing?;
    let mut total = Summary { cancelled: cancel.is_cancelled(), ..Summary::default() };
    for outcome in outcomes {
        total.add(&outcome?);
    }
    let left = waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
    let why = repeated().pause().or_else(|| (!missing.is_empty()).then(|| missing.join("; ")));
    total.paused = why.filter(|_| left > 0).map(|why| format!("{why}; {left} blocks are left"));
    if let Some(why) = &total.paused {
        observer.progress(&Progress::Paused(why));
    }
    Ok(total)
}

/// The first block of `waiting` whose guest is there, with what boots it; waits for guests where
/// none is. `None`: nothing is left, or nothing more comes.
async fn next(
    waiting: &Mutex<VecDeque<ToDo>>,
    mut host_setup: watch::Receiver<Arc<HostSetup>>,
    cancel: &CancellationToken,
) -> Option<(ToDo, Arc<HostSetup>)> {
    loop {
        let there = Arc::clone(&host_setup.borrow_and_update());
        {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.is_empty() {
                return None;
            }
            let is_there = |todo: &ToDo| there.images.contains_key(&todo.block.target);
            if let Some(todo) = waiting.iter().position(is_there).and_then(|at| waiting.remove(at)) {
                return Some((todo, there));
            }
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            changed = host_setup.changed() => changed.ok()?,
        }
    }
}

/// The block is done by `entries`, which were measured before.
fn taken(context: &Context<'_>, todo: &ToDo, entries: &[Entry], tally: &mut Tally) -> Result<(), BlockError> {
    context.append_all(entries)?;
    for entry in entries {
        match entry {
            Entry::BlockStarted(started) => context.report(&Progress::Reused(&todo.block, started)),
            Entry::Run(record) => {
                tally.take(record);
                context.report(&Progress::RunEnded(record));
            }
            _ => {}
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use bpfassay_protocol::Arch;
    use bpfassay_study::{Available, Narrowing, Target};
    use bpfassay_testbed::{
        image::GuestImage,
        manifest::{File, Kernel, Segment, Target as Guest},
    };

    use super::*;

    /// What boots guests of `archs`, as far as the pool looks at it.
    fn with(archs: &[Arch], targets: &[Target]) -> Arc<HostSetup> {
        let file = || File { path: "x".into(), size: 1, sha256: bpfassay_testbed::cache::Digest::of(b"") };
        let image = |target: &Target| {
            let kernel = Kernel {
                release: "x".parse().unwrap(),
                version: None,
                image: file(),
                config: None,
                modules: None,
                packages: Vec::new(),
            };
            let initramfs = vec![Segment { role: "base".to_owned(), archive: file(), contents: Vec::new() }];
            let guest = Guest { arch: target.arch, name: target.kernel.clone(), kernel, initramfs };
            (target.clone(), GuestImage::from_manifest(&guest).unwrap())
        };
        let images = targets.iter().filter(|target| archs.contains(&target.arch)).map(image).collect();
        Arc::new(HostSetup { qemu: BTreeMap::new(), qemu_packages: BTreeMap::new(), plugins: BTreeMap::new(), images })
    }

    #[tokio::test]
    async fn blocks_whose_guests_are_there_come_first_and_the_others_when_they_are() {
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let targets: Vec<Target> = plan.targets().into_iter().cloned().collect();
        let waiting = Mutex::new(plan.blocks.iter().cloned().map(ToDo::fresh).collect::<VecDeque<_>>());
        let of = |arch| targets.iter().filter(|target| target.arch == arch).count();
        let (sender, host_setup) = watch::channel(with(&[Arch::Riscv64], &targets));
        let cancel = CancellationToken::new();
        let take = async || next(&waiting, host_setup.clone(), &cancel).await.map(|(todo, _)| todo.block.target.arch);
        for _ in 0..of(Arch::Riscv64) {
            assert_eq!(take().await, Some(Arch::Riscv64));
        }
        // Nothing else is there yet.
        assert!(tokio::time::timeout(Duration::from_millis(50), take()).await.is_err());
        let (taken, ()) = join(take(), async {
            sender.send_replace(with(&[Arch::Riscv64, Arch::X86_64], &targets));
        })
        .await;
        assert_eq!(taken, Some(Arch::X86_64));
        for _ in 1..of(Arch::X86_64) {
            assert_eq!(take().await, Some(Arch::X86_64));
        }
        drop(sender);
        assert_eq!(take().await, None, "nothing more comes");
        assert_eq!(waiting.lock().unwrap().len(), of(Arch::Aarch64));
    }
}
