// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's escapes in `/proc/self/mountinfo` and similar files, for agent and tracer.

/// Undoes the kernel's escapes (`mangle_path`, fs/seq_file.c, as fs/proc_namespace.c calls it):
/// blank, tab, newline, backslash and `#` are written as `\ooo`. Invalid UTF-8 is replaced, because
/// a path must fit into JSON and labels.
#[must_use]
pub fn unescape(text: impl AsRef<[u8]>) -> String {
    let mut rest = text.as_ref();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&byte, tail)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) = (byte, tail) {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
