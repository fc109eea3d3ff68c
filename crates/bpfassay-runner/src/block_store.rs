// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store of blocks: a directory or an object store with the records of blocks that were measured
//! before, which a run takes in place of booting guests.
//!
//! A block is named by its *key*: SHA-256 over everything that determines its figures (`key`,
//! pure). An entry is a journal of that one block, with the plan and the provenance that it was
//! measured with (`kept`, pure): the key follows from the entry itself, so that a reader finds out
//! whether it is what its name says, and the chain of sums whether it is as it was written. Entries
//! are written under another name and renamed (`directory`), or put as a whole (`objects`, whose
//! requests `client` sends): several hosts may use a store at once, and whoever is killed leaves
//! nothing behind that could be taken for an entry. How a run uses it is in `reuse`.
//!
//! A store is untrusted input, as results are. Whoever can write to it can put figures into it that
//! nobody measured; [`crate::Verification::of_block`] measures an entry again.

#[cfg(feature = "object-stores")]
mod client;
mod directory;
mod kept;
mod key;
#[cfg_attr(not(feature = "object-stores"), path = "block_store/no_objects.rs")]
mod objects;
mod place;
mod reuse;
mod store;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf};

use bpfassay_results::JournalError;

pub use self::{
    key::BlockKey,
    place::{NotAStorePlace, StorePlace},
    reuse::BlockReuse,
    store::BlockStore,
};
pub(crate) use self::{key::key, reuse::Reuse};

/// Largest entry that is written and read, in bytes. A block of `quick` has 0.2 to 0.5 MB.
pub(crate) const MAX_ENTRY: u64 = 64 << 20;

/// Why a store of blocks, or an entry of it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BlockStoreError {
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory is something else.
    #[error("{} is no store of blocks, and not empty: name a directory that is one, is empty, or does not exist", .0.display())]
    NotAStore(PathBuf),
    /// There is no store.
    #[error("{} is no store of blocks: `bpfassay run --store` makes one", .0.display())]
    NoStore(PathBuf),
    /// The place is an object store, and there is nothing to reach one with.
    #[error(
        "{0} is an object store, and this program was built without them: build it by cargo with `--features full`, or name a directory"
    )]
    NoObjectStores(String),
    /// An object store refused, or did not answer.
    #[cfg(feature = "object-stores")]
    #[error("cannot {action} {place}")]
    Objects {
        /// What was to be done.
        action: &'static str,
        /// The store, or an entry of it.
        place: String,
        /// Why not.
        #[source]
        source: Box<object_store::Error>,
    },
    /// Nothing can be asked for here.
    #[error("the store {place} cannot be used from this host: {problem}")]
    Client {
        /// The store.
        place: String,
        /// Why not.
        problem: String,
    },
    /// An object store did not answer before, and is not asked again.
    #[error("the store {0} did not answer, and is not asked any more")]
    NotAsked(String),
    /// The store has more entries than are listed.
    #[error("{} has more than {most} blocks: name a smaller store", path.display())]
    TooMany {
        /// The store.
        path: PathBuf,
        /// The most that are listed.
        most: usize,
    },
    /// An entry is larger than any may be.
    #[error("block {block} takes {bytes} bytes, and a store holds blocks of {MAX_ENTRY} bytes at most")]
    TooLarge {
        /// The block.
        block: String,
        /// The size of its records.
        bytes: u64,
    },
    /// There can be no entry of a block.
    #[error("block {block} has no entry in a store: {problem}")]
    NoEntry {
        /// The block.
        block: String,
        /// Why not.
        problem: String,
    },
    /// An entry is not what its name says, or not as it was written.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged {
        /// The entry.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Records cannot be written as a journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
