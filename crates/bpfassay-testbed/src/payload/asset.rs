// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assets: the guest's programs of one architecture, as two files that a directory or a URL offers.
//!
//! ```text
//! payload-ARCH-DIGEST.json     the index: sources, toolchain and all hashes
//! payload-ARCH-DIGEST.cpio.xz  the programs
//! ```
//!
//! DIGEST is the first 16 digits of a digest of the sources and of how programs are built from
//! them. One look-up therefore finds what a command needs, however many versions a place offers. An
//! index contains no path, because names follow from architecture and digest.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Cursor, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use bpfassay_packages::{
    apt::{Apt, AssetSource},
    digest::Digest,
    error::PackagesError,
};
use bpfassay_protocol::Arch;
use lzma_rust2::{XzOptions, XzWriter};
use serde::{Deserialize, Serialize};

use super::{Built, PROGRAMS, RECORD, RecordedPayload, asset_key, asset_source, record_key};
use crate::{
    error::{
        Error, Result,
        unusable_file::{ASSET_FORMAT, ASSET_REMEDY, AssetError},
    },
    initramfs::{Archive, FileContent, NewcNode, find::find_in},
    kernel_modules::decompress,
    manifest::{Component, ProgramAsset},
};

/// Largest index that is read, in bytes. Real ones have about 30 kB.
const MAX_INDEX: u64 = 1 << 20;

/// Largest archive that is read, in bytes. Real ones have up to 5 MB.
const MAX_ARCHIVE: u64 = 256 << 20;

/// Largest program, in bytes.
const MAX_PROGRAM: u64 = 256 << 20;

/// Largest size of an archive's headers and names, in bytes.
const MAX_HEADERS: u64 = 1 << 16;

/// Preset of xz. Higher presets take twice the time and save 2 %.
const PRESET: u32 = 6;

/// The content of an asset's index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetIndex {
    /// Format version: 1.
    pub format: u32,
    /// The architecture that the programs run on.
    pub arch: Arch,
    /// Digest of the sources.
    pub source: Digest,
    /// Digest of the sources and of how programs are built from them. It is part of the file names.
    pub key: Digest,
    /// Size and hash of the compressed archive.
    pub archive: FileHash,
    /// The programs, by name.
    pub programs: BTreeMap<String, FileHash>,
    /// Digest of everything that the toolchain was built from.
    pub toolchain_key: Digest,
    /// The packages of the toolchain, sorted.
    pub toolchain: Vec<Component>,
}

/// Size and hash of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileHash {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Digest,
}

impl AssetIndex {
    /// Parses the text of an index. `file` names it in messages.
    ///
    /// # Errors
    /// [`AssetError`] if the text is not an index, has another format version, or contradicts
    /// itself.
    pub fn parse(file: &str, text: &[u8]) -> Result<Self, AssetError> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u64,
        }
        let form = |source| AssetError::Form { file: file.to_owned(), source };
        let refuse = |problem| AssetError::Content { file: file.to_owned(), problem };
        let Versioned { format } = serde_json::from_slice(text).map_err(form)?;
        if format != u64::from(ASSET_FORMAT) {
            return Err(refuse(format!("has format {format}, this program reads {ASSET_FORMAT}")));
        }
        let index: Self = serde_json::from_slice(text).map_err(form)?;
        if !index.programs.keys().map(String::as_str).eq(names()) {
            return Err(refuse(format!(
                "must name the programs {} and no others",
                names().collect::<Vec<_>>().join(", ")
            )));
        }
        let sizes = index.programs.values().map(|program| (program.size, MAX_PROGRAM));
        if sizes.chain([(index.archive.size, MAX_ARCHIVE)]).any(|(size, most)| !(1..=most).contains(&size)) {
            return Err(refuse("names a file that is empty or too large".to_owned()));
        }
        Ok(index)
    }

    /// Returns the record of this asset for a manifest.
    fn used(&self, place: &AssetSource) -> ProgramAsset {
        ProgramAsset { arch: self.arch, source: self.source, sha256: self.archive.sha256, from: place.to_string() }
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    let mut names = PROGRAMS.map(|program| program.binary);
    names.sort_unstable();
    names.into_iter()
}

/// Returns the common name of an asset's two files, without their suffixes.
fn name(arch: Arch, source: Digest) -> String {
    format!("payload-{arch}-{}", &asset_key(source).to_string()[..16])
}

fn index_name(arch: Arch, source: Digest) -> String {
    name(arch, source) + ".json"
}

fn archive_name(arch: Arch, source: Digest) -> String {
    name(arch, source) + ".cpio.xz"
}

/// Reads the index of the programs for `arch` from `source` in `place`, if `place` offers them.
///
/// # Errors
/// [`AssetError`] for an invalid index, and the errors of reading it.
pub(super) fn find(apt: &Apt<'_>, place: &AssetSource, source: Digest, arch: Arch) -> Result<Option<AssetIndex>> {
    let name = index_name(arch, source);
    let Some(text) = asset_source::read(apt, place, &name, MAX_INDEX)? else { return Ok(None) };
    let file = asset_source::shown(place, &name);
    let index = AssetIndex::parse(&file, &text)?;
    // An index of other programs is valid in itself, so nothing else would notice the exchange.
    if (index.arch, index.source, index.key) != (arch, source, asset_key(source)) {
        let problem = format!("is for {} and the sources {}, not for {arch} and {source}", index.arch, index.source);
        return Err(AssetError::Content { file, problem }.into());
    }
    Ok(Some(index))
}

/// Reads the programs of `index` from `place`, in the order of [`PROGRAMS`], and checks their
/// hashes.
///
/// # Errors
/// [`PackagesError::Mismatch`] and [`AssetError`] if the archive is not the one that the index
/// names, and the errors of reading it.
pub(super) fn read(apt: &Apt<'_>, place: &AssetSource, index: &AssetIndex) -> Result<[Vec<u8>; 3]> {
    let name = archive_name(index.arch, index.source);
    let file = asset_source::shown(place, &name);
    let refuse = |problem: String| Error::from(AssetError::Content { file: file.clone(), problem });
    let archive = asset_source::read(apt, place, &name, index.archive.size.min(MAX_ARCHIVE))?;
    let archive = archive.ok_or_else(|| refuse("is not there, and its index is".to_owned()))?;
    unpack(index, archive, &file)
}

/// Unpacks and checks the programs in the bytes of an archive. `file` names it in messages.
fn unpack(index: &AssetIndex, archive: Vec<u8>, file: &str) -> Result<[Vec<u8>; 3]> {
    let refuse = |problem: String| Error::from(AssetError::Content { file: file.to_owned(), problem });
    index.archive.check(&archive, file.to_owned())?;
    let limit = index.programs.values().map(|program| program.size).sum::<u64>() + MAX_HEADERS;
    let archive =
        decompress::decompress(archive, limit).map_err(|error| refuse(format!("cannot be unpacked ({error})")))?;
    let mut programs = PROGRAMS.map(|_| Vec::new());
    for (program, content) in PROGRAMS.iter().zip(&mut programs) {
        let promised = index.programs.get(program.binary).ok_or_else(|| refuse(format!("lacks {}", program.binary)))?;
        let found = find_in(Cursor::new(&archive), program.binary, promised.size)
            .map_err(|error| refuse(format!("cannot be unpacked ({error})")))?;
        *content = found.ok_or_else(|| refuse(format!("lacks {}", program.binary)))?;
        promised.check(content, format!("{} in {file}", program.binary))?;
    }
    Ok(programs)
}

/// Copies the programs of `index` from `place` into the cache, and records them.
///
/// # Errors
/// The errors of [`read`] and of the cache.
pub(super) fn take(apt: &Apt<'_>, place: &AssetSource, index: AssetIndex) -> Result<()> {
    let cache = apt.cache();
    let [agent, tracer, ior] = read(apt, place, &index)?;
    let add = |program: &super::PayloadProgram, content: Vec<u8>| {
        Ok::<_, Error>(cache.add_bytes(&format!("{} for {}", program.binary, index.arch), &content)?.digest)
    };
    let [of_agent, of_tracer, of_ior] = &PROGRAMS;
    let recorded = RecordedPayload {
        agent: add(of_agent, agent)?,
        tracer: add(of_tracer, tracer)?,
        ior: add(of_ior, ior)?,
        toolchain_key: index.toolchain_key,
        asset: Some(index.used(place)),
        toolchain: index.toolchain,
    };
    Ok(cache.record(RECORD, &record_key(index.source, index.arch), &recorded)?)
}

/// Writes programs as an asset into `directory`, which must exist. Replaces an asset of the same
/// sources. The same programs give the same bytes.
///
/// # Errors
/// [`Error::Archive`] if a program cannot be read, [`PackagesError::Io`] if a file cannot be
/// written.
pub(super) fn write(directory: &Path, built: &Built) -> Result<AssetIndex> {
    let payload = &built.payload;
    let mut archive = Archive::default();
    let mut programs = BTreeMap::new();
    for (name, object) in payload.programs() {
        let content = FileContent::of_file(&object.path)?;
        archive.add(name, NewcNode::File { executable: true, content })?;
        programs.insert(name.to_owned(), FileHash { size: object.size, sha256: object.digest });
    }
    let path = directory.join(archive_name(payload.arch, payload.source));
    let compressed = compress(&archive.to_bytes()?).map_err(Error::io("write", &path))?;
    let index = AssetIndex {
        format: ASSET_FORMAT,
        arch: payload.arch,
        source: payload.source,
        key: asset_key(payload.source),
        archive: FileHash::of(&compressed),
        programs,
        toolchain_key: built.toolchain_key,
        toolchain: built.toolchain.clone(),
    };
    // The index is written last, so that its presence means a complete archive.
    replace(&path, &compressed, 0o644)?;
    let path = directory.join(index_name(payload.arch, payload.source));
    let text = serde_json::to_string_pretty(&index).map_err(|error| Error::io("write", &path)(error.into()))? + "\n";
    replace(&path, text.as_bytes(), 0o644)?;
    Ok(index)
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(PRESET))?;
    writer.write_all(bytes)?;
    writer.finish()
}

/// Atomically writes `content` with these permissions to `path`.
///
/// # Errors
/// [`PackagesError::Io`] if the file cannot be written.
pub(super) fn replace(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let write = || {
        let mut file = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(mode))
            .tempfile_in(path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(content)?;
        file.persist(path).map_err(|error| error.error)
    };
    write().map(drop).map_err(Error::io("write", path))
}

impl FileHash {
    fn of(content: &[u8]) -> Self {
        Self { size: content.len() as u64, sha256: Digest::of(content) }
    }

    /// Checks that `content` has this size and hash. `what` names it in messages.
    fn check(&self, content: &[u8], what: String) -> Result<()> {
        let found = Self::of(content);
        if found.sha256 != self.sha256 {
            let (expected, found) = (self.sha256, found.sha256);
            return Err(PackagesError::Mismatch { what, expected, found, remedy: ASSET_REMEDY }.into());
        }
        if found.size != self.size {
            let problem = format!("has {} bytes, not {}", found.size, self.size);
            return Err(AssetError::Content { file: what, problem }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
