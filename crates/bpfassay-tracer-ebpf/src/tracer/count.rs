//! Counting one call.

use core::mem::offset_of;

use aya_ebpf::{Global, helpers::bpf_get_current_cgroup_id, macros::map, maps::PerCpuArray};
use bpfassay_ledger::{Key, Operation, Settings, tally};

use super::kernel::Place;
use crate::map;

/// Set by the loader; the verifier then removes what is not wanted.
#[unsafe(no_mangle)]
static SETTINGS: Global<Settings> = Global::new(Settings { cgroup: 0, mount: 0, latency: 0, copies: 0 });

/// The setting that lies at `at` in [`SETTINGS`].
#[inline(always)]
fn setting<T: Copy>(at: usize) -> T {
    // SAFETY: inside the global; volatile, because the value in this file is not the value at run time.
    unsafe { (&raw const SETTINGS).byte_add(at).cast::<T>().read_volatile() }
}

#[map(name = "tallies")]
static TALLIES: PerCpuArray<u64> = PerCpuArray::with_max_entries(tally::COUNT, 0);

/// Adds one to a tally.
#[inline(always)]
pub(crate) fn tally(index: u32) {
    if let Some(count) = TALLIES.get_ptr_mut(index) {
        // SAFETY: this CPU's own element.
        unsafe { *count += 1 };
    }
}

/// Counts a call that returned `result`.
#[inline(always)]
pub(super) fn returned(place: Place, operation: Operation, result: i64) {
    let bytes = if result < 0 { 0 } else { result as u64 };
    count(place, operation, bytes, u64::from(result < 0));
}

/// Counts a call that asks for `bytes`.
#[inline(always)]
pub(super) fn requested(place: Place, operation: Operation, bytes: u64) {
    count(place, operation, bytes, 0);
}

#[inline(always)]
fn count(place: Place, operation: Operation, bytes: u64, errors: u64) {
    // SAFETY: takes no arguments.
    let cgroup = unsafe { bpf_get_current_cgroup_id() };
    let wanted = setting::<u64>(offset_of!(Settings, cgroup));
    if wanted != 0 && wanted != cgroup {
        return;
    }
    let mount = place.mount_id();
    let wanted = setting::<u64>(offset_of!(Settings, mount));
    if wanted != 0 && wanted != mount {
        return;
    }
    map::add(&Key { cgroup, mount, device: place.device, operation: operation as u32 }, bytes, errors);
}
