// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the kernel that tools read in a guest.
//!
//! - `/boot/config-RELEASE`, which libbpf reads for `__kconfig` variables.
//! - The headers, for tools that compile in the guest, as tools of bcc do. They are where the
//!   packages put them, and `/lib/modules/RELEASE/build` and `source` lead to them.

use std::path::Path;

use bpfassay_packages::{
    cache::{Cache, Scratch},
    digest::Digest,
    unpack,
    untrusted_tree::UntrustedTree,
};

use crate::{
    error::Result,
    initramfs::{Archive, FileContent, NewcNode, initramfs_tree},
    kernel::BootableKernel,
    manifest::{self, Component, Segment},
    segment::{role, segment},
};

/// Change this version when the same packages give other segments than before.
const KEY_VERSION: &str = "1";

/// The directory of module trees. Guests with packages have `/lib` as a link to `/usr/lib`.
const MODULE_TREES: &str = "usr/lib/modules";

/// Links of a module tree to the headers.
const LINKS: [&str; 2] = ["build", "source"];

/// Creates a segment with the configuration of the kernel. Returns `None` if the configuration is
/// not known.
///
/// # Errors
/// The errors of reading the file and of the cache.
pub fn config_segment(cache: &Cache, kernel: &manifest::Kernel) -> Result<Option<Segment>> {
    let Some(config) = &kernel.config else { return Ok(None) };
    let path = format!("/boot/config-{}", kernel.release);
    let key = Digest::of_parts([KEY_VERSION, role::KERNEL_FILES, &path, &config.sha256.to_string()]);
    let object = segment(cache, &key, "the configuration of the kernel", || {
        let mut archive = Archive::default();
        let content = FileContent::of_file(&config.path)?;
        archive.add(&path, NewcNode::File { executable: false, content })?;
        Ok(archive)
    })?;
    let component = Component { name: path, version: String::new(), sha256: config.sha256 };
    Ok(Some(Segment { role: role::KERNEL_FILES.to_owned(), archive: (&object).into(), contents: vec![component] }))
}

/// Creates the segment with the headers of `kernel`. Returns `None` if the kernel has no packages
/// with headers.
///
/// # Errors
/// The errors of unpacking packages and of the cache.
pub(crate) fn headers_segment(cache: &Cache, kernel: &BootableKernel) -> Result<Option<Segment>> {
    if kernel.headers.is_empty() {
        return Ok(None);
    }
    let digests = kernel.headers.iter().map(|package| package.digest.to_string());
    let key = Digest::of_parts([KEY_VERSION.to_owned(), role::KERNEL_FILES.to_owned()].into_iter().chain(digests));
    let what = format!("the headers of kernel {}", kernel.release);
    // Keeps the directory until the segment is written, which reads its files.
    let mut unpacked: Option<Scratch> = None;
    let object = segment(cache, &key, &what, || {
        let scratch = cache.scratch()?;
        let tree = UntrustedTree::open(scratch.path())?;
        for package in &kernel.headers {
            unpack::unpack(&package.path, &tree, &[], &what)?;
        }
        let archive = headers_in(scratch.path(), &kernel.release)?;
        unpacked = Some(scratch);
        Ok(archive)
    })?;
    drop(unpacked);
    let component = Component {
        name: format!("linux-headers-{}", kernel.release),
        version: kernel.version.clone().unwrap_or_default(),
        sha256: object.digest,
    };
    Ok(Some(Segment { role: role::KERNEL_FILES.to_owned(), archive: (&object).into(), contents: vec![component] }))
}

/// Returns the headers below `unpacked`, and the links of the module tree of `release` to them.
/// Leaves out everything that a compiler does not read.
fn headers_in(unpacked: &Path, release: &str) -> Result<Archive> {
    let mut all = Archive::default();
    initramfs_tree::add_directory(&mut all, unpacked, "")?;
    let mut archive = Archive::default();
    for (path, node) in all.entries() {
        let link = LINKS.iter().find(|&&link| Path::new(path).ends_with(format!("modules/{release}/{link}")));
        match (node, link) {
            (NewcNode::Symlink { .. }, Some(link)) => {
                archive.add(&format!("{MODULE_TREES}/{release}/{link}"), node.clone())?;
            }
            (NewcNode::File { .. }, _) if path.ends_with(".h") => archive.add(path, node.clone())?,
            _ => {}
        }
    }
    for (path, node) in archive.entries() {
        initramfs_tree::check_reserved(path, node)?;
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::initramfs::find;

    /// libbpf reads it for objects with `__kconfig` variables.
    #[test]
    fn a_guest_with_tools_has_the_configuration_of_its_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            manifest::File { path, size: text.len() as u64, sha256: Digest::of(text.as_bytes()) }
        };
        let text = "CONFIG_HZ=250\n";
        let kernel = manifest::Kernel {
            release: "6.1-x".parse().unwrap(),
            version: None,
            image: file("image", "x"),
            config: Some(file("config", text)),
            modules: None,
            packages: Vec::new(),
        };
        let segment = config_segment(&cache, &kernel).unwrap().unwrap();
        let found = find::find(&segment.archive.path, "/boot/config-6.1-x", 1 << 10).unwrap();
        assert_eq!(found.as_deref(), Some(text.as_bytes()));
        assert_eq!(config_segment(&cache, &manifest::Kernel { config: None, ..kernel }).unwrap(), None);
    }

    /// Packages up to Debian 11 have `lib/modules`, later ones `usr/lib/modules`.
    #[test]
    fn a_guest_gets_what_a_compiler_reads_and_the_links_to_it() {
        for modules in ["lib/modules", "usr/lib/modules"] {
            let directory = tempfile::tempdir().unwrap();
            let source = "usr/src/linux-headers-6.1-x";
            for file in ["include/linux/bpf.h", "Makefile", "scripts/mod/modpost", "build"] {
                let path = directory.path().join(source).join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
            for release in ["6.1-x", "6.1-y"] {
                let tree = directory.path().join(modules).join(release);
                fs::create_dir_all(&tree).unwrap();
                symlink(format!("/{source}"), tree.join("build")).unwrap();
            }
            let archive = headers_in(directory.path(), "6.1-x").unwrap();
            let files: Vec<&str> = archive
                .entries()
                .filter(|(_, node)| !matches!(node, NewcNode::Directory { .. }))
                .map(|(path, _)| path)
                .collect();
            assert_eq!(files, ["usr/lib/modules/6.1-x/build", "usr/src/linux-headers-6.1-x/include/linux/bpf.h"]);
            let link = NewcNode::Symlink { target: format!("/{source}") };
            assert_eq!(archive.get("usr/lib/modules/6.1-x/build"), Some(&link));
        }
    }
}
