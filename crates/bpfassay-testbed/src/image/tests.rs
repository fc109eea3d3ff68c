// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{fs, process::Command};

use bpfassay_packages::test_support::lacks;
use bpfassay_protocol::job::{Nfs, NfsVersion, Task};

use super::*;
use crate::initramfs::ArchiveError;
use crate::kernel_modules::ModuleLayout;

const NFS: FileSystem =
    FileSystem::Nfs(Nfs { version: NfsVersion::V42, localio: None, threads: 8, size_mib: 64, scheduling: None });

struct Bed {
    directory: tempfile::TempDir,
    cache: Cache,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        Self { directory, cache }
    }

    fn payload(&self) -> Payload {
        let program = |text: &str| self.cache.add_bytes(text, text.as_bytes()).unwrap();
        Payload {
            arch: Arch::X86_64,
            agent: program("agent"),
            tracer: program("tracer"),
            ior: program("ior"),
            source: Digest::of(b""),
        }
    }

    /// Creates a kernel with a tree of these modules and their `.modinfo` (`;` for zero bytes).
    fn kernel(&self, modules: &[(&str, &str)], builtin: &str) -> BootableKernel {
        let tree = self.directory.path().join("tree");
        for (file, modinfo) in modules {
            let path = tree.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let modinfo = modinfo.replace(';', "\0");
            fs::write(path, crate::kernel_modules::tests::module(Some(modinfo.as_bytes()))).unwrap();
        }
        fs::write(tree.join("modules.builtin"), builtin).unwrap();
        let image = self.cache.add_bytes("a kernel", b"kernel").unwrap();
        BootableKernel {
            headers: Vec::new(),
            arch: Arch::X86_64,
            name: "6.1".into(),
            release: "6.1-x".parse().unwrap(),
            version: None,
            image: (&image).into(),
            config: None,
            modules: Some(Modules { path: tree, layout: ModuleLayout::Installed, key: Digest::of(builtin.as_bytes()) }),
            packages: Vec::new(),
        }
    }

    fn target(&self, kernel: &BootableKernel) -> manifest::Target {
        let mut initramfs = vec![base_segment(&self.cache, &self.payload()).unwrap()];
        initramfs.extend(modules_segment(&self.cache, kernel, &BTreeSet::new()).unwrap());
        manifest::Target { arch: kernel.arch, name: kernel.name.clone(), kernel: kernel.to_manifest(), initramfs }
    }
}

const MODULES: [(&str, &str); 3] =
    [("kernel/nfsd.ko", "depends=sunrpc;"), ("kernel/sunrpc.ko", "depends=;"), ("kernel/nfsv4.ko", "depends=sunrpc;")];
const BUILTIN: &str = "kernel/virtio_pci.ko\nkernel/virtio_console.ko\n";

fn write(image: &GuestImage, job: &Job, path: &Path) -> Result<u64> {
    image.write_initramfs_to(job, fs::File::create(path).unwrap(), path)
}

fn job(modules: Vec<String>) -> Job {
    Job { modules, ..Job::new(NFS, Task::Shell) }
}

/// The kernel's provider does not matter: its guest would be silent until the deadline.
#[test]
fn a_damaged_kernel_makes_no_guest() {
    let bed = Bed::new();
    let mut image = vec![0; 0xa00];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x24c] = 8;
    image.extend_from_slice(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff");
    let object = bed.cache.add_bytes("a damaged kernel", &image).unwrap();
    let kernel = BootableKernel { image: (&object).into(), ..bed.kernel(&MODULES, BUILTIN) };
    for _ in 0..2 {
        let error = target(&bed.cache, &kernel, &BTreeSet::new()).unwrap_err().to_string();
        let begins =
            "the kernel 6.1 for x86_64 cannot be booted: its payload: the zstd stream is damaged or cut short (";
        assert!(error.starts_with(begins), "{error}");
    }
}

#[test]
fn a_boot_gets_all_segments_and_its_job_last() {
    let bed = Bed::new();
    let target = bed.target(&bed.kernel(&MODULES, BUILTIN));
    let image = GuestImage::from_manifest(&target).unwrap();
    let modules = image.module_paths(&NFS, false).unwrap();
    assert_eq!(modules, ["/bpfassay/modules/sunrpc.ko", "/bpfassay/modules/nfsd.ko", "/bpfassay/modules/nfsv4.ko"]);
    let path = bed.directory.path().join("initramfs");
    let job = job(modules.clone());
    let size = write(&image, &job, &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, size);
    let parts: Vec<u8> = target.initramfs.iter().flat_map(|part| fs::read(&part.archive.path).unwrap()).collect();
    assert!(bytes.starts_with(&parts));
    let last = bed.directory.path().join("last");
    fs::write(&last, &bytes[parts.len()..]).unwrap();
    let text = find::find(&last, JOB_PATH, 1 << 20).unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Job>(&text).unwrap(), job);
    for path in &modules {
        assert!(find::find(&target.initramfs[1].archive.path, path, 1 << 20).unwrap().is_some(), "{path}");
    }
    let agent = find::find(&target.initramfs[0].archive.path, layout::AGENT, 100).unwrap();
    assert_eq!(agent.as_deref(), Some(&b"agent"[..]));
    // A second boot overwrites the first initramfs.
    assert_eq!(write(&image, &job, &path).unwrap(), size);
}

#[test]
fn gnu_cpio_unpacks_the_base_segment() {
    if lacks("cpio", "cpio") {
        return;
    }
    let bed = Bed::new();
    let segment = base_segment(&bed.cache, &bed.payload()).unwrap();
    let output =
        Command::new("cpio").args(["-it", "--quiet", "-F"]).arg(&segment.archive.path).env("LC_ALL", "C").output();
    let output = output.unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(),
        [
            "bpfassay",
            "bpfassay/ior",
            "bpfassay/tracer",
            "dev",
            "dev/console",
            "init",
            "mnt",
            "proc",
            "run",
            "sys",
            "tmp",
            "var"
        ]
    );
    assert_eq!(segment.contents.len(), 3);
}

#[test]
fn segments_are_made_once_and_again_when_they_are_damaged() {
    let bed = Bed::new();
    let kernel = bed.kernel(&MODULES, BUILTIN);
    let first = modules_segment(&bed.cache, &kernel, &BTreeSet::new()).unwrap().unwrap();
    // The cache answers for a known key without reading the tree.
    let tree = kernel.modules.as_ref().unwrap().path.clone();
    let hidden = bed.directory.path().join("hidden");
    fs::rename(&tree, &hidden).unwrap();
    assert_eq!(modules_segment(&bed.cache, &kernel, &BTreeSet::new()).unwrap().unwrap(), first);
    fs::remove_file(&first.archive.path).unwrap();
    fs::write(&first.archive.path, "damaged").unwrap();
    assert!(modules_segment(&bed.cache, &kernel, &BTreeSet::new()).is_err());
    fs::rename(&hidden, &tree).unwrap();
    assert_eq!(modules_segment(&bed.cache, &kernel, &BTreeSet::new()).unwrap().unwrap(), first);
    assert_eq!(Digest::of_file(&first.archive.path).unwrap(), first.archive.sha256);
}

#[test]
fn a_segment_damaged_between_preparation_and_boot_stops_the_boot() {
    let bed = Bed::new();
    let target = bed.target(&bed.kernel(&MODULES, BUILTIN));
    let image = GuestImage::from_manifest(&target).unwrap();
    let path = &target.initramfs[0].archive.path;
    let mut bytes = fs::read(path).unwrap();
    bytes[200] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
    match write(&image, &job(Vec::new()), &bed.directory.path().join("initramfs")).unwrap_err() {
        Error::Segment { path: named, expected, .. } => {
            assert_eq!((&named, expected), (path, target.initramfs[0].archive.sha256));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn a_kernel_without_nfs_is_refused_when_nfs_is_wanted() {
    let bed = Bed::new();
    let image = GuestImage::from_manifest(&bed.target(&bed.kernel(&MODULES[1..2], BUILTIN))).unwrap();
    assert!(matches!(image.module_paths(&NFS, false), Err(ModulesError::Missing { module, .. }) if module == "nfsd"));
    assert!(image.module_paths(&FileSystem::Tmpfs { size_mib: 1 }, false).unwrap().is_empty());
}

#[test]
fn a_kernel_without_modules_has_everything_built_in() {
    let bed = Bed::new();
    let mut kernel = bed.kernel(&MODULES, BUILTIN);
    kernel.modules = None;
    let image = GuestImage::from_manifest(&bed.target(&kernel)).unwrap();
    assert!(image.modules().monolithic);
    assert!(image.module_paths(&NFS, false).unwrap().is_empty());
}

#[test]
fn a_modules_segment_without_its_list_is_refused() {
    let bed = Bed::new();
    let mut target = bed.target(&bed.kernel(&MODULES, BUILTIN));
    target.initramfs[1].archive = target.initramfs[0].archive.clone();
    assert!(matches!(GuestImage::from_manifest(&target), Err(Error::ModuleSet { .. })));
    fs::write(bed.directory.path().join("x"), "no archive").unwrap();
    target.initramfs[1].archive.path = bed.directory.path().join("x");
    assert!(matches!(GuestImage::from_manifest(&target), Err(Error::Archive(ArchiveError::Malformed { .. }))));
}

#[test]
fn overlays_change_with_the_tree_and_only_then() {
    use std::os::unix::fs::PermissionsExt;
    let bed = Bed::new();
    let tree = bed.directory.path().join("ior");
    fs::create_dir_all(tree.join("bin")).unwrap();
    let program = tree.join("bin/ior");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let first = overlay_segment(&bed.cache, Arch::Aarch64, &tree).unwrap();
    assert_eq!(overlay_segment(&bed.cache, Arch::Aarch64, &tree).unwrap(), first);
    assert_eq!(first.contents[0].version, "/bin/ior");
    fs::write(tree.join("bin/more"), "").unwrap();
    assert_ne!(overlay_segment(&bed.cache, Arch::Aarch64, &tree).unwrap().archive.sha256, first.archive.sha256);
}

#[test]
fn signatures_go_only_where_the_kernel_is_known_to_do_without() {
    let bed = Bed::new();
    let mut kernel = bed.kernel(&MODULES, BUILTIN);
    let signatures = |kernel: &BootableKernel| {
        let segment = modules_segment(&bed.cache, kernel, &BTreeSet::new()).unwrap().unwrap();
        let text = find::find(&segment.archive.path, MODULE_SET, 1 << 20).unwrap().unwrap();
        serde_json::from_slice::<ModuleSet>(&text).unwrap().signatures
    };
    assert_eq!(signatures(&kernel), Signatures::Kept);
    let config = |text: &str| Some((&bed.cache.add_bytes("a configuration", text.as_bytes()).unwrap()).into());
    kernel.config = config("CONFIG_MODULE_SIG=y\n");
    assert_eq!(signatures(&kernel), Signatures::Cut);
    kernel.config = config("CONFIG_MODULE_SIG_FORCE=y\n");
    assert_eq!(signatures(&kernel), Signatures::Kept);
}

#[test]
fn a_disk_that_is_too_small_for_an_initramfs_is_reported() {
    let bed = Bed::new();
    let kernel = bed.kernel(&MODULES, BUILTIN);
    let mut target = bed.target(&kernel);
    let Some(small) = bpfassay_packages::test_support::Small::mount() else { return };
    // The file is larger than the file system.
    let large = bed.cache.add_bytes("large", &vec![7; 8 << 20]).unwrap();
    target.initramfs[0].archive = (&large).into();
    let image = GuestImage::from_manifest(&target).unwrap();
    let path = small.path().join("initramfs");
    let error = write(&image, &job(Vec::new()), &path).unwrap_err();
    assert!(matches!(error, Error::Packages(PackagesError::DiskFull { needed, .. }) if needed > 8 << 20), "{error}");

    // A segment with other content is refused.
    target.initramfs[0].archive.sha256 = Digest::of(b"other");
    let image = GuestImage::from_manifest(&target).unwrap();
    let path = bed.directory.path().join("initramfs");
    assert!(matches!(write(&image, &job(Vec::new()), &path), Err(Error::Segment { .. })));
}
