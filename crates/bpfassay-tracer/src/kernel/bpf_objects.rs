// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's information about programs and links, whichever library created them.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use bpfassay_bpf::{ObjectKind, by_id, link_info};

/// Returns the hits of a link (kprobe, kretprobe, multi link, tracepoint) that ran no program, if
/// the kernel counts them (6.7 and later). A tracepoint itself misses no hits.
///
/// # Errors
/// The kernel's error, if it does not describe the link.
pub(crate) fn link_missed(link: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    match link_info(link) {
        Ok(info) => Ok(info.missed.or((info.is_tracepoint && info.counts_misses).then_some(0))),
        // Before 5.15 a kprobe is a perf event, not a link, and there is no information about it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the link with this id.
///
/// # Errors
/// The kernel's error; `ENOENT` if there is no such link.
pub(crate) fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    by_id(ObjectKind::Link, id)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}
