// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a run uses a store: it looks blocks up before booting, and keeps measured ones.

use std::{fmt, sync::Arc};

use bpfassay_protocol::with_causes;
use bpfassay_results::{JournalEntry, Provenance, ToDo, provenance::HostFacts};
use bpfassay_study::{Block, Clock, Plan};

use super::{
    block_records::BlockRecords,
    key::{StoreKey, key},
    store_error::BlockStoreError,
    store_records::{BlockStore, LookedUp},
};
use crate::{blocks::block::command, boot::host_setup::HostSetup};

/// A store of blocks, and how a run uses it.
#[derive(Debug)]
pub struct BlockReuse {
    /// The store.
    pub store: BlockStore,
    /// Measures every block, and replaces the store's entries with the results.
    pub fresh: bool,
    /// Uses the store under the wall clock, too, where figures differ each time. It then reuses
    /// only blocks of the same kind of host.
    pub wall: bool,
    /// Keeps entries without the host and the times of its clock. The same block of the same guests
    /// then gives the same bytes on every host. It has no effect under the wall clock, where the
    /// host is part of the key.
    pub reproducible: bool,
}

impl BlockReuse {
    /// Returns whether `plan` uses the store. Plans under the wall clock do only on request.
    pub(crate) fn is_for(&self, plan: &Plan) -> bool {
        self.wall || plan.study.clock == Clock::Instructions
    }
}

/// The store of a run while the run lasts.
pub(crate) struct RunStore<'a> {
    pub(crate) with: &'a BlockReuse,
    pub(crate) plan: &'a Plan,
    /// Returns the current provenance.
    pub(crate) provenance: &'a (dyn Fn() -> Arc<Provenance> + Sync),
}

impl fmt::Debug for RunStore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reuse").field("with", self.with).finish_non_exhaustive()
    }
}

impl RunStore<'_> {
    /// Returns the entries of a boot that does `todo` if the store has them. A damaged entry is
    /// reported and put aside.
    pub(crate) async fn look_up(&self, host_setup: &HostSetup, todo: &ToDo) -> Option<Vec<JournalEntry>> {
        let ToDo { block, past } = todo;
        // The block is measured by this run if some of its records count, or if it must be
        // repeated.
        if self.with.fresh || past.attempt > 1 || !past.settled.is_empty() {
            return None;
        }
        let store = &self.with.store;
        let key = match self.key(host_setup, block) {
            Ok(key) => key,
            Err(problem) => {
                tracing::warn!("block {} is not looked up in the store: {problem}", block.id);
                return None;
            }
        };
        match store.look_for(&key).await {
            Ok(LookedUp::Nothing) => None,
            Ok(LookedUp::Entry { block: kept, provenance, records }) if kept == *block => {
                Some(records.taken(past.boots.saturating_add(1), past.attempt, store.reused(&key, &provenance)))
            }
            // The block is part of the key.
            Ok(LookedUp::Entry { .. }) => {
                tracing::error!("two blocks have the key {key}: block {} is measured", block.id);
                None
            }
            Err(error @ BlockStoreError::Damaged { .. }) => {
                let aside = match store.put_aside(&key) {
                    Ok(aside) => format!("put aside as {}", aside.display()),
                    Err(error) => format!("not put aside: {}", with_causes(&error)),
                };
                tracing::warn!("{}; {aside}; block {} is measured", with_causes(&error), block.id);
                None
            }
            // This was reported when the store was given up.
            Err(BlockStoreError::NotAsked(_)) => None,
            Err(error) => {
                tracing::warn!("{}; block {} is measured", with_causes(&error), block.id);
                None
            }
        }
    }

    fn key(&self, host_setup: &HostSetup, block: &Block) -> Result<StoreKey, String> {
        let command = command(host_setup, &self.plan.study, block).map_err(|error| with_causes(&error))?;
        key(&self.plan.study, block, &(self.provenance)(), &command).map_err(|error| error.to_string())
    }

    /// Keeps `entries`, everything recorded about `block`, if the block can be kept. An error is
    /// reported, and the run continues.
    pub(crate) async fn keep(&self, block: &Block, entries: Vec<JournalEntry>) {
        let records = match BlockRecords::of(block, entries) {
            Ok(records) => records,
            Err(problem) => {
                tracing::info!("block {} is not kept in the store: {problem}", block.id);
                return;
            }
        };
        let measured_with = (self.provenance)();
        let (records, provenance) = if self.with.reproducible && self.plan.study.clock == Clock::Instructions {
            let anywhere = Provenance { host: HostFacts::default(), ..Provenance::clone(&measured_with) };
            (records.without_times(), Arc::new(anywhere))
        } else {
            (records, measured_with)
        };
        match self.with.store.keep(records, (self.plan, block), &provenance, self.with.fresh).await {
            Ok(_) => {}
            // This was reported when the store was given up.
            Err(BlockStoreError::NotAsked(_)) => tracing::info!("block {} is not kept in the store", block.id),
            Err(error) => tracing::warn!("block {} is not kept in the store: {}", block.id, with_causes(&error)),
        }
    }
}
