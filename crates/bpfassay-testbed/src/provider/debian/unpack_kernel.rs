// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks package files into a kernel's tree: `vmlinuz`, `config`, `modules/`.

#![allow(
    clippy::disallowed_methods,
    reason = "joins fixed names and a `KernelRelease`; files are reached by `UntrustedTree`"
)]

use std::path::{Path, PathBuf};

use bpfassay_packages::{
    cache::{Cache, CachedFile},
    safe_names::KernelRelease,
    unpack,
    untrusted_tree::{Links, UntrustedTree},
};

use crate::error::{Error, Result};

/// Change this text whenever the layout of the tree changes.
pub(super) const LAYOUT: &str = "kernel tree 1";
/// The image that QEMU boots, in the tree.
pub(super) const IMAGE: &str = "vmlinuz";
/// The kernel's configuration, in the tree.
pub(super) const CONFIG: &str = "config";
/// The content of `lib/modules/RELEASE`, in the tree.
pub(super) const MODULES: &str = "modules";

/// Unpacks `packages`, calls `done` after each, and moves the kernel's files into `content`.
///
/// # Errors
/// Errors of unpacking, [`Error::KernelLayout`] if the packages are laid out differently from
/// Debian's, `PackagesError::Io` if the cache cannot be written.
pub(super) fn unpack(
    cache: &Cache,
    packages: &[CachedFile],
    release: &KernelRelease,
    what: &str,
    content: &Path,
    done: impl Fn(),
) -> Result<()> {
    let scratch = cache.scratch()?;
    let tree = UntrustedTree::open(scratch.path())?;
    for package in packages {
        unpack::unpack(&package.path, &tree, &[], what)?;
        done();
    }
    arrange(&tree, release, what, content)
}

/// Moves the kernel's files from the packages' layout in `tree` to our layout in `content`.
fn arrange(tree: &UntrustedTree, release: &KernelRelease, what: &str, content: &Path) -> Result<()> {
    let trees = ["usr/lib/modules", "lib/modules"].map(|parent| Path::new(parent).join(release.as_str()));
    let boot = |name: &str| PathBuf::from(format!("boot/{name}-{release}"));
    let in_trees = |name: &str| trees.iter().map(|tree| tree.join(name)).collect::<Vec<_>>();
    let missing = |name: &str| Error::KernelLayout { what: what.to_owned(), missing: name.to_owned() };
    let take = |places: Vec<PathBuf>, name: &str| -> Result<bool> {
        let found = places.iter().find(|place| tree.is_file(place));
        found.map_or(Ok(false), |from| Ok(tree.take_file(from, &content.join(name)).map(|()| true)?))
    };
    let wanted = |places: Vec<PathBuf>, name: &str| match take(places, name)? {
        true => Ok(()),
        false => Err(missing(name.rsplit('/').next().unwrap_or(name))),
    };
    // Debian calls the image vmlinux on riscv64 up to 6.12. It is the same EFI program as the later
    // vmlinuz.
    let images = [vec![boot("vmlinuz"), boot("vmlinux")], in_trees("vmlinuz"), in_trees("vmlinuz.unsigned")];
    wanted(images.concat(), IMAGE)?;
    wanted([vec![boot("config")], in_trees("config")].concat(), CONFIG)?;
    let modules = in_trees("kernel").into_iter().find(|place| tree.is_directory(place));
    let to = content.join(MODULES).join("kernel");
    tree.take_directory(modules.ok_or_else(|| missing("kernel"))?, &to, Links::Removed)?;
    for name in ["modules.builtin", "modules.order"] {
        wanted(in_trees(name), &format!("{MODULES}/{name}"))?;
    }
    // The names and aliases of built-in modules. Some package layouts lack this file, and nothing
    // requires it.
    let name = "modules.builtin.modinfo";
    take(in_trees(name), &format!("{MODULES}/{name}")).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bpfassay_packages::test_support::package::{deb, file, tar_entry};

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
        let tree = UntrustedTree::open(from.path()).unwrap();
        arrange(&tree, &"6.1-x".parse().unwrap(), "kernel 6.1-x", to.path())?;
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

    /// A package can have any content: its digest can come from somebody else's results.
    #[test]
    fn nothing_of_this_machine_is_moved_or_taken_for_a_module() {
        let work = tempfile::tempdir().unwrap();
        let cache = Cache::open(work.path().join("cache")).unwrap();
        let host = work.path().join("host");
        lay(&host, &["6.1-x/kernel/fs/a.ko", "6.1-x/modules.builtin", "6.1-x/modules.order", "config"]);
        let to = |name: &str| host.join(name).to_str().unwrap().to_owned();
        let image = || file("./boot/vmlinuz-6.1-x", "image");
        let config = || file("./boot/config-6.1-x", "config");
        let link = |place: &str, target: String| tar_entry(b'2', place, 0o777, &target, b"");
        let lists = ["builtin", "order"].map(|name| file(&format!("./lib/modules/6.1-x/modules.{name}"), ""));
        let module = || file("./lib/modules/6.1-x/kernel/b.ko", "b");
        let attempts = [
            vec![image(), config(), link("./lib/modules", to(""))],
            vec![image(), config(), link("./lib/modules/6.1-x", to("6.1-x"))],
            vec![image(), link("./boot/config-6.1-x", to("config")), module()],
            [vec![image(), config(), link("./lib/modules/6.1-x/kernel", to("6.1-x/kernel"))], lists.to_vec()].concat(),
        ];
        let unpacked = |number: usize, entries: &[Vec<u8>]| {
            let object = cache.add_bytes("a package", &deb(entries)).unwrap();
            let content = work.path().join(format!("content-{number}"));
            fs::create_dir(&content).unwrap();
            let done = unpack(&cache, &[object], &"6.1-x".parse().unwrap(), "kernel 6.1-x", &content, || ());
            (content, done)
        };
        for (number, entries) in attempts.iter().enumerate() {
            let (_, done) = unpacked(number, entries);
            assert!(matches!(done, Err(Error::KernelLayout { .. })), "{number}: {done:?}");
            for name in ["6.1-x/kernel/fs/a.ko", "6.1-x/modules.builtin", "6.1-x/modules.order", "config"] {
                assert_eq!(fs::read_to_string(host.join(name)).unwrap(), name, "{number}");
            }
        }
        let links = [link("./lib/modules/6.1-x/kernel/a", to("6.1-x/kernel")), module()];
        let (content, done) = unpacked(9, &[vec![image(), config()], links.to_vec(), lists.to_vec()].concat());
        done.unwrap();
        assert!(content.join("modules/kernel/b.ko").is_file() && !content.join("modules/kernel/a").is_symlink());
    }
}
