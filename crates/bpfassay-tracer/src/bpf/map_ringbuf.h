/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* One event per call, which the reader adds up. */
#define LAYOUT_HAS_DURATION 1

struct call_event {
	struct counter_key key;
	__u64 bytes;
	__u64 errors;
	__u64 duration;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} events SEC(".maps");

/* A ring buffer has no type. This keeps the structure in the object's type information. */
const struct call_event *const event_type SEC(".rodata.event") = NULL;

static __always_inline void counter_add(__u32 copy, const struct subject *subject, enum operation operation,
				       __u64 bytes, __u64 errors, __u64 duration)
{
	struct call_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		tally_add(TALLY_RING_BUFFER_DROPS);
		return;
	}
	event->key = key_of(subject, operation);
	event->bytes = bytes;
	event->errors = errors;
	event->duration = duration;
	bpf_ringbuf_submit(event, 0);
}
