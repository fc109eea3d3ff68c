// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points for fuzz targets only (`crates/bpfassay-fuzz`). Each function feeds its input to a
//! reader of outside data, and asserts invariants of the answer.

use std::{
    io::{Cursor, Read as _},
    path::Component,
};

use crate::{
    apt::{self},
    error::apt_failure::AptError,
    guest_tools,
    initramfs::{cpio_entries::Entries, find, initramfs_tree},
    payload, pvh, unpack,
};

/// Searches an initramfs. Everything found must be part of it.
pub fn initramfs(archive: &[u8]) {
    const LIMIT: u64 = 1 << 20;
    for name in ["init", "/bpfassay/modules.json", "a"] {
        if let Ok(Some(content)) = find::find_in(Cursor::new(archive), name, LIMIT) {
            assert!(content.len() <= archive.len());
            assert!(content.is_empty() || archive.windows(content.len()).any(|window| window == content));
        }
    }
    let mut entries = Entries::new(archive);
    let mut read = 0;
    while let Ok(Some(entry)) = entries.next() {
        let mut content = Vec::new();
        let is_whole = entries.by_ref().take(LIMIT).read_to_end(&mut content).is_ok();
        assert!(!is_whole || content.len() as u64 == entry.size.min(LIMIT));
        read += content.len();
    }
    assert!(read <= archive.len());
}

/// Lists a Debian or RPM package. No entry may leave it, and the sizes must stay within the limit.
pub fn package(bytes: &[u8]) {
    const LIMIT: u64 = 1 << 20;
    let (entries, _) = unpack::entries(bytes, LIMIT);
    let mut all = 0;
    for (path, size) in entries {
        assert!(path.is_relative() && path.components().all(|part| matches!(part, Component::Normal(_))));
        all += size;
    }
    assert!(all <= LIMIT);
}

/// Extracts the kernel from a bzImage.
pub fn bz_image(image: &[u8]) {
    if let Ok(vmlinux) = pvh::extract(image) {
        assert!(vmlinux.starts_with(b"\x7fELF"));
    }
}

/// Finds a program's architecture, and the interpreter that starts it.
pub fn program(bytes: &[u8]) {
    let _ = initramfs_tree::machine(bytes);
    let started_by = guest_tools::closure::started_by(bytes);
    assert!(started_by.is_none_or(|path| path.len() <= 3 * bytes.len()));
}

/// Parses output of apt and dpkg: index targets, configuration, errors, and installed packages.
pub fn apt_output(text: &str) {
    if let Some(archive) = apt::host_apt::find_archive(text) {
        assert!(text.contains(&archive));
    }
    for line in apt::host_apt::settings(text) {
        assert!(line.starts_with("Acquire::") && !line.contains('\n'));
    }
    let error = AptError::from_output("forky", text, 3);
    let _ = (error.to_string(), error.is_passing());
    if let Some(moved) = apt::configuration::moved(text, "/elsewhere") {
        assert_eq!(moved.lines().count(), text.lines().count());
    }
    let packages = ["gcc", "libc6-dev"];
    assert!(apt::dpkg::missing_among(&packages, text).len() <= packages.len());
    assert_eq!(apt::tail(text.as_bytes()).matches('\n').count(), 0);
    let _ = payload::end(text.as_bytes());
}
