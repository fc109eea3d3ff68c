// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! One event per call, which the reader adds up.

use aya_ebpf::{macros::map, maps::RingBuf};
use bpfassay_tracer_common::{Event, RING_BYTES, tally as tallies};

use crate::tracer::{By, Outcome, Subject, tally};

/// Whether durations are part of the counts.
pub(crate) const HAS_DURATION: bool = true;

#[map(name = "events")]
static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Adds one call.
#[inline(always)]
pub(crate) fn add(_by: By, subject: &Subject, operation: u32, outcome: Outcome) {
    let Some(mut event) = EVENTS.reserve::<Event>(0) else { return tally(tallies::RING_BUFFER_DROPS) };
    event.write(Event {
        key: subject.key(operation),
        bytes: outcome.bytes,
        errors: outcome.errors,
        duration: outcome.duration,
    });
    event.submit(0);
}
