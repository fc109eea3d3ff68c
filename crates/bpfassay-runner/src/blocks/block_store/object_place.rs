// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object store as a store of blocks. It speaks S3, or is a server that accepts files by HTTP
//! (PUT, and PROPFIND for lists). An entry is one object, which exists whole or not at all.
//!
//! Credentials come from the usual variables of the environment (`AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL` and the others of [`AmazonS3Builder::from_env`]).
//! They never appear in messages or results.

#![allow(clippy::disallowed_methods, reason = "joins fixed names and digests")]

use std::{
    fmt,
    fs::File,
    future::Future,
    io::{Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use bpfassay_results::{JournalContents, JournalError};
use futures_util::TryStreamExt as _;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
    RetryConfig, aws::AmazonS3Builder, http::HttpBuilder, path::Path as ObjectPath,
};
use rustix::fs::{MemfdFlags, memfd_create};

use super::{
    client::Connector,
    key::StoreKey,
    store_directory::{ASIDE, BLOCKS, ENTRY, MOST, names},
    store_error::{BlockStoreError, MAX_ENTRY},
    store_place::bucket_and_prefix,
};
use crate::boot::run_context::unix_ms;

/// Object that marks a place as a store, in the form of entries that this version has.
const MARK: &str = "store.json";
/// Content of the marking object.
const MARKED: &[u8] = b"{\"format\":1}\n";
/// How often a request is repeated that can succeed later.
const REPETITIONS: usize = 2;
/// How long after the first attempt a request can be repeated.
const REPEATED_FOR: Duration = Duration::from_secs(30);
/// After this many failures in a row, the store is not asked any more.
const PATIENCE: u32 = 2;

/// An object store.
pub(super) struct Objects {
    url: String,
    store: Box<dyn ObjectStore>,
    /// The prefix of all objects' names.
    prefix: ObjectPath,
    /// Number of failures in a row.
    failures: AtomicU32,
}

impl fmt::Debug for Objects {
    // The field `store` contains credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Objects {
    /// Opens the store at `url`, or creates a store if none exists.
    ///
    /// # Errors
    /// [`BlockStoreError::Objects`] if the store cannot be created or opened.
    /// [`BlockStoreError::Client`] if the environment does not configure it properly.
    pub(super) fn open(url: &str) -> Result<Self, BlockStoreError> {
        Self::client(url)?.opened(true)
    }

    /// Opens the store at `url`.
    ///
    /// # Errors
    /// The errors of [`Objects::open`], and [`BlockStoreError::NoStore`] if there is none.
    pub(super) fn existing(url: &str) -> Result<Self, BlockStoreError> {
        Self::client(url)?.opened(false)
    }

    /// Makes the client for the store at `url`, without a request.
    pub(super) fn client(url: &str) -> Result<Self, BlockStoreError> {
        let failed = |source: Error| BlockStoreError::Client { place: url.to_owned(), problem: source.to_string() };
        let retry =
            RetryConfig { backoff: BackoffConfig::default(), max_retries: REPETITIONS, retry_timeout: REPEATED_FOR };
        if let Some((bucket, prefix)) = url.strip_prefix("s3://").and_then(bucket_and_prefix) {
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
            let store = builder.with_http_connector(Connector).with_retry(retry).build().map_err(failed)?;
            return Ok(Self::of(url, Box::new(store), &ObjectPath::from(prefix)));
        }
        // Names in lists are relative to the root of the server.
        let (server, path) = url.find("://").map_or((url, ""), |scheme| {
            let host = scheme + "://".len();
            let end = url.get(host..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| host + at);
            url.split_at(end)
        });
        let prefix = ObjectPath::from_url_path(path).map_err(|error| failed(error.into()))?;
        // Plain `http` is allowed, because the user chose the URL.
        let options = ClientOptions::new().with_allow_http(true);
        let builder = HttpBuilder::new().with_url(server).with_client_options(options);
        let store = builder.with_http_connector(Connector).with_retry(retry).build().map_err(failed)?;
        Ok(Self::of(url, Box::new(store), &prefix))
    }

    /// Uses the store `store` below `prefix`.
    pub(super) fn of(url: &str, store: Box<dyn ObjectStore>, prefix: &ObjectPath) -> Self {
        let prefix = prefix.clone().join(BLOCKS);
        Self { url: url.to_owned(), store, prefix, failures: AtomicU32::new(0) }
    }

    /// Checks that there is a store. A missing marker is created if `make`.
    pub(super) fn opened(self, make: bool) -> Result<Self, BlockStoreError> {
        let mark = self.prefix.clone().join(MARK);
        match self.ask("look for a store in", self.url.clone(), self.store.head(&mark)) {
            Ok(_) => return Ok(self),
            Err(error) if !is_absent(&error) => return Err(error),
            Err(_) if !make => return Err(BlockStoreError::NoStore(self.url.into())),
            Err(_) => {}
        }
        self.put(&mark, MARKED.to_vec(), false, "make a store in", self.url.clone())?;
        Ok(self)
    }

    /// The URL that the user gave.
    #[cfg(test)]
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the keys of all entries, in order.
    pub(super) fn keys(&self) -> Result<Vec<StoreKey>, BlockStoreError> {
        let listed = async {
            let mut objects = self.store.list(Some(&self.prefix));
            let mut keys = Vec::new();
            while let Some(object) = objects.try_next().await? {
                let mut parts = object.location.prefix_match(&self.prefix).into_iter().flatten();
                let (Some(folder), Some(name), None) = (parts.next(), parts.next(), parts.next()) else { continue };
                let key = name.as_ref().strip_suffix(ENTRY).and_then(|name| name.parse::<StoreKey>().ok());
                keys.extend(key.filter(|key| key.to_string().starts_with(folder.as_ref())));
                if keys.len() > MOST {
                    return Ok(None);
                }
            }
            Ok(Some(keys))
        };
        let keys = self.ask("list the blocks of", self.url.clone(), listed)?;
        let mut keys = keys.ok_or_else(|| BlockStoreError::TooMany { path: PathBuf::from(&self.url), most: MOST })?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Reads the entry of `key`; `None` if there is none.
    pub(super) fn contents(&self, key: &StoreKey) -> Result<Option<JournalContents>, BlockStoreError> {
        let path = self.entry(key);
        let damaged = |problem: String| BlockStoreError::Damaged { path: path.clone(), problem };
        let location = self.location(key);
        let read = async {
            let object = self.store.get(&location).await?;
            // The server can report any size. The client limits what is read.
            if object.meta.size > MAX_ENTRY {
                return Ok(Err(object.meta.size));
            }
            object.bytes().await.map(Ok)
        };
        let bytes = match self.ask("read", path.display().to_string(), read) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(size)) => {
                return Err(damaged(format!("it has {size} bytes, and no entry has more than {MAX_ENTRY}")));
            }
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let failed = |source| BlockStoreError::Io { action: "read", path: path.clone(), source };
        let file = in_memory(&bytes).map_err(failed)?;
        match JournalContents::read_file(&path, file, MAX_ENTRY) {
            Ok(contents) => Ok(Some(contents)),
            Err(JournalError::Io { source, .. }) => Err(failed(source)),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Writes the entry of `key`. An existing entry is another host's measurement of the same
    /// block, and stays unless `replace`.
    pub(super) fn write(&self, key: &StoreKey, text: Vec<u8>, replace: bool) -> Result<(), BlockStoreError> {
        self.put(&self.location(key), text, replace, "write", self.entry(key).display().to_string())
    }

    /// Puts `content` at `location` if there is no object yet, or if `replace`.
    fn put(
        &self,
        location: &ObjectPath,
        content: Vec<u8>,
        replace: bool,
        action: &'static str,
        place: String,
    ) -> Result<(), BlockStoreError> {
        let payload = PutPayload::from(content);
        let put = |mode| {
            let options = PutOptions { mode, ..PutOptions::default() };
            let put = self.store.put_opts(location, payload.clone(), options);
            self.ask(action, place.clone(), put)
        };
        if replace {
            return put(PutMode::Overwrite).map(drop);
        }
        match put(PutMode::Create).map(drop) {
            Err(error) if is_there(&error) => Ok(()),
            // Either entry remains if two hosts write the same one at once.
            Err(error) if cannot_compare(&error) => put(PutMode::Overwrite).map(drop),
            done => done,
        }
    }

    /// Moves the entry of `key` aside. Returns its new name.
    pub(super) fn put_aside(&self, key: &StoreKey) -> Result<PathBuf, BlockStoreError> {
        let name = format!("{key}-{}{ENTRY}", unix_ms());
        let to = self.prefix.clone().join(ASIDE).join(name.as_str());
        let from = self.location(key);
        self.ask("put aside", self.entry(key).display().to_string(), self.store.rename(&from, &to))?;
        Ok(Path::new(&self.url).join(BLOCKS).join(ASIDE).join(name))
    }

    /// Returns the name of an entry, for messages.
    pub(super) fn entry(&self, key: &StoreKey) -> PathBuf {
        let (folder, name) = names(key);
        Path::new(&self.url).join(BLOCKS).join(folder).join(name)
    }

    fn location(&self, key: &StoreKey) -> ObjectPath {
        let (folder, name) = names(key);
        self.prefix.clone().join(folder).join(name)
    }

    /// Returns the store's answer to `request`. The request gets its own thread, because the client
    /// blocks and the caller can be in a runtime. A store that keeps failing is not asked any more.
    fn ask<T: Send>(
        &self,
        action: &'static str,
        place: String,
        request: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, BlockStoreError> {
        if self.failures.load(Ordering::Relaxed) >= PATIENCE {
            return Err(BlockStoreError::NotAsked(self.url.clone()));
        }
        let ended = thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                runtime.map(|runtime| runtime.block_on(request))
            });
            asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let failed = |source| BlockStoreError::Io { action, path: place.clone().into(), source };
        let ended = ended.map_err(failed)?;
        // Any other result means that the store answered.
        let failures = match &ended {
            Err(Error::Generic { .. }) => self.failures.fetch_add(1, Ordering::Relaxed) + 1,
            _ => {
                self.failures.store(0, Ordering::Relaxed);
                0
            }
        };
        if failures == PATIENCE {
            tracing::warn!("the store {} failed {failures} times in a row: it is not asked any more", self.url);
        }
        ended.map_err(|source| BlockStoreError::Objects { action, place, source: Box::new(source) })
    }
}

fn is_absent(error: &BlockStoreError) -> bool {
    matches!(error, BlockStoreError::Objects { source, .. } if matches!(**source, Error::NotFound { .. }))
}

fn is_there(error: &BlockStoreError) -> bool {
    matches!(error, BlockStoreError::Objects { source, .. } if matches!(**source, Error::AlreadyExists { .. }))
}

/// Returns whether the store cannot put an object on the condition that it does not exist yet.
fn cannot_compare(error: &BlockStoreError) -> bool {
    let BlockStoreError::Objects { source, .. } = error else { return false };
    matches!(**source, Error::NotImplemented { .. } | Error::NotSupported { .. })
}

/// Creates an anonymous file with `bytes` in it.
fn in_memory(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("block", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
