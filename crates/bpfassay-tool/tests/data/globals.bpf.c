// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* Counters in global variables, of which clang leaves the places to the linker: clang-19 -target bpf -mcpu=v3 -O2 -g -c globals.bpf.c */
#define SEC(name) __attribute__((section(name), used))

typedef unsigned long long u64;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

u64 reads, writes;
int errors;

struct {
	u64 calls, bytes;
} opened SEC(".data.opened");

SEC("fentry/vfs_read")
int count(u64 *ctx)
{
	__sync_fetch_and_add(&reads, 1);
	__sync_fetch_and_add(&writes, 2);
	errors = 3;
	__sync_fetch_and_add(&opened.calls, 1);
	__sync_fetch_and_add(&opened.bytes, ctx[0]);
	return 0;
}
