/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One value per key and CPU, summed by the reader. The kernel does not run a program twice at once on one CPU, and
 * programs that may interrupt each other have different keys (operations) or, as copies of one program, different maps.
 * So plain additions lose nothing.
 */
#define LAYOUT_HAS_DURATION 0

struct counters {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, LEDGER_KEYS);
	__type(key, struct ledger_key);
	__type(value, struct ledger_value);
};

struct counters counters SEC(".maps");
/* For the second and third copy; not made where there is one only. */
struct counters counters_2 SEC(".maps");
struct counters counters_3 SEC(".maps");

static __always_inline void ledger_add(__u32 copy, const struct subject *subject, enum ledger_operation operation,
				       __u64 bytes, __u64 errors, __u64 duration)
{
	struct counters *map = copy == 0 ? &counters : copy == 1 ? &counters_2 : &counters_3;
	struct ledger_key key = key_of(subject, operation);
	struct ledger_value *value = bpf_map_lookup_elem(map, &key);

	if (!value) {
		const struct ledger_value zero = {};

		/*
		 * Another CPU may insert the key at this very moment. BPF_NOEXIST makes sure that nobody's counts are
		 * overwritten, and whoever lost that race finds the winner's entry.
		 */
		bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
		if (!value) {
			ledger_tally(TALLY_INSERT_FAILURES);
			return;
		}
	}
	if (operation == OPERATION_CREATE) {
		/* Counted by two programs, of which one may be preempted inside while the other runs. */
		LEDGER_ATOMIC_ADD(&value->calls, 1);
		if (errors)
			LEDGER_ATOMIC_ADD(&value->errors, errors);
		return;
	}
#ifdef LEDGER_SHARED_KEYS
	/* Several programs count under one key, and one of them may have been interrupted or preempted here. */
	LEDGER_ATOMIC_ADD(&value->calls, 1);
	if (bytes)
		LEDGER_ATOMIC_ADD(&value->bytes, bytes);
	if (errors)
		LEDGER_ATOMIC_ADD(&value->errors, errors);
#else
	value->calls += 1;
	value->bytes += bytes;
	value->errors += errors;
#endif
}
