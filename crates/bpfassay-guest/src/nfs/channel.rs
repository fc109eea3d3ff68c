// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the kernel's sunrpc caches (`/proc/net/rpc/*/channel`): questions of the kernel, and
//! answers.
//!
//! A line consists of fields separated by blanks. In a field, blank, tab, newline and backslash are
//! written as `\ooo`. A field of binary data is `\x` followed by hexadecimal digits
//! (net/sunrpc/cache.c, `qword_add`, `qword_addhex`, `qword_get`).

use std::{fmt::Write, net::Ipv4Addr};

use bpfassay_protocol::job_nodes::Node;

/// The last second that a 32-bit counter can hold: entries do not expire while a guest lives.
const NEVER: i64 = 0x7fff_ffff;

/// Flags of an export (include/uapi/linux/nfsd/export.h).
mod flag {
    pub(super) const INSECURE_PORT: u32 = 0x0002;
    pub(super) const ASYNC: u32 = 0x0010;
    pub(super) const NO_SUBTREE_CHECK: u32 = 0x0400;
    pub(super) const FSID: u32 = 0x2000;
}

/// `FSID_NUM` of fs/nfsd/nfsfh.h: the export's own number identifies the file system.
const FSID_NUM: &str = "1";

/// Name of the exports' clients: this guest itself, or the nodes that it serves.
pub(crate) const DOMAIN: &str = "guest";

/// A directory that the server exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Export<'a> {
    pub path: &'a str,
}

/// The caches that nfsd asks. Their directories are in /proc/net/rpc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NfsdCache {
    /// Maps an address to a domain.
    Address,
    /// Maps a domain and a path to an export.
    Export,
    /// Maps a domain and a part of a file handle to a path.
    FileHandle,
}

impl NfsdCache {
    pub(crate) const ALL: [Self; 3] = [Self::Address, Self::Export, Self::FileHandle];

    /// Returns the file from which questions are read and to which answers are written.
    pub(crate) const fn channel(self) -> &'static str {
        match self {
            Self::Address => "/proc/net/rpc/auth.unix.ip/channel",
            Self::Export => "/proc/net/rpc/nfsd.export/channel",
            Self::FileHandle => "/proc/net/rpc/nfsd.fh/channel",
        }
    }

    /// Returns the entry that every mount needs, to be written before the kernel asks.
    pub(crate) fn first_entry(self, export: Export<'_>) -> String {
        match self {
            Self::Address => {
                ChannelLine::new().field(b"nfsd").field(b"127.0.0.1").number(NEVER).field(DOMAIN.as_bytes()).end()
            }
            Self::Export => {
                export_entry(ChannelLine::new().field(DOMAIN.as_bytes()).field(export.path.as_bytes()).number(NEVER))
                    .end()
            }
            Self::FileHandle => ChannelLine::new()
                .field(DOMAIN.as_bytes())
                .field(FSID_NUM.as_bytes())
                .hex(&[0; 4])
                .number(NEVER)
                .field(export.path.as_bytes())
                .end(),
        }
    }

    /// Returns the answer to the kernel's question `line`: the entry, or a line that says that
    /// there is no entry. `None` if the line is not a question to this cache.
    pub(crate) fn answer(self, line: &[u8], export: Export<'_>) -> Option<String> {
        let fields = split(line)?;
        let key: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        Some(match (self, &*key) {
            (Self::Address, [class, address]) => {
                let line = ChannelLine::new().field(class).field(address).number(NEVER);
                if is_client(address) { line.field(DOMAIN.as_bytes()) } else { line }.end()
            }
            (Self::Export, [domain, path]) => {
                let line = ChannelLine::new().field(domain).field(path).number(NEVER);
                if *path == export.path.as_bytes() { export_entry(line) } else { line }.end()
            }
            (Self::FileHandle, [domain, kind, id]) => {
                let line = ChannelLine::new().field(domain).field(kind).hex(id).number(NEVER);
                let ours = *kind == FSID_NUM.as_bytes() && *id == [0; 4];
                if ours { line.field(export.path.as_bytes()) } else { line }.end()
            }
            _ => return None,
        })
    }
}

/// Returns whether mounts from this address are served: the guest's own address, and addresses of
/// nodes.
fn is_client(address: &[u8]) -> bool {
    let own = Ipv4Addr::LOCALHOST.to_string();
    address == own.as_bytes() || Node::all(Node::MOST).any(|node| node.address().to_string().as_bytes() == address)
}

/// Appends flags, anonymous user and group, and the number of the file system.
fn export_entry(line: ChannelLine) -> ChannelLine {
    let flags = flag::INSECURE_PORT | flag::ASYNC | flag::NO_SUBTREE_CHECK | flag::FSID;
    line.number(flags.into()).number(65534).number(65534).number(0)
}

/// A line being composed.
struct ChannelLine(String);

impl ChannelLine {
    const fn new() -> Self {
        Self(String::new())
    }

    fn blank(&mut self) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
    }

    fn field(mut self, field: &[u8]) -> Self {
        self.blank();
        for &byte in field {
            match byte {
                b'!'..=b'[' | b']'..=b'~' => self.0.push(char::from(byte)),
                // Writing to a String does not fail.
                _ => _ = write!(self.0, "\\{byte:03o}"),
            }
        }
        self
    }

    fn hex(mut self, bytes: &[u8]) -> Self {
        self.blank();
        self.0.push_str("\\x");
        for byte in bytes {
            _ = write!(self.0, "{byte:02x}");
        }
        self
    }

    fn number(mut self, number: i64) -> Self {
        self.blank();
        _ = write!(self.0, "{number}");
        self
    }

    fn end(mut self) -> String {
        self.0.push('\n');
        self.0
    }
}

/// Decodes the fields of a line; `None` if an escape is broken.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.split(|&byte| byte == b' ').filter(|field| !field.is_empty()).map(decode).collect()
}

pub(super) fn decode(field: &[u8]) -> Option<Vec<u8>> {
    if let Some(digits) = field.strip_prefix(b"\\x") {
        if digits.len() % 2 != 0 {
            return None;
        }
        return digits.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect();
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let ([a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'], tail) = tail.split_first_chunk()? else {
            return None;
        };
        bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
        rest = tail;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| value.try_into().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXPORT: Export<'static> = Export { path: "/srv" };

    #[test]
    fn first_entries_are_as_the_kernel_wants_them() {
        let entries = NfsdCache::ALL.map(|cache| cache.first_entry(EXPORT));
        assert_eq!(
            entries,
            [
                "nfsd 127.0.0.1 2147483647 guest\n",
                "guest /srv 2147483647 9234 65534 65534 0\n",
                "guest 1 \\x00000000 2147483647 /srv\n",
            ]
        );
    }

    #[test]
    fn questions_about_the_export_get_the_first_entry() {
        let questions: [&[u8]; 3] = [b"nfsd 127.0.0.1\n", b"guest /srv\n", b"guest 1 \\x00000000\n"];
        for (cache, question) in NfsdCache::ALL.into_iter().zip(questions) {
            assert_eq!(cache.answer(question, EXPORT), Some(cache.first_entry(EXPORT)));
        }
    }

    #[test]
    fn everything_else_is_answered_with_there_is_none() {
        assert_eq!(NfsdCache::Address.answer(b"nfsd 10.0.0.1\n", EXPORT).unwrap(), "nfsd 10.0.0.1 2147483647\n");
        assert_eq!(NfsdCache::Export.answer(b"guest /\n", EXPORT).unwrap(), "guest / 2147483647\n");
        assert_eq!(NfsdCache::Export.answer(b"guest /a\\040b\n", EXPORT).unwrap(), "guest /a\\040b 2147483647\n");
        assert_eq!(
            NfsdCache::FileHandle.answer(b"guest 6 \\x0123456789abcdef\n", EXPORT).unwrap(),
            "guest 6 \\x0123456789abcdef 2147483647\n"
        );
    }

    #[test]
    fn lines_that_are_no_questions_are_refused() {
        for line in [&b""[..], b"guest\n", b"guest 1 \\x0\n", b"guest 1 \\xzz\n", b"a \\9 c\n"] {
            assert_eq!(NfsdCache::FileHandle.answer(line, EXPORT), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn fields_are_read_as_written(fields in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 1..6)) {
            let text = fields.iter().fold(ChannelLine::new(), |line, field| line.field(field)).end();
            prop_assert_eq!(split(text.as_bytes()), Some(fields.clone()));
            let hex = fields.iter().fold(ChannelLine::new(), |line, field| line.hex(field)).end();
            prop_assert_eq!(split(hex.as_bytes()), Some(fields));
        }

        #[test]
        fn any_question_is_survived_and_answers_are_single_lines(line: Vec<u8>) {
            for cache in NfsdCache::ALL {
                if let Some(answer) = cache.answer(&line, EXPORT) {
                    prop_assert_eq!(answer.find('\n'), Some(answer.len() - 1));
                }
            }
        }
    }
}
