// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use bpfassay_packages::{
    apt::{FetchOptions, IndexState, Located, ReleaseFile},
    cache::Cache,
    test_support::{Small, damage, lacks, left_in_tmp},
};

use super::*;

fn indexed(name: &str, version: &str, depends: &[&str]) -> IndexedPackage {
    IndexedPackage {
        found: Located {
            package: Package {
                name: name.parse().unwrap(),
                version: version.parse().unwrap(),
                architecture: "amd64".parse().unwrap(),
                size: 1,
                sha256: Digest::of_parts([name, version]),
            },
            path: format!("pool/{name}.deb"),
            snapshot: None,
        },
        depends: depends.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn catalogue() -> Catalogue {
    Catalogue::bundled().unwrap()
}

/// An index with the shapes of packages in trixie-backports: an image alone, split packages, split
/// packages without modules, other flavours.
fn index() -> Vec<IndexedPackage> {
    let mut index = Vec::new();
    for (release, version) in [("7.2.9+deb13-amd64", "7.2.9-1~bpo13+1"), ("7.2.12+deb13-amd64", "7.2.12-1~bpo13+1")] {
        let [base, binary, modules] = ["base", "binary", "modules"].map(|part| format!("linux-{part}-{release}"));
        index.push(indexed(&format!("linux-image-{release}"), version, &["kmod", &base, &binary, &modules]));
        index.push(indexed(&binary, version, &[&base]));
        index.push(indexed(&modules, version, &["kmod", &base]));
        index.push(indexed(&base, version, &[]));
    }
    let broken = "7.2.13+deb13-amd64";
    index.push(indexed(&format!("linux-image-{broken}"), "7.2.13-1", &[&format!("linux-modules-{broken}")]));
    index.push(indexed("linux-image-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1", &[]));
    index.push(indexed(
        "linux-image-6.18.5+deb13-amd64",
        "6.18.5-1~bpo13+1",
        &["kmod", "linux-base-6.18.5+deb13-amd64"],
    ));
    index
}

#[test]
fn packages_of_one_release_are_found_through_dependencies() {
    let catalogue = catalogue();
    let selection = catalogue.find(Arch::X86_64, "7.2").unwrap();
    let found = builds(selection.entries[0], "amd64", &index());
    let names: Vec<_> = found.iter().map(KernelBuild::name).collect();
    assert_eq!(names, ["7.2.9", "7.2.12", "7.2.13"]);
    let packages: Vec<_> = found[1].packages.iter().map(|located| located.package.name.as_str()).collect();
    assert_eq!(
        packages,
        [
            "linux-base-7.2.12+deb13-amd64",
            "linux-binary-7.2.12+deb13-amd64",
            "linux-image-7.2.12+deb13-amd64",
            "linux-modules-7.2.12+deb13-amd64",
        ]
    );
    assert_eq!(found[1].missing, None);
    assert_eq!(found[2].missing.as_deref(), Some("linux-modules-7.2.13+deb13-amd64"));

    let selection = catalogue.find(Arch::X86_64, "6.18").unwrap();
    let found = builds(selection.entries[0], "amd64", &index());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].packages.len(), 1, "{:?}", found[0].packages);
    assert_eq!(found[0].missing, None);
}

#[test]
fn release_candidates_have_a_name() {
    let index = [indexed("linux-image-7.3-amd64", "7.3~rc7-1~exp1", &[])];
    let catalogue = catalogue();
    let selection = catalogue.find(Arch::X86_64, "7.3-rc").unwrap();
    assert_eq!(builds(selection.entries[0], "amd64", &index)[0].name(), "7.3-rc7");
}

/// The index of a suite also has headers of other builds and flavours.
#[test]
fn a_build_has_the_headers_of_the_same_release_and_version() {
    let mut index = index();
    let (release, version) = ("7.2.12+deb13-amd64", "7.2.12-1~bpo13+1");
    for (name, version, depends) in [
        ("linux-headers-7.2.9+deb13-amd64", "7.2.9-1~bpo13+1", &["linux-headers-7.2.9+deb13-common"][..]),
        ("linux-headers-7.2.12+deb13-amd64", "7.2.12-1~bpo13+2", &[]),
        ("linux-headers-7.2.12+deb13-amd64", version, &["gcc-14", "linux-headers-7.2.12+deb13-common", "linux-kbuild"]),
        ("linux-headers-7.2.12+deb13-common", version, &[]),
        ("linux-headers-7.2.12+deb13-cloud-amd64", version, &[]),
    ] {
        index.push(indexed(name, version, depends));
    }
    let catalogue = catalogue();
    let selection = catalogue.find(Arch::X86_64, "7.2").unwrap();
    let found = builds(selection.entries[0], "amd64", &index);
    let headers = |build: &KernelBuild| -> Vec<String> {
        build.headers.iter().map(|located| located.package.name.to_string()).collect()
    };
    assert_eq!(found[1].release, release);
    assert_eq!(headers(&found[1]), ["linux-headers-7.2.12+deb13-amd64", "linux-headers-7.2.12+deb13-common"]);
    assert!(found[1].headers.iter().all(|located| located.package.version == version));
    // The index lacks the second package: without it no tool compiles, and that is noticed there.
    assert_eq!(headers(&found[0]), ["linux-headers-7.2.9+deb13-amd64"]);
    assert!(headers(&found[2]).is_empty());
}

fn picked(name: &str) -> Result<KernelBuild, CatalogueError> {
    let catalogue = catalogue();
    let selection = catalogue.find(Arch::X86_64, name).unwrap();
    let all: Vec<_> =
        builds(selection.entries[0], "amd64", &index()).into_iter().map(|b| ("trixie-backports", b)).collect();
    pick(&selection, &all).map(|(_, build)| build)
}

#[test]
fn a_series_means_its_newest_complete_build() {
    assert_eq!(picked("7.2").unwrap().release, "7.2.12+deb13-amd64");
    assert_eq!(picked("7.2.9").unwrap().release, "7.2.9+deb13-amd64");
}

#[test]
fn builds_that_cannot_be_had_are_reported_with_the_reason() {
    assert_eq!(
        picked("7.2.13").unwrap_err().to_string(),
        "kernel 7.2.13 for x86_64 (7.2.13+deb13-amd64) is incomplete: suite trixie-backports has no package \
         linux-modules-7.2.13+deb13-amd64; choose another build"
    );
    assert_eq!(
        picked("7.2.1").unwrap_err().to_string(),
        "kernel 7.2.1 for x86_64 is not in forky or trixie-backports or sid today; builds of its series are 7.2.9, 7.2.12, \
         7.2.13"
    );
    assert!(picked("6.17").unwrap_err().to_string().contains("try --refresh"));
}

/// Builds a kernel package whose image is `size` zero bytes. Returns `None` with a message if there
/// is no `dpkg-deb`.
fn package(directory: &Path, size: usize) -> Option<PathBuf> {
    let root = directory.join("root");
    let modules = "usr/lib/modules/6.12.1+x-amd64";
    for (path, content) in [
        ("DEBIAN/control", "Package: x\nVersion: 1\nArchitecture: amd64\nMaintainer: x\nDescription: x\n"),
        ("boot/config-6.12.1+x-amd64", "CONFIG_NFSD=m\n"),
        (&format!("{modules}/kernel/fs/nfs.ko"), "module"),
        (&format!("{modules}/modules.builtin"), ""),
        (&format!("{modules}/modules.order"), ""),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::write(root.join("boot/vmlinuz-6.12.1+x-amd64"), vec![0; size]).unwrap();
    let file = directory.join("x.deb");
    if lacks("dpkg-deb", "dpkg") {
        return None;
    }
    let output =
        Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).args([&root, &file]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(file)
}

/// Puts a package into the cache as the choice for x86_64 6.12.
fn remember(cache: &Cache, file: &Path) {
    let object = cache.add_file("x", file, None).unwrap();
    let choice = Choice {
        suite: "trixie".to_owned(),
        release: "6.12.1+x-amd64".parse().unwrap(),
        version: "6.12.1-1".to_owned(),
        packages: vec![Package {
            name: "linux-image-6.12.1+x-amd64".parse().unwrap(),
            version: "6.12.1-1".parse().unwrap(),
            architecture: "amd64".parse().unwrap(),
            size: object.size,
            sha256: object.digest,
        }],
        headers: Vec::new(),
    };
    cache.record(CHOICES, &choice_key(Arch::X86_64, "6.12"), &choice).unwrap();
}

fn offline(cache: &Cache) -> Apt<'_> {
    Apt::new(cache, FetchOptions { offline: true, newest: true, ..FetchOptions::default() })
}

#[test]
fn a_damaged_kernel_is_unpacked_again_and_a_damaged_package_asks_for_the_network() {
    let directory = tempfile::tempdir().unwrap();
    let Some(file) = package(directory.path(), 10) else { return };
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    remember(&cache, &file);
    let (apt, catalogue) = (offline(&cache), catalogue());
    let kernels = KernelProvider::new(&apt, &catalogue);
    assert_eq!(kernels.cached(Arch::X86_64, "6.12").unwrap(), None);
    let kernel = kernels.prepare(Arch::X86_64, "6.12").unwrap();
    assert_eq!((kernel.release.as_str(), kernel.image.size), ("6.12.1+x-amd64", 10));
    assert_eq!(kernels.cached(Arch::X86_64, "6.12").unwrap().as_ref(), Some(&kernel));

    // The choice has no headers, so an index must tell which they are.
    let error = kernels.headers(&kernel).unwrap_err();
    assert!(matches!(error, Error::Packages(PackagesError::Offline { .. })), "{error}");

    damage(&kernel.image.path);
    assert_eq!(kernels.cached(Arch::X86_64, "6.12").unwrap(), None);
    assert_eq!(kernels.prepare(Arch::X86_64, "6.12").unwrap(), kernel);
    assert_eq!(Digest::of_file(&kernel.image.path).unwrap(), kernel.image.sha256);

    damage(&kernel.image.path);
    damage(&cache.object(&kernel.packages[0].sha256).unwrap().unwrap().path);
    let error = kernels.prepare(Arch::X86_64, "6.12").unwrap_err();
    assert!(matches!(error, Error::Packages(PackagesError::Offline { .. })), "{error}");
}

#[test]
fn a_disk_that_fills_up_while_unpacking_is_reported_with_what_and_where() {
    let (directory, Some(small)) = (tempfile::tempdir().unwrap(), Small::mount()) else { return };
    let Some(file) = package(directory.path(), 8 << 20) else { return };
    let cache = Cache::open(small.path()).unwrap();
    remember(&cache, &file);
    let error = KernelProvider::new(&offline(&cache), &catalogue()).prepare(Arch::X86_64, "6.12").unwrap_err();
    assert!(matches!(error, Error::Packages(PackagesError::DiskFull { .. })), "{error}");
    assert!(error.to_string().starts_with("no space left for kernel 6.12.1+x-amd64 for x86_64 in /"), "{error}");
    assert!(left_in_tmp(small.path()).is_empty());
}

/// Makes `packages` the index of a suite, as if it had been fetched.
fn indexed_suite(apt: &Apt<'_>, suite: &str, packages: &[IndexedPackage]) {
    let release = ReleaseFile { codename: suite.to_owned(), date: 1, valid_until: None };
    let state = IndexState { fetched: 1, release, stale: false, archive: "x".to_owned() };
    let path = apt.cache().root().join(format!("apt/{suite}-amd64/state.json"));
    apt.cache().write_small(&path, &state).unwrap();
    // A suite without apt's configuration counts as not fetched. The tests never run apt.
    fs::write(path.with_file_name("apt.conf"), "").unwrap();
    let key = Digest::of_parts([suite, Arch::X86_64.name(), &state.digest().to_string()]);
    apt.cache().record(INDEXES, &key, &packages).unwrap();
}

#[test]
fn the_listing_shows_what_is_known_cached_and_available() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    let (apt, catalogue) = (offline(&cache), catalogue());
    let kernels = KernelProvider::new(&apt, &catalogue);
    let series = |name: &str| {
        let listings = kernels.list(Arch::X86_64).unwrap();
        assert_eq!(
            listings.iter().map(|listing| listing.name.as_str()).collect::<Vec<_>>(),
            catalogue.names(Arch::X86_64)
        );
        listings.into_iter().find(|listing| listing.name == name).unwrap()
    };
    let listing = series("6.12");
    assert_eq!(listing.suites, ["trixie", "bookworm-backports"]);
    assert_eq!((listing.builds, listing.problem, listing.cached), (None, None, vec![]));

    indexed_suite(&apt, "trixie", &[indexed("linux-image-6.12.1+x-amd64", "6.12.1-1", &[])]);
    assert_eq!(series("6.12").builds, None);
    indexed_suite(&apt, "bookworm-backports", &[indexed("linux-image-6.12.0+y-amd64", "6.12.0-1", &[])]);
    let listing = series("6.12");
    assert_eq!(listing.current().unwrap().1.name(), "6.12.1");
    let builds = listing.builds.unwrap();
    let builds: Vec<_> = builds.iter().map(|(suite, build)| (suite.as_str(), build.name())).collect();
    assert_eq!(builds, [("trixie", "6.12.1".to_owned()), ("bookworm-backports", "6.12.0".to_owned())]);

    let Some(file) = package(directory.path(), 10) else { return };
    remember(&cache, &file);
    kernels.prepare(Arch::X86_64, "6.12").unwrap();
    let cached = series("6.12").cached;
    assert_eq!(cached.len(), 1);
    assert_eq!((cached[0].name.as_str(), cached[0].release.as_str()), ("6.12", "6.12.1+x-amd64"));
}
