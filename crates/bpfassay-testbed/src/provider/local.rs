// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that the user built, or has packages of: `--kernel bzImage [--modules DIR]`, `--kernel
//! BUILD-TREE`, `--kernel PACKAGE,…`.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the file")]

mod build_tree;
mod config;
mod header;
mod kernel_packages;
mod zboot;

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use bpfassay_packages::{
    apt::{Apt, Package},
    cache::Cache,
    digest::{Digest, Hasher},
    safe_names::KernelRelease,
};
use bpfassay_protocol::{Arch, with_causes};

#[cfg(test)]
pub(crate) use self::header::tests::arm64_image;
pub use self::{
    build_tree::is_build_tree,
    config::{Absent, Config, Lack, Need},
    header::{ImageKind, identify},
    kernel_packages::packages_in,
    zboot::unpack as unpack_zboot,
};
use super::{GuestRequest, PartReceiver, Provider, Sources, with_checkout};
use crate::{
    error::{Error, Result},
    kernel::{BootableKernel, Modules},
    kernel_modules::{self, ModuleLayout, decompress::decompress},
    manifest,
    pvh::{Unusable, extract},
};

/// Name of the local kernel in results.
pub const NAME: &str = "local";

/// A kernel that the user built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalKernel {
    /// The image: bzImage or Image, which can be compressed by gzip or contained in an EFI program.
    pub image: PathBuf,
    /// The modules, if there are any.
    pub modules: Option<LocalModules>,
    /// The kernel's `.config`, from its build tree or packages.
    pub config: Option<PathBuf>,
    /// The release, according to the build tree or the packages.
    pub release: Option<KernelRelease>,
    /// The version of the kernel packages.
    pub version: Option<String>,
    /// The packages that the kernel was unpacked from.
    pub packages: Vec<Package>,
}

/// The place of a local kernel's modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalModules {
    /// An `INSTALL_MOD_PATH`, or `lib/modules/RELEASE` itself.
    Installed(PathBuf),
    /// The tree that the kernel was built in.
    Built(PathBuf),
}

impl LocalModules {
    /// Returns the modules in `directory`, the argument of `--modules`.
    ///
    /// # Errors
    /// [`Error::LocalKernel`] if `directory` is not a directory.
    fn installed(directory: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = directory.map(Path::to_owned) else { return Ok(None) };
        if path.is_dir() {
            return Ok(Some(Self::Installed(path)));
        }
        let problem = "is no directory: give --modules INSTALL_MOD_PATH of `make modules_install`".to_owned();
        Err(Error::LocalKernel { path, problem })
    }
}

impl LocalKernel {
    /// Finds the kernel at `path`, which is an image or a build tree. The kernel must be for one of
    /// `archs`, unless that is empty. The modules come from `modules`, or else from the
    /// build tree.
    ///
    /// # Errors
    /// [`Error::LocalKernel`] if `path` is a directory but not a build tree, or if `modules`
    /// is not a directory. [`Error::NotBuilt`] if the build tree lacks results of a build. Does not
    /// look into an image.
    pub fn find(path: &Path, modules: Option<&Path>, archs: &[Arch]) -> Result<Self> {
        let modules = LocalModules::installed(modules)?;
        if path.is_dir() {
            return build_tree::find(path, modules, archs);
        }
        let (image, packages) = (path.to_owned(), Vec::new());
        Ok(Self { image, modules, config: None, release: None, version: None, packages })
    }

    /// Unpacks the kernel in package files of a distribution (`.deb` or `.rpm`) into `cache`,
    /// unless the cache has it. The modules come from `modules`, or else from the packages.
    ///
    /// # Errors
    /// - `PackagesError::Package` if a file is not a package.
    /// - [`Error::LocalKernel`] for packages without an image, of several kernels, or without
    ///   modules that guests need.
    /// - `PackagesError::DiskFull` or `PackagesError::Io` if the cache cannot store the kernel.
    pub fn of_packages(cache: &Cache, files: &[PathBuf], modules: Option<&Path>) -> Result<Self> {
        kernel_packages::find(cache, files, LocalModules::installed(modules)?)
    }

    /// Returns the modules that the configuration requires and that the kernel's packages lack.
    /// `nfs` adds the modules of an NFS mount. Returns nothing if the kernel is not from packages.
    ///
    /// # Errors
    /// `PackagesError::Io`, [`Error::Modules`] if the configuration or the modules cannot be read.
    pub fn absent_modules(&self, nfs: bool) -> Result<Vec<Absent>> {
        let (Some(config), Some(LocalModules::Installed(directory)), false) =
            (&self.config, &self.modules, self.packages.is_empty())
        else {
            return Ok(Vec::new());
        };
        let (tree, _) = find_modules(directory, self.release.as_deref())?;
        Ok(Config::read(config)?.absent(&kernel_modules::names(&tree)?, nfs))
    }
}

pub(super) struct Local;

impl Provider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn takes(&self, sources: &Sources) -> bool {
        sources.local.is_some()
    }

    fn kernels(&self, _: &GuestRequest<'_>, _: Arch) -> Result<Vec<String>> {
        Ok(vec![NAME.to_owned()])
    }

    fn provide(&self, request: &GuestRequest<'_>, receiver: &PartReceiver<'_>) {
        let kernel = |apt: &Apt<'_>, arch, _: &str| match &request.sources.local {
            Some(local) => prepare(apt.cache(), local, Some(arch)),
            None => Err(Error::Build { what: "no kernel was given: name one with --kernel".to_owned() }),
        };
        with_checkout(request, self.name(), &kernel, receiver);
    }
}

/// The first bytes of a file compressed by gzip.
const GZIP: &[u8] = b"\x1f\x8b";

/// Largest kernel image that is read, in bytes.
const MAX_IMAGE: u64 = 1 << 30;

/// Reads the kernel image at `path`. Decompresses gzip, and unpacks a kernel from an EFI program.
///
/// # Errors
/// [`Error::LocalKernel`] if the file does not exist, is not a regular file, or is larger than 1
/// GiB. [`Error::UnusableImage`] if it cannot be unpacked, `PackagesError::Io` if it cannot be
/// read.
pub fn read_image(path: &Path) -> Result<Vec<u8>> {
    let refuse = |problem: &str| Error::LocalKernel { path: path.to_owned(), problem: problem.to_owned() };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refuse("does not exist: give the path of a kernel image"));
        }
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    // Opening a pipe would wait for its writer.
    if !metadata.is_file() {
        return Err(refuse("is no regular file: give the path of a kernel image"));
    }
    if metadata.len() > MAX_IMAGE {
        return Err(refuse("is larger than 1 GiB, so no kernel image: give the path of one"));
    }
    let mut bytes = Vec::new();
    bpfassay_input::open(path)
        .and_then(|file| file.take(MAX_IMAGE).read_to_end(&mut bytes))
        .map_err(Error::io("read", path))?;
    let unusable = |problem| Error::UnusableImage { path: path.to_owned(), problem };
    if let Some(kernel) = unpack_zboot(&bytes, MAX_IMAGE).map_err(unusable)? {
        bytes = kernel;
    }
    if !bytes.starts_with(GZIP) {
        return Ok(bytes);
    }
    decompress(bytes, MAX_IMAGE)
        .map_err(|error| unusable(format!("cannot be unpacked: {}; build or copy it again", with_causes(&error))))
}

/// Prepares a kernel from an image and, if there are any, modules. Copies the image and the
/// configuration into the cache; the modules stay where they are. Reads the architecture and the
/// release from the image. `arch` is the architecture that the user asked for, if any.
///
/// # Errors
/// - [`Error::UnusableImage`] if the image is not bootable or is damaged.
/// - [`Error::LocalKernel`] for another architecture, or modules of another release.
/// - `PackagesError::DiskFull` and `PackagesError::Io` if the image cannot be read or copied.
pub fn prepare(cache: &Cache, local: &LocalKernel, arch: Option<Arch>) -> Result<BootableKernel> {
    let refuse = |path: &Path, problem: String| Error::LocalKernel { path: path.to_owned(), problem };
    let image = local.image.as_path();
    let bytes = read_image(image)?;
    let unusable = |problem: String| Error::UnusableImage { path: image.to_owned(), problem };
    let kind = identify(&bytes).map_err(unusable)?;
    // Reported here, once: a guest with this kernel would write nothing until its deadline.
    if let Err(Unusable::Damaged(problem)) = extract(&bytes) {
        return Err(unusable(format!("cannot be booted: {problem}; copy or build it again")));
    }
    if let Some(arch) = arch
        && arch != kind.arch
    {
        return Err(refuse(image, format!("is a kernel for {}, not for {arch}", kind.arch)));
    }
    let known = kind.release.or_else(|| local.release.clone());
    let (modules, tree_release) = match &local.modules {
        Some(LocalModules::Installed(directory)) => {
            let (path, release) = find_modules(directory, known.as_deref())?;
            if let Some(known) = known.as_ref().filter(|known| **known != release.as_str()) {
                let problem = format!("holds modules of {release}, the kernel is {known}: install its own modules");
                return Err(refuse(directory, problem));
            }
            (Some(Modules { key: fingerprint(&path)?, path, layout: ModuleLayout::Installed }), Some(release))
        }
        Some(LocalModules::Built(tree)) => (Some(build_tree::modules(tree)?), None),
        None => (None, None),
    };
    let release = known.or(tree_release.and_then(|name| name.parse().ok())).ok_or_else(|| {
        let problem = "has no readable release (compressed?): give its modules too, or an uncompressed Image";
        refuse(image, problem.to_owned())
    })?;
    let (shown, size) = (image.display().to_string(), bytes.len() as u64);
    let object = cache.add_from(&shown, bytes.as_slice(), (None, size), |source| Error::io("read", image)(source))?;
    let config = match &local.config {
        Some(config) => Some(manifest::File::from(&cache.add_file(&config.display().to_string(), config, None)?)),
        None => None,
    };
    Ok(BootableKernel {
        headers: Vec::new(),
        arch: kind.arch,
        name: NAME.to_owned(),
        release,
        version: local.version.clone(),
        image: manifest::File::from(&object),
        config,
        modules,
        packages: local.packages.clone(),
    })
}

/// Finds the directory `lib/modules/RELEASE`, which `directory` is or contains. Returns it with the
/// release.
fn find_modules(directory: &Path, release: Option<&str>) -> Result<(PathBuf, String)> {
    let directory = fs::canonicalize(directory).map_err(Error::io("find", directory))?;
    let refuse = |problem: String| Error::LocalKernel { path: directory.clone(), problem };
    let named = |path: PathBuf| {
        let release = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        release.map(|release| (path, release)).ok_or_else(|| refuse("has a name that is not UTF-8".to_owned()))
    };
    if directory.join("kernel").is_dir() {
        if directory.join("Kconfig").exists() {
            let problem = "is a source tree: leave --modules out for the modules of the build tree, or run `make modules_install INSTALL_MOD_PATH=DIR` and give DIR";
            return Err(refuse(problem.to_owned()));
        }
        return named(directory.clone());
    }
    let mut found = Vec::new();
    for parent in ["lib/modules", "usr/lib/modules"].map(|parent| directory.join(parent)) {
        if !parent.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&parent).map_err(Error::io("read", &parent))? {
            let path = entry.map_err(Error::io("read", &parent))?.path();
            if path.join("kernel").is_dir() {
                found.push(named(path)?);
            }
        }
    }
    found.sort();
    found.dedup_by(|a, b| a.1 == b.1);
    let releases: Vec<_> = found.iter().map(|(_, release)| release.clone()).collect();
    let chosen = match (release, found.len()) {
        (Some(wanted), _) if releases.iter().any(|release| release == wanted) => {
            found.into_iter().find(|(_, release)| release == wanted)
        }
        (_, 1) => found.pop(),
        _ => None,
    };
    chosen.ok_or_else(|| {
        refuse(match (releases.as_slice(), release) {
            ([], _) => {
                "holds no lib/modules/RELEASE/kernel: give INSTALL_MOD_PATH of `make modules_install`".to_owned()
            }
            (releases, Some(wanted)) => format!("holds modules of {}, not of {wanted}", releases.join(", ")),
            (releases, None) => format!("holds modules of {}: give one of these directories", releases.join(", ")),
        })
    })
}

/// Hashes paths, sizes and times of a directory's files. This is cheap, and changes after every
/// build.
fn fingerprint(root: &Path) -> Result<Digest> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(Error::io("read", &directory))? {
            let path = entry.map_err(Error::io("read", &directory))?.path();
            let metadata = fs::symlink_metadata(&path).map_err(Error::io("read", &path))?;
            if metadata.is_dir() {
                directories.push(path);
            } else {
                files.push((path, metadata));
            }
        }
    }
    Ok(digest_of(&files))
}

/// Hashes paths, sizes and times of `files`.
fn digest_of(files: &[(PathBuf, fs::Metadata)]) -> Digest {
    let line = |(path, metadata): &(PathBuf, fs::Metadata)| {
        let (size, seconds, nanos) = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        format!("{} {size} {seconds}.{nanos:09}\n", path.display())
    };
    let mut lines: Vec<String> = files.iter().map(line).collect();
    lines.sort();
    let mut hasher = Hasher::default();
    for line in &lines {
        hasher.update(line.as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Prepares the kernel of an image, with installed modules.
    fn made(cache: &Cache, image: &Path, modules: Option<&Path>, arch: Option<Arch>) -> Result<BootableKernel> {
        prepare(cache, &LocalKernel::find(image, modules, &[])?, arch)
    }

    fn image(directory: &Path, release: &str) -> PathBuf {
        let path = directory.join("Image");
        fs::write(&path, arm64_image(release)).unwrap();
        path
    }

    fn install(directory: &Path, release: &str) {
        let path = directory.join("lib/modules").join(release).join("kernel/fs");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("nfs.ko"), "x").unwrap();
    }

    /// A guest with this kernel would stay silent until its deadline, in every boot.
    #[test]
    fn a_damaged_kernel_is_refused_before_anything_boots() {
        let work = tempfile::tempdir().unwrap();
        let cache = Cache::open(work.path().join("cache")).unwrap();
        let mut image = vec![0; 0xa00];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x24c] = 8;
        image.extend_from_slice(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff");
        let path = work.path().join("bzImage");
        fs::write(&path, image).unwrap();
        let error = made(&cache, &path, None, None).unwrap_err().to_string();
        let expected = "cannot be booted: its payload: the zstd stream is damaged or cut short; copy or build it again";
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn an_image_and_its_modules_become_a_kernel() {
        let work = tempfile::tempdir().unwrap();
        let cache = Cache::open(work.path().join("cache")).unwrap();
        let image = image(work.path(), "6.99.0-mine");
        install(work.path(), "6.99.0-mine");
        install(work.path(), "6.1.0-other");
        let kernel = made(&cache, &image, Some(work.path()), None).unwrap();
        assert_eq!((kernel.arch, kernel.release.as_str()), (Arch::Aarch64, "6.99.0-mine"));
        assert_eq!(fs::read(&kernel.image.path).unwrap(), fs::read(&image).unwrap());
        let modules = kernel.modules.unwrap();
        assert!(modules.path.join("kernel/fs/nfs.ko").exists());

        let direct = made(&cache, &image, Some(&modules.path), None).unwrap().modules.unwrap();
        assert_eq!(direct, modules);
        fs::write(modules.path.join("kernel/fs/nfs.ko"), "longer").unwrap();
        assert_ne!(made(&cache, &image, Some(work.path()), None).unwrap().modules.unwrap().key, modules.key);
    }

    #[test]
    fn an_image_that_is_compressed_is_unpacked() {
        let work = tempfile::tempdir().unwrap();
        let cache = Cache::open(work.path().join("cache")).unwrap();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&arm64_image("6.99.0-mine")).unwrap();
        let (path, packed) = (work.path().join("Image.gz"), packed.finish().unwrap());
        fs::write(&path, &packed).unwrap();
        let kernel = made(&cache, &path, None, None).unwrap();
        assert_eq!((kernel.arch, kernel.release.as_str()), (Arch::Aarch64, "6.99.0-mine"));
        assert_eq!(fs::read(&kernel.image.path).unwrap(), arm64_image("6.99.0-mine"));
        let zboot = work.path().join("vmlinuz.efi");
        fs::write(&zboot, zboot::tests::zboot(&arm64_image("6.99.0-mine"))).unwrap();
        assert_eq!(made(&cache, &zboot, None, None).unwrap().image.sha256, kernel.image.sha256);
        let unified = work.path().join("vmlinuz");
        fs::write(&unified, zboot::tests::unified(&zboot::tests::zboot(&arm64_image("6.99.0-mine")))).unwrap();
        assert_eq!(made(&cache, &unified, None, None).unwrap().image.sha256, kernel.image.sha256);
        fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let error = made(&cache, &path, None, None).unwrap_err().to_string();
        assert!(error.contains("Image.gz cannot be unpacked: the gzip stream is damaged or cut short"), "{error}");
    }

    #[test]
    fn what_can_be_no_image_is_not_read() {
        let work = tempfile::tempdir().unwrap();
        let message = |path: &Path| read_image(path).unwrap_err().to_string();
        assert!(message(&work.path().join("none")).ends_with("does not exist: give the path of a kernel image"));
        assert!(message(work.path()).contains("no regular file"));
        assert!(message(Path::new("/dev/zero")).contains("no regular file"));
        let sparse = work.path().join("sparse");
        fs::File::create(&sparse).unwrap().set_len(MAX_IMAGE + 1).unwrap();
        assert!(message(&sparse).contains("larger than 1 GiB"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let work = tempfile::tempdir().unwrap();
        let cache = Cache::open(work.path().join("cache")).unwrap();
        let image = image(work.path(), "6.99.0-mine");
        let message = |modules: Option<&Path>, arch| made(&cache, &image, modules, arch).unwrap_err().to_string();
        assert!(message(None, Some(Arch::X86_64)).ends_with("is a kernel for aarch64, not for x86_64"));
        assert!(message(Some(work.path()), None).contains("holds no lib/modules/RELEASE/kernel"));
        install(work.path(), "6.1.0-other");
        assert!(message(Some(work.path()), None).contains("holds modules of 6.1.0-other, the kernel is 6.99.0-mine"));
        install(work.path(), "6.1.0-another");
        assert!(
            message(Some(work.path()), None)
                .contains("holds modules of 6.1.0-another, 6.1.0-other, not of 6.99.0-mine")
        );
    }
}
