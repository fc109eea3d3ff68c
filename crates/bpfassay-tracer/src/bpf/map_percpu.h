/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One value per key and CPU, summed by the reader. The kernel does not run a program twice at once on one CPU, and
 * each operation has its own program and its own keys, so plain additions lose nothing.
 */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, LEDGER_KEYS);
	__type(key, struct ledger_key);
	__type(value, struct ledger_value);
} counters SEC(".maps");

static __always_inline void ledger_add(const struct ledger_key *key, __u64 bytes, __u64 errors)
{
	struct ledger_value *value = bpf_map_lookup_elem(&counters, key);

	if (!value) {
		const struct ledger_value zero = {};

		/*
		 * Another CPU may insert the key at this very moment. BPF_NOEXIST makes sure that nobody's counts are
		 * overwritten, and whoever lost that race finds the winner's entry.
		 */
		bpf_map_update_elem(&counters, key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&counters, key);
		if (!value) {
			ledger_tally(TALLY_INSERT_FAILURES);
			return;
		}
	}
	value->calls += 1;
	value->bytes += bytes;
	value->errors += errors;
}
