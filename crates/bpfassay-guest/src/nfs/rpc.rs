// SPDX-License-Identifier: MIT OR Apache-2.0
//! ONC RPC calls and replies (RFC 5531) of the two small services that NFSv3 needs. One is a port
//! mapper with which the kernel's server registers (RFC 1833), the other the mount protocol (RFC
//! 1813, appendix I). This module decodes and encodes; it does no I/O.

/// Program number of the port mapper.
const RPCBIND: u32 = 100_000;

/// Program number of the mount protocol.
const MOUNT: u32 = 100_005;

/// Longest path of the mount protocol (`MNTPATHLEN`).
const MAX_PATH: usize = 1024;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_UNIX: u32 = 1;
const MNT3ERR_NOENT: u32 = 2;

/// Largest record that a peer can send, in bytes.
pub(crate) const MAX_RECORD: usize = 64 << 10;

/// The result of the mount protocol's MNT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exported {
    /// Path of the export.
    pub path: String,
    /// File handle of the export's root.
    pub handle: Vec<u8>,
}

/// Returns the reply to one call, without record mark; `None` if `call` is not a call that can be
/// replied to.
pub(crate) fn reply(call: &[u8], exported: &Exported) -> Option<Vec<u8>> {
    let mut call = XdrReader(call);
    let number = call.uint()?;
    if call.uint()? != CALL {
        return None;
    }
    let mut reply = Writer::default();
    reply.uint(number).uint(REPLY);
    if call.uint()? != RPC_VERSION {
        // MSG_DENIED, RPC_MISMATCH, lowest and highest version.
        reply.uint(1).uint(0).uint(RPC_VERSION).uint(RPC_VERSION);
        return Some(reply.0);
    }
    let (program, version, procedure) = (call.uint()?, call.uint()?, call.uint()?);
    for _credential_then_verifier in 0..2 {
        call.uint()?;
        call.opaque(400)?;
    }
    // MSG_ACCEPTED, AUTH_NONE.
    reply.uint(0).uint(0).uint(0);
    let status = match (program, version, procedure) {
        (RPCBIND, 2..=4, 0) | (MOUNT, 3, 0 | 3 | 4) => Status::Success(Vec::new()),
        // SET and UNSET always succeed. Nobody looks the registrations up: the client gets every
        // port from its mount options.
        (RPCBIND, 2..=4, 1 | 2) => Status::Success(vec![1]),
        (RPCBIND, 2..=4, _) | (MOUNT, 3, 2 | 5..) => Status::ProcedureUnavailable,
        (RPCBIND, _, _) => Status::Versions(2, 4),
        (MOUNT, 3, 1) => {
            let path = call.opaque(MAX_PATH)?;
            if path == exported.path.as_bytes() {
                let mut result = Writer::default();
                result.uint(0).opaque(&exported.handle).uint(1).uint(AUTH_UNIX);
                reply.uint(0).0.extend(result.0);
                return Some(reply.0);
            }
            Status::Success(vec![MNT3ERR_NOENT])
        }
        (MOUNT, _, _) => Status::Versions(3, 3),
        _ => Status::ProgramUnavailable,
    };
    match status {
        Status::Success(numbers) => numbers.into_iter().fold(reply.uint(0), |reply, number| reply.uint(number)),
        Status::ProgramUnavailable => reply.uint(1),
        Status::Versions(lowest, highest) => reply.uint(2).uint(lowest).uint(highest),
        Status::ProcedureUnavailable => reply.uint(3),
    };
    Some(reply.0)
}

enum Status {
    Success(Vec<u32>),
    ProgramUnavailable,
    Versions(u32, u32),
    ProcedureUnavailable,
}

/// Returns the 4 bytes before a record on a stream: the bit "last fragment", and the length.
pub(crate) fn record_mark(length: usize) -> Option<[u8; 4]> {
    let length = u32::try_from(length).ok().filter(|length| length >> 31 == 0)?;
    Some((length | 1 << 31).to_be_bytes())
}

/// Returns the length of the fragment that a mark announces. `None` if the fragment is longer than
/// [`MAX_RECORD`], or not the last of its record: the kernel sends each record as one fragment.
pub(crate) fn record_length(mark: [u8; 4]) -> Option<usize> {
    let mark = u32::from_be_bytes(mark);
    let length = usize::try_from(mark & !(1 << 31)).ok()?;
    (mark >> 31 == 1 && length <= MAX_RECORD).then_some(length)
}

/// Decodes XDR.
struct XdrReader<'a>(&'a [u8]);

impl<'a> XdrReader<'a> {
    fn uint(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn opaque(&mut self, at_most: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.uint()?).ok().filter(|length| *length <= at_most)?;
        let data = self.0.get(..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..)?;
        Some(data)
    }
}

/// Encodes XDR.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn uint(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Appends a file handle, which has at most 64 bytes.
    fn opaque(&mut self, data: &[u8]) -> &mut Self {
        self.uint(data.len() as u32);
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exported() -> Exported {
        Exported { path: "/srv".to_owned(), handle: vec![1, 0, 1, 0, 0, 0, 0, 0, 9] }
    }

    fn call(program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let mut call = Writer::default();
        call.uint(77).uint(CALL).uint(RPC_VERSION).uint(program).uint(version).uint(procedure);
        call.uint(AUTH_UNIX).opaque(b"stamp").uint(0).opaque(b"");
        call.0.extend(arguments);
        call.0
    }

    fn numbers(reply: Option<Vec<u8>>) -> Vec<u32> {
        reply.unwrap().chunks(4).map(|number| u32::from_be_bytes(number.try_into().unwrap())).collect()
    }

    #[test]
    fn registrations_are_accepted() {
        for version in 2..=4 {
            assert_eq!(numbers(reply(&call(RPCBIND, version, 0, b""), &exported())), [77, 1, 0, 0, 0, 0]);
            assert_eq!(numbers(reply(&call(RPCBIND, version, 1, b"arguments"), &exported())), [77, 1, 0, 0, 0, 0, 1]);
        }
    }

    #[test]
    fn the_export_is_returned_and_nothing_else() {
        let mut path = Writer::default();
        path.opaque(b"/srv");
        assert_eq!(
            numbers(reply(&call(MOUNT, 3, 1, &path.0), &exported())),
            [77, 1, 0, 0, 0, 0, 0, 9, 0x0100_0100, 0, 0x0900_0000, 1, AUTH_UNIX]
        );
        let mut path = Writer::default();
        path.opaque(b"/etc");
        assert_eq!(numbers(reply(&call(MOUNT, 3, 1, &path.0), &exported())), [77, 1, 0, 0, 0, 0, MNT3ERR_NOENT]);
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        assert_eq!(numbers(reply(&call(100_003, 3, 0, b""), &exported())), [77, 1, 0, 0, 0, 1]);
        assert_eq!(numbers(reply(&call(MOUNT, 1, 1, b""), &exported())), [77, 1, 0, 0, 0, 2, 3, 3]);
        assert_eq!(numbers(reply(&call(RPCBIND, 2, 3, b""), &exported())), [77, 1, 0, 0, 0, 3]);
        assert_eq!(reply(b"short", &exported()), None);
    }

    #[test]
    fn record_marks_read_back() {
        assert_eq!(record_length(record_mark(40).unwrap()), Some(40));
        assert_eq!(record_length(record_mark(MAX_RECORD + 1).unwrap()), None);
        assert_eq!(record_length([0, 0, 0, 8]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, program in prop_oneof![Just(RPCBIND), Just(MOUNT)], procedure in 0u32..8) {
            let _ = reply(&bytes, &exported());
            if let Some(reply) = reply(&call(program, 3, procedure, &bytes), &exported()) {
                prop_assert_eq!(reply.len() % 4, 0);
            }
        }
    }
}
