// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{collections::BTreeSet, os::unix::fs::symlink, process::Command};

use bpfassay_packages::{apt::FetchOptions, cache::Cache, stages::Stages, test_support::lacks};

use super::*;

fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Builds a package with `files` by dpkg. Returns `None` if there is no dpkg.
fn package(work: &Path, name: &str, files: &[&str]) -> Option<PathBuf> {
    let source = work.join(format!("source-{name}"));
    put(
        &source,
        "DEBIAN/control",
        &format!("Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"),
    );
    for file in files {
        put(&source, file, file);
    }
    let file = work.join(format!("{name}.deb"));
    if lacks("dpkg-deb", "dpkg") {
        return None;
    }
    let built =
        Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(&source).arg(&file).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    Some(file)
}

#[test]
fn of_the_packages_only_what_qemu_needs_is_kept_and_its_parts_are_found() {
    let work = tempfile::tempdir().unwrap();
    let packages = [
        package(
            work.path(),
            "libc6",
            &["lib/x-linux-gnu/ld-linux-x.so.2", "lib/x-linux-gnu/libc.so.6", "etc/ld.so.conf", "sbin/ldconfig"],
        ),
        package(
            work.path(),
            "qemu",
            &[
                "usr/bin/qemu-system-x86_64",
                "usr/bin/qemu-system-other",
                "usr/lib/x-linux-gnu/qemu/m.so",
                "usr/share/qemu/bios",
                "usr/share/doc/qemu/x",
            ],
        ),
    ];
    let Some(packages) = packages.into_iter().collect::<Option<Vec<_>>>() else { return };
    let cache = Cache::open(work.path().join("cache")).unwrap();
    let tree = cache.make_tree(KIND, &Digest::of(b"x"), "x", 0, |content| {
        let scratch = cache.scratch()?;
        fill(&packages, scratch.path(), content, &Stages::default().begin(StageKind::Qemu, ""))
    });
    let tree = tree.unwrap();
    let files: BTreeSet<_> = tree.files.iter().map(|file| file.path.as_str()).collect();
    let expected = [
        "lib/x-linux-gnu/ld-linux-x.so.2",
        "lib/x-linux-gnu/libc.so.6",
        "usr/bin/loader",
        "usr/bin/qemu-system-x86_64",
        "usr/lib/x-linux-gnu/qemu/m.so",
        "usr/share/qemu/bios",
    ];
    assert_eq!(files, BTreeSet::from(expected));
    let emulator = Emulator::of(tree, Vec::new()).unwrap();
    assert_eq!(fs::read_to_string(emulator.root.join(emulator.loader())).unwrap(), expected[0]);
    assert_eq!(emulator.libraries, [Path::new("lib/x-linux-gnu"), Path::new("usr/lib/x-linux-gnu")]);
    assert_eq!(emulator.firmware, [Path::new("usr/share/qemu")]);
    assert_eq!(emulator.program(Arch::X86_64), Path::new("usr/bin/qemu-system-x86_64"));
}

#[test]
fn packages_without_a_loader_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let cache = Cache::open(work.path().join("cache")).unwrap();
    let tree = cache.make_tree(KIND, &Digest::of(b"x"), "x", 0, |content| {
        put(content, "usr/bin/qemu-system-x86_64", "x");
        fs::create_dir_all(content.join("lib")).unwrap();
        symlink("x", content.join("lib/link")).unwrap();
        Ok::<_, Error>(())
    });
    let error = Emulator::of(tree.unwrap(), Vec::new()).unwrap_err().to_string();
    assert!(error.contains("hold no loader") && error.contains("--qemu host"), "{error}");
}

#[test]
fn what_is_not_in_the_cache_is_asked_of_no_network_that_may_not_be_used() {
    let work = tempfile::tempdir().unwrap();
    let cache = Cache::open(work.path().join("cache")).unwrap();
    if locked().unwrap().is_none() {
        println!("skipped: testbed.lock has no QEMU for this host");
        return;
    }
    assert_eq!(Emulator::cached(&cache).unwrap(), None);
    let apt = Apt::new(&cache, FetchOptions { offline: true, ..FetchOptions::default() });
    let error = Emulator::prepare(&apt, &TrustedPackages::default()).unwrap_err();
    assert!(matches!(error, Error::Packages(PackagesError::Offline { .. })), "{error}");
}

#[test]
fn qemu_for_every_architecture_is_asked_for_with_its_firmware() {
    assert_eq!(names(), ["opensbi", "qemu-system-arm", "qemu-system-misc", "qemu-system-x86"]);
    assert!(names().iter().all(|name| !UNUSED.contains(name)));
}

/// A link in one package must not lead another package out of the directory.
#[test]
fn two_packages_write_nowhere_else() {
    use bpfassay_packages::test_support::package::{deb, file, tar_entry};

    let work = tempfile::tempdir().unwrap();
    let victim = work.path().join("victim");
    fs::create_dir(&victim).unwrap();
    let loader = file("./lib/x-linux-gnu/ld-linux-x.so.2", "loader");
    for (number, link, inside) in
        [(0, "./usr/share/qemu", "./usr/share/qemu/planted"), (1, "./usr/lib", "./usr/lib/x-linux-gnu/planted")]
    {
        let packages = [
            deb(&[tar_entry(b'2', link, 0o777, victim.to_str().unwrap(), b""), loader.clone()]),
            deb(&[file(inside, "planted")]),
        ];
        let place = |name: usize| work.path().join(format!("{number}-{name}.deb"));
        packages.iter().enumerate().for_each(|(name, bytes)| fs::write(place(name), bytes).unwrap());
        let [scratch, content] = ["scratch", "content"].map(|name| work.path().join(format!("{number}-{name}")));
        [&scratch, &content].iter().for_each(|path| fs::create_dir(path).unwrap());
        let filled = fill(&[place(0), place(1)], &scratch, &content, &Stages::default().begin(StageKind::Qemu, ""));
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{filled:?}");
        assert!(filled.is_err(), "the packages contradict each other");
    }
}

/// Files of this machine must not be mistaken for parts of a package.
#[test]
fn no_link_of_a_package_leads_to_a_loader_of_this_machine() {
    use bpfassay_packages::test_support::package::{deb, file, tar_entry};

    let work = tempfile::tempdir().unwrap();
    put(work.path(), "host/x-linux-gnu/ld-linux-x.so.2", "of this machine");
    let package = work.path().join("a.deb");
    let host = work.path().join("host");
    let link = tar_entry(b'2', "./lib", 0o777, host.to_str().unwrap(), b"");
    fs::write(&package, deb(&[link, file("./usr/bin/qemu-system-x86_64", "x")])).unwrap();
    let [scratch, content] = ["scratch", "content"].map(|name| work.path().join(name));
    [&scratch, &content].iter().for_each(|path| fs::create_dir(path).unwrap());
    let _ = fill(&[package], &scratch, &content, &Stages::default().begin(StageKind::Qemu, ""));
    assert!(!content.join(LOADER).exists());
    assert!(host.join("x-linux-gnu/ld-linux-x.so.2").exists());
}
