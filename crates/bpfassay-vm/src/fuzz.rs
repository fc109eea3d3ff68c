// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of untrusted bytes, for fuzz targets alone (`crates/bpfassay-fuzz`). Each function
//! passes its input to one reader and asserts what always holds of the result; nothing else may use
//! them.

use crate::{
    accelerator,
    console::{Lines, Watch},
    qemu::{self, QemuVersion},
};

/// What a guest writes to its console: lines of bounded length without control characters, and a
/// bounded number of incidents.
pub fn console(bytes: &[u8]) {
    let (mut lines, mut watch) = (Lines::default(), Watch::default());
    let mut look = |line: String| {
        assert!(!line.chars().any(|c| c.is_ascii_control() && c != '\t'));
        // Bytes that are no UTF-8 are replaced, each by three.
        assert!(line.len() <= 3 * 4096 + 10, "a line of {} bytes", line.len());
        watch.line(&line);
    };
    for piece in bytes.chunks(4001) {
        lines.push(piece, &mut look);
    }
    lines.finish().into_iter().for_each(look);
    assert!(watch.incidents().len() <= 32);
    for incident in watch.incidents() {
        assert!(incident.details.len() <= 16 && incident.line.len() <= 600);
    }
}

/// The output of `qemu-system-… --version`.
pub fn qemu_version(text: &str) {
    if let Some((version, _)) = qemu::parse_version(text) {
        assert_eq!(version.to_string().parse(), Ok(version));
    }
    if let Ok(version) = text.parse::<QemuVersion>() {
        assert_eq!(version.to_string().parse(), Ok(version));
    }
}

/// `/proc/cpuinfo` of the host: no more than its length.
pub fn cpuinfo(text: &str) {
    assert!(accelerator::processor(text).len() <= text.len() + 1);
}
