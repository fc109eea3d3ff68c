// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that the user built: `--kernel bzImage [--modules DIR]`.

mod header;

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use bpfassay_protocol::Arch;

#[cfg(test)]
pub(crate) use self::header::tests::arm64_image;
pub use self::header::{ImageKind, identify};
use super::{Provider, Receiver, Request, Sources, with_checkout};
use crate::{
    Error, Result,
    apt::Apt,
    cache::{Cache, Digest, Hasher},
    kernel::{Kernel, Modules},
    manifest,
    pvh::{Unusable, extract},
};

/// The name under which a local kernel stands in results.
pub const NAME: &str = "local";

/// A kernel that the user built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalKernel {
    /// Its image: bzImage or Image.
    pub image: PathBuf,
    /// Its modules: an `INSTALL_MOD_PATH`, or `lib/modules/RELEASE` itself.
    pub modules: Option<PathBuf>,
}

/// The user's own kernel.
pub(super) struct Local;

impl Provider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn takes(&self, sources: &Sources) -> bool {
        sources.local.is_some()
    }

    fn kernels(&self, _: &Request<'_>, _: Arch) -> Result<Vec<String>> {
        Ok(vec![NAME.to_owned()])
    }

    fn provide(&self, request: &Request<'_>, receiver: &Receiver<'_>) {
        let kernel = |apt: &Apt<'_>, arch, _: &str| match &request.sources.local {
            Some(local) => prepare(apt.cache(), &local.image, local.modules.as_deref(), Some(arch)),
            None => Err(Error::Build { what: "no kernel was given: name one with --kernel".to_owned() }),
        };
        with_checkout(request, self.name(), &kernel, receiver);
    }
}

/// Largest kernel image that is read, in bytes.
const MAX_IMAGE: u64 = 1 << 30;

/// The content of the kernel image at `path`.
///
/// # Errors
/// [`Error::LocalKernel`] for what cannot be one: nothing, no regular file, or a file of more than 1 GiB; [`Error::Io`] where it cannot be
/// read.
pub fn read_image(path: &Path) -> Result<Vec<u8>> {
    let refuse = |problem: &str| Error::LocalKernel { path: path.to_owned(), problem: problem.to_owned() };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refuse("does not exist: give the path of a kernel image"));
        }
        Err(source) => return Err(Error::Io { action: "read", path: path.to_owned(), source }),
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
    Ok(bytes)
}

/// Makes a kernel from an image and, where there is one, a directory of modules: an `INSTALL_MOD_PATH`, or
/// `lib/modules/RELEASE` itself. The image is copied into the cache, the modules stay where they are. The architecture and
/// the release are read from the image; `arch` is what the user asked for, if they did.
///
/// # Errors
/// [`Error::LocalKernel`] for anything that is no bootable image, a kernel that is damaged, another architecture, or modules of another release;
/// [`Error::DiskFull`] and [`Error::Io`] where the image cannot be read or copied into the cache.
pub fn prepare(cache: &Cache, image: &Path, modules: Option<&Path>, arch: Option<Arch>) -> Result<Kernel> {
    let refuse = |path: &Path, problem: String| Error::LocalKernel { path: path.to_owned(), problem };
    let bytes = read_image(image)?;
    let kind = identify(&bytes).map_err(|problem| refuse(image, problem))?;
    // Reported here, once: its guest would write nothing until its deadline.
    if let Err(Unusable::Damaged(problem)) = extract(&bytes) {
        return Err(refuse(image, format!("cannot be booted: {problem}; copy or build it again")));
    }
    if let Some(arch) = arch
        && arch != kind.arch
    {
        return Err(refuse(image, format!("is a kernel for {}, not for {arch}", kind.arch)));
    }
    let (tree, tree_release) = match modules {
        Some(directory) => {
            let (tree, release) = find_modules(directory, kind.release.as_deref())?;
            (Some(tree), Some(release))
        }
        None => (None, None),
    };
    let release = match (kind.release, tree_release) {
        (Some(image_release), Some(tree_release)) if image_release != tree_release => {
            let directory = modules.unwrap_or(image);
            let problem =
                format!("holds modules of {tree_release}, the kernel is {image_release}: install its own modules");
            return Err(refuse(directory, problem));
        }
        (Some(release), _) | (None, Some(release)) => release,
        (None, None) => {
            let problem = "has no readable release (compressed?): give its modules too, or an uncompressed Image";
            return Err(refuse(image, problem.to_owned()));
        }
    };
    let object = cache.add_file(&image.display().to_string(), image, None)?;
    let modules = match tree {
        Some(path) => Some(Modules { key: fingerprint(&path)?, path }),
        None => None,
    };
    Ok(Kernel {
        arch: kind.arch,
        name: NAME.to_owned(),
        release,
        version: None,
        image: manifest::File::from(&object),
        config: None,
        modules,
        packages: Vec::new(),
    })
}

/// The directory `lib/modules/RELEASE` that `directory` is or holds, and the release.
fn find_modules(directory: &Path, release: Option<&str>) -> Result<(PathBuf, String)> {
    let directory = fs::canonicalize(directory).map_err(Error::io("find", directory))?;
    let refuse = |problem: String| Error::LocalKernel { path: directory.clone(), problem };
    let named = |path: PathBuf| {
        let release = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        release.map(|release| (path, release)).ok_or_else(|| refuse("has a name that is not UTF-8".to_owned()))
    };
    if directory.join("kernel").is_dir() {
        if directory.join("Kconfig").exists() {
            let problem = "is a source tree: run `make modules_install INSTALL_MOD_PATH=DIR` and give DIR";
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

/// A digest over paths, sizes and times of a directory's files: cheap, and another one after every build.
fn fingerprint(root: &Path) -> Result<Digest> {
    let mut lines = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(Error::io("read", &directory))? {
            let path = entry.map_err(Error::io("read", &directory))?.path();
            let metadata = fs::symlink_metadata(&path).map_err(Error::io("read", &path))?;
            if metadata.is_dir() {
                directories.push(path);
            } else {
                let (size, seconds, nanos) = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
                lines.push(format!("{} {size} {seconds}.{nanos:09}\n", path.display()));
            }
        }
    }
    lines.sort();
    let mut hasher = Hasher::default();
    for line in &lines {
        hasher.update(line.as_bytes());
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Its guest would stay silent until its deadline, in every boot.
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
        let error = prepare(&cache, &path, None, None).unwrap_err().to_string();
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
        let kernel = prepare(&cache, &image, Some(work.path()), None).unwrap();
        assert_eq!((kernel.arch, kernel.release.as_str()), (Arch::Aarch64, "6.99.0-mine"));
        assert_eq!(fs::read(&kernel.image.path).unwrap(), fs::read(&image).unwrap());
        let modules = kernel.modules.unwrap();
        assert!(modules.path.join("kernel/fs/nfs.ko").exists());

        let direct = prepare(&cache, &image, Some(&modules.path), None).unwrap().modules.unwrap();
        assert_eq!(direct, modules);
        fs::write(modules.path.join("kernel/fs/nfs.ko"), "longer").unwrap();
        assert_ne!(prepare(&cache, &image, Some(work.path()), None).unwrap().modules.unwrap().key, modules.key);
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
        let message = |modules: Option<&Path>, arch| prepare(&cache, &image, modules, arch).unwrap_err().to_string();
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
