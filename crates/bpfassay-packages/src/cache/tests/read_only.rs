// SPDX-License-Identifier: MIT OR Apache-2.0
//! A read-only cache: what it has can be used, and anything missing is refused with a message.

use super::*;

#[test]
fn what_is_there_is_used_and_what_is_missing_refused() {
    let Some(small) = Small::mount() else { return };
    let root = small.path().join("cache");
    let cache = Cache::open(&root).unwrap();
    let object = cache.add_bytes("a", b"content").unwrap();
    let damaged = cache.add_bytes("b", b"damaged").unwrap();
    damage(&damaged.path);
    let key = Digest::of(b"inputs");
    let tree = cache.make_tree("k", &key, "a tree", 0, fill).unwrap();
    cache.record("r", &key, &1).unwrap();
    drop(cache);
    // A process died, and a stamp is missing.
    fs::create_dir(root.join("tmp/bpfassay-gone")).unwrap();
    fs::remove_file(object.path.with_extension("stamp")).unwrap();
    rustix::mount::mount_remount(small.path(), rustix::mount::MountFlags::RDONLY, c"").unwrap();

    let cache = Cache::open(&root).unwrap();
    assert_eq!(cache.access(), CacheAccess::ReadOnly);
    assert_eq!(cache.object(&object.digest).unwrap().as_ref(), Some(&object));
    assert_eq!(cache.object(&damaged.digest).unwrap(), None);
    assert_eq!(cache.tree("k", &key).unwrap().as_ref(), Some(&tree));
    assert_eq!(cache.make_tree("k", &key, "a tree", 0, fill).unwrap(), tree);
    assert_eq!(cache.recorded::<u32>("r", &key).unwrap(), Some(1));
    // Content that the cache has is found without writing it.
    assert_eq!(cache.add_bytes("a", b"content").unwrap(), object);
    let scratch = cache.scratch().unwrap();
    fs::write(scratch.path().join("new"), "content").unwrap();
    assert_eq!(cache.adopt("a", &scratch.path().join("new"), Some(object.digest)).unwrap(), object);
    cache.record("r", &key, &2).unwrap();
    cache.lock("anything").unwrap();
    let _other = Cache::open(&root).unwrap();

    fs::write(scratch.path().join("other"), "other").unwrap();
    for error in [
        cache.add_bytes("the kernel", b"new").unwrap_err(),
        cache.adopt("the kernel", &scratch.path().join("other"), None).unwrap_err(),
        cache.make_tree("k", &Digest::of(b"new"), "the kernel", 0, fill).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(matches!(error, PackagesError::ReadOnly { .. }), "{message}");
        assert!(
            message.starts_with("the kernel is not in the cache /") && message.contains("bpfassay testbed fetch"),
            "{message}"
        );
    }
    assert_eq!(cache.recorded::<u32>("r", &key).unwrap(), Some(1));
}
