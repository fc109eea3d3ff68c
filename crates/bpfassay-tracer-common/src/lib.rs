// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layouts that both sides of the maps share: the eBPF programs write them and the tracer reads
//! them.
//!
//! This crate defines names, sizes and layouts of maps, keys, values, events and settings, and
//! numbers of operations. The eBPF programs in Rust use it. The programs in C repeat it in
//! `bpfassay-tracer/src/bpf/counters.h`. A test of the tracer compares the BTF of the C programs
//! with these types, and the operations with `bpfassay_protocol::Operation::COUNTED`.
//!
//! The crate does not decide where programs are hooked, or how maps are read and summed up.
#![forbid(unsafe_code)]
#![no_std]

pub mod functions;
mod offsets;

use core::mem::offset_of;

pub use self::offsets::Offsets;

/// The most keys of a map keyed by [`Key`]: (cgroup, mount, device, operation) that were ever
/// active.
pub const KEYS: u32 = 8192;

/// The most keys of the layout `lru-shared`, as in the CEEMS talk.
pub const LRU_KEYS: u32 = 16384;

/// Bytes of the mount path in a [`PathKey`], as in the CEEMS talk.
pub const PATH_BYTES: usize = 64;

/// The most keys of the layout `threads`: a reading of so many keys fits into a line of the tracer.
pub const THREAD_KEYS: u32 = 4096;

/// Bytes of a thread's name including the zero byte (`TASK_COMM_LEN`, include/linux/sched.h).
pub const NAME_BYTES: usize = 16;

/// Size of the ring buffer in bytes: a power of two and a multiple of every page size. An [`Event`]
/// occupies 64 bytes.
pub const RING_BYTES: u32 = 8 << 20;

/// Slots of each operation that moves data, on every CPU: see [`Slot`].
pub const SLOTS: usize = 256;

/// The most keys with a latency histogram. Each needs [`LATENCY_SLOTS`] counters on every CPU.
pub const LATENCY_KEYS: u32 = 1024;

/// Counters of a latency histogram. Element `i` counts calls that took from 2^i up to 2^(i+1)
/// nanoseconds. Element 0 also counts calls of 0 ns, and the last element counts all longer calls.
pub const LATENCY_SLOTS: usize = 40;

/// The most copies of a program that counts calls which move data: see [`Settings::copies`]. No
/// call is lost while fewer tasks than copies are preempted inside the program on one CPU.
pub const COPIES: u32 = 6;

/// Names of maps. The kernel keeps 15 bytes of a name.
pub mod map {
    /// Maps [`Key`](crate::Key), [`PathKey`](crate::PathKey) or [`ThreadKey`](crate::ThreadKey) to
    /// [`Value`](crate::Value). The first copy of a program uses it.
    pub const COUNTERS: &str = "counters";
    /// The same map for later copies of a program.
    pub const COUNTERS_2: &str = "counters_2";
    /// Maps [`VariantKey`](crate::VariantKey) to [`Value`](crate::Value), for threads that did not
    /// fit into [`COUNTERS`].
    pub const OTHERS: &str = "others";
    /// Per-CPU array of [`SLOTS`](crate::SLOTS) [`Slot`](crate::Slot)s in [`Pair`](crate::Pair)s,
    /// in programs in C. The element is `copy * Operation::DATA + operation`.
    pub const SLOTS: &str = "slots";
    /// Per-CPU array of `u64`, indexed by [`tally`](crate::tally).
    pub const TALLIES: &str = "tallies";
    /// The ring buffer of [`Event`](crate::Event)s.
    pub const EVENTS: &str = "events";
    /// Maps the key of [`COUNTERS`] to [`Histogram`](crate::Histogram), per CPU.
    pub const LATENCIES: &str = "latencies";
}

/// Elements of the map [`map::TALLIES`].
pub mod tally {
    /// Events that were not counted because their key could not be inserted into a map.
    pub const INSERT_FAILURES: u32 = 0;
    /// Events that did not fit into the ring buffer.
    pub const RING_BUFFER_DROPS: u32 = 1;
    /// Keys that were inserted into an LRU map, evicted or not.
    pub const INSERTIONS: u32 = 2;
    /// Calls whose return could not be matched with their entry: they were nested too deeply, or
    /// too many tasks made calls at once.
    pub const UNMATCHED: u32 = 3;
    /// Number of elements.
    pub const COUNT: u32 = 4;
}

/// Operations, in the order of `bpfassay_protocol::Operation::COUNTED`.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `read`, `pread64`.
    Read,
    /// `write`, `pwrite64`.
    Write,
    /// `readv`, `preadv`, `preadv2`.
    Readv,
    /// `writev`, `pwritev`, `pwritev2`.
    Writev,
    /// Files opened.
    Open,
    /// Regular files created.
    Create,
    /// Directories made.
    Mkdir,
    /// Names of files removed.
    Unlink,
    /// Directories removed.
    Rmdir,
    /// Names changed.
    Rename,
    /// `fsync`, `fdatasync`.
    Fsync,
    /// Pages of a mapping that became readable.
    MapRead,
    /// Pages of a mapping that became writable.
    MapWrite,
    /// `MPI_File_open`.
    MpiOpen,
    /// `MPI_File_read` and its relatives.
    MpiRead,
    /// `MPI_File_write` and its variants.
    MpiWrite,
}

impl Operation {
    /// Number of operations that move data by their own calls. These operations come first.
    pub const DATA: u32 = Self::Writev as u32 + 1;

    /// Every operation, by number.
    pub const ALL: [Self; 16] = [
        Self::Read,
        Self::Write,
        Self::Readv,
        Self::Writev,
        Self::Open,
        Self::Create,
        Self::Mkdir,
        Self::Unlink,
        Self::Rmdir,
        Self::Rename,
        Self::Fsync,
        Self::MapRead,
        Self::MapWrite,
        Self::MpiOpen,
        Self::MpiRead,
        Self::MpiWrite,
    ];
}

/// Key of every layout except `lru-shared` and `threads`. It has no implicit padding: maps compare
/// keys byte by byte.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Id of the cgroup (v2) of the calling task.
    pub cgroup: u64,
    /// Mount id as in `/proc/self/mountinfo`; 0 if the hook does not know it.
    pub mount: u64,
    /// `s_dev` of the superblock; 0 if the hook does not know it.
    pub device: u32,
    /// Number of the [`Operation`].
    pub operation: u32,
}

/// Key of the layout `lru-shared`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathKey {
    /// Id of the cgroup (v2) of the calling task.
    pub cgroup: u64,
    /// Mount point of the file system, from the root of the mount namespace. It ends with the first
    /// zero byte, and is cut off if it does not fit. Empty if the hook does not know it.
    pub path: [u8; PATH_BYTES],
    /// Number of the [`Operation`].
    pub operation: u32,
    /// Always zero.
    pub zero: u32,
}

/// Key of the layout `threads` for counts without a thread.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantKey {
    /// The part that every layout has.
    pub key: Key,
    /// Number of the variant of the operation: see [`variant`].
    pub variant: u32,
    /// Always zero.
    pub zero: u32,
}

/// Numbers of the variants of an operation.
pub mod variant {
    /// The call with the same name as the operation, or any call of an operation without variants.
    pub const USUAL: u32 = 0;
    /// `fdatasync`, of [`Operation::Fsync`](crate::Operation::Fsync).
    pub const FDATASYNC: u32 = 1;
    /// The opening of the file that `execve` executes, of
    /// [`Operation::Open`](crate::Operation::Open).
    pub const EXEC: u32 = 2;
    /// The program cannot tell.
    pub const UNKNOWN: u32 = 3;
}

/// Key of the layout `threads`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadKey {
    /// Operation and variant of the call.
    pub call: VariantKey,
    /// Id of the calling thread's process in the upper half, id of the thread in the lower half
    /// (`bpf_get_current_pid_tgid`).
    pub task: u64,
    /// The thread's name (`comm`) when it made the call. It ends with the first zero byte.
    pub name: [u8; NAME_BYTES],
}

/// Counts of a key. They only grow, modulo 2^64.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Value {
    /// Calls, including failed calls.
    pub calls: u64,
    /// Bytes requested (entry-side probes) or returned (exit-side probes).
    pub bytes: u64,
    /// Calls that returned an error.
    pub errors: u64,
}

/// Counts of one key on one CPU, in addition to those under the key in the hash map. A slot saves
/// most calls of that key an access to the hash map. A slot that counts no calls is unused, and its
/// key is meaningless.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    /// A value that distinguishes the key from most others; 0 while the slot has no key.
    pub tag: u64,
    /// The key. The slot's position implies its operation.
    pub key: Key,
    /// Counts of the key.
    pub value: Value,
    /// Always zero.
    pub zero: u64,
}

/// One call, as it goes through the ring buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The key under which the call is counted.
    pub key: Key,
    /// Bytes as in [`Value`].
    pub bytes: u64,
    /// 1 if the call failed, otherwise 0.
    pub errors: u64,
    /// Duration of the call in nanoseconds; [`NO_DURATION`] if durations are not measured.
    pub duration: u64,
}

/// [`Event::duration`] of calls that were not timed.
pub const NO_DURATION: u64 = u64::MAX;

/// Calls by duration: see [`LATENCY_SLOTS`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    /// Number of calls for each range of durations.
    pub slots: [u64; LATENCY_SLOTS],
}

/// Two slots. Keys that belong to this pair get the slots in the order in which they arrive.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pair {
    /// The slots.
    pub slots: [Slot; 2],
}

/// Settings that the loader writes before loading. The verifier then removes the code that is not
/// needed. In C they are the read-only section `.rodata.settings`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// Count only tasks in exactly this cgroup (v2); 0 means any.
    pub cgroup: u64,
    /// Count only this mount; 0 means any.
    pub mount: u64,
    /// 1 to measure durations.
    pub latency: u32,
    /// How many copies of each exit-side trampoline program are attached. A trampoline skips a
    /// program that is already running on the CPU. On a preemptible kernel, a single copy therefore
    /// misses calls while a task is preempted inside it. If there are several copies, the first
    /// that runs for a call counts it, and the others see that it did.
    pub copies: u32,
    /// 1 if all tasks and mounts are counted and durations are not measured.
    pub plain: u32,
    /// Always zero.
    pub zero: u32,
}

impl Settings {
    /// Creates settings, and derives `plain` from the others.
    #[must_use]
    pub const fn new(cgroup: u64, mount: u64, latency: bool, copies: u32) -> Self {
        let plain = cgroup == 0 && mount == 0 && !latency;
        Self { cgroup, mount, latency: latency as u32, copies, plain: plain as u32, zero: 0 }
    }

    /// Returns the bytes of the C structure.
    #[must_use]
    pub fn to_bytes(self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        bytes[offset_of!(Self, cgroup)..][..8].copy_from_slice(&self.cgroup.to_ne_bytes());
        bytes[offset_of!(Self, mount)..][..8].copy_from_slice(&self.mount.to_ne_bytes());
        bytes[offset_of!(Self, latency)..][..4].copy_from_slice(&self.latency.to_ne_bytes());
        bytes[offset_of!(Self, copies)..][..4].copy_from_slice(&self.copies.to_ne_bytes());
        bytes[offset_of!(Self, plain)..][..4].copy_from_slice(&self.plain.to_ne_bytes());
        bytes
    }
}

/// Says, for one operation, where an entry-side program finds the superblock in the arguments of a
/// function that changes names in a directory. The loader writes it from the kernel's BTF before
/// loading. In C it is the read-only section `.rodata.prototypes`, an array with one element per
/// [`Operation`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prototype {
    /// One of [`Prototype::INODE`], [`Prototype::DENTRY`] and [`Prototype::RENAME`]. 0 if unknown;
    /// the operation is then not counted.
    pub source: u8,
    /// Index of the argument, from 0.
    pub argument: u8,
}

impl Prototype {
    /// The argument is a `struct inode *`: the directory.
    pub const INODE: u8 = 1;
    /// The argument is a `struct dentry *`: the name.
    pub const DENTRY: u8 = 2;
    /// The argument is a `struct renamedata *`.
    pub const RENAME: u8 = 3;

    /// Returns the bytes of the C structure.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; size_of::<Self>()] {
        [self.source, self.argument]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_implicit_padding() {
        assert_eq!(size_of::<Key>(), 8 + 8 + 4 + 4);
        assert_eq!(size_of::<PathKey>(), 8 + PATH_BYTES + 4 + 4);
        assert_eq!(size_of::<VariantKey>(), size_of::<Key>() + 4 + 4);
        assert_eq!(size_of::<ThreadKey>(), size_of::<VariantKey>() + 8 + NAME_BYTES);
        assert_eq!(size_of::<Event>(), size_of::<Key>() + 3 * 8);
        assert!(RING_BYTES.is_power_of_two() && RING_BYTES.is_multiple_of(1 << 16));
    }

    #[test]
    fn operations_are_numbered_in_order() {
        for (number, operation) in (0..).zip(Operation::ALL) {
            assert_eq!(operation as u32, number);
        }
    }

    #[test]
    fn settings_lie_where_the_structure_has_them() {
        let bytes = Settings::new(0x0102_0304_0506_0708, 9, true, 2).to_bytes();
        assert_eq!(bytes[..8], 0x0102_0304_0506_0708u64.to_ne_bytes());
        assert_eq!(bytes[8..16], 9u64.to_ne_bytes());
        assert_eq!(bytes[16..20], 1u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 2u32.to_ne_bytes());
        assert_eq!(bytes[24..], [0; 8]);
    }

    #[test]
    fn settings_are_plain_where_nothing_is_filtered_or_timed() {
        assert_eq!(Settings::new(0, 0, false, 6).to_bytes()[24..28], 1u32.to_ne_bytes());
        for settings in [Settings::new(1, 0, false, 1), Settings::new(0, 1, false, 1), Settings::new(0, 0, true, 1)] {
            assert_eq!(settings.plain, 0);
        }
    }
}
