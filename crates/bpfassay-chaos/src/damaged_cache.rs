// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies a cache for one trial and flips a bit of one object.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bpfassay_packages::cache::MARKER;

/// Creates a cache at `directory` from the cache whose objects `manifest` names. Damages the kernel
/// or a part of the initramfs for guests of `arch`. `draw` decides which file and where.
///
/// # Errors
/// Errors of the file system, or an error if the manifest names no objects of a cache.
pub fn make(manifest: &Path, arch: &str, directory: &Path, draw: u64) -> io::Result<()> {
    let needed = needed(&fs::read(manifest)?, arch)
        .ok_or_else(|| io::Error::other(format!("{} names no objects of a cache", manifest.display())))?;
    let object = usize::try_from(draw).ok().and_then(|draw| needed.get(draw % needed.len()));
    let (root, object) =
        object.and_then(|path| Some((root(path)?, path))).ok_or_else(|| io::Error::other("no object to damage"))?;
    fs::create_dir(directory)?;
    fs::create_dir(directory.join("trees"))?;
    for name in ["objects", "records", "trees/kernel"] {
        link(&root.join(name), &directory.join(name))?;
    }
    for name in ["CACHEDIR.TAG", MARKER] {
        fs::copy(root.join(name), directory.join(name))?;
    }
    let mut bytes = fs::read(object)?;
    let length = bytes.len().max(1);
    if let Some(byte) = usize::try_from(draw).ok().and_then(|draw| bytes.get_mut(draw.wrapping_mul(7919) % length)) {
        *byte ^= 1 << (draw % 8);
    }
    let copy = directory.join(object.strip_prefix(root).map_err(io::Error::other)?);
    // Only this name is removed: the file itself belongs to the other cache, too.
    fs::remove_file(&copy)?;
    fs::write(copy, bytes)
}

/// Returns the kernel and the first two parts of the initramfs of target 6.12 of `arch` in a
/// manifest. All guests of that target need them.
fn needed(manifest: &[u8], arch: &str) -> Option<Vec<PathBuf>> {
    let manifest: serde_json::Value = serde_json::from_slice(manifest).ok()?;
    let is_target = |target: &&serde_json::Value| target["arch"] == arch && target["name"] == "6.12";
    let target = manifest["targets"].as_array()?.iter().find(is_target)?;
    let places = ["/kernel/image/path", "/initramfs/0/archive/path", "/initramfs/1/archive/path"];
    let paths = places.iter().map(|place| Some(PathBuf::from(target.pointer(place)?.as_str()?)));
    let paths = paths.collect::<Option<Vec<_>>>()?;
    paths.iter().all(|path| root(path).is_some()).then_some(paths)
}

/// Returns the root of the cache that contains the file at `path`.
fn root(path: &Path) -> Option<&Path> {
    path.ancestors().find(|above| above.join(MARKER).exists())
}

/// Links the files in `from` into the new directory `to`, or copies them to another file system.
///
/// # Errors
/// If `to` exists, or a directory or file cannot be read, linked or copied.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            link(&from, &to)?;
        } else if let Err(error) = fs::hard_link(&from, &to) {
            if error.kind() != io::ErrorKind::CrossesDevices {
                return Err(error);
            }
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_of_the_copy_is_damaged_and_none_of_the_original() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        fs::create_dir_all(cache.join("objects/ab")).unwrap();
        fs::create_dir_all(cache.join("records/kernel")).unwrap();
        fs::create_dir_all(cache.join("trees/kernel/1/content")).unwrap();
        let needed = ["trees/kernel/1/content/vmlinuz", "objects/ab/2", "objects/ab/3"];
        for name in ["CACHEDIR.TAG", MARKER].iter().chain(&needed) {
            fs::write(cache.join(name), name).unwrap();
        }
        let path = |index: usize| cache.join(needed[index]);
        let manifest = serde_json::json!({ "targets": [{
            "arch": "x86_64", "name": "6.12", "kernel": { "image": { "path": path(0) } },
            "initramfs": [{ "archive": { "path": path(1) } }, { "archive": { "path": path(2) } }],
        }] });
        let file = folder.path().join("manifest");
        fs::write(&file, manifest.to_string()).unwrap();
        for draw in 0..30 {
            let copy = folder.path().join(format!("copy-{draw}"));
            make(&file, "x86_64", &copy, draw).unwrap();
            let differs = |name: &&&str| fs::read(copy.join(name)).unwrap() != fs::read(cache.join(name)).unwrap();
            assert_eq!(needed.iter().filter(differs).count(), 1);
            assert!(copy.join("records/kernel").is_dir());
        }
        for name in needed {
            assert_eq!(fs::read_to_string(cache.join(name)).unwrap(), name);
        }
    }
}
