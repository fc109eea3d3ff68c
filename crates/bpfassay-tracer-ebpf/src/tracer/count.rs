// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Counts one call.

use core::mem::offset_of;

use aya_ebpf::{
    Global,
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_cgroup_id, bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::map,
    maps::{PerCpuArray, PerCpuHashMap},
};
use bpfassay_tracer_common::{
    Histogram, Key, LATENCY_KEYS, LATENCY_SLOTS, NO_DURATION, Operation, Settings, tally as tallies,
};

use super::kernel::{Place, mount_of, offset, read};
use crate::map;

/// Set by the loader. The verifier then removes unused code.
#[unsafe(no_mangle)]
static SETTINGS: Global<Settings> = Global::new(Settings::new(0, 0, false, 1));

/// Returns the setting at the offset `at` in [`SETTINGS`].
#[inline(always)]
fn setting<T: Copy>(at: usize) -> T {
    // SAFETY: inside the global; volatile, because the value in this file is not the value at run
    // time.
    unsafe { (&raw const SETTINGS).byte_add(at).cast::<T>().read_volatile() }
}

#[inline(always)]
pub(super) fn is_timed() -> bool {
    setting::<u32>(offset_of!(Settings, latency)) != 0
}

/// Returns how many copies of the programs that count data at function exit are attached.
#[inline(always)]
pub(super) fn copies() -> u32 {
    setting(offset_of!(Settings, copies))
}

#[map(name = "tallies")]
static TALLIES: PerCpuArray<u64> = PerCpuArray::with_max_entries(tallies::COUNT, 0);

/// The loader gives this map the minimum size unless durations are measured.
#[map(name = "latencies")]
static LATENCIES: PerCpuHashMap<Key, Histogram> = PerCpuHashMap::with_max_entries(LATENCY_KEYS, 0);

/// The initial value of a new key. It is too large for the stack.
#[unsafe(no_mangle)]
static NO_LATENCIES: Global<Histogram> = Global::new(Histogram { slots: [0; LATENCY_SLOTS] });

/// Adds to a counter to which other CPUs, or programs that interrupt this one, add as well.
///
/// # Safety
/// `counter` must point into a value of a map, aligned to eight bytes.
#[inline(always)]
pub(crate) unsafe fn add_atomically(counter: *mut u64, amount: u64) {
    // Rust has no atomic addition for this target. LLVM's instruction can fetch the old value,
    // which 5.10 does not support.
    #[cfg(target_arch = "bpf")]
    // SAFETY: the caller's.
    unsafe {
        core::arch::asm!("lock *(u64 *)({counter} + 0) += {amount}", counter = in(reg) counter, amount = in(reg) amount);
    }
    #[cfg(not(target_arch = "bpf"))]
    // SAFETY: the caller's.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(counter) }
        .fetch_add(amount, core::sync::atomic::Ordering::Relaxed);
}

/// Adds one to a tally. This is rare, and programs that can interrupt each other do it, so it is
/// atomic.
#[inline(always)]
pub(crate) fn tally(index: u32) {
    if let Some(count) = TALLIES.get_ptr_mut(index) {
        // SAFETY: a value of a map.
        unsafe { add_atomically(count, 1) };
    }
}

/// Returns the id of the calling thread.
#[inline(always)]
pub(super) fn thread() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

/// The cgroup and the place of a call: a key without the operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    cgroup: u64,
    mount: u64,
    /// The location of the file.
    pub(crate) place: Place,
}

impl Subject {
    /// A subject that is not known yet.
    pub(super) const NOBODY: Self = Self { cgroup: 0, mount: 0, place: Place::NOWHERE };

    /// Creates the subject of the calling task; `None` if the call must not be counted. If the hook
    /// does not know the mount, calls are counted under mount 0, unless the settings select a
    /// mount.
    #[inline(always)]
    pub(super) fn new(place: Place) -> Option<Self> {
        // SAFETY: takes no arguments.
        let cgroup = unsafe { bpf_get_current_cgroup_id() };
        let wanted: u64 = setting(offset_of!(Settings, cgroup));
        if wanted != 0 && wanted != cgroup {
            return None;
        }
        let mount = if place.mount == 0 { 0 } else { u64::from(read::<u32>(mount_of(place.mount), offset!(mount_id))) };
        let wanted: u64 = setting(offset_of!(Settings, mount));
        (wanted == 0 || wanted == mount).then_some(Self { cgroup, mount, place })
    }

    /// Returns the id of the cgroup (v2) of the calling task.
    #[allow(dead_code, reason = "for the layout that has its own key")]
    #[inline(always)]
    pub(crate) fn cgroup(&self) -> u64 {
        self.cgroup
    }

    #[inline(always)]
    pub(crate) fn key(&self, operation: u32) -> Key {
        Key { cgroup: self.cgroup, mount: self.mount, device: self.place.device, operation }
    }
}

/// Returns the time in nanoseconds if durations are measured, otherwise 0.
#[inline(always)]
pub(super) fn clock() -> u64 {
    // SAFETY: takes no arguments.
    if is_timed() { unsafe { bpf_ktime_get_ns() } } else { 0 }
}

/// The result of a call.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// Nanoseconds; [`NO_DURATION`] if it is not measured.
    pub(crate) duration: u64,
}

impl Outcome {
    /// Returns the outcome of a call that returns bytes or an error.
    #[inline(always)]
    pub(super) fn of_data(result: i64) -> Self {
        let bytes = if result < 0 { 0 } else { result as u64 };
        Self { bytes, errors: u64::from(result < 0), duration: NO_DURATION }
    }

    /// Returns the outcome of a call that returns whether it failed.
    #[inline(always)]
    pub(super) fn of_status(failed: bool) -> Self {
        Self { bytes: 0, errors: u64::from(failed), duration: NO_DURATION }
    }

    /// Returns the outcome of a call that requests this many bytes.
    #[inline(always)]
    pub(super) fn requested(bytes: u64) -> Self {
        Self { bytes, errors: 0, duration: NO_DURATION }
    }
}

/// Which program counts a call. It is constant in all places, so that it costs nothing at run time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The only program, or the first of several copies.
    First,
    /// Another copy, from 1 on. It runs while a task is preempted inside the copies before it.
    Copy(u32),
    /// A program in which several tasks on one CPU can be preempted (uprobes).
    Preempted,
}

impl By {
    /// Returns the copy number `copy`, from 0 on.
    #[inline(always)]
    pub(super) const fn copy(copy: u32) -> Self {
        if copy == 0 { Self::First } else { Self::Copy(copy) }
    }
}

/// Counts a call that began at `start`, a time of [`clock`] or 0 if unknown.
#[inline(always)]
pub(super) fn count_by(by: By, subject: &Subject, operation: u32, mut outcome: Outcome, start: u64) {
    if is_timed() && start != 0 {
        outcome.duration = clock().wrapping_sub(start);
        if !map::HAS_DURATION {
            add_latency(&subject.key(operation), outcome.duration);
        }
    }
    map::add(by, subject, operation, outcome);
}

/// Counts a call in a program that has a single copy.
#[inline(always)]
pub(super) fn count(subject: &Subject, operation: Operation, outcome: Outcome, start: u64) {
    count_by(By::First, subject, operation as u32, outcome, start);
}

#[inline(always)]
fn add_latency(key: &Key, duration: u64) {
    let histogram = LATENCIES.get_ptr_mut(key).or_else(|| {
        // SAFETY: nobody writes to it.
        let none: &Histogram = unsafe { &*(&raw const NO_LATENCIES).cast() };
        let _ = LATENCIES.insert(key, none, u64::from(BPF_NOEXIST));
        LATENCIES.get_ptr_mut(key)
    });
    let Some(histogram) = histogram else { return tally(tallies::INSERT_FAILURES) };
    let mut slot = log2(duration);
    if slot >= LATENCY_SLOTS {
        slot = LATENCY_SLOTS - 1;
    }
    // SAFETY: inside the value. Copies of a program can interrupt each other between two
    // instructions.
    unsafe { add_atomically((&raw mut (*histogram).slots).cast::<u64>().add(slot), 1) };
}

/// Returns the number of the highest bit that is set; 0 for 0. There is no instruction for this.
#[inline(always)]
fn log2(mut value: u64) -> usize {
    let mut log = 0;
    let mut half = 32;
    while half > 0 {
        if value >> half != 0 {
            log += half;
            value >>= half;
        }
        half /= 2;
    }
    log
}
