// SPDX-License-Identifier: MIT OR Apache-2.0
//! From package files to a kernel's tree: `vmlinuz`, `config`, `modules/`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Error, Result, apt,
    cache::{Cache, Object},
};

/// Changes whenever the layout of the tree does.
pub(super) const LAYOUT: &str = "kernel tree 1";
/// The image that QEMU boots, in the tree.
pub(super) const IMAGE: &str = "vmlinuz";
/// The kernel's configuration, in the tree.
pub(super) const CONFIG: &str = "config";
/// The content of `lib/modules/RELEASE`, in the tree.
pub(super) const MODULES: &str = "modules";
/// Unpacks `packages`, reporting each as it is `done`, and moves what is wanted into `content`.
///
/// # Errors
/// Where a package cannot be unpacked; where its kernel has another layout than Debian's; [`Error::Io`] where the cache cannot be written.
pub(super) fn unpack(
    cache: &Cache,
    packages: &[Object],
    release: &str,
    what: &str,
    content: &Path,
    done: impl Fn(),
) -> Result<()> {
    let scratch = cache.scratch()?;
    for package in packages {
        apt::unpack(&package.path, scratch.path(), &[], what)?;
        done();
    }
    arrange(scratch.path(), release, what, content)
}

/// Moves the kernel's files from the packages' places in `root` to ours in `content`.
fn arrange(root: &Path, release: &str, what: &str, content: &Path) -> Result<()> {
    let trees = [root.join("usr/lib/modules").join(release), root.join("lib/modules").join(release)];
    let boot = |name: &str| root.join("boot").join(format!("{name}-{release}"));
    let in_trees = |name: &str| trees.iter().map(|tree| tree.join(name)).collect::<Vec<_>>();
    // riscv64 calls it vmlinux up to 6.12; it is the same EFI program as the later vmlinuz.
    let image = [boot("vmlinuz"), boot("vmlinux")].into_iter();
    let image = image.chain(in_trees("vmlinuz")).chain(in_trees("vmlinuz.unsigned"));
    take(image, content, IMAGE, what)?;
    take([boot("config")].into_iter().chain(in_trees("config")), content, CONFIG, what)?;
    let modules = content.join(MODULES);
    fs::create_dir(&modules).map_err(Error::io("create", &modules))?;
    take(in_trees("kernel"), &modules, "kernel", what)?;
    take(in_trees("modules.builtin"), &modules, "modules.builtin", what)?;
    take(in_trees("modules.order"), &modules, "modules.order", what)?;
    // Names and aliases of what is built in; not every package layout has it, and nothing fails without it.
    if in_trees("modules.builtin.modinfo").iter().any(|path| path.exists()) {
        take(in_trees("modules.builtin.modinfo"), &modules, "modules.builtin.modinfo", what)?;
    }
    Ok(())
}

/// Moves the first of `places` that exists.
fn take(places: impl IntoIterator<Item = PathBuf>, to: &Path, name: &str, what: &str) -> Result<()> {
    match places.into_iter().find(|path| path.exists()) {
        Some(from) => fs::rename(&from, to.join(name)).map_err(Error::io("move", from)),
        None => Err(Error::KernelLayout { what: what.to_owned(), missing: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
    }

    fn arranged(files: &[&str]) -> Result<Vec<String>> {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        lay(from.path(), files);
        arrange(from.path(), "6.1-x", "kernel 6.1-x", to.path())?;
        assert!(to.path().join("modules/kernel/fs/nfs.ko").exists());
        ["vmlinuz", "config", "modules/modules.order"]
            .iter()
            .map(|name| Ok(fs::read_to_string(to.path().join(name)).unwrap()))
            .collect()
    }

    #[test]
    fn the_layouts_of_debian_come_out_the_same() {
        let bookworm = [
            "boot/vmlinuz-6.1-x",
            "boot/config-6.1-x",
            "lib/modules/6.1-x/kernel/fs/nfs.ko",
            "lib/modules/6.1-x/modules.builtin",
            "lib/modules/6.1-x/modules.order",
        ];
        assert_eq!(arranged(&bookworm).unwrap(), [bookworm[0], bookworm[1], bookworm[4]]);
        let trixie_riscv64 = [
            "boot/vmlinux-6.1-x",
            "boot/config-6.1-x",
            "usr/lib/modules/6.1-x/kernel/fs/nfs.ko",
            "usr/lib/modules/6.1-x/modules.builtin",
            "usr/lib/modules/6.1-x/modules.order",
        ];
        assert_eq!(arranged(&trixie_riscv64).unwrap(), [trixie_riscv64[0], trixie_riscv64[1], trixie_riscv64[4]]);
        let forky = [
            "usr/lib/modules/6.1-x/vmlinuz",
            "usr/lib/modules/6.1-x/config",
            "usr/lib/modules/6.1-x/kernel/fs/nfs.ko",
            "usr/lib/modules/6.1-x/modules.builtin",
            "usr/lib/modules/6.1-x/modules.order",
        ];
        assert_eq!(arranged(&forky).unwrap(), [forky[0], forky[1], forky[4]]);
        let unsigned = forky.map(|file| if file == forky[0] { "usr/lib/modules/6.1-x/vmlinuz.unsigned" } else { file });
        assert_eq!(arranged(&unsigned).unwrap(), [unsigned[0], forky[1], forky[4]]);
    }

    #[test]
    fn a_package_without_image_is_refused() {
        let error = arranged(&["boot/config-6.1-x", "lib/modules/6.1-x/kernel/fs/nfs.ko"]).unwrap_err();
        assert!(error.to_string().starts_with("kernel 6.1-x holds no vmlinuz"), "{error}");
    }
}
