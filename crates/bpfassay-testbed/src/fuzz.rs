// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points for fuzz targets only (`crates/bpfassay-fuzz`). Each function feeds its input to a
//! reader of outside data, and asserts invariants of the answer.

use std::io::{Cursor, Read as _};

use crate::{
    guest_tools,
    initramfs::{cpio_entries::Entries, find, initramfs_tree},
    payload, pvh,
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

/// Describes the end of a failed program's output.
pub fn failed_output(text: &str) {
    let _ = payload::end(text.as_bytes());
}
