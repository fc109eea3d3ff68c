/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* One value per key, shared by all CPUs, with atomic additions. */
#define LAYOUT_HAS_DURATION 0

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, COUNTER_KEYS);
	__type(key, struct counter_key);
	__type(value, struct counter_value);
} counters SEC(".maps");

static __always_inline void counter_add(__u32 copy, const struct subject *subject, enum operation operation,
				       __u64 bytes, __u64 errors, __u64 duration)
{
	struct counter_key key = key_of(subject, operation);
	struct counter_value *value = bpf_map_lookup_elem(&counters, &key);

	if (!value) {
		const struct counter_value zero = {};

		/* See map_percpu.h. */
		bpf_map_update_elem(&counters, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&counters, &key);
		if (!value) {
			tally_add(TALLY_INSERT_FAILURES);
			return;
		}
	}
	value_add(value, bytes, errors);
}
