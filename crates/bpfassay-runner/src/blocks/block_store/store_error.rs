// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a store of blocks cannot be used, and the largest entry that it holds.

use std::{io, path::PathBuf};

use bpfassay_results::JournalError;

/// Largest entry that is written and read, in bytes. A block of `quick` has 0.2 to 0.5 MB.
pub(crate) const MAX_ENTRY: u64 = 64 << 20;

/// Why a store of blocks, or an entry of it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BlockStoreError {
    /// A system call failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The attempted action, for the message.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory is not a store and not empty.
    #[error("{} is no store of blocks, and not empty: name a directory that is one, is empty, or does not exist", .0.display())]
    NotAStore(PathBuf),
    /// There is no store.
    #[error("{} is no store of blocks: `bpfassay run --store` makes one", .0.display())]
    NoStore(PathBuf),
    /// The place is an object store, which this program was built without support for.
    #[error(
        "{0} is an object store, and this program was built without them: build it by cargo with `--features full`, or name a directory"
    )]
    NoObjectStores(String),
    /// An object store refused a request, or did not answer.
    #[cfg(feature = "object-stores")]
    #[error("cannot {action} {place}")]
    Objects {
        /// The attempted action, for the message.
        action: &'static str,
        /// The store or the entry.
        place: String,
        /// The client's error.
        #[source]
        source: Box<object_store::Error>,
    },
    /// Nothing can be requested from the store on this host.
    #[error("the store {place} cannot be used from this host: {problem}")]
    Client {
        /// The store.
        place: String,
        /// Why not.
        problem: String,
    },
    /// An object store failed to answer before, and is not asked again.
    #[error("the store {0} did not answer, and is not asked any more")]
    NotAsked(String),
    /// The store has more entries than are listed.
    #[error("{} has more than {most} blocks: name a smaller store", path.display())]
    TooMany {
        /// The store.
        path: PathBuf,
        /// Highest number of entries that are listed.
        most: usize,
    },
    /// An entry is larger than the limit.
    #[error("block {block} takes {bytes} bytes, and a store holds blocks of {MAX_ENTRY} bytes at most")]
    TooLarge {
        /// The block.
        block: String,
        /// The size of the block's records.
        bytes: u64,
    },
    /// A block cannot have an entry.
    #[error("block {block} has no entry in a store: {problem}")]
    NoEntry {
        /// The block.
        block: String,
        /// Why not.
        problem: String,
    },
    /// An entry does not match its name, or was changed after it was written.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged {
        /// The entry.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// Records cannot be written as a journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
