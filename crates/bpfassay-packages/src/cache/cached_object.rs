// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects: single files named by the SHA-256 of their content.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::{Cache, CacheAccess, CacheCheck, create_parent, entries, stamp::Stamp};
use crate::{
    digest::{Digest, Hasher},
    error::{PackagesError, Result},
};

/// Limit on a stamp, in bytes. Real stamps have about 100.
const MAX_STAMP: u64 = 1 << 12;

/// A file in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
    /// The path of the file, which is read-only and shared with other processes.
    pub path: PathBuf,
}

/// A writer for the content of a new object.
#[derive(Debug)]
pub struct ObjectWriter<'a> {
    file: io::BufWriter<&'a mut fs::File>,
    hasher: &'a mut Hasher,
    written: &'a mut u64,
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

impl Write for ObjectWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.hasher.update(&bytes[..length]);
        *self.written += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Cache {
    /// Returns the path of the object `digest`, whether or not it exists.
    fn object_path(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        self.root.join("objects").join(&name[..2]).join(&name[2..])
    }

    /// Returns the object `digest`, if it exists. A damaged object is reported and removed.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if it cannot be read, or [`PackagesError::Damaged`] if a damaged one
    /// cannot be removed.
    pub fn object(&self, digest: &Digest) -> Result<Option<CachedFile>> {
        let path = self.object_path(digest);
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if self.may_not_read(&path, &error) => return Ok(None),
            Err(source) => return Err(PackagesError::Io { action: "read", path, source }),
        };
        let recorded = bpfassay_input::read(&stamp_path(&path), MAX_STAMP)
            .ok()
            .and_then(|text| serde_json::from_slice::<Stamp>(&text).ok());
        if recorded == Some(Stamp::of(&metadata)) || self.verify(digest, &path)? {
            self.note_use(&stamp_path(&path));
            return Ok(Some(CachedFile { digest: *digest, size: metadata.len(), path }));
        }
        Ok(None)
    }

    /// Stores the bytes that `write` writes. `what` names it in messages. `needed` is its size in
    /// bytes, or 0 if the size is not known.
    ///
    /// # Errors
    /// [`PackagesError::DiskFull`] and [`PackagesError::Io`] if it cannot be stored, and the error
    /// of `write`.
    pub fn add<E: From<PackagesError>>(
        &self,
        what: &str,
        needed: u64,
        write: impl FnOnce(&mut ObjectWriter<'_>) -> Result<(), E>,
    ) -> Result<CachedFile, E> {
        self.add_checked(what, needed, None, write)
    }

    /// Stores `bytes`. `what` names them in messages.
    ///
    /// # Errors
    /// [`PackagesError::DiskFull`] if there is no space, or [`PackagesError::Io`].
    pub fn add_bytes(&self, what: &str, bytes: &[u8]) -> Result<CachedFile> {
        self.add(what, bytes.len() as u64, |writer| self.write_all(what, writer, bytes))
    }

    /// Stores a copy of the file `source`. Its content must have the digest `expected`, if given.
    ///
    /// # Errors
    /// - [`PackagesError::Mismatch`]: the content has another digest than expected.
    /// - [`PackagesError::DiskFull`], [`PackagesError::Io`]: the file cannot be read or stored.
    pub fn add_file(&self, what: &str, source: &Path, expected: Option<Digest>) -> Result<CachedFile> {
        let file = bpfassay_input::open(source).map_err(PackagesError::io("read", source))?;
        let size = file.metadata().map_err(PackagesError::io("read", source))?.len();
        // The limit stops reading a file that keeps growing.
        let file = file.take(size.saturating_add(1));
        self.add_from(what, file, (expected, size), |error| PackagesError::io("read", source)(error))
    }

    /// Stores the `size` bytes of `reader`. If `expected` is given, the content must have that
    /// digest. `failed` converts errors of the reader.
    ///
    /// # Errors
    /// - [`PackagesError::Mismatch`]: the content has another digest than expected.
    /// - [`PackagesError::DiskFull`], [`PackagesError::Io`]: the content cannot be stored.
    /// - The errors that `failed` returns.
    pub fn add_from<E: From<PackagesError>>(
        &self,
        what: &str,
        mut reader: impl Read,
        (expected, size): (Option<Digest>, u64),
        failed: impl Fn(io::Error) -> E,
    ) -> Result<CachedFile, E> {
        self.add_checked(what, size, expected, |writer| {
            let mut buffer = vec![0; 256 << 10];
            loop {
                match reader.read(&mut buffer).map_err(&failed)? {
                    0 => return Ok(()),
                    length => self.write_all(what, writer, &buffer[..length])?,
                }
            }
        })
    }

    /// Moves the file `source`, which must be in [`Cache::scratch`], into the store without copying
    /// it. If `expected` is given, the content must have that digest.
    ///
    /// # Errors
    /// - [`PackagesError::Mismatch`]: the content has another digest than expected.
    /// - [`PackagesError::ReadOnly`]: the cache can only be read, and does not have the content.
    /// - [`PackagesError::Io`]: the file cannot be read or moved.
    pub fn adopt(&self, what: &str, source: &Path, expected: Option<Digest>) -> Result<CachedFile> {
        let digest = Digest::of_file(source)?;
        matches_expected(what, expected, digest)?;
        let file = bpfassay_input::open_unlinked(source).map_err(PackagesError::io("read", source))?;
        file.sync_all().map_err(|error| self.write_error(what, 0, source, error))?;
        file.set_permissions(fs::Permissions::from_mode(0o444)).map_err(PackagesError::io("protect", source))?;
        let size = file.metadata().map_err(PackagesError::io("read", source))?.len();
        if self.access == CacheAccess::ReadOnly {
            return self.object(&digest)?.ok_or_else(|| self.read_only(what));
        }
        let path = self.object_path(&digest);
        create_parent(&path)?;
        fs::rename(source, &path).map_err(PackagesError::io("store", &path))?;
        self.stamp(&path)?;
        Ok(CachedFile { digest, size, path })
    }

    fn write_all(&self, what: &str, writer: &mut ObjectWriter<'_>, bytes: &[u8]) -> Result<()> {
        writer
            .write_all(bytes)
            .map_err(|error| self.write_error(what, *writer.written + bytes.len() as u64, &self.root, error))
    }

    fn add_checked<E: From<PackagesError>>(
        &self,
        what: &str,
        needed: u64,
        expected: Option<Digest>,
        write: impl FnOnce(&mut ObjectWriter<'_>) -> Result<(), E>,
    ) -> Result<CachedFile, E> {
        if self.access == CacheAccess::ReadOnly {
            return self.find_written(what, expected, write);
        }
        self.require_space(what, needed)?;
        let session = self.session()?;
        let tmp = session.path();
        let mut file = tempfile::Builder::new()
            .prefix("object-")
            .tempfile_in(tmp)
            .map_err(|error| self.write_error(what, needed, tmp, error))?;
        let (mut hasher, mut size) = (Hasher::default(), 0);
        let mut writer = ObjectWriter {
            file: io::BufWriter::with_capacity(256 << 10, file.as_file_mut()),
            hasher: &mut hasher,
            written: &mut size,
        };
        write(&mut writer)?;
        let flushed = writer.flush();
        drop(writer);
        flushed
            .and_then(|()| file.as_file().sync_all())
            .and_then(|()| file.as_file().set_permissions(fs::Permissions::from_mode(0o444)))
            .map_err(|error| self.write_error(what, needed.max(size), file.path(), error))?;
        let digest = hasher.finish();
        matches_expected(what, expected, digest)?;
        let path = self.object_path(&digest);
        create_parent(&path)?;
        file.persist(&path).map_err(|error| PackagesError::io("write", &path)(error.error))?;
        self.stamp(&path)?;
        Ok(CachedFile { digest, size, path })
    }

    /// Finds the object that `write` would make, in a read-only cache.
    fn find_written<E: From<PackagesError>>(
        &self,
        what: &str,
        expected: Option<Digest>,
        write: impl FnOnce(&mut ObjectWriter<'_>) -> Result<(), E>,
    ) -> Result<CachedFile, E> {
        let null = Path::new("/dev/null");
        let mut sink = fs::File::options().write(true).open(null).map_err(PackagesError::io("write", null))?;
        let (mut hasher, mut size) = (Hasher::default(), 0);
        write(&mut ObjectWriter { file: io::BufWriter::new(&mut sink), hasher: &mut hasher, written: &mut size })?;
        let digest = hasher.finish();
        matches_expected(what, expected, digest)?;
        Ok(self.object(&digest)?.ok_or_else(|| self.read_only(what))?)
    }

    fn read_only(&self, what: &str) -> PackagesError {
        PackagesError::ReadOnly { what: what.to_owned(), path: self.root.clone() }
    }

    /// Hashes an object. Renews its stamp, or discards it.
    fn verify(&self, digest: &Digest, path: &Path) -> Result<bool> {
        let found = Digest::of_file(path)?;
        if found == *digest {
            self.stamp(path)?;
            return Ok(true);
        }
        if self.access == CacheAccess::ReadOnly {
            self.discard(path, &format!("its SHA-256 is {found}"))?;
            return Ok(false);
        }
        let _lock = self.lock("objects")?;
        // Another process may have replaced the object in the meantime.
        if Digest::of_file(path).ok() != Some(*digest) {
            self.remove(&stamp_path(path))?;
            self.discard(path, &format!("its SHA-256 is {found}"))?;
            return Ok(false);
        }
        Ok(true)
    }

    fn stamp(&self, path: &Path) -> Result<()> {
        let stamp = Stamp::of(&fs::metadata(path).map_err(PackagesError::io("read", path))?);
        self.write_small(&stamp_path(path), &stamp)
    }

    /// Hashes every object and removes damaged ones. Adds both to `checked`.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if an object cannot be read, or [`PackagesError::Damaged`] if one
    /// cannot be removed.
    pub(super) fn check_objects(&self, checked: &mut CacheCheck) -> Result<()> {
        let objects = self.root.join("objects");
        for directory in entries(&objects, |kind| kind.is_dir())? {
            for path in entries(&directory, |_| true)? {
                if path.extension().is_some_and(|extension| extension == "stamp") {
                    continue;
                }
                let name = format!(
                    "{}{}",
                    directory.file_name().unwrap_or_default().to_string_lossy(),
                    path.file_name().unwrap_or_default().to_string_lossy()
                );
                let sound = match name.parse() {
                    Ok(digest) => {
                        checked.files += 1;
                        checked.bytes += fs::metadata(&path).map_err(PackagesError::io("read", &path))?.len();
                        self.verify(&digest, &path)?
                    }
                    Err(_) => {
                        self.discard(&path, "its name is no digest")?;
                        false
                    }
                };
                if !sound {
                    checked.removed.push(path);
                }
            }
        }
        Ok(())
    }
}

fn matches_expected(what: &str, expected: Option<Digest>, found: Digest) -> Result<()> {
    match expected {
        Some(expected) if expected != found => {
            let remedy = "the source may be in the middle of an update; try again later, with --refresh";
            Err(PackagesError::Mismatch { what: what.to_owned(), expected, found, remedy })
        }
        _ => Ok(()),
    }
}

pub(super) fn stamp_path(object: &Path) -> PathBuf {
    object.with_extension("stamp")
}
