// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundles: the guests of a testbed in one file, to boot them where there is no network and no compiler.
//!
//! ```text
//! FILE                 a stream of xz, in it an archive of cpio (newc):
//!   manifest.json      the manifest, whose paths are those below
//!   objects/SHA-256…   each file that it names, once
//! ```
//!
//! `xz -dc FILE | cpio -t` shows what is in it. QEMU is not: results name the one that they were measured with.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufReader, BufWriter, Read as _, Write as _},
    path::{Path, PathBuf},
};

use lzma_rust2::{XzOptions, XzReader, XzWriter};

use crate::{
    Error, Result,
    cache::{Cache, Digest},
    compose::MANIFEST,
    initramfs::{
        Archive, Content, Node,
        entries::{Entries, Entry},
    },
    manifest::{Check, MAX_MANIFEST, Manifest, Target},
};

/// The directory of everything but the manifest, which is first: archives are sorted by name.
const OBJECTS: &str = "objects";

/// Preset of xz. Higher ones take several times as long for a few per cent: kernels are compressed already on most architectures.
const PRESET: u32 = 1;
/// Most memory that decompressing may take, in KiB: presets up to 9 of xz take less.
const MOST_MEMORY: u32 = 128 << 10;

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// It cannot be opened.
    #[error("cannot read the bundle {}: check that it exists, is a regular file, and may be read", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no stream of xz with an archive in it, or is cut off.
    #[error("{} is no bundle, or is damaged: make it again with `bpfassay bundle`, or copy it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: io::Error,
    },
    /// What is in it is not what belongs in one.
    #[error("{} is no bundle, or is damaged: {problem}; make it again with `bpfassay bundle`, or copy it again", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// Writes a bundle of the guests of `manifest` to the file `path`, which must not exist, and returns its size in bytes. The file appears when it is complete.
///
/// # Errors
/// [`Error::Manifest`] for a file that is missing or not what the manifest promises; [`Error::Archive`] where one changes meanwhile, or the disk is full;
/// [`Error::Io`] where `path` exists or cannot be made.
pub fn write(manifest: &Manifest, path: &Path) -> Result<u64> {
    let create = |source| Error::io("create", path)(source);
    if path.symlink_metadata().is_ok() {
        return Err(create(io::ErrorKind::AlreadyExists.into()));
    }
    manifest.check_files(path, Check::Content)?;
    let (mut packed, mut archive) = (manifest.clone(), Archive::default());
    let mut added = BTreeSet::new();
    for file in packed.targets.iter_mut().flat_map(Target::files_mut) {
        let name = format!("{OBJECTS}/{}", file.sha256);
        if added.insert(file.sha256) {
            archive.add(&name, Node::File { executable: false, content: Content::of_file(&file.path)? })?;
        }
        file.path = name.into();
    }
    let text = packed.to_json()?.into_bytes();
    archive.add(MANIFEST, Node::File { executable: false, content: text.into() })?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().prefix(".bpfassay-bundle-").tempfile_in(directory).map_err(create)?;
    let mut xz = XzWriter::new(BufWriter::new(new.as_file_mut()), XzOptions::with_preset(PRESET)).map_err(create)?;
    archive.write_to(&mut xz)?;
    let written = |source| Error::io("write", path)(source);
    xz.finish().and_then(|mut file| file.flush()).map_err(written)?;
    let file = new.as_file();
    file.sync_all().map_err(written)?;
    let size = file.metadata().map_err(written)?.len();
    // Whoever may read the directory may read it, as any file that a command writes.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.set_permissions(mode).map_err(written)?;
    new.persist_noclobber(path).map_err(|error| create(error.error))?;
    Ok(size)
}

/// The manifest of the bundle in the file `path`, for what guests there are. Its paths are those in the bundle.
///
/// # Errors
/// [`Error::Bundle`] for a file that is none; [`Error::Manifest`] where its manifest contradicts itself.
pub fn manifest(path: &Path) -> Result<Manifest> {
    Reader::open(path).map(|(manifest, _)| manifest)
}

/// Puts what is in the bundle in the file `path` into the cache, and returns the manifest of its guests there.
///
/// # Errors
/// [`Error::Bundle`] for a file that is none, or lacks something; [`Error::Mismatch`] where something has another content than its name promises;
/// [`Error::Manifest`] where its manifest contradicts itself; [`Error::Io`] and [`Error::DiskFull`] where the cache cannot take it.
pub fn unpack(cache: &Cache, path: &Path) -> Result<Manifest> {
    let (mut manifest, mut reader) = Reader::open(path)?;
    let mut missing = BTreeMap::new();
    for file in manifest.targets.iter().flat_map(Target::files) {
        if *missing.entry(file.sha256).or_insert(file.size) != file.size {
            return Err(reader.refuse(format!("its manifest names {} with two sizes", file.sha256)));
        }
    }
    let mut places = BTreeMap::new();
    while let Some(entry) = reader.next()? {
        if !entry.is_file && entry.name == OBJECTS && entry.size == 0 {
            continue;
        }
        let digest = digest_of(&entry).filter(|digest| missing.get(digest) == Some(&entry.size));
        let Some(digest) = digest else {
            return Err(reader.refuse(format!("`{}` is not in its manifest like that", entry.name.escape_debug())));
        };
        missing.remove(&digest);
        let object = match cache.object(&digest)? {
            Some(object) => object,
            None => {
                let (path, entries) = (&reader.path, &mut reader.entries);
                let damaged = |source| BundleError::Damaged { path: path.clone(), source }.into();
                cache.add_from(&entry.name, entries, (Some(digest), entry.size), damaged)?
            }
        };
        places.insert(digest, object.path);
    }
    if let Some(digest) = missing.keys().next() {
        return Err(
            reader.refuse(format!("{} of the files of its manifest are missing, such as {digest}", missing.len()))
        );
    }
    for file in manifest.targets.iter_mut().flat_map(Target::files_mut) {
        if let Some(place) = places.get(&file.sha256) {
            file.path.clone_from(place);
        }
    }
    Ok(manifest)
}

/// The digest that is the name of `entry`, which is a file.
fn digest_of(entry: &Entry) -> Option<Digest> {
    let name = entry.name.strip_prefix(OBJECTS)?.strip_prefix('/')?;
    name.parse().ok().filter(|_| entry.is_file)
}

/// A bundle that is read.
struct Reader {
    path: PathBuf,
    entries: Entries<XzReader<BufReader<fs::File>>>,
}

impl Reader {
    /// The manifest, and what reads everything after it.
    fn open(path: &Path) -> Result<(Manifest, Self)> {
        let file = bpfassay_input::open(path).map_err(|source| BundleError::Open { path: path.to_owned(), source })?;
        let xz = XzReader::new_mem_limit(BufReader::with_capacity(1 << 20, file), false, MOST_MEMORY);
        let mut reader = Self { path: path.to_owned(), entries: Entries::new(xz) };
        let first = reader.next()?;
        let Some(entry) = first.filter(|entry| entry.is_file && entry.name == MANIFEST && entry.size <= MAX_MANIFEST)
        else {
            return Err(reader.refuse(format!("it does not begin with `{MANIFEST}`")));
        };
        let mut text = Vec::new();
        let read = reader.entries.by_ref().take(entry.size).read_to_end(&mut text);
        read.map_err(|source| reader.damaged(source))?;
        Ok((Manifest::parse(path, &text)?, reader))
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        self.entries.next().map_err(|source| self.damaged(source))
    }

    fn damaged(&self, source: io::Error) -> Error {
        BundleError::Damaged { path: self.path.clone(), source }.into()
    }

    fn refuse(&self, problem: String) -> Error {
        BundleError::Content { path: self.path.clone(), problem }.into()
    }
}

#[cfg(test)]
mod tests;
