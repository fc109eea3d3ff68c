// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{fs, os::unix::fs::symlink, process::Command};

use super::*;
use crate::cache::Cache;

/// A package with `path`, in `cache`.
fn package(cache: &Cache, scratch: &Path, name: &str, path: &str) -> (Package, Object) {
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
    let stage = crate::stages::Stages::default().begin(Kind::Toolchain, "");
    fill(&root, 3, &stage, |arrived| {
        arrived(&early.0, early.1);
        arrived(&base.0, base.1);
        // Would wait for ever if unpacking began at the end of fetching.
        while !root.join("usr/lib/early").exists() {
            thread::yield_now();
        }
        arrived(&late.0, late.1);
        Ok(())
    })
    .unwrap();
    assert!(root.join("lib").is_symlink());
    assert_eq!(fs::read_to_string(root.join("usr/lib/late")).unwrap(), "late");
    let failed = fill(&root, 0, &stage, |_| Err(Error::Offline { what: "x".to_owned() }));
    assert!(matches!(failed, Err(Error::Offline { .. })));
}

#[test]
fn the_host_comes_first_among_the_architectures() {
    for &host in Arch::ALL {
        let all = architectures(host);
        assert_eq!(all[0], host);
        assert_eq!(all.len(), Arch::ALL.len());
    }
}
