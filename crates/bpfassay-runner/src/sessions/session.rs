// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: this host, ready to measure a plan with guests. It has the host set-up, the number of
//! guests in parallel, and the provenance.

use std::{
    num::NonZeroU32,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bpfassay_protocol::{Arch, with_causes};
use bpfassay_results::{Journal, JournalEntry, Provenance, RunFailure, ToDo};
use bpfassay_study::{Block, Clock, Plan};
use bpfassay_testbed::{manifest::Manifest, provider::joined};
use bpfassay_vm::AcceleratorWish;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    blocks::{
        block::command,
        block_store::{self, BlockReuse, RunStore, StoreKey},
        pool::{self, RunnerConfig},
    },
    boot::{
        host_setup::HostSetup,
        run_context::{BlockError, RunContext, unix_ms},
        tally::PoolSummary,
    },
    error::Error,
    observer::{Happening, Observer},
    planned_targets::targets_of,
    sessions::{
        plan_testbed::{Parts, Testbed, TestbedPart},
        study_selection::StudySelection,
        work::PlannedWork,
    },
    this_host::{
        accelerator::AcceleratorTrial,
        run_provenance,
        runner_store::{Store, StoreOptions},
        slots,
    },
};

/// A host that is ready to measure a plan.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    slots: NonZeroU32,
    /// The provenance when the session was set up.
    provenance: Provenance,
    accelerator: AcceleratorWish,
    state: Mutex<SessionState>,
    /// The store of blocks, if one is used.
    reuse: Option<BlockReuse>,
}

/// The part of a session that grows while it executes.
#[derive(Debug)]
struct SessionState {
    host_setup: Arc<HostSetup>,
    manifest: Manifest,
    /// The current provenance.
    provenance: Arc<Provenance>,
    /// The guests that are still being built.
    parts: Option<Parts>,
}

impl Session {
    /// Sets up QEMU for the guests of `testbed` and for `plan`, with `jobs` guests in parallel, or
    /// as many as the host has room for.
    ///
    /// # Errors
    /// The errors of [`HostSetup::find`], and [`Error::Testbed`] if QEMU or this program cannot be
    /// read.
    pub async fn set_up(
        store: &Store,
        testbed: Testbed,
        plan: Plan,
        accelerator: AcceleratorWish,
        jobs: Option<u32>,
    ) -> Result<Self, Error> {
        let Testbed { images, manifest } = testbed;
        let host_setup = HostSetup::find(store, images, &plan, accelerator, AcceleratorTrial::Boot).await?;
        Self::with(store, plan, accelerator, jobs, (Arc::new(host_setup), manifest, None))
    }

    /// Like [`Session::set_up`], but returns as soon as the first guests are ready. The others are
    /// built while the first are measured. This requires the instruction clock, whose figures do
    /// not depend on the host's load.
    ///
    /// # Errors
    /// The errors of [`Session::set_up`], and errors of building the first guests.
    pub async fn set_up_early(
        mut parts: Parts,
        plan: Plan,
        accelerator: AcceleratorWish,
        jobs: Option<u32>,
    ) -> Result<Self, Error> {
        let Some(TestbedPart { targets, made }) = parts.next().await else { return Err(Error::NoParts) };
        let Testbed { images, manifest } = Testbed::of_part(made?, &plan, &targets)?;
        let store = Arc::clone(&parts.store);
        let host_setup = HostSetup::find(&store, images, &plan, accelerator, AcceleratorTrial::Boot).await?;
        Self::with(&store, plan, accelerator, jobs, (Arc::new(host_setup), manifest, Some(parts)))
    }

    fn with(
        store: &Store,
        plan: Plan,
        accelerator: AcceleratorWish,
        jobs: Option<u32>,
        (host_setup, manifest, parts): (Arc<HostSetup>, Manifest, Option<Parts>),
    ) -> Result<Self, Error> {
        let host = run_provenance::host();
        let memory = host_setup.images.keys().map(|target| host_setup.memory_mib(&plan.study, target));
        let memory = memory.collect::<Result<Vec<_>, _>>()?;
        let largest = memory.into_iter().max().unwrap_or(plan.study.guest.memory_mib);
        let slots = {
            let guest = &plan.study.guest;
            slots::slots(host.room, guest.guests(), (guest.cpus, largest), jobs)
        };
        let facts = host.facts(slots.get());
        let provenance = run_provenance::collect(&store.cache, &host_setup, &manifest, &plan, facts)?;
        let state = SessionState { host_setup, manifest, provenance: Arc::new(provenance.clone()), parts };
        Ok(Self { plan, slots, provenance, accelerator, state: Mutex::new(state), reuse: None })
    }

    /// Switches to the wall clock if the study leaves the clock to the host and KVM works for every
    /// architecture. The plan was expanded from `selection`.
    ///
    /// # Errors
    /// The errors of [`StudySelection::expand`], which plans for the wall clock.
    pub fn with_clock_of_host(self, selection: &StudySelection, store: &StoreOptions) -> Result<Self, Error> {
        let host_setup = self.host_setup();
        let has_kvm = host_setup.qemu.keys().all(|&arch| !host_setup.is_emulated(arch));
        if !self.plan.study.clock_of_host || !has_kvm {
            return Ok(self);
        }
        Ok(Self { plan: selection.expand_for(Some(Clock::Wall), store)?, ..self })
    }

    /// Uses a store of blocks, from which [`Session::execute`] reuses and in which it keeps blocks.
    #[must_use]
    pub fn reusing(self, reuse: BlockReuse) -> Self {
        let reuse = Some(reuse);
        Self { reuse, ..self }
    }

    /// Returns why the store of this session is not used, if so.
    #[must_use]
    pub fn unused_store(&self) -> Option<&'static str> {
        let is_unused = self.reuse.as_ref().is_some_and(|reuse| !reuse.is_for(&self.plan));
        is_unused.then_some("figures of the wall clock are different each time")
    }

    /// Returns the key of `block`, a block of the plan, with this session's provenance.
    ///
    /// # Errors
    /// A text that says what is unknown although it determines the figures.
    pub fn key_of(&self, block: &Block) -> Result<StoreKey, String> {
        let command = command(&self.host_setup(), &self.plan.study, block).map_err(|error| with_causes(&error))?;
        let provenance = Arc::clone(&self.state().provenance);
        block_store::key(&self.plan.study, block, &provenance, &command).map_err(|error| error.to_string())
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The provenance: this host, its QEMU, the guests.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Begins the plan in a results directory ([`PlannedWork::begin`]).
    ///
    /// # Errors
    /// The errors of [`PlannedWork::begin`].
    pub fn begin(&self, directory: Option<&Path>) -> Result<PlannedWork, Error> {
        PlannedWork::begin(&self.plan, directory, self.provenance.clone())
    }

    /// Executes `work`, with what sequential sampling adds, and records everything.
    ///
    /// When `cancel` is cancelled, all guests are stopped, and their blocks are left incomplete.
    ///
    /// # Errors
    /// [`Error::Runner`], [`Error::Journal`]. Failed guests and runs are not errors but records.
    pub async fn execute(
        &self,
        work: PlannedWork,
        observer: &dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<PoolSummary, Error> {
        let (directory, never_ready) = (work.directory.clone(), work.never_ready.clone());
        work.until_narrow(&self.plan, async |blocks, journal| {
            self.once(blocks, never_ready.clone(), journal, &directory, observer, cancel).await
        })
        .await
    }

    /// Returns the store in the form that the pool uses.
    fn reuse<'a>(&'a self, provenance: &'a (dyn Fn() -> Arc<Provenance> + Sync)) -> Option<RunStore<'a>> {
        let with = self.reuse.as_ref().filter(|reuse| reuse.is_for(&self.plan))?;
        Some(RunStore { with, plan: &self.plan, provenance })
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host_setup(&self) -> Arc<HostSetup> {
        Arc::clone(&self.state().host_setup)
    }

    /// Adds guests part by part as they are built. The journal records each part before `ready` has
    /// it. Returns the guests that could not be built.
    async fn grow(
        &self,
        mut parts: Parts,
        ready: &watch::Sender<Arc<HostSetup>>,
        context: &RunContext<'_>,
    ) -> Result<Vec<String>, BlockError> {
        let mut failed = Vec::new();
        let mut provenance = self.provenance.clone();
        loop {
            let part = tokio::select! {
                biased;
                () = context.cancel.cancelled() => None,
                part = parts.next() => part,
            };
            let Some(TestbedPart { targets, made }) = part else {
                context.report(&Happening::MakingGuests(false));
                return Ok(failed);
            };
            let added = match made {
                Ok(manifest) => self.add(&parts.store, &targets, manifest, &mut provenance).await,
                Err(error) => Err(error),
            };
            match added {
                Ok(host_setup) => {
                    let provenance = Box::new(provenance.clone());
                    context.append(&JournalEntry::Provisioned { at_unix_ms: unix_ms(), provenance })?;
                    ready.send_replace(host_setup);
                }
                Err(error) => {
                    let names: Vec<_> = targets.iter().map(|(arch, kernel)| format!("{arch} {kernel}")).collect();
                    let why = format!("the guests for {} could not be made: {}", names.join(", "), with_causes(&error));
                    tracing::error!("{why}");
                    failed.push(why);
                }
            }
        }
    }

    /// Adds the guests of `made` for `targets`, and their artefacts to `provenance`.
    async fn add(
        &self,
        store: &Store,
        targets: &[(Arch, String)],
        made: Manifest,
        provenance: &mut Provenance,
    ) -> Result<Arc<HostSetup>, Error> {
        let Testbed { images, manifest } = Testbed::of_part(made, &self.plan, targets)?;
        let (before, before_manifest) = {
            let state = self.state();
            (Arc::clone(&state.host_setup), state.manifest.clone())
        };
        let added = before.with(store, images, &self.plan, self.accelerator, AcceleratorTrial::Boot).await?;
        let manifest = joined(vec![before_manifest, manifest], &targets_of(&self.plan));
        *provenance = run_provenance::collect(&store.cache, &added, &manifest, &self.plan, provenance.host.clone())?;
        let host_setup = Arc::new(added);
        let mut state = self.state();
        (state.host_setup, state.manifest) = (Arc::clone(&host_setup), manifest);
        state.provenance = Arc::new(provenance.clone());
        Ok(host_setup)
    }

    /// Executes `blocks` of the plan.
    ///
    /// # Errors
    /// [`Error::Runner`] if the execution ended early. Failed guests and runs are not errors.
    pub(crate) async fn once(
        &self,
        blocks: Vec<ToDo>,
        never_ready: Vec<(Block, RunFailure)>,
        journal: Journal,
        directory: &Path,
        observer: &dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<PoolSummary, Error> {
        observer.progress(&Happening::Started { blocks: &blocks, slots: self.slots, directory });
        let parts = self.state().parts.take();
        observer.progress(&Happening::MakingGuests(parts.is_some()));
        let (sender, host_setup) = watch::channel(self.host_setup());
        let provenance = || Arc::clone(&self.state().provenance);
        let config = RunnerConfig {
            study: &self.plan.study,
            blocks,
            never_ready,
            host_setup,
            slots: self.slots,
            reuse: self.reuse(&provenance),
        };
        let grow = async move |context: &RunContext<'_>| match parts {
            // Dropping the sender tells the pool that no more guests come.
            Some(parts) => self.grow(parts, &sender, context).await,
            None => Ok(Vec::new()),
        };
        Ok(pool::execute(config, grow, journal, observer, cancel).await?)
    }
}
