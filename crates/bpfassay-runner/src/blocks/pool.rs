// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool: a queue of blocks, and guests in parallel.

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use bpfassay_results::{Journal, JournalEntry, Outcome, RunFailure, RunRecord, ToDo};
use bpfassay_study::{Block, Study};
use futures_util::future::{join, join_all};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    blocks::{block, block_store::RunStore},
    boot::{
        host_setup::HostSetup,
        run_context::{BlockError, RunContext, RunnerError, make_logs, unix_ms},
        running_boot::record_run,
        tally::{PoolSummary, Tally},
    },
    decisions::repeated::RepeatedFailures,
    observer::{Happening, Observer},
};

/// A plan's blocks and everything for executing them.
#[derive(Debug)]
pub(crate) struct RunnerConfig<'a> {
    /// The study of the blocks.
    pub(crate) study: &'a Study,
    /// The blocks to do, each with its past.
    pub(crate) blocks: Vec<ToDo>,
    /// Blocks that were given up earlier because no guest was ever ready, with the failure.
    pub(crate) never_ready: Vec<(Block, RunFailure)>,
    /// The set-up that boots the blocks. It can get more guests until the sender is dropped.
    pub(crate) host_setup: watch::Receiver<Arc<HostSetup>>,
    /// Number of guests in parallel.
    pub(crate) slots: NonZeroU32,
    /// The store for looking up blocks before booting, and for keeping measured ones.
    pub(crate) reuse: Option<RunStore<'a>>,
}

/// Executes `config`. Events go to `journal`, and console logs to [`crate::LOGS`] in the same
/// directory. At the same time, `grow` adds guests. It returns the guests that it could not add,
/// and their blocks are not measured.
///
/// When `cancel` is cancelled, all guests are stopped, and their blocks are left incomplete.
///
/// # Errors
/// [`RunnerError`]. Failed guests and runs are not errors but records.
pub(crate) async fn execute(
    config: RunnerConfig<'_>,
    grow: impl AsyncFnOnce(&RunContext<'_>) -> Result<Vec<String>, BlockError>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<PoolSummary, RunnerError> {
    let RunnerConfig { study, blocks, never_ready, host_setup, slots, reuse } = config;
    let logs = make_logs(journal.directory())?;
    let journal = Mutex::new(journal);
    let context = RunContext { study, logs: &logs, journal: &journal, observer, cancel, recorded: None };
    let waiting = Mutex::new(VecDeque::from(blocks));
    let mut known = RepeatedFailures::default();
    for (block, failure) in &never_ready {
        known.never_ready(block, failure);
    }
    let repeated = Mutex::new(known);
    let repeated = || repeated.lock().unwrap_or_else(PoisonError::into_inner);

    let worker = async || {
        let mut summary = PoolSummary::default();
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
                    let context = RunContext { recorded: reuse.as_ref().map(|_| &recorded), ..context };
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
                // The other workers stop their guests and return.
                cancel.cancel();
                return Err(error);
            }
        }
        Ok(summary)
    };
    // Guests are separate processes and the workers only wait for them, so one task is enough.
    let growing = async { grow(&context).await.inspect_err(|_| cancel.cancel()) };
    let (missing, outcomes) = join(growing, join_all((0..slots.get()).map(|_| worker()))).await;
    let missing = missing?;
    let mut total = PoolSummary { cancelled: cancel.is_cancelled(), ..PoolSummary::default() };
    for outcome in outcomes {
        total.add(&outcome?);
    }
    let left = waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
    let why = repeated().pause().or_else(|| (!missing.is_empty()).then(|| missing.join("; ")));
    total.paused = why.filter(|_| left > 0).map(|why| format!("{why}; {left} blocks are left"));
    if let Some(why) = &total.paused {
        observer.progress(&Happening::Paused(why));
    }
    Ok(total)
}

/// Waits for the first block of `waiting` whose guest is ready, and returns it with the set-up.
/// `None` if no block is left or no more guests come.
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

/// Completes a block with `entries`, which were measured before.
fn taken(context: &RunContext<'_>, todo: &ToDo, entries: &[JournalEntry], tally: &mut Tally) -> Result<(), BlockError> {
    context.append_all(entries)?;
    for entry in entries {
        match entry {
            JournalEntry::BlockStarted(started) => context.report(&Happening::Reused(&todo.block, started)),
            JournalEntry::Run(record) => {
                tally.take(record);
                context.report(&Happening::RunEnded(record));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Fails the runs of a block with `failure`, without booting a guest.
fn not_begun(context: &RunContext<'_>, todo: &ToDo, failure: &RunFailure, tally: &mut Tally) -> Result<(), BlockError> {
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

    /// A set-up for guests of `archs` with the fields that the pool reads.
    fn with(archs: &[Arch], targets: &[Target]) -> Arc<HostSetup> {
        let file = || File { path: "x".into(), size: 1, sha256: bpfassay_packages::digest::Digest::of(b"") };
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
        // No other guest is ready yet.
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
