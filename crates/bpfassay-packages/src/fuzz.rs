// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points for fuzz targets only (`crates/bpfassay-fuzz`). Each function feeds its input to a
//! reader of outside data, and asserts invariants of the answer.

use std::path::Component;

use crate::{
    apt::{self},
    error::apt_failure::AptError,
    unpack,
};

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
}
