// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{collections::BTreeMap, fs::File, process::Command, process::Stdio};

use bpfassay_packages::test_support::lacks;
use proptest::prelude::*;

use super::*;

fn file(text: &str) -> NewcNode {
    NewcNode::File { executable: false, content: text.as_bytes().to_vec().into() }
}

fn sample() -> Archive {
    let mut archive = Archive::default();
    archive.add("/dev/console", NewcNode::CharacterDevice { major: 5, minor: 1 }).unwrap();
    archive.add("/init", NewcNode::File { executable: true, content: b"#!/bin/sh\n".to_vec().into() }).unwrap();
    archive.add("bpfassay/job.json", file("{}")).unwrap();
    archive.add("/tmp", NewcNode::Directory { shared: true }).unwrap();
    archive.add("/lib64", NewcNode::Symlink { target: "usr/lib64".into() }).unwrap();
    archive
}

/// Mode, inode, device number and body of an entry.
type Seen = (u32, u32, (u32, u32), Vec<u8>);

/// Parses an archive independently of the writer. Returns entries by path.
fn read(mut bytes: &[u8]) -> BTreeMap<String, Seen> {
    let mut entries = BTreeMap::new();
    let total = bytes.len();
    loop {
        let (header, _) = bytes.split_at(110);
        assert_eq!(&header[..6], b"070701");
        let field = |index: usize| {
            let text = std::str::from_utf8(&header[6 + 8 * index..][..8]).unwrap();
            u32::from_str_radix(text, 16).unwrap()
        };
        let name_end = 110 + field(11) as usize;
        let name = std::str::from_utf8(&bytes[110..name_end - 1]).unwrap().to_owned();
        assert_eq!(bytes[name_end - 1], 0);
        let offset = total - bytes.len();
        let body_start = (offset + name_end).next_multiple_of(4) - offset;
        let body_end = body_start + field(6) as usize;
        if name == "TRAILER!!!" {
            assert!(bytes[body_end..].iter().all(|&byte| byte == 0));
            assert!(bytes[body_end..].len() < 512);
            return entries;
        }
        let body = bytes[body_start..body_end].to_vec();
        let next = (offset + body_end).next_multiple_of(4) - offset;
        assert!(entries.insert(name, (field(1), field(0), (field(9), field(10)), body)).is_none());
        bytes = &bytes[next..];
    }
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let mut archive = Archive::default();
    archive.add("/a/b", NewcNode::File { executable: true, content: b"hello".to_vec().into() }).unwrap();
    archive.add("/c", NewcNode::Symlink { target: "a/b".into() }).unwrap();
    let mut expected = concat!(
        "07070100000001000041ED0000000000000000000000020000000000000000000000000000000000000000000000000000000200000000a\0",
        "07070100000002000081ED0000000000000000000000010000000000000005000000000000000000000000000000000000000400000000a/b\0\0\0",
        "hello\0\0\0",
        "070701000000030000A1FF0000000000000000000000010000000000000003000000000000000000000000000000000000000200000000c\0",
        "a/b\0",
        "07070100000000000000000000000000000000000000010000000000000000000000000000000000000000000000000000000B00000000",
        "TRAILER!!!\0",
    )
    .to_owned();
    while !expected.len().is_multiple_of(512) {
        expected.push('\0');
    }
    let bytes = archive.to_bytes().unwrap();
    assert_eq!(std::str::from_utf8(&bytes).unwrap(), expected);
}

#[test]
fn gnu_cpio_lists_what_was_put_in() {
    if lacks("cpio", "cpio") {
        return;
    }
    let mut child = Command::new("cpio")
        .args(["-itv", "--quiet", "--numeric-uid-gid"])
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&sample().to_bytes().unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let listing = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> =
        listing.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "drwxr-xr-x 2 0 0 0 Jan 1 1970 bpfassay",
            "-rw-r--r-- 1 0 0 2 Jan 1 1970 bpfassay/job.json",
            "drwxr-xr-x 2 0 0 0 Jan 1 1970 dev",
            "crw------- 1 0 0 5, 1 Jan 1 1970 dev/console",
            "-rwxr-xr-x 1 0 0 10 Jan 1 1970 init",
            "lrwxrwxrwx 1 0 0 9 Jan 1 1970 lib64 -> usr/lib64",
            "drwxrwxrwt 2 0 0 0 Jan 1 1970 tmp",
        ]
    );
}

#[test]
fn the_order_of_adding_does_not_matter() {
    let mut other = Archive::default();
    for (path, node) in sample().entries().collect::<Vec<_>>().into_iter().rev() {
        other.add(path, node.clone()).unwrap();
    }
    assert_eq!(sample().to_bytes().unwrap(), other.to_bytes().unwrap());
}

#[test]
fn paths_that_leave_the_root_or_hide_an_entry_are_refused() {
    for path in ["", "/", "//init", "../x", "a/../b", "a/./b", "a//b", "a/", "a\0b", "TRAILER!!!"] {
        let error = Archive::default().add(path, file("")).unwrap_err();
        assert!(matches!(error, ArchiveError::Path { .. }), "{path:?}: {error}");
    }
    assert!(Archive::default().add(&"a".repeat(4096), file("")).is_err());
    assert!(Archive::default().add("a", NewcNode::Symlink { target: String::new() }).is_err());
}

#[test]
fn conflicts_are_errors_and_repetition_is_not() {
    let mut archive = sample();
    archive.add("/init/x", file("")).unwrap_err();
    archive.add("/lib64/ld.so", file("")).unwrap_err();
    archive.add("/init", file("other")).unwrap_err();
    archive.add("/tmp", NewcNode::Directory { shared: true }).unwrap();
    assert_eq!(archive, sample());
}

#[test]
fn a_host_file_that_changed_is_an_error_not_a_broken_archive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for (now, expected, found) in [("longer than before", 5, 18), ("abc", 5, 3)] {
        std::fs::write(&path, "hello").unwrap();
        let mut archive = Archive::default();
        archive.add("x", NewcNode::File { executable: false, content: FileContent::of_file(&path).unwrap() }).unwrap();
        std::fs::write(&path, now).unwrap();
        match archive.to_bytes().unwrap_err() {
            ArchiveError::Changed { expected: e, found: f, .. } => assert_eq!((e, f), (expected, found)),
            error => panic!("{error}"),
        }
    }
    assert!(matches!(FileContent::of_file(directory.path()), Err(ArchiveError::Read { .. })));
}

#[test]
fn files_larger_than_the_format_allows_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sparse");
    File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
    let node = NewcNode::File { executable: false, content: FileContent::of_file(&path).unwrap() };
    assert!(matches!(Archive::default().add("x", node), Err(ArchiveError::TooLarge { .. })));
}

fn node() -> impl Strategy<Value = NewcNode> {
    prop_oneof![
        any::<bool>().prop_map(|shared| NewcNode::Directory { shared }),
        (any::<bool>(), any::<Vec<u8>>())
            .prop_map(|(executable, bytes)| NewcNode::File { executable, content: bytes.into() }),
        "[a-z/.]{1,20}".prop_map(|target| NewcNode::Symlink { target }),
        (0u32..4096, 0u32..1 << 20).prop_map(|(major, minor)| NewcNode::CharacterDevice { major, minor }),
    ]
}

proptest! {
    #[test]
    fn archives_read_back_as_they_were_made(nodes in prop::collection::vec(("/?[a-zé ]{1,9}(/[a-zé ]{1,9}){0,3}", node()), 0..12)) {
        let mut archive = Archive::default();
        for (path, node) in nodes {
            // Adding a colliding entry must not change the archive, except for new parents.
            let _ = archive.add(&path, node);
        }
        let bytes = archive.to_bytes().unwrap();
        prop_assert_eq!(bytes.len() as u64, archive.size());
        let found = read(&bytes);
        prop_assert_eq!(found.len(), archive.entries().len());
        for (inode, (path, node)) in (1..).zip(archive.entries()) {
            let (device, body) = match node {
                NewcNode::Directory { .. } => ((0, 0), Vec::new()),
                NewcNode::File { content: FileContent::Bytes(bytes), .. } => ((0, 0), bytes.clone()),
                NewcNode::File { .. } => unreachable!(),
                NewcNode::Symlink { target } => ((0, 0), target.clone().into_bytes()),
                NewcNode::CharacterDevice { major, minor } => ((*major, *minor), Vec::new()),
            };
            prop_assert_eq!(&found[path], &(node.mode(), inode, device, body));
        }
    }

    #[test]
    fn any_path_is_taken_or_refused(path: String) {
        let mut archive = Archive::default();
        if archive.add(&path, file("x")).is_ok() {
            prop_assert!(!path.split('/').any(|part| part == ".."));
            read(&archive.to_bytes().unwrap());
        }
    }
}
