// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundles: the guests of a testbed in one file, for hosts without a network and a compiler.
//!
//! ```text
//! FILE                 an xz stream of a cpio archive (newc):
//!   emulator.json      the packages of QEMU, if the bundle has it
//!   manifest.json      the manifest, with paths in the bundle
//!   objects/SHA-256…   each file that the two lists name, once
//! ```
//!
//! `xz -dc FILE | cpio -t` lists the content. A bundle can have the QEMU of
//! [`crate::testbed_lock`], for hosts of one architecture.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufReader, BufWriter, Read as _, Write as _},
    path::{Path, PathBuf},
};

use bpfassay_packages::{
    apt::{Package, is_plain},
    cache::{Cache, CachedFile},
    digest::Digest,
    unpack::{most_bytes, stream::Bounded},
};
use lzma_rust2::{XzOptions, XzReader, XzWriter};

use crate::{
    error::{Error, Result, unusable_file::BundleError},
    initramfs::{
        Archive, FileContent, NewcNode,
        cpio_entries::{Entries, NewcEntry},
    },
    manifest::{Check, MANIFEST, MAX_MANIFEST, Manifest, Target},
};

/// The list of QEMU's packages. Entries are sorted by name: this list and the manifest come first.
const EMULATOR: &str = "emulator.json";
/// The directory of all other files.
const OBJECTS: &str = "objects";

/// Limit on the list of packages, in bytes. A list has about 25,000.
const MAX_EMULATOR: u64 = 1 << 20;

/// Preset of xz. Higher presets need several times as long and save a few per cent: most
/// architectures' kernels are already compressed.
const PRESET: u32 = 1;
/// Limit on memory for decompression, in KiB. Presets up to 9 of xz need less.
const MOST_MEMORY: u32 = 128 << 10;

/// Writes a bundle to the file `path`, which must not exist, and returns its size in bytes. The
/// bundle has the guests of `manifest`, and the packages `qemu` with their files, if there are any.
/// The file appears when it is complete.
///
/// # Errors
/// [`Error::Manifest`] if a file is missing or differs from the manifest. [`Error::Archive`] if a
/// file changes in the meantime, or the disk is full. `PackagesError::Io` if `path` exists or
/// cannot be created.
pub fn write(manifest: &Manifest, qemu: &[(Package, CachedFile)], path: &Path) -> Result<u64> {
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
            archive.add(&name, NewcNode::File { executable: false, content: FileContent::of_file(&file.path)? })?;
        }
        file.path = name.into();
    }
    for (package, object) in qemu {
        if added.insert(package.sha256) {
            let content = FileContent::of_file(&object.path)?;
            archive.add(&format!("{OBJECTS}/{}", package.sha256), NewcNode::File { executable: false, content })?;
        }
    }
    if !qemu.is_empty() {
        let packages: Vec<_> = qemu.iter().map(|(package, _)| package).collect();
        let text = serde_json::to_vec_pretty(&packages).map_err(|error| create(error.into()))?;
        archive.add(EMULATOR, NewcNode::File { executable: false, content: text.into() })?;
    }
    let text = packed.to_json()?.into_bytes();
    archive.add(MANIFEST, NewcNode::File { executable: false, content: text.into() })?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().prefix(".bpfassay-bundle-").tempfile_in(directory).map_err(create)?;
    let mut xz = XzWriter::new(BufWriter::new(new.as_file_mut()), XzOptions::with_preset(PRESET)).map_err(create)?;
    archive.write_to(&mut xz)?;
    let written = |source| Error::io("write", path)(source);
    xz.finish().and_then(|mut file| file.flush()).map_err(written)?;
    let file = new.as_file();
    file.sync_all().map_err(written)?;
    let size = file.metadata().map_err(written)?.len();
    // Temporary files are private. A bundle is readable like any file that a command writes.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.set_permissions(mode).map_err(written)?;
    new.persist_noclobber(path).map_err(|error| create(error.error))?;
    Ok(size)
}

/// Reads the manifest of the bundle in the file `path`. Paths in it are those in the bundle.
///
/// # Errors
/// - [`Error::Bundle`]: the file is not a bundle.
/// - [`Error::Manifest`]: the manifest contradicts itself.
pub fn manifest(path: &Path) -> Result<Manifest> {
    BundleReader::open(path).map(|reader| reader.manifest)
}

/// Reads the list of QEMU's packages in the bundle in the file `path`. It is empty if the bundle
/// has no QEMU.
///
/// # Errors
/// The errors of [`manifest()`].
pub fn qemu(path: &Path) -> Result<Vec<Package>> {
    BundleReader::open(path).map(|reader| reader.qemu)
}

/// Copies the content of the bundle in the file `path` into the cache, including QEMU's packages.
/// Returns the manifest of the guests, with paths in the cache.
///
/// # Errors
/// - [`Error::Bundle`]: the file is not a bundle, or lacks something.
/// - `PackagesError::Mismatch`: a file differs from the digest in its name.
/// - [`Error::Manifest`]: the manifest contradicts itself.
/// - `PackagesError::Io`, `PackagesError::DiskFull`: the cache cannot store a file.
pub fn unpack(cache: &Cache, path: &Path) -> Result<Manifest> {
    let mut reader = BundleReader::open(path)?;
    let mut missing = BTreeMap::new();
    let files = reader.manifest.targets.iter().flat_map(Target::files).map(|file| (file.sha256, file.size));
    for (sha256, size) in files.chain(reader.qemu.iter().map(|package| (package.sha256, package.size))) {
        if *missing.entry(sha256).or_insert(size) != size {
            return Err(reader.refuse(format!("its manifest names {sha256} with two sizes")));
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
                let damaged = |source| damaged(path, source);
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
    let mut manifest = reader.manifest;
    for file in manifest.targets.iter_mut().flat_map(Target::files_mut) {
        if let Some(place) = places.get(&file.sha256) {
            file.path.clone_from(place);
        }
    }
    Ok(manifest)
}

/// Parses the digest in the name of `entry`, if that is a file in the directory of objects.
fn digest_of(entry: &NewcEntry) -> Option<Digest> {
    let name = entry.name.strip_prefix(OBJECTS)?.strip_prefix('/')?;
    name.parse().ok().filter(|_| entry.is_file)
}

/// An open bundle whose lists were read.
struct BundleReader {
    path: PathBuf,
    qemu: Vec<Package>,
    manifest: Manifest,
    entries: Entries<Bounded<'static>>,
}

impl BundleReader {
    /// Reads the lists at the start of the bundle.
    fn open(path: &Path) -> Result<Self> {
        let file = bpfassay_input::open(path).map_err(|source| BundleError::Open { path: path.to_owned(), source })?;
        let size = file.metadata().map_err(|source| BundleError::Open { path: path.to_owned(), source })?.len();
        let xz = XzReader::new_mem_limit(BufReader::with_capacity(1 << 20, file), false, MOST_MEMORY);
        let mut entries = Entries::new(Bounded::new(Box::new(xz), most_bytes(size)));
        let damaged = |source| damaged(path, source);
        let refuse = |problem| refuse(path, problem);
        let mut qemu = Vec::new();
        loop {
            let most = |name: &str| match name {
                EMULATOR if qemu.is_empty() => Some(MAX_EMULATOR),
                MANIFEST => Some(MAX_MANIFEST),
                _ => None,
            };
            let first = entries.next().map_err(damaged)?.filter(|entry| entry.is_file);
            let Some(entry) = first.filter(|entry| most(&entry.name).is_some_and(|most| entry.size <= most)) else {
                return Err(refuse(format!("it does not begin with `{MANIFEST}`")));
            };
            let mut text = Vec::new();
            entries.by_ref().take(entry.size).read_to_end(&mut text).map_err(damaged)?;
            if entry.name == MANIFEST {
                return Ok(Self { path: path.to_owned(), qemu, manifest: Manifest::parse(path, &text)?, entries });
            }
            qemu = packages(&text).map_err(|problem| refuse(format!("`{EMULATOR}`: {problem}")))?;
        }
    }

    fn next(&mut self) -> Result<Option<NewcEntry>> {
        self.entries.next().map_err(|source| damaged(&self.path, source))
    }

    fn refuse(&self, problem: String) -> Error {
        refuse(&self.path, problem)
    }
}

fn damaged(path: &Path, source: io::Error) -> Error {
    BundleError::Damaged { path: path.to_owned(), source }.into()
}

fn refuse(path: &Path, problem: String) -> Error {
    BundleError::Content { path: path.to_owned(), problem }.into()
}

/// Parses the list of packages. An error says what is wrong with it.
fn packages(text: &[u8]) -> Result<Vec<Package>, String> {
    let packages: Vec<Package> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let fields =
        |package: &Package| [package.name.as_str(), &package.version, &package.architecture].into_iter().all(is_plain);
    match packages.iter().find(|package| !fields(package)) {
        _ if packages.is_empty() => Err("it lists no package".to_owned()),
        Some(wrong) => Err(format!("`{}` is no package", wrong.specification().escape_debug())),
        None => Ok(packages),
    }
}

#[cfg(test)]
mod tests;
