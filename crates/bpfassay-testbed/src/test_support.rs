// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for tests of several modules.

use crate::initramfs::{Archive, NewcNode};

/// Builds an initramfs with three files in it: `a/b`, `a/c` and `x`.
pub(crate) fn small_archive() -> Vec<u8> {
    let mut archive = Archive::default();
    for (path, text) in [("a/b", "first"), ("a/c", ""), ("/x", "last")] {
        archive.add(path, NewcNode::File { executable: false, content: text.as_bytes().to_vec().into() }).unwrap();
    }
    archive.to_bytes().unwrap()
}
