// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_packages::test_support::package::{deb, file, tar_entry};

use super::*;
use crate::provider::local::{arm64_image, prepare};

const RELEASE: &str = "6.99.0-mine";

/// A package entry with an image.
fn image(path: &str) -> Vec<u8> {
    tar_entry(b'0', path, 0o644, "", &arm64_image(RELEASE))
}

fn module(name: &str) -> Vec<u8> {
    file(&format!("./lib/modules/{RELEASE}/kernel/fs/{name}.ko"), "x")
}

/// Creates a directory with a cache and `packages`, whose file names are their indexes.
fn with(packages: &[&[Vec<u8>]]) -> (tempfile::TempDir, Cache, Vec<PathBuf>) {
    let work = tempfile::tempdir().unwrap();
    let cache = Cache::open(work.path().join("cache")).unwrap();
    let directory = work.path().join("packages");
    fs::create_dir(&directory).unwrap();
    let path = |number: usize| directory.join(format!("{number}.deb"));
    for (number, entries) in packages.iter().enumerate() {
        fs::write(path(number), deb(entries)).unwrap();
    }
    (work, cache, (0..packages.len()).map(path).collect())
}

fn refused(packages: &[&[Vec<u8>]]) -> String {
    let (_work, cache, files) = with(packages);
    find(&cache, &files, None).unwrap_err().to_string()
}

#[test]
fn image_configuration_and_modules_come_out_of_several_packages() {
    let config = file("./boot/config-6.99.0-mine", "CONFIG_VIRTIO_PCI=m\nCONFIG_NFSD=m\n");
    let builtin = file("./lib/modules/6.99.0-mine/modules.builtin", "kernel/fs/ext4.ko\n");
    let symbols = file("./boot/System.map-6.99.0-mine", "0 t x\n");
    let later = file("./usr/lib/modules/6.99.0-mine/kernel/fs/later.ko", "x");
    let link = tar_entry(b'2', "./lib/modules/6.99.0-mine/build", 0o777, "/usr/src/x", b"");
    let (work, cache, files) = with(&[
        &[image("./boot/vmlinuz-6.99.0-mine")],
        &[config, builtin, symbols, module("virtio_pci"), link],
        &[later],
    ]);
    assert_eq!(packages_in(&work.path().join("packages")).unwrap(), files);
    for _ in 0..2 {
        let kernel = find(&cache, &files, None).unwrap();
        assert_eq!((kernel.release.as_deref(), kernel.version.as_deref()), (Some(RELEASE), Some("6.1-1")));
        let absent: Vec<_> = kernel.absent_modules(true).unwrap().iter().map(|absent| absent.module).collect();
        assert_eq!(absent, ["nfsd"]);
        assert!(kernel.absent_modules(false).unwrap().is_empty());
        let made = prepare(&cache, &kernel, None).unwrap();
        assert_eq!((made.release.as_str(), made.packages.len()), (RELEASE, 3));
        let modules = made.modules.unwrap().path;
        assert!(modules.join("kernel/fs/later.ko").exists() && !modules.join("build").is_symlink());
        let tree = kernel.image.parent().unwrap();
        assert_eq!(fs::read_to_string(tree.join(SYMBOLS)).unwrap(), "0 t x\n");
    }
}

#[test]
fn the_image_is_found_where_newer_packages_have_it() {
    let own = |name: &str| format!("./lib/modules/{RELEASE}/{name}");
    let (_work, cache, files) = with(&[&[
        image(&own("vmlinuz")),
        tar_entry(b'2', "./boot/vmlinuz-6.99.0-mine", 0o777, "../lib/modules/6.99.0-mine/vmlinuz", b""),
        file("./boot/vmlinux-6.99.0-mine.gz", "for a debugger"),
        file(&own("config"), "CONFIG_VIRTIO_PCI=y\n"),
        file(&own("modules.builtin"), ""),
        module("nfsd"),
    ]]);
    let kernel = find(&cache, &files, None).unwrap();
    assert_eq!(prepare(&cache, &kernel, None).unwrap().release, RELEASE);
    assert!(fs::read_to_string(kernel.config.unwrap()).unwrap().contains("VIRTIO_PCI"));
}

#[test]
fn what_is_missing_is_named_with_the_package_that_has_it() {
    let image = || image("./boot/vmlinuz-6.99.0-mine");
    let config = || file("./boot/config-6.99.0-mine", "CONFIG_VIRTIO_PCI=m\n");
    let message = refused(&[&[config(), module("nfsd")]]);
    assert!(message.contains("0.deb holds no kernel image") && message.contains("kernel-core"), "{message}");
    let message = refused(&[&[image(), config()]]);
    assert!(message.contains("no modules, and guests need some (CONFIG_VIRTIO_PCI=m)"), "{message}");
    let message = refused(&[&[image()], &[module("nfsd")]]);
    assert!(
        message.contains("the packages given with it hold modules of 6.99.0-mine and no modules.builtin"),
        "{message}"
    );
    let other = tar_entry(b'0', "./boot/vmlinuz-6.1.0-other", 0o644, "", b"image");
    let message = refused(&[&[image()], &[other]]);
    assert!(message.contains("kernels of 6.1.0-other, 6.99.0-mine: give the packages of one"), "{message}");
    let elsewhere = tar_entry(b'2', "./boot/vmlinuz-6.99.0-mine", 0o777, "/etc/hostname", b"");
    assert!(refused(&[&[elsewhere]]).contains("no kernel image"));
    let (work, cache, mut files) = with(&[&[image()]]);
    files.push(work.path().join("none.deb"));
    let message = find(&cache, &files, None).unwrap_err().to_string();
    assert!(message.contains("none.deb: check that it exists"), "{message}");
}

#[test]
fn a_kernel_without_modules_is_taken_where_it_needs_none() {
    let config = file("./boot/config-6.99.0-mine", "CONFIG_VIRTIO_PCI=y\n");
    let (_work, cache, files) = with(&[&[image("./boot/vmlinuz-6.99.0-mine"), config]]);
    let kernel = find(&cache, &files, None).unwrap();
    assert_eq!(prepare(&cache, &kernel, None).unwrap().modules, None);
}
