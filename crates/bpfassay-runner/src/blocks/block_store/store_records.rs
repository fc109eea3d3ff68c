// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store of blocks in a directory or an object store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bpfassay_results::{JournalContents, Provenance, Reused};
use bpfassay_study::{Block, Plan};

use super::{
    block_records::BlockRecords,
    key::StoreKey,
    object_place::Objects,
    store_directory::StoreDirectory,
    store_error::{BlockStoreError, MAX_ENTRY},
    store_place::StorePlace,
};

/// A store of blocks.
#[derive(Debug)]
pub struct BlockStore {
    /// The directory or URL that the user gave, for messages.
    path: PathBuf,
    backend: StoreBackend,
}

#[derive(Debug)]
enum StoreBackend {
    Directory(StoreDirectory),
    Objects(Arc<Objects>),
}

/// The result of looking up a key.
#[derive(Debug)]
pub(super) enum LookedUp {
    Nothing,
    /// An entry that is whole.
    Entry {
        block: Block,
        /// The provenance that the block was measured with.
        provenance: Box<Provenance>,
        records: Box<BlockRecords>,
    },
}

impl BlockStore {
    /// Opens the store at `place`, or creates a store if none exists.
    ///
    /// # Errors
    /// [`BlockStoreError::NotAStore`] if a directory has other things in it.
    /// [`BlockStoreError::Io`] and [`BlockStoreError::Objects`] if the store cannot be created or
    /// opened. [`BlockStoreError::Client`] if this host cannot reach an object store.
    pub fn open(place: &StorePlace) -> Result<Self, BlockStoreError> {
        Self::of(place, StoreDirectory::open, Objects::open)
    }

    /// Opens the store at `place`.
    ///
    /// # Errors
    /// [`BlockStoreError::NoStore`] if there is none. [`BlockStoreError::Io`] and
    /// [`BlockStoreError::Objects`] if it cannot be opened. [`BlockStoreError::Client`] if this
    /// host cannot reach an object store.
    pub fn existing(place: &StorePlace) -> Result<Self, BlockStoreError> {
        Self::of(place, StoreDirectory::existing, Objects::existing)
    }

    fn of(
        place: &StorePlace,
        directory: impl Fn(&Path) -> Result<StoreDirectory, BlockStoreError>,
        objects: impl Fn(&str) -> Result<Objects, BlockStoreError>,
    ) -> Result<Self, BlockStoreError> {
        Ok(match place {
            StorePlace::Directory(path) => {
                Self { path: path.clone(), backend: StoreBackend::Directory(directory(path)?) }
            }
            StorePlace::Url(url) => {
                Self { path: url.as_ref().into(), backend: StoreBackend::Objects(Arc::new(objects(url)?)) }
            }
        })
    }

    /// Uses `objects`, which is in memory.
    #[cfg(all(test, feature = "object-stores"))]
    pub(super) fn of_objects(objects: Objects) -> Self {
        Self { path: objects.url().into(), backend: StoreBackend::Objects(Arc::new(objects)) }
    }

    /// The directory or URL that the user gave.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the keys of all entries, in order.
    ///
    /// # Errors
    /// [`BlockStoreError::Io`] and [`BlockStoreError::Objects`] if the entries cannot be listed,
    /// [`BlockStoreError::TooMany`].
    pub fn keys(&self) -> Result<Vec<StoreKey>, BlockStoreError> {
        match &self.backend {
            StoreBackend::Directory(directory) => directory.keys(),
            StoreBackend::Objects(objects) => objects.keys(),
        }
    }

    /// Returns the entry of `key` if there is one.
    ///
    /// # Errors
    /// [`BlockStoreError::Damaged`] if the entry is not what its name says.
    /// [`BlockStoreError::Io`], [`BlockStoreError::Objects`] and [`BlockStoreError::NotAsked`] if
    /// it cannot be read.
    #[cfg(test)]
    pub(super) fn find(&self, key: &StoreKey) -> Result<LookedUp, BlockStoreError> {
        self.found(key, self.contents(key)?)
    }

    /// Returns the entry of `key` if there is one. Other tasks continue in the meantime.
    ///
    /// # Errors
    /// The errors of [`BlockStore::kept`].
    pub(super) async fn look_for(&self, key: &StoreKey) -> Result<LookedUp, BlockStoreError> {
        let contents = match &self.backend {
            StoreBackend::Directory(directory) => directory.contents(key)?,
            StoreBackend::Objects(objects) => {
                let (objects, key) = (Arc::clone(objects), *key);
                beside(move || objects.contents(&key)).await?
            }
        };
        self.found(key, contents)
    }

    fn found(&self, key: &StoreKey, contents: Option<JournalContents>) -> Result<LookedUp, BlockStoreError> {
        let Some(contents) = contents else { return Ok(LookedUp::Nothing) };
        let damaged = |problem| BlockStoreError::Damaged { path: self.entry(key), problem };
        let (block, provenance, records) = BlockRecords::of_entry(key, contents).map_err(damaged)?;
        Ok(LookedUp::Entry { block, provenance: Box::new(provenance), records: Box::new(records) })
    }

    /// Returns the journal of the entry of `key` if there is one, after checking that it is whole
    /// and belongs to `key`.
    ///
    /// # Errors
    /// [`BlockStoreError::Damaged`] if the check fails. [`BlockStoreError::Io`],
    /// [`BlockStoreError::Objects`] and [`BlockStoreError::NotAsked`] if the entry cannot be read.
    pub(crate) fn kept(&self, key: &StoreKey) -> Result<Option<JournalContents>, BlockStoreError> {
        let Some(contents) = self.contents(key)? else { return Ok(None) };
        let damaged = |problem| BlockStoreError::Damaged { path: self.entry(key), problem };
        BlockRecords::of_entry(key, contents.clone()).map_err(damaged)?;
        Ok(Some(contents))
    }

    /// Reads the entry of `key`.
    fn contents(&self, key: &StoreKey) -> Result<Option<JournalContents>, BlockStoreError> {
        match &self.backend {
            StoreBackend::Directory(directory) => directory.contents(key),
            StoreBackend::Objects(objects) => objects.contents(key),
        }
    }

    /// Keeps `records` of `block`, a block of `plan` that was measured with `provenance`. A
    /// directory's existing entry is always replaced. An object store's existing entry is another
    /// host's, and is replaced only if `replace`.
    ///
    /// # Errors
    /// [`BlockStoreError::Io`], [`BlockStoreError::Objects`] and [`BlockStoreError::NotAsked`] if
    /// the entry cannot be written. [`BlockStoreError::TooLarge`]. [`BlockStoreError::NoEntry`] if
    /// something that determines the figures is not known.
    pub(super) async fn keep(
        &self,
        records: BlockRecords,
        (plan, block): (&Plan, &Block),
        provenance: &Provenance,
        replace: bool,
    ) -> Result<StoreKey, BlockStoreError> {
        let no_entry = |problem| BlockStoreError::NoEntry { block: block.id.clone(), problem };
        let (key, contents) = records.entry(plan, block, provenance).map_err(no_entry)?;
        let text = contents.text(&self.entry(&key))?;
        let bytes = text.len() as u64;
        if bytes > MAX_ENTRY {
            return Err(BlockStoreError::TooLarge { block: block.id.clone(), bytes });
        }
        match &self.backend {
            StoreBackend::Directory(directory) => directory.write(&key, &text)?,
            StoreBackend::Objects(objects) => {
                let objects = Arc::clone(objects);
                beside(move || objects.write(&key, text, replace)).await?;
            }
        }
        Ok(key)
    }

    /// Moves the entry of `key` aside, where no reader searches. Returns the new path.
    ///
    /// # Errors
    /// [`BlockStoreError::Io`] and [`BlockStoreError::Objects`] if the entry cannot be renamed.
    pub fn put_aside(&self, key: &StoreKey) -> Result<PathBuf, BlockStoreError> {
        match &self.backend {
            StoreBackend::Directory(directory) => directory.put_aside(key),
            StoreBackend::Objects(objects) => objects.put_aside(key),
        }
    }

    /// Returns the path of an entry, for messages.
    pub(crate) fn entry(&self, key: &StoreKey) -> PathBuf {
        match &self.backend {
            StoreBackend::Directory(directory) => directory.entry(key),
            StoreBackend::Objects(objects) => objects.entry(key),
        }
    }

    /// Describes this store as the source of reused records.
    pub(super) fn reused(&self, key: &StoreKey, provenance: &Provenance) -> Reused {
        Reused { key: key.to_string(), store: self.path.display().to_string(), host: provenance.host.clone() }
    }
}

/// Runs `work` on its own thread and returns the result.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The task is never cancelled, so it panicked.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
