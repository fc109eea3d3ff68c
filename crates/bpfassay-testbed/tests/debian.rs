// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with Debian's real packages. They need the network, or a cache with the packages (about 60
//! MB), and report that they are skipped if they have neither.

#![allow(
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the helpers of these tests are not test functions themselves"
)]

use std::time::{Duration, Instant};

use bpfassay_packages::{
    apt::{Apt, FetchOptions},
    cache::Cache,
    digest::Digest,
    error::{PackagesError, apt_failure::AptError},
};
use bpfassay_testbed::{Arch, Error, catalogue::Catalogue, provider::debian::KernelProvider};

/// Opens the user's own cache, because a study needs the same packages.
fn cache() -> Cache {
    Cache::open(Cache::locate(None).unwrap()).unwrap()
}

/// Returns the value, or prints a message and returns `None` if the network is down.
fn online<T>(outcome: Result<T, impl Into<Error>>) -> Option<T> {
    match outcome.map_err(Into::into) {
        Ok(value) => Some(value),
        Err(Error::Packages(PackagesError::Apt(
            error @ (AptError::Unreachable { .. } | AptError::MidSync { .. } | AptError::Stale { .. }),
        ))) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_kernel_is_fetched_and_then_opened_at_once_without_network() {
    let (cache, catalogue) = (cache(), Catalogue::bundled().unwrap());
    let apt = Apt::new(&cache, FetchOptions::default());
    let Some(fetched) = online(KernelProvider::new(&apt, &catalogue).prepare(Arch::Aarch64, "6.1")) else { return };
    assert!(fetched.release.starts_with("6.1.0-") && fetched.release.ends_with("-arm64"), "{}", fetched.release);
    assert_eq!(Digest::of_file(&fetched.image.path).unwrap(), fetched.image.sha256);
    let config = std::fs::read_to_string(&fetched.config.as_ref().unwrap().path).unwrap();
    assert!(config.lines().any(|line| line == "CONFIG_NFSD=m"));
    assert!(fetched.modules.as_ref().unwrap().path.join("kernel/fs/nfsd/nfsd.ko").exists());

    let offline = Apt::new(&cache, FetchOptions { offline: true, ..FetchOptions::default() });
    let kernels = KernelProvider::new(&offline, &catalogue);
    let start = Instant::now();
    assert_eq!(kernels.prepare(Arch::Aarch64, "6.1").unwrap(), fetched);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(kernels.cached(Arch::Aarch64, "6.1").unwrap(), Some(fetched));
}

#[test]
fn a_build_that_does_not_exist_names_those_that_do() {
    let (cache, catalogue) = (cache(), Catalogue::bundled().unwrap());
    let apt = Apt::new(&cache, FetchOptions::default());
    match KernelProvider::new(&apt, &catalogue).prepare(Arch::Riscv64, "6.12.1") {
        Err(Error::Catalogue(error)) => {
            let message = error.to_string();
            assert!(
                message.starts_with("kernel 6.12.1 for riscv64 is not in trixie today; builds of its series are 6.12."),
                "{message}"
            );
        }
        other => assert!(online(other).is_none()),
    }
}

#[test]
fn the_closure_of_a_foreign_package_is_found_and_fetched() {
    let cache = cache();
    let apt = Apt::new(&cache, FetchOptions::default());
    let Some(root) = online(apt.root("trixie", &[Arch::X86_64, Arch::Riscv64])) else { return };
    assert_eq!(root.state().release.codename, "trixie");
    let packages = root.closure(&["zlib1g-dev:riscv64"]).unwrap();
    let packages: Vec<_> = packages.into_iter().map(|located| located.package).collect();
    let names: Vec<_> = packages.iter().map(|package| (package.name.as_str(), package.architecture.as_str())).collect();
    assert!(names.contains(&("zlib1g", "riscv64")) && names.contains(&("libc6", "riscv64")), "{names:?}");
    let zlib: Vec<_> = packages.into_iter().filter(|package| package.name == "zlib1g").collect();
    let Some(objects) = online(apt.fetch(&root, &zlib)) else { return };
    assert_eq!(Digest::of_file(&objects[0].path).unwrap(), zlib[0].sha256);

    match root.closure(&["no-such-package"]) {
        Err(PackagesError::Apt(AptError::Unsatisfiable { detail, .. })) => {
            assert!(detail.contains("no-such-package"), "{detail}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_there_offline_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path()).unwrap();
    let catalogue = Catalogue::bundled().unwrap();
    let apt = Apt::new(&cache, FetchOptions { offline: true, newest: true, ..FetchOptions::default() });
    let error = KernelProvider::new(&apt, &catalogue).prepare(Arch::X86_64, "6.12").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the package index of suite trixie is not in the cache, and the network may not be used (--offline): run \
         `bpfassay testbed fetch` first"
    );
    let apt = Apt::new(&cache, FetchOptions { offline: true, ..FetchOptions::default() });
    let error = KernelProvider::new(&apt, &catalogue).prepare(Arch::X86_64, "6.12").unwrap_err().to_string();
    assert!(
        error.starts_with("linux-image-6.12.") && error.contains("is not in the cache, and the network"),
        "{error}"
    );
}

#[test]
fn a_mirror_without_the_suite_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    let mirror = format!("file:{}", directory.path().display());
    let apt = Apt::new(&cache, FetchOptions { mirror: Some(mirror), ..FetchOptions::default() });
    match apt.root("trixie", &[Arch::X86_64]) {
        Err(PackagesError::Apt(AptError::Missing { suite, .. })) => assert_eq!(suite, "trixie"),
        Err(PackagesError::Program { .. }) => eprintln!("skipped: no apt on this machine"),
        other => panic!("{other:?}"),
    }
}
