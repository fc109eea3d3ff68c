// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs;

use bpfassay_packages::{error::PackagesError, test_support::left_in_tmp};
use proptest::prelude::*;

use super::*;
use crate::manifest::{File, Kernel, MadeBy, Segment};

/// Creates a cache with two guests that share a segment. Returns their manifest.
fn made() -> (tempfile::TempDir, Manifest) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    let file = |text: &str| File::from(&cache.add_bytes("a test", text.as_bytes()).unwrap());
    let target = |name: &str| Target {
        arch: bpfassay_protocol::Arch::X86_64,
        name: name.to_owned(),
        kernel: Kernel {
            release: format!("{name}.0").parse().unwrap(),
            version: None,
            image: file(&format!("image {name}").repeat(1000)),
            config: Some(file("CONFIG_BPF=y\n")),
            modules: None,
            packages: Vec::new(),
        },
        initramfs: vec![Segment { role: "base".to_owned(), archive: file("shared"), contents: Vec::new() }],
    };
    let provider = MadeBy { name: "debian".to_owned(), version: "0.1.0".to_owned() };
    let targets = vec![target("6.1"), target("6.12")];
    let manifest = Manifest { format: 1, provider, toolchain: Vec::new(), assets: Vec::new(), targets };
    (directory, manifest)
}

/// Returns `manifest` without paths.
fn contents(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.targets.iter_mut().flat_map(Target::files_mut).for_each(|file| file.path = PathBuf::new());
    manifest
}

/// Writes a compressed archive of these entries.
fn bundle(directory: &Path, entries: &[(&str, NewcNode)]) -> PathBuf {
    let mut archive = Archive::default();
    for (name, node) in entries {
        archive.add(name, node.clone()).unwrap();
    }
    let mut xz = XzWriter::new(Vec::new(), XzOptions::with_preset(PRESET)).unwrap();
    archive.write_to(&mut xz).unwrap();
    let path = directory.join("made.bundle");
    fs::write(&path, xz.finish().unwrap()).unwrap();
    path
}

fn node(content: impl Into<Vec<u8>>) -> NewcNode {
    NewcNode::File { executable: false, content: FileContent::Bytes(content.into()) }
}

/// Paths and contents in a bundle.
type Parts = Vec<(String, NewcNode)>;

/// Returns the content of a bundle of `manifest`.
fn parts(manifest: &Manifest) -> Parts {
    let files = manifest.targets.iter().flat_map(Target::files);
    let file = |file: &File| (format!("{OBJECTS}/{}", file.sha256), node(fs::read(&file.path).unwrap()));
    let mut parts: Vec<_> = files.map(file).collect();
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts.dedup_by(|a, b| a.0 == b.0);
    parts.insert(0, (MANIFEST.to_owned(), node(manifest.to_json().unwrap())));
    parts
}

/// Returns why the bundle of `parts` is refused. Checks that no unfinished file stays in the cache.
fn refused(directory: &Path, parts: &[(String, NewcNode)]) -> String {
    let entries: Vec<_> = parts.iter().map(|(name, node)| (name.as_str(), node.clone())).collect();
    let path = bundle(directory, &entries);
    // A file that the cache already has is not read from a bundle: use an empty cache.
    let other = tempfile::tempdir_in(directory).unwrap();
    let cache = Cache::open(other.path()).unwrap();
    let error = unpack(&cache, &path).unwrap_err();
    assert_eq!(left_in_tmp(cache.root()), Vec::<PathBuf>::new());
    bpfassay_protocol::with_causes(&error)
}

#[test]
fn what_is_bundled_is_the_same_in_another_cache() {
    let (directory, manifest) = made();
    let path = directory.path().join("a.bundle");
    let size = write(&manifest, &[], &path).unwrap();
    assert_eq!(size, fs::metadata(&path).unwrap().len());
    fs::remove_dir_all(directory.path().join("cache")).unwrap();
    assert_eq!(contents(&super::manifest(&path).unwrap()), contents(&manifest));
    let cache = Cache::open(directory.path().join("elsewhere")).unwrap();
    for _ in ["into an empty cache", "into one that has everything"] {
        let unpacked = unpack(&cache, &path).unwrap();
        assert_eq!(contents(&unpacked), contents(&manifest));
        unpacked.check_files(&path, Check::Content).unwrap();
        assert!(unpacked.targets.iter().flat_map(Target::files).all(|file| file.path.starts_with(cache.root())));
    }
    // The same guests give the same file.
    let again = directory.path().join("b.bundle");
    write(&unpack(&cache, &path).unwrap(), &[], &again).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
}

/// Creates two packages with files in the cache in `directory`.
fn packages_in(directory: &Path) -> Vec<(Package, CachedFile)> {
    let cache = Cache::open(directory.join("cache")).unwrap();
    let package = |name: &str| {
        let content = format!("the package {name}").into_bytes();
        let (size, sha256) = (content.len() as u64, Digest::of(&content));
        let (name, version) = (name.parse().unwrap(), "1:7.2+dfsg-7".parse().unwrap());
        let architecture = "amd64".parse().unwrap();
        (Package { name, version, architecture, size, sha256 }, cache.add_bytes("a test", &content).unwrap())
    };
    vec![package("libfdt1"), package("qemu-system-x86")]
}

#[test]
fn qemu_comes_with_the_guests_where_it_was_put_in() {
    let (directory, manifest) = made();
    let (path, packages) = (directory.path().join("a.bundle"), packages_in(directory.path()));
    write(&manifest, &packages, &path).unwrap();
    fs::remove_dir_all(directory.path().join("cache")).unwrap();
    let listed: Vec<_> = packages.iter().map(|(package, _)| package.clone()).collect();
    assert_eq!(qemu(&path).unwrap(), listed);
    assert_eq!(contents(&super::manifest(&path).unwrap()), contents(&manifest));
    let cache = Cache::open(directory.path().join("elsewhere")).unwrap();
    assert_eq!(contents(&unpack(&cache, &path).unwrap()), contents(&manifest));
    for package in &listed {
        let object = cache.object(&package.sha256).unwrap().unwrap();
        assert_eq!(fs::read_to_string(object.path).unwrap(), format!("the package {}", package.name));
    }
    let without = directory.path().join("b.bundle");
    write(&unpack(&cache, &path).unwrap(), &[], &without).unwrap();
    assert_eq!(qemu(&without).unwrap(), []);
}

#[test]
fn a_list_of_packages_that_is_none_is_refused() {
    let (directory, manifest) = made();
    let (directory, whole) = (directory.path(), parts(&manifest));
    let packages: Vec<_> = packages_in(directory).into_iter().map(|(package, _)| package).collect();
    let with = |text: Vec<u8>| {
        let mut parts = whole.clone();
        parts.insert(0, (EMULATOR.to_owned(), node(text)));
        refused(directory, &parts)
    };
    let json = |packages: &[Package]| serde_json::to_vec(packages).unwrap();
    assert!(with(json(&packages)).contains("2 of the files of its manifest are missing"));
    assert!(with(json(&[])).contains("`emulator.json`: it lists no package"));
    assert!(with(b"{}".to_vec()).contains("`emulator.json`: invalid type"));
    let hostile = String::from_utf8(json(&packages)).unwrap().replace("libfdt1", "../x\\u001b");
    assert!(with(hostile.into_bytes()).contains("`../x\\u{1b}` is no name of a package"));
    let of_rpm = Package { name: "lib_x".parse().unwrap(), ..packages[0].clone() };
    assert!(with(json(&[of_rpm])).contains("`lib_x:amd64=1:7.2+dfsg-7` is no package"));
    let shared = Package { sha256: manifest.targets[0].initramfs[0].archive.sha256, ..packages[0].clone() };
    assert!(with(json(&[shared])).contains("with two sizes"));
    let twice = [(EMULATOR.to_owned(), node(json(&packages))), ("f".to_owned(), node("x"))];
    assert!(refused(directory, &twice).contains("does not begin with `manifest.json`"));
}

#[test]
fn no_file_is_written_over_and_none_is_left_half_written() {
    let (directory, mut manifest) = made();
    let path = directory.path().join("a.bundle");
    fs::write(&path, "mine").unwrap();
    let error = write(&manifest, &[], &path).unwrap_err();
    assert!(matches!(error, Error::Packages(PackagesError::Io { action: "create", .. })), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    fs::remove_file(&path).unwrap();
    manifest.targets[1].kernel.image.sha256 = Digest::of(b"other");
    assert!(matches!(write(&manifest, &[], &path), Err(Error::Manifest(_))));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["cache"]);
}

#[test]
fn what_does_not_belong_in_a_bundle_is_refused() {
    let (directory, manifest) = made();
    let (directory, whole) = (directory.path(), parts(&manifest));
    let with = |change: &dyn Fn(&mut Parts)| {
        let mut parts = whole.clone();
        change(&mut parts);
        refused(directory, &parts)
    };
    let stray = |name: &'static str| with(&|parts| parts.push((name.to_owned(), node("x"))));
    assert!(with(&|parts| drop(parts.remove(0))).contains("does not begin with `manifest.json`"));
    assert!(with(&|parts| drop(parts.pop())).contains("1 of the files of its manifest are missing"));
    assert!(stray("zzz").contains("`zzz` is not in its manifest like that"));
    assert!(stray("objects/zzz").contains("`objects/zzz` is not in its manifest like that"));
    let link = NewcNode::Symlink { target: "/etc/passwd".to_owned() };
    let (last, _) = whole.last().unwrap();
    assert!(with(&|parts| parts.last_mut().unwrap().1 = link.clone()).contains("is not in its manifest like that"));
    assert!(with(&|parts| parts.last_mut().unwrap().1 = node("longer or shorter")).contains(last));
    // The length is right, but not the content.
    let changed = |parts: &mut Parts| {
        let NewcNode::File { content: FileContent::Bytes(bytes), .. } = &mut parts.last_mut().unwrap().1 else {
            panic!()
        };
        bytes[0] ^= 1;
    };
    assert!(with(&changed).contains("has SHA-256"));
    let two_sizes = |parts: &mut Parts| {
        let mut manifest = manifest.clone();
        manifest.targets[0].initramfs[0].archive.size += 1;
        parts[0].1 = node(manifest.to_json().unwrap());
    };
    assert!(with(&two_sizes).contains("with two sizes"));
    assert!(with(&|parts| parts[0].1 = node("{}")).contains("no testbed manifest"));
}

#[test]
fn a_bundle_that_is_cut_off_is_refused_at_every_length() {
    let (directory, manifest) = made();
    let path = directory.path().join("a.bundle");
    write(&manifest, &[], &path).unwrap();
    let whole = fs::read(&path).unwrap();
    let cache = Cache::open(directory.path().join("other")).unwrap();
    // Reading does not need the end of the archive and of the stream.
    for length in 0..whole.len() / 2 {
        fs::write(&path, &whole[..length]).unwrap();
        let error = unpack(&cache, &path).unwrap_err();
        assert!(matches!(error, Error::Bundle(BundleError::Damaged { .. })), "{length}: {error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(unpack(&cache, &path), Err(Error::Bundle(BundleError::Open { .. }))));
    assert!(matches!(unpack(&cache, directory.path()), Err(Error::Bundle(BundleError::Open { .. }))));
}

/// 200 MiB of zeros take 30 kB.
#[test]
fn a_bundle_that_unpacks_to_far_more_than_its_size_is_refused() {
    let (directory, mut manifest) = made();
    let zeros = vec![0; 200 << 20];
    let image = &mut manifest.targets[0].kernel.image;
    (image.size, image.sha256) = (zeros.len() as u64, Digest::of(&zeros));
    let mut parts = parts(&manifest);
    let name = format!("{OBJECTS}/{}", manifest.targets[0].kernel.image.sha256);
    parts.retain(|(other, _)| *other != name);
    parts.insert(1, (name, node(zeros)));
    let error = refused(directory.path(), &parts);
    assert!(error.contains("far more than a file of its size"), "{error}");
}

#[test]
fn a_stream_that_takes_more_memory_than_any_of_ours_is_refused() {
    let (directory, manifest) = made();
    let path = directory.path().join("a.bundle");
    write(&manifest, &[], &path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // The first block header follows the stream header of 12 bytes. Its last filter is LZMA2, whose
    // one byte of properties is the dictionary size (specification of the format, 3.1 and 5.3.1).
    let length = (usize::from(bytes[12]) + 1) * 4;
    let header = 12..12 + length - 4;
    let at = bytes[header.clone()].windows(2).position(|pair| pair == [0x21, 1]).unwrap() + 12 + 2;
    bytes[at] = 40;
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[header.clone()]);
    bytes[header.end..header.end + 4].copy_from_slice(&crc.sum().to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = bpfassay_protocol::with_causes(&super::manifest(&path).unwrap_err());
    assert!(error.contains("needed memory too big"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_is_refused_or_changes_nothing(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (directory, manifest) = made();
        let path = directory.path().join("a.bundle");
        write(&manifest, &[], &path).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        let cache = Cache::open(directory.path().join("other")).unwrap();
        if let Ok(unpacked) = unpack(&cache, &path) {
            prop_assert_eq!(contents(&unpacked), contents(&manifest));
            unpacked.check_files(&path, Check::Content).unwrap();
        }
    }
}
