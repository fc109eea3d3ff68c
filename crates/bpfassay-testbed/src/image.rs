// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest of one boot: a kernel, and an initramfs made of cached segments and the job.
//!
//! A guest has the segments `base` (agent, tracer, embedded IOR, directories) and `modules` (of one
//! kernel, with their order in [`MODULE_SET`]). If asked for, it also has `overlay` (a user's
//! directory tree), `tools` (files of tools under test), `kernel-files` (of one kernel, for tools)
//! and `shell` (busybox). Segments are plain newc archives. The initramfs of a boot is their
//! concatenation, with the job's archive at the end.

use std::{
    collections::BTreeSet,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use bpfassay_packages::{
    apt::Apt,
    cache::Cache,
    digest::{Digest, Hasher},
    error::PackagesError,
    safe_names::KernelRelease,
};
use bpfassay_protocol::{
    Arch, JOB_PATH,
    job::{FileSystem, Job},
    layout,
};

use crate::{
    busybox,
    error::{Error, Result},
    initramfs::{Archive, FileContent, NewcNode, find, initramfs_tree::Overlay},
    kernel::{BootableKernel, Modules},
    kernel_files,
    kernel_modules::{ModuleSet, ModulesError, Signatures, signature},
    manifest::{self, Component, Segment},
    payload::Payload,
    pvh,
    segment::{role, segment, store},
};

/// Path of the [`ModuleSet`] in the modules segment: modules and their dependencies, as JSON.
pub const MODULE_SET: &str = "/bpfassay/modules/set.json";

/// Limit on a module set, in bytes. Real module sets have about 3 KB.
const MAX_MODULE_SET: u64 = 1 << 20;

/// Limit on a kernel configuration, in bytes. Real configurations have about 300 KB.
pub(crate) const MAX_CONFIG: u64 = 16 << 20;

/// Change this whenever the same inputs give other segments.
const KEY_VERSION: &str = "3";

/// Creates the `base` segment with the programs of `payload`.
///
/// # Errors
/// [`Error::Archive`] if a program cannot be read, and [`Error`] of the cache.
pub fn base_segment(cache: &Cache, payload: &Payload) -> Result<Segment> {
    let programs = [(layout::AGENT, &payload.agent), (layout::TRACER, &payload.tracer), (layout::IOR, &payload.ior)];
    let key = Digest::of_parts(
        [KEY_VERSION.to_owned(), role::BASE.to_owned()].into_iter().chain(programs.map(|(_, o)| o.digest.to_string())),
    );
    let object = segment(cache, &key, "the guest's base segment", || {
        let mut archive = Archive::default();
        for directory in layout::DIRECTORIES {
            archive.add(directory, NewcNode::Directory { shared: directory == "/tmp" })?;
        }
        archive.add("/dev/console", NewcNode::CharacterDevice { major: 5, minor: 1 })?;
        for (path, object) in programs {
            let content = FileContent::of_file(&object.path)?;
            archive.add(path, NewcNode::File { executable: true, content })?;
        }
        Ok(archive)
    })?;
    let contents = programs
        .map(|(path, object)| Component {
            name: path.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sha256: object.digest,
        })
        .to_vec();
    Ok(Segment { role: role::BASE.to_owned(), archive: (&object).into(), contents })
}

/// Creates the `modules` segment for `kernel`, with the modules `of_tools`. Returns `None` if the
/// kernel has no modules.
///
/// # Errors
/// [`Error::Modules`] if the module tree cannot be used, and [`Error`] of the cache.
pub fn modules_segment(cache: &Cache, kernel: &BootableKernel, of_tools: &BTreeSet<String>) -> Result<Option<Segment>> {
    let Some(modules) = &kernel.modules else { return Ok(None) };
    let signatures = signatures(kernel)?;
    let kept = match signatures {
        Signatures::Kept => "signed",
        Signatures::Cut => "unsigned, without enum values",
    };
    // The segment also depends on which modules this version of the program selects.
    let wanted = crate::kernel_modules::wanted(of_tools).collect::<Vec<_>>().join(" ");
    let key = Digest::of_parts([KEY_VERSION, role::MODULES, kept, &modules.key.to_string(), &wanted]);
    let what = format!("the modules of kernel {}", kernel.release);
    let object = segment(cache, &key, &what, || modules_archive(modules, signatures, of_tools))?;
    Ok(Some(Segment { role: role::MODULES.to_owned(), archive: (&object).into(), contents: Vec::new() }))
}

/// Describes a guest with `kernel` for the manifest, with the modules `of_tools`. The guest has
/// only the segments of the kernel until [`with_shared`] adds the others.
///
/// # Errors
/// The errors of [`modules_segment`] and [`pvh::boot_image`]: the kernel is damaged, a file cannot
/// be read, or a segment cannot be stored.
pub fn target(cache: &Cache, kernel: &BootableKernel, of_tools: &BTreeSet<String>) -> Result<manifest::Target> {
    let headers = kernel_files::headers_segment(cache, kernel)?;
    let initramfs = modules_segment(cache, kernel, of_tools)?.into_iter().chain(headers).collect();
    let mut description = kernel.to_manifest();
    description.image = pvh::boot_image(cache, kernel)?;
    Ok(manifest::Target { arch: kernel.arch, name: kernel.name.clone(), kernel: description, initramfs })
}

/// Adds the segments that all guests of an architecture share. The first one is the base.
#[must_use]
pub fn with_shared(mut target: manifest::Target, shared: &[Segment]) -> manifest::Target {
    // The base comes before the modules, and the overlay after them.
    let (base, others) = shared.split_at(1.min(shared.len()));
    target.initramfs = base.iter().cloned().chain(target.initramfs).chain(others.iter().cloned()).collect();
    target
}

/// Keeps signatures if the kernel enforces them, or if its configuration is unknown.
fn signatures(kernel: &BootableKernel) -> Result<Signatures> {
    let Some(config) = &kernel.config else { return Ok(Signatures::Kept) };
    let text = bpfassay_input::read(&config.path, MAX_CONFIG).map_err(Error::io("read", &config.path))?;
    Ok(if signature::enforced(&String::from_utf8_lossy(&text)) { Signatures::Kept } else { Signatures::Cut })
}

/// Creates the archive of the `modules` segment for a module tree, with the modules `of_tools`.
///
/// # Errors
/// [`Error::Modules`] if the tree cannot be read or is incomplete.
pub fn modules_archive(modules: &Modules, signatures: Signatures, of_tools: &BTreeSet<String>) -> Result<Archive> {
    let (set, mut archive) = ModuleSet::read(&modules.path, modules.layout, signatures, of_tools)?;
    let text = serde_json::to_vec(&set).map_err(|error| Error::io("write", MODULE_SET)(error.into()))?;
    archive.add(MODULE_SET, NewcNode::File { executable: false, content: text.into() })?;
    Ok(archive)
}

/// Creates the `overlay` segment from the tree `directory`, which must contain a real IOR for
/// `arch`. The tree is read and written each time, because there is no cheap way to detect a
/// change. An unchanged tree gives the same digest.
///
/// # Errors
/// [`Error::Overlay`] if the tree has no IOR or is unfit for a guest, and [`Error`] of the cache.
pub fn overlay_segment(cache: &Cache, arch: Arch, directory: &Path) -> Result<Segment> {
    let overlay = Overlay::read(arch, directory)?;
    let object = store(cache, &format!("the overlay {}", directory.display()), &overlay.archive)?;
    let contents =
        vec![Component { name: layout::EXTERNAL_IOR.to_owned(), version: overlay.ior.clone(), sha256: object.digest }];
    Ok(Segment { role: role::OVERLAY.to_owned(), archive: (&object).into(), contents })
}

/// Creates the `shell` segment with Debian's static busybox for `arch`.
///
/// # Errors
/// [`Error`] of downloading or unpacking Debian's busybox package, and of the cache.
pub fn shell_segment(apt: &Apt<'_>, arch: Arch) -> Result<Segment> {
    let (program, component) = busybox::prepare(apt, arch)?;
    let key = Digest::of_parts([KEY_VERSION, role::SHELL, &program.digest.to_string()]);
    let object = segment(apt.cache(), &key, "busybox for the guest's shell", || {
        let mut archive = Archive::default();
        let content = FileContent::of_file(&program.path)?;
        archive.add(layout::BUSYBOX, NewcNode::File { executable: true, content })?;
        Ok(archive)
    })?;
    Ok(Segment { role: role::SHELL.to_owned(), archive: (&object).into(), contents: vec![component] })
}

/// A guest that can be booted any number of times.
#[derive(Debug, Clone)]
pub struct GuestImage {
    /// The guest's architecture.
    pub arch: Arch,
    kernel: PathBuf,
    release: KernelRelease,
    segments: Vec<manifest::File>,
    modules: ModuleSet,
    /// Size of the segments for tools, in bytes.
    tools: u64,
}

impl GuestImage {
    /// Creates the guest that `target` describes. Its paths must be absolute, like those of
    /// [`manifest::Manifest::load`]. The kernel is monolithic without a segment of role
    /// [`role::MODULES`].
    ///
    /// # Errors
    /// - [`Error::Archive`]: the modules segment cannot be read.
    /// - [`Error::ModuleSet`]: the modules segment has no usable [`MODULE_SET`].
    pub fn from_manifest(target: &manifest::Target) -> Result<Self> {
        let mut modules = ModuleSet::monolithic();
        if let Some(segment) = target.initramfs.iter().find(|segment| segment.role == role::MODULES) {
            let path = &segment.archive.path;
            let text = find::find(path, MODULE_SET, MAX_MODULE_SET)?.unwrap_or_default();
            modules =
                serde_json::from_slice(&text).map_err(|source| Error::ModuleSet { path: path.clone(), source })?;
        }
        let tools =
            target.initramfs.iter().filter(|segment| [role::TOOLS, role::KERNEL_FILES].contains(&&*segment.role));
        Ok(Self {
            tools: tools.map(|segment| segment.archive.size).sum(),
            arch: target.arch,
            kernel: target.kernel.image.path.clone(),
            release: target.kernel.release.clone(),
            segments: target.initramfs.iter().map(|segment| segment.archive.clone()).collect(),
            modules,
        })
    }

    /// Returns the path of the kernel image for QEMU.
    #[must_use]
    pub fn kernel(&self) -> &Path {
        &self.kernel
    }

    /// Returns what `uname -r` prints in the guest.
    #[must_use]
    pub fn release(&self) -> &KernelRelease {
        &self.release
    }

    /// Returns the guest memory in MiB that tools under test need before they run. Memory has their
    /// files twice during boot: in the initramfs and unpacked.
    #[must_use]
    pub fn tools_mib(&self) -> u32 {
        u32::try_from((2 * self.tools).div_ceil(1 << 20)).unwrap_or(u32::MAX)
    }

    /// Returns the size of the segments in bytes: the initramfs of a boot without the job.
    #[must_use]
    pub fn initramfs_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// Returns the modules of the kernel.
    #[must_use]
    pub fn modules(&self) -> &ModuleSet {
        &self.modules
    }

    /// Returns the value of [`Job::modules`] for this file system under test. `is_node` means that
    /// the guest is one of several nodes.
    ///
    /// # Errors
    /// [`ModulesError::Missing`] if the kernel lacks a module that the guest needs.
    pub fn module_paths(&self, file_system: &FileSystem, is_node: bool) -> Result<Vec<String>, ModulesError> {
        self.modules.load_order(file_system, is_node)
    }

    /// Writes the initramfs of a boot that executes `job` to `file`, and returns its size in bytes.
    /// Checks the digest of every segment. `shown` names `file`, which need not have a path, in
    /// errors.
    ///
    /// # Errors
    /// - [`Error::Segment`]: a segment has other content than the manifest says.
    /// - [`PackagesError::DiskFull`], [`PackagesError::Io`]: a segment cannot be read, or `file`
    ///   cannot be written.
    pub fn write_initramfs_to(&self, job: &Job, file: impl Write, shown: &Path) -> Result<u64> {
        let text = serde_json::to_vec(job).map_err(|error| Error::io("write", JOB_PATH)(error.into()))?;
        let mut archive = Archive::default();
        archive.add(JOB_PATH, NewcNode::File { executable: false, content: text.into() })?;
        let last = archive.to_bytes()?;
        let needed = self.initramfs_bytes() + last.len() as u64;
        let failed = |source| write_error(shown, needed, source);
        let mut writer = BufWriter::with_capacity(1 << 18, file);
        for segment in &self.segments {
            copy_segment(segment, |bytes| writer.write_all(bytes).map_err(failed))?;
        }
        writer.write_all(&last).and_then(|()| writer.flush()).map_err(failed)?;
        Ok(needed)
    }
}

fn copy_segment(segment: &manifest::File, mut put: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let read = |source| Error::io("read", &segment.path)(source);
    let mut file = bpfassay_input::open(&segment.path).map_err(read)?.take(segment.size.saturating_add(1));
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let length = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result.map_err(read)?,
        };
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
        put(&buffer[..length])?;
    }
    let found = hasher.finish();
    if found == segment.sha256 {
        return Ok(());
    }
    Err(Error::Segment { path: segment.path.clone(), expected: segment.sha256, found })
}

fn write_error(path: &Path, needed: u64, source: io::Error) -> Error {
    if bpfassay_packages::cache::is_full(&source) {
        let directory = path.parent().unwrap_or(path).to_owned();
        let free = bpfassay_packages::cache::free_space(&directory).unwrap_or(0);
        return PackagesError::DiskFull { what: "the initramfs of a boot".to_owned(), path: directory, needed, free }
            .into();
    }
    Error::io("write", path)(source)
}

#[cfg(test)]
mod tests;
