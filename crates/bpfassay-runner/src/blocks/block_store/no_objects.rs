// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces `objects` in builds without the feature `object-stores`: every object store is refused.

use std::path::PathBuf;

use bpfassay_results::JournalContents;

use super::{key::StoreKey, store_error::BlockStoreError};

/// An uninhabited type: there are no object stores.
#[derive(Debug)]
pub(super) enum Objects {}

impl Objects {
    /// Refuses the store at `url`.
    ///
    /// # Errors
    /// Always [`BlockStoreError::NoObjectStores`].
    pub(super) fn open(url: &str) -> Result<Self, BlockStoreError> {
        Err(BlockStoreError::NoObjectStores(url.to_owned()))
    }

    /// Refuses the store at `url`.
    ///
    /// # Errors
    /// Always [`BlockStoreError::NoObjectStores`].
    pub(super) fn existing(url: &str) -> Result<Self, BlockStoreError> {
        Self::open(url)
    }

    pub(super) fn keys(&self) -> Result<Vec<StoreKey>, BlockStoreError> {
        match *self {}
    }

    pub(super) fn contents(&self, _: &StoreKey) -> Result<Option<JournalContents>, BlockStoreError> {
        match *self {}
    }

    pub(super) fn write(&self, _: &StoreKey, _: Vec<u8>, _: bool) -> Result<(), BlockStoreError> {
        match *self {}
    }

    pub(super) fn put_aside(&self, _: &StoreKey) -> Result<PathBuf, BlockStoreError> {
        match *self {}
    }

    pub(super) fn entry(&self, _: &StoreKey) -> PathBuf {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use crate::blocks::block_store::{BlockStore, StorePlace};

    #[test]
    fn an_object_store_is_refused_with_the_way_to_get_it() {
        let place: StorePlace = "s3://my-bucket/ci".parse().unwrap();
        let expected = "s3://my-bucket/ci is an object store, and this program was built without them: build it by cargo with `--features full`, or name a directory";
        for refused in [BlockStore::open(&place), BlockStore::existing(&place)] {
            assert_eq!(refused.unwrap_err().to_string(), expected);
        }
    }
}
