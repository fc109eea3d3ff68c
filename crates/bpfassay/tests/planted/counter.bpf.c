// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts what reads and writes return. With -DPLANTED each program has one instruction more, which the processor executes as one, too.
typedef unsigned int u32;
typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name

// include/uapi/linux/bpf.h
static void *(*const bpf_map_lookup_elem)(void *, const void *) = (void *)1;
enum { ARRAY = 2 };

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} totals SEC(".maps");

static inline __attribute__((always_inline)) int count(u32 operation, u64 returned)
{
	u64 *total = bpf_map_lookup_elem(&totals, &operation);
#ifdef PLANTED
	asm volatile("%0 ^= 1" : "+r"(returned));
#endif
	if (total)
		__atomic_fetch_add(total, returned, __ATOMIC_RELAXED);
	return 0;
}

SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(0, ctx[4]); }
SEC("fexit/vfs_write") int on_write(u64 *ctx) { return count(1, ctx[4]); }

char LICENSE[] SEC("license") = "GPL";
