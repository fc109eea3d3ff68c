/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * One value per key and calling thread, shared by all CPUs, with atomic additions. A thread has a
 * value for each name under which it makes calls, such as before and after it executes a program.
 * Threads for which there is no room are counted together in another map. It shows what they did,
 * but not which of them did it. Variants of an operation have separate values in both.
 */
#define LAYOUT_HAS_DURATION 0
#define LAYOUT_HAS_VARIANTS 1

/* See the crate for their meaning. */
#define COUNTER_THREAD_KEYS 4096
#define THREAD_NAME_BYTES 16

struct counter_variant_key {
	struct counter_key key;
	enum variant variant;
	__u32 zero;
};

struct counter_thread_key {
	struct counter_variant_key call;
	__u64 task;
	char name[THREAD_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, COUNTER_THREAD_KEYS);
	__type(key, struct counter_thread_key);
	__type(value, struct counter_value);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, COUNTER_KEYS);
	__type(key, struct counter_variant_key);
	__type(value, struct counter_value);
} others SEC(".maps");

/* Returns the value of `key`, which is inserted into `map`; null if there is no room. */
static __always_inline struct counter_value *value_in(void *map, const void *key)
{
	struct counter_value *value = bpf_map_lookup_elem(map, key);

	if (!value) {
		const struct counter_value zero = {};

		/* See map_percpu.h. */
		bpf_map_update_elem(map, key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, key);
	}
	return value;
}

static __always_inline void counter_add(__u32 copy, const struct subject *subject, enum operation operation,
				       __u64 bytes, __u64 errors, __u64 duration)
{
	struct counter_thread_key thread = {
		.call = { .key = key_of(subject, operation), .variant = subject->variant },
		.task = bpf_get_current_pid_tgid(),
	};
	struct counter_value *value;

	bpf_get_current_comm(thread.name, sizeof(thread.name));
	value = value_in(&counters, &thread);
	if (!value)
		value = value_in(&others, &thread.call);
	if (!value) {
		tally_add(TALLY_INSERT_FAILURES);
		return;
	}
	value_add(value, bytes, errors);
}
