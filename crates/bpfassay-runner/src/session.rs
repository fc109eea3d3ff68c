// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: this host, ready to measure a plan with guests. What boots them, how many side by side, and what was used.

use std::{num::NonZeroU32, path::Path};

use bpfassay_results::{Journal, Provenance, RunFailure, ToDo};
use bpfassay_study::{Block, Clock, Plan};
use bpfassay_vm::AcceleratorWish;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, HostSetup, Observer, Progress, Selection, Store, StoreOptions, Summary, Testbed, Trial, Work,
    pool::{self, RunnerConfig},
    provenance, slots,
};

/// A host that is ready to measure a plan.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    host_setup: HostSetup,
    slots: NonZeroU32,
    provenance: Provenance,
}

impl Session {
    /// Finds what boots the guests of `testbed` for `plan`, `jobs` of them side by side (`None`: as many as the host has room for).
    ///
    /// # Errors
    /// Those of [`HostSetup::find`]; [`Error::Testbed`] where QEMU or this program cannot be read.
    pub async fn set_up(
        store: &Store,
        testbed: Testbed,
        plan: Plan,
        accelerator: AcceleratorWish,
        jobs: Option<u32>,
    ) -> Result<Self, Error> {
        let host_setup = HostSetup::find(store, testbed.images, &plan, accelerator, Trial::Boot).await?;
        let host = provenance::host();
        let memory = plan.targets().into_iter().map(|target| host_setup.memory_mib(&plan.study, target));
        let memory = memory.collect::<Result<Vec<_>, _>>()?;
        let largest = memory.into_iter().max().unwrap_or(plan.study.guest.memory_mib);
        let slots = slots::slots(host.room, plan.study.guest.cpus, largest, jobs);
        let provenance = provenance::collect(&host_setup, &testbed.manifest, &plan, host.facts(slots.get()))?;
        Ok(Self { plan, host_setup, slots, provenance })
    }

    /// The same session with the clock that the host decides, where the study leaves it to the host: the wall clock where KVM works for
    /// every architecture. `selection` is what the plan was expanded from.
    ///
    /// # Errors
    /// As [`Selection::expand`], which plans for that clock.
    pub fn with_clock_of_host(self, mut selection: Selection, store: &StoreOptions) -> Result<Self, Error> {
        let has_kvm = self.host_setup.qemu.keys().all(|&arch| !self.host_setup.is_emulated(arch));
        if !self.plan.study.clock_of_host || !has_kvm {
            return Ok(self);
        }
        selection.clock = Some(Clock::Wall);
        Ok(Self { plan: selection.expand(store)?, ..self })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What is measured with: this host, its QEMU, the guests.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Begins the plan in a results directory: see [`Work::begin`].
    ///
    /// # Errors
    /// As [`Work::begin`].
    pub fn begin(&self, directory: Option<&Path>) -> Result<Work, Error> {
        Work::begin(&self.plan, directory, self.provenance.clone())
    }

    /// Executes `work`, and what sequential sampling adds to it, and records everything in its journal.
    ///
    /// When `cancel` is cancelled, all guests are stopped; blocks that are not complete then are done again when the run is continued.
    ///
    /// # Errors
    /// [`Error::Runner`], [`Error::Journal`]; guests and runs that fail are no errors, but records.
    pub async fn execute(
        &self,
        work: Work,
        observer: &dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<Summary, Error> {
        let (directory, never_ready) = (work.directory.clone(), work.never_ready.clone());
        work.until_narrow(&self.plan, async |blocks, journal| {
            self.once(blocks, never_ready.clone(), journal, &directory, observer, cancel).await
        })
        .await
    }

    /// Executes `blocks` of the plan.
    pub(crate) async fn once(
        &self,
        blocks: Vec<ToDo>,
        never_ready: Vec<(Block, RunFailure)>,
        journal: Journal,
        directory: &Path,
        observer: &dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<Summary, Error> {
        observer.progress(&Progress::Started { blocks: &blocks, slots: self.slots, directory });
        let config = RunnerConfig {
            study: &self.plan.study,
            blocks,
            never_ready,
            host_setup: &self.host_setup,
            slots: self.slots,
            directory,
        };
        Ok(pool::execute(config, journal, observer, cancel).await?)
    }
}
