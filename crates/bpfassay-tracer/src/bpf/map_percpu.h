/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * One value per key and CPU, summed by the reader. The kernel does not run a program twice at once on one CPU, and
 * programs that may interrupt each other have different keys (operations) or, as copies of one program, another map than
 * the first copy, which they share. So plain additions lose nothing in the first copy; the others add atomically.
 *
 * Hashing and comparing a key takes the larger part of the time. So the calls that move data avoid it: each CPU has an
 * array of pairs of slots per operation and copy, and a key has one of the two slots of its pair: the first two keys that map to a pair
 * keep them until the end. What a slot counts is counted nowhere else and never moves, so that a reader at any moment misses nothing and finds
 * nothing twice. Keys that come later to their pair, and the first call of every key, are counted in the hash map.
 *
 * Which of the two slots a key has depends on what else counted before. A call takes as many instructions with either: which one it is, is
 * computed without a jump.
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
	struct counter_pair pairs[COUNTER_SLOTS / 2];
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

static __always_inline bool has_slots(enum operation operation)
{
	return COUNTER_OWN_KEYS && operation < OPERATION_DATA_COUNT;
}

/* What distinguishes most keys, and two keys of one cgroup always: ids of mounts have 31 bits. 0 stands for none: such a key has no slot. */
static __always_inline __u64 tag_of(const struct subject *subject)
{
	return subject->cgroup ^ (subject->mount << 32 | subject->device);
}

/*
 * The pair of a tag; null for an element that the loader did not make, which none is. Fibonacci hashing: Knuth, "The Art of Computer
 * Programming", volume 3, 2nd edition 1998, section 6.4.
 */
static __always_inline struct counter_pair *pair_of(__u32 copy, enum operation operation, __u64 tag)
{
	__u32 element = copy * OPERATION_DATA_COUNT + operation;
	struct counter_slots *all = bpf_map_lookup_elem(&slots, &element);

	_Static_assert(COUNTER_SLOTS / 2 == 1 << (64 - 57), "as many bits as are left");
	return all ? &all->pairs[tag * 0x9e3779b97f4a7c15 >> 57] : NULL;
}

/*
 * The slot that the key with this tag has, if it has one: the first where the tag is that of the first, otherwise the second. No tag has the highest bit
 * (ids of mounts have 31, those of cgroups are counted up from 1), so that the negative of what differs has it where anything does. With one that had it, a key would not be found, and
 * be counted in the hash map.
 */
static __always_inline struct counter_slot *slot_of(struct counter_pair *pair, __u64 tag)
{
	__u64 sign = -(pair->slots[0].tag ^ tag);

	/* The compiler would know a comparison in what follows, and jump. */
	barrier_var(sign);
	return &pair->slots[sign >> 63];
}

/* A call that failed moved nothing. */
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
		/* With equal tags, equal cgroups make equal keys. */
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
	/* Not on its first call: the reader looks only at slots that have counted one. */
	if (tag) {
		/* Looked up again, so that the calls that find their slot need not keep it. */
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
