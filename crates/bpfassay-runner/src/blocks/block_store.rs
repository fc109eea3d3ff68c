// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store of blocks: a directory or an object store with the records of measured blocks. A run
//! reuses them instead of booting guests.
//!
//! The name of a block is its *key*: SHA-256 over everything that determines the block's figures
//! (`key`, pure). An entry is a journal of that one block, with its plan and provenance
//! (`block_records`, pure). The key follows from the entry itself, so a reader can check that the
//! entry is what its name says. The chain of sums shows whether the entry is as it was written.
//!
//! Entries are written under another name and then renamed (`store_directory`), or put as a whole
//! (`object_place`, which sends requests through `client`). Several hosts can therefore use a store
//! at once, and a writer that is killed leaves nothing that looks like an entry. `reuse` describes
//! how a run uses the store.
//!
//! A store is untrusted input, as results are. Whoever can write to a store can add figures that
//! nobody measured. [`crate::Verification::of_block`] measures an entry again.

mod block_records;
#[cfg(feature = "object-stores")]
mod client;
mod key;
#[cfg_attr(not(feature = "object-stores"), path = "block_store/no_objects.rs")]
mod object_place;
mod reuse;
mod store_directory;
mod store_error;
mod store_place;
mod store_records;
#[cfg(test)]
mod tests;

pub use self::{
    key::StoreKey,
    reuse::BlockReuse,
    store_error::BlockStoreError,
    store_place::{NotAStorePlace, StorePlace},
    store_records::BlockStore,
};
pub(crate) use self::{key::key, reuse::RunStore};
