/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * One value per key and CPU, summed by the reader. A program does not run twice at once on one CPU.
 * Programs that can interrupt each other have different keys (operations). Later copies of a
 * program share a second map and add atomically; plain additions lose nothing in the first copy.
 *
 * Hashing and comparing keys takes most of the time, so calls that move data avoid it. Each CPU has
 * pairs of slots per operation and copy. The first two keys that map to a pair keep its slots.
 * Counts of a slot are nowhere else and never move: a reader misses nothing and finds nothing
 * twice. Later keys, and the first call of every key, are counted in the hash map.
 *
 * Earlier calls decide which slot a key has. Both slots take equally many instructions: the slot is
 * selected without a jump.
 */
#define LAYOUT_HAS_DURATION 0

struct counters {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, COUNTER_KEYS);
	__type(key, struct counter_key);
	__type(value, struct counter_value);
};

struct counters counters SEC(".maps");
/* For the copies after the first. It is not created if there is only one copy. */
struct counters counters_2 SEC(".maps");

struct counter_slots {
	struct counter_pair pairs[COUNTER_SLOTS / 2];
};

/* Element copy * OPERATION_DATA_COUNT + operation. The loader sets the number of copies. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OPERATION_DATA_COUNT);
	__type(key, __u32);
	__type(value, struct counter_slots);
} slots SEC(".maps");

#ifdef COUNTER_SHARED_KEYS
/* Programs that share a key can be interrupted or preempted while they count. */
#define COUNTER_OWN_KEYS false
#else
#define COUNTER_OWN_KEYS true
#endif

static __always_inline bool has_slots(enum operation operation)
{
	return COUNTER_OWN_KEYS && operation < OPERATION_DATA_COUNT;
}

/* Differs for most keys, and for any two of a cgroup (mount ids have 31 bits). 0: no slot. */
static __always_inline __u64 tag_of(const struct subject *subject)
{
	return subject->cgroup ^ (subject->mount << 32 | subject->device);
}

/*
 * The pair of a tag; null if the loader did not make the element, which does not occur. The hash is
 * Fibonacci hashing: Knuth, "The Art of Computer Programming", vol. 3, 2nd ed. 1998, section 6.4.
 */
static __always_inline struct counter_pair *pair_of(__u32 copy, enum operation operation, __u64 tag)
{
	__u32 element = copy * OPERATION_DATA_COUNT + operation;
	struct counter_slots *all = bpf_map_lookup_elem(&slots, &element);

	_Static_assert(COUNTER_SLOTS / 2 == 1 << (64 - 57), "as many bits as are left");
	return all ? &all->pairs[tag * 0x9e3779b97f4a7c15 >> 57] : NULL;
}

/*
 * The slot of the key with this tag: the first if its tag is equal, else the second. Tags do not
 * have the highest bit (mount ids: 31 bits; cgroup ids count from 1), but negated differences do,
 * if not 0. A key whose tag had it would be counted in the hash map.
 */
static __always_inline struct counter_slot *slot_of(struct counter_pair *pair, __u64 tag)
{
	__u64 sign = -(pair->slots[0].tag ^ tag);

	/* The compiler would turn a visible comparison into a jump. */
	barrier_var(sign);
	return &pair->slots[sign >> 63];
}

/* A call that failed moved no bytes. */
static __always_inline void slot_add(struct counter_slot *slot, __u64 bytes, __u64 errors)
{
	slot->value.calls += 1;
	if (errors)
		slot->value.errors += errors;
	else
		slot->value.bytes += bytes;
}

static __always_inline void counter_add(__u32 copy, const struct subject *subject, enum operation operation,
				       __u64 bytes, __u64 errors, __u64 duration)
{
	struct counters *map = copy == 0 ? &counters : &counters_2;
	struct counter_pair *pair = NULL;
	struct counter_slot *slot;
	struct counter_value *value;
	struct counter_key key;
	__u64 tag = 0;

	if (has_slots(operation)) {
		tag = tag_of(subject);
		pair = pair_of(copy, operation, tag);
		if (!pair) {
			tally_add(TALLY_INSERT_FAILURES);
			return;
		}
		slot = slot_of(pair, tag);
		/* If tags and cgroups are equal, the keys are equal. */
		if (slot->tag == tag && slot->key.cgroup == subject->cgroup) {
			slot_add(slot, bytes, errors);
			return;
		}
	}
	key = key_of(subject, operation);
	value = bpf_map_lookup_elem(map, &key);
	if (!value) {
		const struct counter_value zero = {};

		/*
		 * Another CPU can insert the key at the same time. BPF_NOEXIST makes sure that no
		 * counts are overwritten. The CPU that lost the race finds the winner's entry.
		 */
		bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
		if (!value) {
			tally_add(TALLY_INSERT_FAILURES);
			return;
		}
	}
	/* Two programs count OPERATION_CREATE. One can be preempted while the other runs. */
	if (!COUNTER_OWN_KEYS || copy > 0 || operation == OPERATION_CREATE) {
		value_add(value, bytes, errors);
	} else {
		value->calls += 1;
		value->bytes += bytes;
		value->errors += errors;
	}
	/* Not counted in the slot yet: the reader skips slots without calls. */
	if (tag) {
		/* A second lookup, so that calls that find their slot need not keep it. */
		pair = pair_of(copy, operation, tag);
		if (!pair)
			return;
		slot = slot_of(pair, tag);
		if (!pair->slots[0].tag)
			slot = &pair->slots[0];
		if (!slot->tag) {
			slot->key = key;
			slot->tag = tag;
		}
	}
}
