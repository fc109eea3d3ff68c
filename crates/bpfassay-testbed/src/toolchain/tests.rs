// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{fs, os::unix::fs::symlink, process::Command};

use bpfassay_packages::{cache::Cache, error::PackagesError};

use super::*;

/// Adds a package for all architectures that contains `path` to `cache`.
fn package(cache: &Cache, scratch: &Path, name: &str, path: &str) -> (Package, CachedFile) {
    let tree = scratch.join(name);
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    let control = format!("Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: b\n");
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
    match name {
        BASE => symlink("usr/lib", tree.join(path)).unwrap(),
        _ => fs::write(tree.join(path), name).unwrap(),
    }
    let file = scratch.join(format!("{name}.deb"));
    let made = Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).args([&tree, &file]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let object = cache.add_file(name, &file, None).unwrap();
    let (name, version, architecture) = (name.parse().unwrap(), "1".parse().unwrap(), "all".parse().unwrap());
    (Package { name, version, architecture, size: object.size, sha256: object.digest }, object)
}

#[test]
fn packages_are_unpacked_while_others_are_fetched_and_through_the_links_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    let early = package(&cache, directory.path(), "early", "lib/early");
    let base = package(&cache, directory.path(), BASE, "lib");
    let late = package(&cache, directory.path(), "late", "lib/late");
    let root = directory.path().join("root");
    ["usr/bin", "usr/lib"].iter().for_each(|path| fs::create_dir_all(root.join(path)).unwrap());
    let stage = bpfassay_packages::stages::Stages::default().begin(StageKind::Toolchain, "");
    let packages = [early.0.clone(), base.0.clone(), late.0.clone()];
    let filling = Filling { packages: &packages, host: Arch::X86_64, tell: &|| (), yields: false };
    let filled = filling.fill(&root, &stage, |arrived| {
        arrived(&early.0, early.1);
        arrived(&base.0, base.1);
        // This would wait for ever if unpacking began at the end of fetching.
        while !root.join("usr/lib/early").exists() {
            thread::yield_now();
        }
        arrived(&late.0, late.1);
        Ok(())
    });
    filled.unwrap();
    assert!(root.join("lib").is_symlink());
    assert_eq!(fs::read_to_string(root.join("usr/lib/late")).unwrap(), "late");
    let failed = filling.fill(&root, &stage, |_| Err(PackagesError::Offline { what: "x".to_owned() }.into()));
    assert!(matches!(failed, Err(Error::Packages(PackagesError::Offline { .. }))));
}

#[test]
fn programs_for_the_host_can_be_built_before_what_others_need_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    let base = package(&cache, directory.path(), BASE, "lib");
    let own = package(&cache, directory.path(), "own", "lib/own");
    let mut foreign = package(&cache, directory.path(), "libstd-rust-dev", "lib/foreign");
    foreign.0.architecture = "arm64".parse().unwrap();
    let root = directory.path().join("root");
    ["usr/bin", "usr/lib"].iter().for_each(|path| fs::create_dir_all(root.join(path)).unwrap());
    let stage = bpfassay_packages::stages::Stages::default().begin(StageKind::Toolchain, "");
    let packages = [base.0.clone(), own.0.clone(), foreign.0.clone()];
    let is_told = AtomicBool::new(false);
    let tell = || {
        assert!(root.join("usr/lib/own").exists() && root.join("usr/bin/cc").is_symlink() && root.join("src").is_dir());
        is_told.store(true, Ordering::Relaxed);
    };
    let filling = Filling { packages: &packages, host: Arch::X86_64, tell: &tell, yields: true };
    filling
        .fill(&root, &stage, |arrived| {
            arrived(&base.0, base.1);
            arrived(&own.0, own.1);
            // This would wait for ever if the announcement came at the end.
            while !is_told.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            arrived(&foreign.0, foreign.1);
            Ok(())
        })
        .unwrap();
    assert!(root.join("usr/lib/foreign").exists());
}

#[test]
fn packages_for_other_architectures_are_known_by_architecture_and_name() {
    let is_foreign = |name: &str, architecture: &str| {
        let (name, version, architecture) =
            (name.parse().unwrap(), "1".parse().unwrap(), architecture.parse().unwrap());
        let package = Package { name, version, architecture, size: 1, sha256: Digest::of(b"") };
        is_for_another(&package, Arch::X86_64)
    };
    for name in
        ["gcc-16-aarch64-linux-gnu", "cpp-riscv64-linux-gnu", "binutils-aarch64-linux-gnu", "libc6-dev-arm64-cross"]
    {
        assert!(is_foreign(name, "amd64"), "{name}");
    }
    assert!(is_foreign("libc6-dev", "riscv64"));
    for name in ["gcc-16-x86-64-linux-gnu", "cargo", "libstd-rust-dev-bpf", "linux-libc-dev"] {
        assert!(!is_foreign(name, "amd64") && !is_foreign(name, "all"), "{name}");
    }
}

#[test]
fn the_host_comes_first_among_the_architectures() {
    for &host in Arch::ALL {
        let all = architectures(host);
        assert_eq!(all[0], host);
        assert_eq!(all.len(), Arch::ALL.len());
    }
}
