// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modules in the tree that a kernel was built in.

#![allow(clippy::disallowed_methods, reason = "every part of a path in modules.order is checked to be a name")]

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path, PathBuf},
};

use super::{ModulesError, modinfo};

/// The file that names the modules, in the order in which they are linked.
pub(crate) const ORDER: &str = "modules.order";

/// Largest `modules.order` that is read, in bytes. Real files have 300 KB.
const MAX_ORDER: u64 = 64 << 20;

/// Largest total size of a guest's modules, in bytes. Modules without debug information have 10 MB.
/// A guest has them in memory twice while it boots.
pub(super) const MAX_SIZE: u64 = 192 << 20;

/// Returns the modules of the build tree at `tree`: names, and paths relative to the tree. Returns
/// none if there is no `modules.order`. Does not check that the files exist.
///
/// # Errors
/// [`ModulesError::Read`] if `modules.order` cannot be read, [`ModulesError::Outside`] for a line
/// that is not a path in the tree.
pub(crate) fn modules(tree: &Path) -> Result<BTreeMap<String, PathBuf>, ModulesError> {
    let path = tree.join(ORDER);
    let text = match bpfassay_input::read(&path, MAX_ORDER) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(ModulesError::Read { path, source }),
    };
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, path) = module(tree, line)
            .ok_or_else(|| ModulesError::Outside { tree: tree.to_owned(), line: line.chars().take(200).collect() })?;
        found.entry(name).or_insert(path);
    }
    Ok(found)
}

/// Parses a line of `modules.order` into the module's name and its path in the tree. The line is
/// `fs/nfs/nfs.o` since Linux 6.3, and was `fs/nfs/nfs.ko` before. Before 5.3 it was
/// `kernel/fs/nfs/nfs.ko`, where `kernel` is the directory of installation.
fn module(tree: &Path, line: &str) -> Option<(String, PathBuf)> {
    let stem = line.strip_suffix(".ko").or_else(|| line.strip_suffix(".o"))?;
    let name = modinfo::canonical(stem.rsplit('/').next().filter(|name| !name.is_empty())?);
    let path = PathBuf::from(format!("{stem}.ko"));
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    // The kernel's source also has a directory `kernel`, with modules in it.
    let installed = path.strip_prefix("kernel").ok().filter(|_| !tree.join(&path).exists());
    Some((name, installed.map_or_else(|| path.clone(), Path::to_owned)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn order(text: &str) -> Result<BTreeMap<String, PathBuf>, ModulesError> {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("kernel/torture")).unwrap();
        fs::write(tree.path().join("kernel/torture/torture.ko"), "x").unwrap();
        fs::write(tree.path().join(ORDER), text).unwrap();
        modules(tree.path())
    }

    #[test]
    fn modules_order_of_each_age_names_the_same_files() {
        let expected = [("dns_resolver", "net/dns_resolver/dns-resolver.ko"), ("nfs", "fs/nfs/nfs.ko")]
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)));
        for text in [
            "fs/nfs/nfs.o\nnet/dns_resolver/dns-resolver.o\n",
            "fs/nfs/nfs.ko\nnet/dns_resolver/dns-resolver.ko\n\n",
            "kernel/fs/nfs/nfs.ko\nkernel/net/dns_resolver/dns-resolver.ko",
        ] {
            assert_eq!(order(text).unwrap(), expected.clone().into_iter().collect(), "{text}");
        }
        // A module in the source directory `kernel`.
        assert_eq!(order("kernel/torture/torture.o").unwrap()["torture"], Path::new("kernel/torture/torture.ko"));
    }

    #[test]
    fn no_modules_order_is_no_modules() {
        assert!(modules(tempfile::tempdir().unwrap().path()).unwrap().is_empty());
    }

    #[test]
    fn what_lies_elsewhere_is_refused() {
        for line in ["../fs/nfs.o", "/etc/nfs.ko", "fs/../../nfs.ko", "fs/nfs", "fs/.ko", "\u{1b}[2J.sh"] {
            let error = order(line).unwrap_err().to_string();
            assert!(error.contains("which is no path in it") && !error.contains('\u{1b}'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_path_stays_in_the_tree(text in "[a-z./_\n-]{0,80}") {
            if let Ok(found) = order(&text) {
                for path in found.values() {
                    prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))), "{path:?}");
                }
            }
        }
    }
}
