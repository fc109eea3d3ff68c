// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BPF programs, maps and links that the kernel holds: ids, names, and run times of programs.

use std::{
    collections::BTreeSet,
    fs,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

pub(crate) use bpfassay_bpf::ObjectKind;
use bpfassay_bpf::{BpfMap, by_id, link_info, map_info, program_info};
use bpfassay_protocol::{
    tool_job::{BpfObject, ProgramCode},
    tracer_messages::ProgramStatistics,
};

use crate::error::{Error, Result};

/// Returns the ids of all objects of this kind.
///
/// # Errors
/// The kernel does not let this process list objects.
pub(crate) fn ids(kind: ObjectKind) -> Result<BTreeSet<u32>> {
    bpfassay_bpf::ids(kind).map_err(Error::system("list BPF objects"))
}

/// Returns the ids of all links; `None` on kernels that do not list links (before Linux 5.8).
///
/// # Errors
/// The kernel lists links, but not for this process.
pub(crate) fn links() -> Result<Option<BTreeSet<u32>>> {
    match bpfassay_bpf::ids(ObjectKind::Link) {
        Ok(ids) => Ok(Some(ids)),
        // The kernel does not know the command.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(Error::system("list BPF objects")(error)),
    }
}

/// Opens the object of this kind with this id; `None` if it no longer exists.
fn open(kind: ObjectKind, id: u32) -> Result<Option<OwnedFd>> {
    by_id(kind, id).map_err(Error::system("open a BPF object"))
}

/// Describes the programs or maps with these ids, except those that no longer exist.
///
/// # Errors
/// The kernel's error, except for an object that no longer exists.
pub(crate) fn objects(kind: ObjectKind, ids: impl IntoIterator<Item = u32>) -> Result<Vec<BpfObject>> {
    let mut objects = Vec::new();
    for id in ids {
        let Some(fd) = open(kind, id)? else { continue };
        let found = match kind {
            ObjectKind::Map => map_info(fd.as_fd()).map(|info| (info.id, info.name, info.kind, None)),
            _ => program_info(fd.as_fd()).map(|info| {
                let code = ProgramCode {
                    instructions: info.instructions,
                    verified: info.verified_instructions,
                    jited_bytes: info.jited_bytes,
                    log: None,
                };
                (info.id, info.name, info.kind, Some(code))
            }),
        };
        let (id, name, kind, code) = found.map_err(Error::system("ask about a BPF object"))?;
        let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok();
        objects.push(BpfObject { id, name, kind, memory_bytes: fdinfo.as_deref().and_then(memlock), code });
    }
    Ok(objects)
}

/// Returns the largest and the present number of keys of the map with this id. `None` if it has
/// room for more than `most` keys, or no longer exists, or cannot be read.
pub(crate) fn keys(id: u32, most: u32) -> Option<(u32, u32)> {
    let map = by_id(ObjectKind::Map, id).ok()??;
    let max_entries = map_info(map.as_fd()).ok()?.max_entries;
    let keys = (max_entries <= most).then(|| BpfMap::new(map).and_then(|map| map.count_keys()))?.ok()?;
    Some((max_entries, u32::try_from(keys).ok()?))
}

/// Returns the value of the line `memlock:` in the `fdinfo` of a program or map.
pub(crate) fn memlock(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}

/// Makes the kernel keep statistics of every program (Linux 5.8 and later) for as long as the
/// descriptor is open.
///
/// # Errors
/// The kernel is older than 5.8, or this process is not allowed to enable statistics.
pub(crate) fn enable_statistics() -> Result<OwnedFd> {
    bpfassay_bpf::enable_statistics().map_err(Error::system("switch on statistics of BPF programs"))
}

/// Returns the statistics of the programs with these ids, except those that no longer exist.
///
/// # Errors
/// The kernel's error. [`Error::Order`] if the kernel keeps no statistics (before Linux 5.1).
pub(crate) fn statistics(ids: impl IntoIterator<Item = u32>) -> Result<Vec<ProgramStatistics>> {
    let mut all = Vec::new();
    for id in ids {
        let Some(program) = open(ObjectKind::Program, id)? else { continue };
        let info = program_info(program.as_fd()).map_err(Error::system("ask about a BPF program"))?;
        let run_time =
            info.run_time.ok_or_else(|| Error::Order("this kernel keeps no statistics of BPF programs".to_owned()))?;
        all.push(ProgramStatistics { program: info.name, runs: run_time.runs, run_time_ns: run_time.nanoseconds });
    }
    Ok(all)
}

/// Returns how often the kernel skipped the programs with these ids because they were already
/// running on that CPU. `None` on kernels that do not count skips (before Linux 5.12).
///
/// # Errors
/// The kernel's error, except for a program that no longer exists.
pub(crate) fn recursion_misses(ids: impl IntoIterator<Item = u32>) -> Result<Option<u64>> {
    let mut sum = 0u64;
    for id in ids {
        let Some(program) = open(ObjectKind::Program, id)? else { continue };
        let info = program_info(program.as_fd()).map_err(Error::system("ask about a BPF program"))?;
        let Some(misses) = info.recursion_misses else { return Ok(None) };
        sum = sum.saturating_add(misses);
    }
    Ok(Some(sum))
}

/// Returns how many hits of kprobes ran no program, summed over the links with these ids. `None` if
/// no link is a kprobe's, or the kernel does not count misses (before Linux 6.7).
///
/// # Errors
/// The kernel's error, except for a link that no longer exists.
pub(crate) fn missed_probes(ids: impl IntoIterator<Item = u32>) -> Result<Option<u64>> {
    let mut sum = None;
    for id in ids {
        let Some(link) = open(ObjectKind::Link, id)? else { continue };
        let info = link_info(link.as_fd()).map_err(Error::system("ask about a BPF link"))?;
        if !info.counts_misses {
            return Ok(None);
        }
        if let Some(hits) = info.missed {
            sum = Some(sum.unwrap_or(0_u64).saturating_add(hits));
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_fdinfo() {
        assert_eq!(memlock("pos:\t0\nmap_type:\t1\nmemlock:\t81920\nmap_id:\t3\n"), Some(81_920));
        assert_eq!(memlock("memlock:\tmuch\n"), None);
    }
}
