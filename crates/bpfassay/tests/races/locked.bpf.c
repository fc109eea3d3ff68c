// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Adds between bpf_spin_lock and bpf_spin_unlock
#include "racing.h"
struct bpf_spin_lock { u32 val; };
static long (*const bpf_spin_lock)(struct bpf_spin_lock *) = (void *)93;
static long (*const bpf_spin_unlock)(struct bpf_spin_lock *) = (void *)94;
struct guarded { u64 calls; struct bpf_spin_lock lock; };
struct {
	__uint(type, HASH);
	__uint(max_entries, 1024);
	__type(key, struct key);
	__type(value, struct guarded);
} guarded SEC(".maps");
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of_ranks(file);
	static const struct guarded none;
	if (!bpf_map_lookup_elem(&guarded, &key))
		bpf_map_update_elem(&guarded, &key, &none, NOEXIST);
	struct guarded *value = bpf_map_lookup_elem(&guarded, &key);
	if (!value)
		return 0;
	bpf_spin_lock(&value->lock);
	value->calls += 1;
	bpf_spin_unlock(&value->lock);
	return 0;
}
