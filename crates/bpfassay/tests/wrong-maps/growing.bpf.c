// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Takes a key for each read, and never deletes one.
#define COUNTS_TYPE HASH
#define COUNTS_ENTRIES 16384
#include "../wrong-tools/wrong.h"
u64 serial;
SEC("kprobe/vfs_read") int on_read(void *ctx)
{
	struct key key = { .other = __sync_fetch_and_add(&serial, 1) };
	const struct value zero = {};
	return bpf_map_update_elem(&counts, &key, &zero, NOEXIST) & 0;
}
