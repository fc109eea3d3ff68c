// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that each object of a cache has the content that its name promises.

use std::{fs, path::Path};

use bpfassay_packages::digest::Digest;

/// Digits of a digest.
const DIGITS: usize = 64;

/// Returns a sentence for each damaged object of the cache at `root`. Files next to objects, such
/// as stamps, have other names.
#[must_use]
pub fn damage(root: &Path) -> Vec<String> {
    let names = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect::<Vec<_>>()
    };
    let mut wrong = Vec::new();
    for (first, directory) in names(&root.join("objects")) {
        for (rest, path) in names(&directory) {
            let name = format!("{first}{rest}");
            if name.len() != DIGITS || name.parse::<Digest>().is_err() {
                continue;
            }
            match fs::read(&path) {
                _ if path.is_symlink() => wrong.push(format!("the cache: {} is a link", path.display())),
                Ok(bytes) if Digest::of(&bytes).to_string() == name => {}
                Ok(_) => wrong.push(format!("the cache: {} has another content than its name", path.display())),
                Err(error) => wrong.push(format!("the cache: {} cannot be read: {error}", path.display())),
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use bpfassay_packages::cache::Cache;

    use super::*;

    #[test]
    fn a_damaged_object_and_a_link_in_its_place_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("cache");
        let cache = Cache::open(root.clone()).unwrap();
        let object = cache.add_bytes("an object", b"content").unwrap();
        assert_eq!(damage(&root), Vec::<String>::new());
        fs::set_permissions(&object.path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&object.path, "Content").unwrap();
        assert!(damage(&root)[0].contains("another content"));
        fs::remove_file(&object.path).unwrap();
        fs::write(folder.path().join("elsewhere"), "content").unwrap();
        symlink(folder.path().join("elsewhere"), &object.path).unwrap();
        assert!(damage(&root)[0].contains("is a link"));
    }
}
