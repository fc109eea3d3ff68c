// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundles as a stranger makes them: with any entry and any QEMU.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use bpfassay_packages::digest::Digest;
use lzma_rust2::{XzOptions, XzWriter};
use serde_json::{Value, json};

use super::hostile_package::{EntryNode, PackageEntry, cpio, file};

/// The content of a bundle.
#[derive(Debug, Clone)]
pub struct BundleContent {
    /// The manifest. Paths are relative to the bundle.
    pub manifest: Value,
    /// Descriptions of QEMU's packages, for `emulator.json`.
    pub emulator: Vec<Value>,
    /// Files below `objects/`, with their names.
    pub objects: Vec<(String, Vec<u8>)>,
}

impl BundleContent {
    /// Reads the guests of the testbed whose manifest is at `path`. The result has no QEMU.
    ///
    /// # Errors
    /// If the manifest or a file that it names cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut manifest: Value = serde_json::from_slice(&fs::read(path)?)?;
        let mut objects = Vec::new();
        for place in ["/targets/0/kernel/image", "/targets/0/initramfs/0/archive"] {
            let Some(described) = manifest.pointer_mut(place) else {
                return Err(io::Error::other(format!("{} has no {place}", path.display())));
            };
            let bytes = fs::read(described["path"].as_str().unwrap_or_default())?;
            let digest = Digest::of(&bytes).to_string();
            described["path"] = format!("objects/{digest}").into();
            objects.push((digest, bytes));
        }
        Ok(Self { manifest, emulator: Vec::new(), objects })
    }

    /// Adds a package of QEMU with its name and bytes.
    pub fn add_package(&mut self, name: &str, bytes: Vec<u8>) {
        let digest = Digest::of(&bytes).to_string();
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        self.emulator.push(json!({
            "name": name, "version": "1:7.2+dfsg-7", "architecture": architecture, "size": bytes.len(), "sha256": digest,
        }));
        self.objects.push((digest, bytes));
    }

    /// Returns the entries of the archive in order.
    #[must_use]
    pub fn entries(&self) -> Vec<PackageEntry> {
        let mut entries = Vec::new();
        if !self.emulator.is_empty() {
            entries.push(file("emulator.json", Value::from(self.emulator.clone()).to_string().as_bytes()));
        }
        entries.push(file("manifest.json", self.manifest.to_string().as_bytes()));
        entries.push(("objects".to_owned(), EntryNode::Directory));
        entries.extend(self.objects.iter().map(|(name, bytes)| file(format!("objects/{name}"), bytes)));
        entries
    }
}

/// Packs `entries` into a bundle.
///
/// # Errors
/// Errors of compression, which do not occur in practice.
pub fn packed(entries: &[PackageEntry]) -> io::Result<Vec<u8>> {
    compressed(&cpio(entries))
}

/// Compresses `bytes` as an xz stream.
///
/// # Errors
/// Errors of compression, which do not occur in practice.
pub fn compressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut xz = XzWriter::new(Vec::new(), XzOptions::with_preset(0))?;
    xz.write_all(bytes)?;
    xz.finish()
}

#[cfg(test)]
mod tests {
    use bpfassay_packages::cache::Cache;
    use bpfassay_testbed::guest_bundle;

    use super::*;
    use crate::chaos_study::ArtificialTestbed;

    /// An unaltered bundle is accepted, so a refusal is due to the alteration.
    #[test]
    fn an_unaltered_bundle_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let testbed = ArtificialTestbed::make(folder.path()).unwrap();
        let mut content = BundleContent::of(&testbed.manifest).unwrap();
        content.add_package("qemu-system-x86", b"a package".to_vec());
        let path = folder.path().join("bundle");
        fs::write(&path, packed(&content.entries()).unwrap()).unwrap();
        assert_eq!(guest_bundle::qemu(&path).unwrap().len(), 1);
        let cache = Cache::open(folder.path().join("cache")).unwrap();
        assert_eq!(guest_bundle::unpack(&cache, &path).unwrap().targets.len(), 1);
    }
}
