// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of untrusted bytes, only for fuzz targets (`crates/bpfassay-fuzz`). Each function passes
//! its input to one reader, and asserts what always holds for the result.

use crate::{
    acceleration,
    console::{LineCutter, Watch},
    qemu,
    qemu_version::QemuVersion,
};

/// Reads a guest's console: lines have bounded length and no control characters, and the number of
/// incidents is bounded.
pub fn console(bytes: &[u8]) {
    let (mut lines, mut watch) = (LineCutter::default(), Watch::default());
    let mut look = |line: String| {
        assert!(!line.chars().any(|c| c.is_ascii_control() && c != '\t'));
        // Bytes that are not UTF-8 are replaced by three bytes each.
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

/// Parses the output of `qemu-system-… --version`.
pub fn qemu_version(text: &str) {
    if let Some((version, _)) = qemu::parse_version(text) {
        assert_eq!(version.to_string().parse(), Ok(version));
    }
    if let Ok(version) = text.parse::<QemuVersion>() {
        assert_eq!(version.to_string().parse(), Ok(version));
    }
}

/// Parses the host's `/proc/cpuinfo`. The result is at most one byte longer than the input.
pub fn cpuinfo(text: &str) {
    assert!(acceleration::processor(text).len() <= text.len() + 1);
}
