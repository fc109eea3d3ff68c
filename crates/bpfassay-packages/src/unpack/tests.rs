// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    process::Command,
};

use proptest::prelude::*;

use super::*;
use crate::{
    digest::Digest,
    test_support::{
        lacks,
        package::{deb, directory, file, gzip, tar_entry},
    },
};

/// An entry of a newc archive.
fn newc_entry(path: &str, mode: u32, inode: u32, names: u32, content: &[u8]) -> Vec<u8> {
    let fields = [inode, mode, 0, 0, names, 0, content.len() as u32, 8, 1, 0, 0, path.len() as u32 + 1, 0];
    let mut bytes = b"070701".to_vec();
    bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
    bytes.extend(path.bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of a tag.
enum Value<'a> {
    Text(&'a str),
    Texts(&'a [&'a str]),
    Words(&'a [u32]),
    Halves(&'a [u16]),
}

/// A header of an RPM package.
fn header(tags: &[(u32, Value<'_>)]) -> Vec<u8> {
    let (mut index, mut data) = (Vec::new(), Vec::new());
    for (number, value) in tags {
        let (kind, count, bytes): (u32, usize, Vec<u8>) = match value {
            Value::Text(text) => (6, 1, [text.as_bytes(), b"\0"].concat()),
            Value::Texts(texts) => {
                (8, texts.len(), texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect())
            }
            Value::Words(words) => (4, words.len(), words.iter().flat_map(|word| word.to_be_bytes()).collect()),
            Value::Halves(halves) => (3, halves.len(), halves.iter().flat_map(|half| half.to_be_bytes()).collect()),
        };
        let size = if let Value::Words(_) = value { 4 } else { 2 };
        data.resize(data.len().next_multiple_of(size), 0);
        index.extend([*number, kind, data.len() as u32, count as u32].iter().flat_map(|word| word.to_be_bytes()));
        data.extend(bytes);
    }
    let mut header = vec![0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0];
    header.extend((tags.len() as u32).to_be_bytes());
    header.extend((data.len() as u32).to_be_bytes());
    [header, index, data].concat()
}

/// A package with `payload`, and with `tags` in addition to those that every package has.
fn rpm(payload: &[u8], tags: Vec<(u32, Value<'_>)>) -> Vec<u8> {
    let digest = Digest::of(payload).to_string();
    let mut all = vec![
        (1000, Value::Text("kernel-core")),
        (1001, Value::Text("5.14.0")),
        (1002, Value::Text("503.el9")),
        (1022, Value::Text("x86_64")),
        (1124, Value::Text("cpio")),
    ];
    all.extend(tags);
    all.extend([(5092, Value::Texts(&[])), (5093, Value::Words(&[8]))]);
    let digests = [digest.as_str()];
    let place = all.len() - 2;
    all[place] = (5092, Value::Texts(&digests));
    let mut lead = vec![0xed, 0xab, 0xee, 0xdb, 3, 0];
    lead.resize(96, 0);
    let signature = header(&[(1000, Value::Words(&[1, 2, 3])), (62, Value::Text("x"))]);
    let padding = vec![0; signature.len().next_multiple_of(8) - signature.len()];
    [lead, signature, padding, header(&all), payload.to_vec()].concat()
}

fn tree(path: &Path) -> UntrustedTree {
    UntrustedTree::open(path).unwrap()
}

/// Unpacks `bytes` into a new directory.
fn unpacked(bytes: &[u8]) -> (tempfile::TempDir, Result<About>) {
    let work = tempfile::tempdir().unwrap();
    let (package, root) = (work.path().join("package"), work.path().join("root"));
    fs::write(&package, bytes).unwrap();
    fs::create_dir(&root).unwrap();
    let done = unpack(&package, &tree(&root), &["./usr/share/doc"], "x");
    (work, done)
}

fn refused(bytes: &[u8]) -> String {
    let (work, done) = unpacked(bytes);
    let message = done.unwrap_err().to_string();
    assert!(!work.path().join("outside").exists());
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 2, "nothing beside the package and the directory");
    message
}

#[test]
fn files_directories_and_links_of_a_deb_are_unpacked() {
    let long = format!("./usr/{}/file", "long/".repeat(30));
    let pax = format!("path={long}\n");
    let pax = format!("{} {pax}", pax.len() + 4);
    let packed = deb(&[
        directory("./"),
        directory("./boot/"),
        file("./boot/vmlinuz", "image"),
        tar_entry(b'0', "./boot/script", 0o4755, "", b"#!"),
        tar_entry(b'2', "./vmlinuz", 0o777, "/boot/vmlinuz", b""),
        tar_entry(b'1', "./boot/same", 0o644, "./boot/vmlinuz", b""),
        file("./usr/share/doc/x", "left out"),
        tar_entry(b'x', "pax", 0o644, "", pax.as_bytes()),
        file("short", "by pax"),
        tar_entry(b'L', "././@LongLink", 0o644, "", format!("{long}2\0").as_bytes()),
        file("short", "by GNU tar"),
    ]);
    let (work, about) = unpacked(&packed);
    assert_eq!(
        about.unwrap(),
        About {
            name: "linux-image-x".parse().unwrap(),
            version: "6.1-1".parse().unwrap(),
            architecture: "amd64".parse().unwrap()
        }
    );
    let root = work.path().join("root");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(
        (read("boot/vmlinuz"), read(&long), read(&format!("{long}2"))),
        ("image".into(), "by pax".into(), "by GNU tar".into())
    );
    assert_eq!(fs::read_link(root.join("vmlinuz")).unwrap(), Path::new("/boot/vmlinuz"));
    let inode = |path: &str| fs::metadata(root.join(path)).unwrap().ino();
    assert_eq!(inode("boot/same"), inode("boot/vmlinuz"));
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode();
    assert_eq!((mode("boot/script") & 0o7111, mode("boot/vmlinuz") & 0o111), (0o111, 0), "no set-user-id bit");
    assert!(!root.join("usr/share/doc").exists());
    assert!(is_package(&work.path().join("package")) && !is_package(&root));
    assert_eq!(self::about(&work.path().join("package")).unwrap().name, "linux-image-x");
}

#[test]
fn nothing_leaves_the_directory() {
    assert!(refused(&deb(&[file("../outside", "x")])).contains("`../outside` leads out of the package"));
    assert!(refused(&deb(&[tar_entry(b'1', "./x", 0o644, "../package", b"")])).contains("leads out"));
    assert!(refused(&deb(&[tar_entry(b'3', "./null", 0o644, "", b"")])).contains("such as a device"));
    // Links in the package lead to places below the directory, whatever their targets are.
    for target in ["/", "../..", "/../..", "../../.."] {
        let (work, done) = unpacked(&deb(&[
            tar_entry(b'2', "./out", 0o777, target, b""),
            file("./out/outside", "x"),
            tar_entry(b'2', "./file", 0o777, "/etc/hostname", b""),
            file("./file", "replaced"),
        ]));
        done.unwrap();
        assert_eq!(fs::read_to_string(work.path().join("root/outside")).unwrap(), "x", "{target}");
        assert!(!work.path().join("outside").exists() && !Path::new("/outside").exists());
        assert!(!work.path().join("root/file").is_symlink());
    }
    let to_nothing = [tar_entry(b'2', "./out", 0o777, "/tmp/bpfassay-nowhere", b""), file("./out/x", "x")];
    assert!(refused(&deb(&to_nothing)).contains("`out` is a directory and a link to nothing"));
    assert!(!Path::new("/tmp/bpfassay-nowhere").exists());
}

#[test]
fn packages_are_unpacked_through_the_links_of_others() {
    let work = tempfile::tempdir().unwrap();
    let (package, root) = (work.path().join("package"), work.path().join("root"));
    fs::create_dir_all(root.join("usr/lib")).unwrap();
    symlink("usr/lib", root.join("lib")).unwrap();
    fs::write(&package, deb(&[directory("./lib/"), directory("./lib/x/"), file("./lib/x/file", "content")])).unwrap();
    for _ in 0..2 {
        unpack(&package, &tree(&root), &[], "x").unwrap();
        assert_eq!(fs::read_to_string(root.join("usr/lib/x/file")).unwrap(), "content");
        assert!(root.join("lib").is_symlink());
    }
}

/// The cross toolchain is unpacked in this way.
#[test]
fn several_threads_unpack_into_one_tree() {
    let work = tempfile::tempdir().unwrap();
    let root = work.path().join("root");
    fs::create_dir(&root).unwrap();
    let tree = tree(&root);
    let package = |thread: usize| {
        let entries = (0..200).map(|number| file(&format!("./usr/{}/{number}/{thread}", number % 7), "x"));
        let path = work.path().join(format!("{thread}.deb"));
        fs::write(&path, deb(&entries.collect::<Vec<_>>())).unwrap();
        path
    };
    let packages: Vec<_> = (0..4).map(package).collect();
    std::thread::scope(|scope| {
        for package in &packages {
            scope.spawn(|| unpack(package, &tree, &[], "x").unwrap());
        }
    });
    for number in 0..200 {
        assert_eq!(fs::read_dir(root.join(format!("usr/{}/{number}", number % 7))).unwrap().count(), 4);
    }
    // Packages of several architectures share headers.
    let shared = work.path().join("shared");
    fs::create_dir(&shared).unwrap();
    let tree = self::tree(&shared);
    let unpack = || unpack(&packages[0], &tree, &[], "x").map(drop);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(unpack)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
}

/// Programs are compiled with headers that packages of several architectures share, while these
/// packages are unpacked.
#[test]
fn a_file_of_several_packages_is_whole_at_every_moment() {
    let work = tempfile::tempdir().unwrap();
    let (package, root) = (work.path().join("package"), work.path().join("root"));
    fs::create_dir(&root).unwrap();
    let text = "of all\n".repeat(100_000);
    let entries = [
        file("./usr/include/x.h", &text),
        tar_entry(b'2', "./usr/include/link.h", 0o777, "x.h", b""),
        tar_entry(b'1', "./usr/include/same.h", 0o644, "./usr/include/x.h", b""),
    ];
    fs::write(&package, deb(&entries)).unwrap();
    let tree = tree(&root);
    unpack(&package, &tree, &[], "x").unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let again = scope.spawn(|| {
            let unpacked = (0..50).try_for_each(|_| unpack(&package, &tree, &[], "x").map(drop));
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            unpacked
        });
        let mut reads = 0;
        while !is_done.load(std::sync::atomic::Ordering::Relaxed) || reads == 0 {
            for name in ["x.h", "link.h", "same.h"] {
                let read = fs::read_to_string(root.join("usr/include").join(name));
                assert_eq!(read.map(|read| read.len()).map_err(|error| error.kind()), Ok(text.len()), "{name}");
            }
            reads += 1;
        }
        again.join().unwrap().unwrap();
    });
    assert_eq!(fs::read_dir(root.join("usr/include")).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn what_is_left_out_may_be_in_any_directory() {
    for (place, left_out, expected) in [
        ("usr/lib/x/gconv/a", "./usr/lib/*/gconv", true),
        ("usr/lib/gconv", "./usr/lib/*/gconv", false),
        ("usr/lib/x/gconv2", "./usr/lib/*/gconv", false),
        ("usr/share/doc", "./usr/share/doc", true),
        ("usr/share/document", "./usr/share/doc", false),
    ] {
        assert_eq!(is_below(Path::new(place), left_out), expected, "{place} {left_out}");
    }
}

#[test]
fn an_rpm_is_unpacked_and_compared_with_its_digest() {
    let archive = [
        newc_entry("./lib/modules/5.14", 0o040_755, 1, 2, b""),
        newc_entry("./lib/modules/5.14/vmlinuz", 0o100_755, 2, 1, b"image"),
        newc_entry("./lib/modules/5.14/link", 0o120_777, 3, 1, b"vmlinuz"),
        newc_entry("./lib/one", 0o100_644, 4, 2, b""),
        newc_entry("./lib/two", 0o100_644, 4, 2, b"shared"),
        newc_entry("./lib/empty", 0o100_644, 5, 2, b""),
        newc_entry("./lib/empty-too", 0o100_644, 5, 2, b""),
        newc_entry("TRAILER!!!", 0, 0, 1, b""),
    ]
    .concat();
    let packed = rpm(&gzip(&archive), vec![(1003, Value::Words(&[2]))]);
    let (work, about) = unpacked(&packed);
    let version = "2:5.14.0-503.el9".parse().unwrap();
    let expected = About { name: "kernel-core".parse().unwrap(), version, architecture: "x86_64".parse().unwrap() };
    assert_eq!(about.unwrap(), expected);
    let root = work.path().join("root");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(
        (read("lib/modules/5.14/link"), read("lib/one"), read("lib/two")),
        ("image".into(), "shared".into(), "shared".into())
    );
    let inode = |path: &str| fs::metadata(root.join(path)).unwrap().ino();
    assert_eq!((inode("lib/one"), inode("lib/empty")), (inode("lib/two"), inode("lib/empty-too")));
    // The damaged byte is in gzip's time stamp, which gzip does not check.
    let mut damaged = packed.clone();
    let at = damaged.len() - gzip(&archive).len() + 4;
    damaged[at] ^= 1;
    assert!(refused(&damaged).contains("another digest than its header names"));
    for length in (0..packed.len()).step_by(7) {
        refused(&packed[..length]);
    }
}

#[test]
fn an_rpm_whose_archive_has_only_numbers_is_unpacked() {
    let content = |index: u32, content: &[u8]| {
        let mut bytes = format!("07070X{index:08x}").into_bytes();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let archive =
        [content(0, b"image"), content(1, b""), content(2, b"m"), newc_entry("TRAILER!!!", 0, 0, 1, b"")].concat();
    let (names, directories, links) = (["vmlinuz", "link", "m.ko"], ["/boot/", "/lib/"], ["", "/boot/vmlinuz", ""]);
    let tags = || {
        vec![
            (1028, Value::Words(&[5, 13, 1])),
            (1030, Value::Halves(&[0o100_644, 0o120_777, 0o100_644])),
            (1036, Value::Texts(&links)),
            (1116, Value::Words(&[0, 0, 1])),
            (1117, Value::Texts(&names)),
            (1118, Value::Texts(&directories)),
        ]
    };
    let (work, done) = unpacked(&rpm(&archive, tags()));
    done.unwrap();
    let root = work.path().join("root");
    assert_eq!(fs::read_to_string(root.join("boot/vmlinuz")).unwrap(), "image");
    assert_eq!(fs::read_to_string(root.join("lib/m.ko")).unwrap(), "m");
    assert_eq!(fs::read_link(root.join("boot/link")).unwrap(), Path::new("/boot/vmlinuz"));
    let unknown = [content(7, b""), newc_entry("TRAILER!!!", 0, 0, 1, b"")].concat();
    assert!(refused(&rpm(&unknown, tags())).contains("a file that its header does not have"));
}

#[test]
fn what_is_no_package_or_too_large_is_refused() {
    assert!(refused(b"").contains("it is cut off"));
    assert!(refused(b"neither of them").contains("begins like neither"));
    assert!(refused(&deb(&[])[..200]).contains("cut off"));
    // 200 MiB of zeros compress to 200 KB.
    let bomb = deb(&[tar_entry(b'0', "./zeros", 0o644, "", &vec![0; 200 << 20])]);
    assert!(bomb.len() < 1 << 20);
    assert!(refused(&bomb).contains("far more than a file of its size"));
    let bzip = rpm(b"BZh91AY&SY", vec![]);
    assert!(refused(&bzip).contains("bzip2"));
    let drpm = rpm(b"", vec![(1124, Value::Text("drpm"))]);
    assert_ne!(refused(&drpm), "");
    let work = tempfile::tempdir().unwrap();
    let error = unpack(&work.path().join("none"), &tree(work.path()), &[], "x").unwrap_err();
    assert!(error.to_string().contains("check that it exists"), "{error}");
}

/// The result must equal the result of dpkg and tar, with each of dpkg's compressions.
#[test]
fn what_dpkg_packs_is_unpacked_as_by_dpkg() {
    if lacks("dpkg-deb", "dpkg") {
        return;
    }
    for compression in ["none", "gzip", "xz", "zstd"] {
        let work = tempfile::tempdir().unwrap();
        let (source, package) = (work.path().join("source"), work.path().join("x.deb"));
        fs::create_dir_all(source.join("DEBIAN")).unwrap();
        fs::create_dir_all(source.join("lib/x").join("y".repeat(120))).unwrap();
        let control = "Package: x\nVersion: 1:2~3\nArchitecture: all\nMaintainer: x\nDescription: x\n";
        fs::write(source.join("DEBIAN/control"), control).unwrap();
        let content: Vec<u8> = (0..400_000_u32).flat_map(|n| (n.wrapping_mul(n) >> 9).to_le_bytes()).collect();
        fs::write(source.join("lib/x").join("y".repeat(120)).join("content"), &content).unwrap();
        symlink("x", source.join("lib/link")).unwrap();
        let mut command = Command::new("dpkg-deb");
        command.args(["--build", "--root-owner-group", &format!("-Z{compression}")]).arg(&source).arg(&package);
        let output = command.output().unwrap();
        if !output.status.success() {
            println!("skipped: no dpkg-deb that compresses with {compression}");
            continue;
        }
        let root = work.path().join("root");
        fs::create_dir(&root).unwrap();
        let about = unpack(&package, &tree(&root), &[], "x").unwrap();
        assert_eq!(about.version, "1:2~3");
        fs::remove_dir_all(source.join("DEBIAN")).unwrap();
        let same = Command::new("diff").arg("-r").arg("--no-dereference").arg(&source).arg(&root).output().unwrap();
        assert!(same.status.success(), "{compression}: {}", String::from_utf8_lossy(&same.stdout));
    }
}

/// Fields of eight bytes can also use GNU tar's form for large numbers, with seven bytes of number.
#[test]
fn numbers_in_the_form_of_gnu_tar_may_be_in_short_fields() {
    for field in [148, 100, 124] {
        let mut entry = tar_entry(b'0', "./boot/vmlinuz", 0o644, "", b"x");
        entry[field] = 0x80;
        assert!(refused(&deb(&[entry])).contains("damaged"), "{field}");
    }
}

proptest! {
    /// Tests tar archives directly, because compression hides most damage of a `.deb` from the
    /// reader.
    #[test]
    fn damaged_archives_end_in_entries_or_a_reason(at in 0usize..1024, bytes: [u8; 8]) {
        let mut archive = [tar_entry(b'0', "./boot/vmlinuz", 0o644, "", b"kernel"), vec![0; 1024]].concat();
        for (place, byte) in archive.iter_mut().skip(at).zip(bytes) {
            *place = byte;
        }
        let mut taken = 0;
        let read = tar::read(&mut archive.as_slice(), &mut |_: &[u8], _, content: &mut dyn Read| {
            taken += 1;
            io::copy(content, &mut io::sink())?;
            Ok(())
        });
        prop_assert!(taken <= 2, "{read:?}");
    }
}

proptest! {
    #[test]
    fn damage_ends_in_entries_or_an_error(is_rpm: bool, changes in prop::collection::vec((0_usize..2200, any::<u8>()), 0..4), length in 0_usize..2400) {
        let archive = [newc_entry("./a/b", 0o100_644, 2, 1, b"content"), newc_entry("./l", 0o120_777, 3, 1, b"a"), newc_entry("TRAILER!!!", 0, 0, 1, b"")].concat();
        let mut bytes = if is_rpm {
            let tags = vec![(1028, Value::Words(&[5])), (1030, Value::Halves(&[0o100_644])), (1116, Value::Words(&[0])), (1117, Value::Texts(&["b"])), (1118, Value::Texts(&["/a/"]))];
            rpm(&archive, tags)
        } else {
            deb(&[directory("./a/"), file("./a/b", "content")])
        };
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length);
        let (found, _) = entries(&bytes, 1 << 16);
        for (path, size) in found {
            prop_assert!(size <= 1 << 16);
            prop_assert!(path.is_relative() && path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
        }
    }
}
