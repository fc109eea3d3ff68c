//! One value per key and CPU, summed by the reader. The kernel does not run a program twice at once on one CPU, and each
//! operation has its own program and its own keys, so plain additions lose nothing.

use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::PerCpuHashMap};
use bpfassay_ledger::{KEYS, Key, Value, tally};

use crate::tracer::tally;

#[map(name = "counters")]
static COUNTERS: PerCpuHashMap<Key, Value> = PerCpuHashMap::with_max_entries(KEYS, 0);

/// Adds one call.
#[inline(always)]
pub(crate) fn add(key: &Key, bytes: u64, errors: u64) {
    let value = COUNTERS.get_ptr_mut(key).or_else(|| {
        // Another CPU may insert the key at this very moment. BPF_NOEXIST makes sure that nobody's counts are
        // overwritten, and whoever lost that race finds the winner's entry.
        let _ = COUNTERS.insert(key, Value::default(), u64::from(BPF_NOEXIST));
        COUNTERS.get_ptr_mut(key)
    });
    match value {
        // SAFETY: this CPU's own value.
        Some(value) => unsafe {
            (*value).calls += 1;
            (*value).bytes += bytes;
            (*value).errors += errors;
        },
        None => tally(tally::INSERT_FAILURES),
    }
}
