// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! One value per key, shared by all CPUs, with atomic additions.

use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::HashMap};
use bpfassay_tracer_common::{KEYS, Key, Value, tally as tallies};

use crate::tracer::{By, Outcome, Subject, count::add_atomically, tally};

/// Whether durations are part of the counts.
pub(crate) const HAS_DURATION: bool = false;

#[map(name = "counters")]
static COUNTERS: HashMap<Key, Value> = HashMap::with_max_entries(KEYS, 0);

/// Adds one call.
#[inline(always)]
pub(crate) fn add(_by: By, subject: &Subject, operation: u32, outcome: Outcome) {
    let key = subject.key(operation);
    let value = COUNTERS.get_ptr_mut(key).or_else(|| {
        // See the layout `percpu`.
        let _ = COUNTERS.insert(key, Value::default(), u64::from(BPF_NOEXIST));
        COUNTERS.get_ptr_mut(key)
    });
    let Some(value) = value else { return tally(tallies::INSERT_FAILURES) };
    // SAFETY: a value of a map.
    unsafe {
        add_atomically(&raw mut (*value).calls, 1);
        add_atomically(&raw mut (*value).bytes, outcome.bytes);
        add_atomically(&raw mut (*value).errors, outcome.errors);
    }
}
