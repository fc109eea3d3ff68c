// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! One value per key and CPU, summed by the reader. The kernel does not run a program twice at once
//! on one CPU. Programs that can interrupt each other have different keys (operations). Copies of
//! one program after the first share a second map. Therefore the first copy loses nothing with
//! plain additions; the other copies add atomically.

use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::PerCpuHashMap};
use bpfassay_tracer_common::{KEYS, Key, Operation, Value, tally as tallies};

use crate::tracer::{By, Outcome, Subject, count::add_atomically, tally};

/// Whether durations are part of the counts.
pub(crate) const HAS_DURATION: bool = false;

#[map(name = "counters")]
static COUNTERS: PerCpuHashMap<Key, Value> = PerCpuHashMap::with_max_entries(KEYS, 0);
/// For the copies after the first. It has the minimum size if there is only one copy.
#[map(name = "counters_2")]
static COUNTERS_2: PerCpuHashMap<Key, Value> = PerCpuHashMap::with_max_entries(KEYS, 0);

/// Adds one call.
#[inline(always)]
pub(crate) fn add(by: By, subject: &Subject, operation: u32, outcome: Outcome) {
    let counters = match by {
        By::Copy(_) => &COUNTERS_2,
        By::First | By::Preempted => &COUNTERS,
    };
    let key = subject.key(operation);
    let value = counters.get_ptr_mut(key).or_else(|| {
        // Another CPU can insert the key at the same time. BPF_NOEXIST makes sure that no counts
        // are overwritten. The CPU that lost that race finds the winner's entry.
        let _ = counters.insert(key, Value::default(), u64::from(BPF_NOEXIST));
        counters.get_ptr_mut(key)
    });
    let Some(value) = value else { return tally(tallies::INSERT_FAILURES) };
    // SAFETY: this CPU's own value.
    unsafe {
        // Two programs count created files. One of them can be preempted while the other runs.
        if by != By::First || operation == Operation::Create as u32 {
            add_atomically(&raw mut (*value).calls, 1);
            add_atomically(&raw mut (*value).bytes, outcome.bytes);
            add_atomically(&raw mut (*value).errors, outcome.errors);
            return;
        }
        (*value).calls += 1;
        (*value).bytes += outcome.bytes;
        (*value).errors += outcome.errors;
    }
}
