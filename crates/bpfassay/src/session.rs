//! Carrying a plan out on this host, whatever is made of the figures: what boots the guests, how many side by side, what
//! was used, and the stop on a signal.

use std::{num::NonZeroU32, path::Path};

use bpfassay_results::{Journal, Provenance, RunFailure, ToDo, plain};
use bpfassay_runner::{HostSetup, RunnerConfig, Summary, slots};
use bpfassay_study::{Block, Plan};
use tokio_util::sync::CancellationToken;

use crate::{
    exit::{Failure, INTERNAL, INTERRUPTED, USAGE},
    progress::{Reporting, Watcher},
    provenance,
    setup::{self, Store, Testbed, Trial},
};

/// A host that is ready to measure.
pub(crate) struct Session {
    host_setup: HostSetup,
    slots: NonZeroU32,
    cancel: CancellationToken,
    /// What it measures with.
    pub(crate) provenance: Provenance,
}

impl Session {
    /// For the guests of `plan`, `jobs` of them side by side (`None`: as many as the host has room for).
    pub(crate) async fn set_up(
        store: &Store,
        testbed: Testbed,
        plan: &Plan,
        accelerator: bpfassay_vm::AcceleratorWish,
        jobs: Option<u32>,
    ) -> Result<Self, Failure> {
        let host_setup = setup::rig(store, testbed.images, plan, accelerator, Trial::Boot).await?;
        let host = provenance::host();
        let memory = plan.targets().into_iter().map(|target| host_setup.memory_mib(&plan.study, target));
        let memory = memory.collect::<Result<Vec<_>, _>>().map_err(|error| Failure::new(INTERNAL, error))?;
        let largest = memory.into_iter().max().unwrap_or(plan.study.guest.memory_mib);
        let slots = slots::slots(host.room, plan.study.guest.cpus, largest, jobs);
        let provenance = provenance::collect(&host_setup, &testbed.manifest, plan, host.facts(slots.get()))?;
        let cancel = CancellationToken::new();
        stop_on_signals(&cancel);
        Ok(Self { host_setup, slots, cancel, provenance })
    }

    /// Whether KVM works for every architecture.
    pub(crate) fn has_kvm(&self) -> bool {
        self.host_setup.qemu.keys().all(|&arch| !self.host_setup.is_emulated(arch))
    }

    /// Executes `blocks` of `plan` and reports progress. `never_ready`: blocks that were given up before because no guest of
    /// theirs was ever ready. Logs go to `directory`, the journal's.
    pub(crate) async fn execute(
        &self,
        plan: &Plan,
        blocks: Vec<ToDo>,
        never_ready: Vec<(Block, RunFailure)>,
        journal: Journal,
        directory: &Path,
        reporting: Reporting<'_>,
    ) -> Result<Summary, Failure> {
        let watcher = Watcher::new(plan, &blocks, self.slots, directory, reporting);
        let config = RunnerConfig {
            study: &plan.study,
            blocks,
            never_ready,
            host_setup: &self.host_setup,
            slots: self.slots,
            directory,
        };
        let outcome = bpfassay_runner::execute(config, journal, &watcher, &self.cancel).await;
        watcher.finish();
        outcome.map_err(Failure::infrastructure)
    }
}

/// Longest id of a block, in bytes: names of files with more than that around it are refused by file systems.
const LONGEST_ID: usize = 200;

/// Checks that the ids of the blocks of `plan` name files in the directory where they are put, and nowhere else: a journal is
/// what somebody else may have written.
///
/// # Errors
/// A usage failure that names the first which does not.
pub(crate) fn check_ids(plan: &Plan) -> Result<(), Failure> {
    let is_name = |id: &str| {
        let is_part = |c: char| c != '/' && !plain::is_hazard(c);
        (1..=LONGEST_ID).contains(&id.len()) && !id.starts_with('.') && id.chars().all(is_part)
    };
    match plan.blocks.iter().find(|block| !is_name(&block.id)) {
        None => Ok(()),
        Some(block) => {
            let help = "take the results directory that bpfassay wrote, as it wrote it";
            let id = plain::excerpt(&block.id, LONGEST_ID);
            let report = miette::miette!(help = help, "the plan has a block `{id}`, which cannot name a log");
            Err(Failure { code: USAGE, report })
        }
    }
}

/// The first Ctrl-C (or SIGTERM, or the end of the terminal) stops all guests and keeps what was measured; the second ends
/// the program at once, which kills its guests. The journal is whole either way.
pub(crate) fn stop_on_signals(cancel: &CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let cancel = cancel.clone();
        match signal(kind) {
            Ok(mut signal) => {
                tokio::spawn(async move {
                    signal.recv().await;
                    cancel.cancel();
                    tracing::warn!("stopping all guests; what was measured is kept (once more: end at once)");
                    signal.recv().await;
                    std::process::exit(INTERRUPTED.into());
                });
            }
            Err(error) => tracing::warn!("cannot listen for signals ({error}): Ctrl-C will end bpfassay at once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_study::{Available, Narrowing};

    use super::*;

    #[test]
    fn ids_of_blocks_name_files_where_they_are_put() {
        let study = bpfassay_study::load("ceems-ior").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        assert!(check_ids(&plan).is_ok());
        let long = "x".repeat(LONGEST_ID + 1);
        for id in ["../../evil", "/etc/cron.d/evil", "a/b", "..", ".hidden", "", "a\nb", "a\u{1b}[2J", "a\0b", &long] {
            let mut plan = plan.clone();
            plan.blocks[1].id = id.to_owned();
            let failure = check_ids(&plan).unwrap_err();
            assert_eq!(failure.code, USAGE, "{id:?}");
        }
    }
}
