// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeSet;

use bpfassay_packages::cache::Cache;

use super::*;
use crate::{
    kernel_modules::{ModuleSet, Signatures, tests::module},
    provider::local::{arm64_image, prepare},
};

const RELEASED: &str = "6.99.0-mine";

/// A tree in which a kernel was built with its modules.
fn tree() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path();
    write(tree, ".config", b"CONFIG_MODULES=y\nCONFIG_VIRTIO_PCI=y\nCONFIG_NFSD=m\n");
    write(tree, RELEASE, format!("{RELEASED}\n").as_bytes());
    write(tree, "arch/arm64/boot/Image", &arm64_image(RELEASED));
    write(tree, "modules.builtin", b"kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/char/virtio_console.ko\n");
    write(tree, "modules.order", b"fs/nfsd/nfsd.o\nkernel/other.o\n");
    write(tree, "fs/nfsd/nfsd.ko", &module(Some(b"name=nfsd\0depends=\0")));
    write(tree, "kernel/other.ko", &module(Some(b"name=other\0depends=\0")));
    directory
}

fn write(tree: &Path, name: &str, content: &[u8]) {
    let path = tree.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn found(tree: &Path, archs: &[Arch]) -> Result<LocalKernel> {
    LocalKernel::find(tree, None, archs)
}

fn refusal(tree: &Path, archs: &[Arch]) -> String {
    found(tree, archs).unwrap_err().to_string()
}

#[test]
fn a_build_tree_becomes_a_kernel_with_its_modules() {
    let tree = tree();
    let kernel = found(tree.path(), &[]).unwrap();
    assert_eq!(kernel.image, tree.path().join("arch/arm64/boot/Image"));
    assert_eq!(kernel.modules, Some(LocalModules::Built(tree.path().to_owned())));
    let cache = tempfile::tempdir().unwrap();
    let cache = Cache::open(cache.path().join("cache")).unwrap();
    let made = prepare(&cache, &kernel, None).unwrap();
    assert_eq!((made.release.as_str(), made.arch), (RELEASED, Arch::Aarch64));
    assert!(fs::read_to_string(made.config.unwrap().path).unwrap().contains("CONFIG_NFSD=m"));
    let modules = made.modules.unwrap();
    let (set, archive) = ModuleSet::read(&modules.path, modules.layout, Signatures::Kept, &BTreeSet::new()).unwrap();
    assert_eq!(set.modules.keys().collect::<Vec<_>>(), ["nfsd"]);
    assert!(set.builtin.contains("virtio_pci") && set.absent.contains("nfsv4"), "{set:?}");
    assert!(archive.size() > 200);
    // Rebuilding a module changes the key.
    write(tree.path(), "fs/nfsd/nfsd.ko", &module(Some(b"name=nfsd\0depends=\0srcversion=2\0")));
    assert_ne!(super::modules(tree.path()).unwrap().key, modules.key);
}

#[test]
fn what_is_not_built_is_named_with_its_target() {
    let without = |name: &str| {
        let tree = tree();
        fs::remove_file(tree.path().join(name)).unwrap();
        let text = refusal(tree.path(), &[]);
        text.strip_prefix(&format!("the build tree {} ", tree.path().display())).unwrap_or(&text).to_owned()
    };
    assert!(without("arch/arm64/boot/Image").starts_with("has no kernel image (arch/*/boot/bzImage"));
    assert_eq!(without("include/config/kernel.release"), "has no include/config/kernel.release: run `make`");
    assert_eq!(
        without("modules.order"),
        "has no modules.order, and guests need modules (CONFIG_NFSD=m): run `make modules`"
    );
    assert_eq!(without("modules.builtin"), "has no modules.builtin: run `make`");
    let tree = tree();
    write(tree.path(), RELEASE, b"6.99.0-mine-dirty\n");
    assert!(
        refusal(tree.path(), &[]).ends_with(
            "is one of 6.99.0-mine-dirty, and arch/arm64/boot/Image is of 6.99.0-mine, from a build before: run `make Image`"
        ),
        "{}",
        refusal(tree.path(), &[])
    );
    fs::remove_file(tree.path().join(".config")).unwrap();
    assert!(refusal(tree.path(), &[]).contains("is neither a kernel image nor the tree of a kernel's build"));
    write(tree.path(), "Makefile", b"");
    assert!(refusal(tree.path(), &[]).contains("has no .config: run `make defconfig`"));
}

#[test]
fn a_module_that_is_not_built_is_named() {
    let tree = tree();
    fs::remove_file(tree.path().join("fs/nfsd/nfsd.ko")).unwrap();
    let error =
        ModuleSet::read(tree.path(), ModuleLayout::Built, Signatures::Kept, &BTreeSet::new()).unwrap_err().to_string();
    assert!(
        error.ends_with("nfsd.ko is in modules.order of the build tree, and is not there: run `make modules`"),
        "{error}"
    );
}

#[test]
fn a_kernel_without_modules_needs_no_list_of_them() {
    let tree = tree();
    write(tree.path(), ".config", b"CONFIG_VIRTIO_PCI=y\n# CONFIG_MODULES is not set\n");
    for name in ["modules.order", "modules.builtin"] {
        fs::remove_file(tree.path().join(name)).unwrap();
    }
    assert_eq!(found(tree.path(), &[]).unwrap().modules, None);
}

#[test]
fn images_of_two_architectures_are_told_apart_by_name() {
    let tree = tree();
    let mut bzimage = vec![0; 0x600];
    bzimage[0x202..0x206].copy_from_slice(b"HdrS");
    write(tree.path(), "arch/x86/boot/bzImage", &bzimage);
    fs::create_dir_all(tree.path().join("arch/x86_64/boot")).unwrap();
    std::os::unix::fs::symlink("../../x86/boot/bzImage", tree.path().join("arch/x86_64/boot/bzImage")).unwrap();
    assert!(refusal(tree.path(), &[]).contains("has images for aarch64 and for x86_64: choose one with --arch"));
    // The link names the same image.
    assert!(found(tree.path(), &[Arch::X86_64]).unwrap().image.ends_with("boot/bzImage"));
    assert!(refusal(tree.path(), &[Arch::Riscv64]).contains("is the build of a kernel for aarch64, not for riscv64"));
    write(tree.path(), "arch/arm64/boot/Image", b"nothing");
    assert!(refusal(tree.path(), &[Arch::Aarch64]).contains("Image is no kernel image"));
}

#[test]
fn installed_modules_come_before_those_of_the_tree() {
    let tree = tree();
    let installed = tempfile::tempdir().unwrap();
    let kernel = LocalKernel::find(tree.path(), Some(installed.path()), &[]).unwrap();
    assert_eq!(kernel.modules, Some(LocalModules::Installed(installed.path().to_owned())));
    let absent = LocalKernel::find(tree.path(), Some(Path::new("modroot")), &[]).unwrap_err().to_string();
    assert_eq!(absent, "modroot is no directory: give --modules INSTALL_MOD_PATH of `make modules_install`");
}
