// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of a guest's initramfs in the cache.

use bpfassay_packages::{
    cache::{Cache, CachedFile},
    digest::Digest,
};

use crate::{
    error::Result,
    initramfs::{Archive, ArchiveError},
};

/// Names of segments in the manifest.
pub mod role {
    /// Agent, tracer, embedded IOR, directories.
    pub const BASE: &str = "base";
    /// Kernel modules.
    pub const MODULES: &str = "modules";
    /// A user's directory tree.
    pub const OVERLAY: &str = "overlay";
    /// Files of tools under test.
    pub const TOOLS: &str = "tools";
    /// Files of the kernel that tools read: configuration and headers.
    pub const KERNEL_FILES: &str = "kernel-files";
    /// Files of an interactive shell.
    pub const SHELL: &str = "shell";
}

/// Kind of the cache record that maps the digest of a segment's inputs to the segment's digest.
const RECORD: &str = "segment";

/// Returns the segment for `key` from the cache, or makes it.
///
/// # Errors
/// The errors of `make`; [`PackagesError::Io`] if the cache cannot be locked, read or written.
pub(crate) fn segment(
    cache: &Cache,
    key: &Digest,
    what: &str,
    make: impl FnOnce() -> Result<Archive>,
) -> Result<CachedFile> {
    let _lock = cache.lock(&format!("segment-{}", &key.to_string()[..16]))?;
    if let Some(digest) = cache.recorded(RECORD, key)?
        && let Some(object) = cache.object(&digest)?
    {
        return Ok(object);
    }
    let object = store(cache, what, &make()?)?;
    cache.record(RECORD, key, &object.digest)?;
    Ok(object)
}

/// Writes `archive` to the cache.
///
/// # Errors
/// The archive cannot be read, or the cache cannot be written.
pub(crate) fn store(cache: &Cache, what: &str, archive: &Archive) -> Result<CachedFile> {
    cache.add(what, archive.size(), |writer| match archive.write_to(writer) {
        Ok(_) => Ok(()),
        Err(ArchiveError::Write(source)) => Err(cache.write_error(what, archive.size(), cache.root(), source).into()),
        Err(error) => Err(error.into()),
    })
}
