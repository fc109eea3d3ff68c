// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program sets: programs of the tracer that summarise what processes do, one set per subsystem.
//! They show what several eBPF tools cost together.
//!
//! A set is one object with programs and one map, keyed by cgroup, process and event. For each
//! event, a set counts calls, errors, time, and bytes if the event moves any.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{names, operation::Totals};

names! {
    /// A set of programs. This is the order in which a study adds sets.
    pub enum ProgramSet: "program set" {
        /// Scheduling on CPUs: tracepoints `sched_wakeup`, `sched_wakeup_new`, `sched_switch`.
        Sched = "sched",
        /// Futexes: tracepoints of the system call.
        Futex = "futex",
        /// TCP: entry and return of `tcp_sendmsg` and `tcp_recvmsg`.
        Tcp = "tcp",
        /// Shared memory: tracepoints of `shmget`, `shmat`, `shmdt` and `mmap`.
        SharedMemory = "shared-memory",
        /// File operations: tracepoints of `openat` and `close`, entry and return of `vfs_read` and
        /// `vfs_write`.
        Files = "files",
    }
}

names! {
    /// An event that a set counts. The order is the same as of `enum event` in the tracer's
    /// `bpf/sets/summary.h`.
    pub enum ProgramEvent: "program event" {
        /// A task was taken off a CPU.
        Switch = "switch",
        /// A task was put on a CPU after a known waiting time.
        RunQueue = "run-queue",
        /// `FUTEX_WAIT` and `FUTEX_WAIT_BITSET` returned.
        FutexWait = "futex-wait",
        /// `FUTEX_WAKE` and `FUTEX_WAKE_BITSET` returned.
        FutexWake = "futex-wake",
        /// Any other futex operation returned.
        FutexOther = "futex-other",
        /// `tcp_sendmsg` returned; bytes sent.
        TcpSend = "tcp-send",
        /// `tcp_recvmsg` returned; bytes received.
        TcpReceive = "tcp-receive",
        /// `shmget` returned.
        ShmGet = "shmget",
        /// `shmat` returned.
        ShmAttach = "shmat",
        /// `shmdt` returned.
        ShmDetach = "shmdt",
        /// `mmap` with `MAP_SHARED` or `MAP_SHARED_VALIDATE` returned; bytes requested.
        MapShared = "map-shared",
        /// `openat` returned.
        FileOpen = "file-open",
        /// `close` returned.
        FileClose = "file-close",
        /// `vfs_read` of a regular file returned; bytes read.
        FileRead = "file-read",
        /// `vfs_write` to a regular file returned; bytes written.
        FileWrite = "file-write",
    }
}

impl ProgramEvent {
    /// Returns the set that counts this event.
    #[must_use]
    pub const fn set(self) -> ProgramSet {
        match self {
            Self::Switch | Self::RunQueue => ProgramSet::Sched,
            Self::FutexWait | Self::FutexWake | Self::FutexOther => ProgramSet::Futex,
            Self::TcpSend | Self::TcpReceive => ProgramSet::Tcp,
            Self::ShmGet | Self::ShmAttach | Self::ShmDetach | Self::MapShared => ProgramSet::SharedMemory,
            Self::FileOpen | Self::FileClose | Self::FileRead | Self::FileWrite => ProgramSet::Files,
        }
    }
}

/// A selection of sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramSets(u8);

impl ProgramSets {
    /// No set.
    pub const NONE: Self = Self(0);

    /// All sets.
    pub const ALL: Self = Self((1 << ProgramSet::ALL.len()) - 1);

    /// Returns this selection plus `set`.
    #[must_use]
    pub const fn with(self, set: ProgramSet) -> Self {
        Self(self.0 | 1 << set as u8)
    }

    /// Whether the selection has `set`.
    #[must_use]
    pub const fn has(self, set: ProgramSet) -> bool {
        self.0 & 1 << set as u8 != 0
    }

    /// Returns the sets in the order of [`ProgramSet::ALL`].
    pub fn iter(self) -> impl Iterator<Item = ProgramSet> {
        ProgramSet::ALL.iter().copied().filter(move |&set| self.has(set))
    }

    /// Returns the number of sets.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl fmt::Display for ProgramSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.iter().map(ProgramSet::name).collect::<Vec<_>>().join("+"))
    }
}

/// The counts of one set for one event in one cgroup, over all processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EventRow {
    /// Id of the cgroup (v2).
    pub cgroup: u64,
    /// The event.
    pub event: ProgramEvent,
    /// Number of processes with this event.
    pub processes: u32,
    /// Calls, bytes and errors since the programs were attached.
    pub totals: Totals,
    /// Nanoseconds from entry to return of these calls; for [`ProgramEvent::RunQueue`] the waiting
    /// time; 0 for [`ProgramEvent::Switch`].
    pub time_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_an_event_and_all_contains_every_set() {
        let mut sets = ProgramSets::NONE;
        for &set in ProgramSet::ALL {
            assert!(ProgramEvent::ALL.iter().any(|event| event.set() == set), "{set}");
            assert!(!sets.has(set));
            sets = sets.with(set);
        }
        assert_eq!((sets, sets.count()), (ProgramSets::ALL, 5));
        assert_eq!(ProgramSets::NONE.with(ProgramSet::Tcp).with(ProgramSet::Sched).to_string(), "sched+tcp");
    }
}
