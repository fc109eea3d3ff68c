/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * One value per key and CPU, summed by the reader. The kernel does not run a program twice at once on one CPU, and
 * programs that may interrupt each other have different keys (operations) or, as copies of one program, another map than
 * the first copy, which they share. So plain additions lose nothing in the first copy; the others add atomically.
 *
 * Hashing and comparing a key takes the larger part of the time. So the calls that move data avoid it: each CPU has an
 * array of slots per operation and copy, and a key has one of two slots: the first two keys that map to such a pair keep them
 * until the end. What a slot counts is counted nowhere else and never moves, so that a reader at any moment misses nothing and finds
 * nothing twice. Keys that come later to their pair, and the first call of every key, are counted in the hash map.
 */
#define LAYOUT_HAS_DURATION 0

struct counters {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, COUNTER_KEYS);
	__type(key, struct counter_key);
	__type(value, struct counter_value);
};

struct counters counters SEC(".maps");
/* For the copies after the first; not created where there is one only. */
struct counters counters_2 SEC(".maps");

struct counter_slots {
	struct counter_slot slots[COUNTER_SLOTS];
};

/* Element copy * OPERATION_DATA_COUNT + operation; the loader sets how many copies there are. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OPERATION_DATA_COUNT);
	__type(key, __u32);
	__type(value, struct counter_slots);
} slots SEC(".maps");

#ifdef COUNTER_SHARED_KEYS
/* Several programs count under one key, and one of them may have been interrupted or preempted while it does. */
#define COUNTER_OWN_KEYS false
#else
#define COUNTER_OWN_KEYS true
#endif

static __always_inline bool is_slot_of(const struct counter_slot *slot, const struct subject *subject)
{
	return slot->key.cgroup == subject->cgroup && slot->key.mount == subject->mount &&
	       slot->key.device == subject->device;
}

static __always_inline bool is_free(const struct counter_slot *slot)
{
	return !slot->key.cgroup && !slot->value.calls;
}

/* The slots of an operation's keys; null for operations that have none. */
static __always_inline struct counter_slots *slots_of(__u32 copy, enum operation operation)
{
	__u32 element = copy * OPERATION_DATA_COUNT + operation;

	if (!COUNTER_OWN_KEYS || operation >= OPERATION_DATA_COUNT)
		return NULL;
	return bpf_map_lookup_elem(&slots, &element);
}

/*
 * The slot that a key tries first; the other of its pair differs in the last bit. Fibonacci hashing: Knuth, "The Art of Computer
 * Programming", volume 3, 2nd edition 1998, section 6.4.
 */
static __always_inline __u64 place_of(const struct subject *subject)
{
	_Static_assert(COUNTER_SLOTS == 1 << (64 - 56), "as many bits as are left");
	return ((subject->cgroup ^ subject->mount << 32) * 0x9e3779b97f4a7c15) >> 56;
}

static __always_inline void slot_add(struct counter_slot *slot, __u64 bytes, __u64 errors)
{
	slot->value.calls += 1;
	slot->value.bytes += bytes;
	slot->value.errors += errors;
}

static __always_inline void counter_add(__u32 copy, const struct subject *subject, enum operation operation,
				       __u64 bytes, __u64 errors, __u64 duration)
{
	struct counters *map = copy == 0 ? &counters : &counters_2;
	struct counter_slots *all = slots_of(copy, operation);
	struct counter_slot *slot = NULL;
	struct counter_value *value;
	struct counter_key key;

	/*
	 * The key's own slot, otherwise a free one that it may take. With one slot for each key, a workload that collided with another
	 * process had calls that cost 84 instructions more (x86_64, 6.12).
	 */
	if (all) {
		__u64 place = place_of(subject);

		slot = &all->slots[place];
		if (is_slot_of(slot, subject)) {
			slot_add(slot, bytes, errors);
			return;
		}
		if (!is_free(slot)) {
			slot = &all->slots[place ^ 1];
			if (is_slot_of(slot, subject)) {
				slot_add(slot, bytes, errors);
				return;
			}
		}
	}
	key = key_of(subject, operation);
	value = bpf_map_lookup_elem(map, &key);
	if (!value) {
		const struct counter_value zero = {};

		/*
		 * Another CPU may insert the key at the same time. BPF_NOEXIST makes sure that no counts are
		 * overwritten, and the CPU that lost that race finds the winner's entry.
		 */
		bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
		if (!value) {
			tally_add(TALLY_INSERT_FAILURES);
			return;
		}
	}
	/* Two programs count OPERATION_CREATE, of which one may be preempted inside while the other runs. */
	if (!COUNTER_OWN_KEYS || copy > 0 || operation == OPERATION_CREATE) {
		value_add(value, bytes, errors);
	} else {
		value->calls += 1;
		value->bytes += bytes;
		value->errors += errors;
	}
	/* Not on its first call: the reader reads only slots that have counted one. */
	if (slot && is_free(slot))
		slot->key = key;
}
