// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Programs of whose lines it is known how often the workload of vm-tests/code-coverage.toml has them run: once per call, or never.
typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))
#define SIZE 12288

u64 right, impossible, others;

static __attribute__((noinline)) int add(u64 returned)
{
	right += returned;
	return 0;
}

SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	u64 requested = ctx[2];
	u64 returned = ctx[4];

	if (requested != SIZE) {
		others += 1;
		return 0;
	}
	if (returned > SIZE)
		impossible += returned;
	else
		add(returned);
	return 0;
}

SEC("fexit/vfs_write") int on_write(u64 *ctx)
{
	if (ctx[2] == SIZE)
		right += ctx[4];
	return 0;
}

// Nothing in the guest makes this call.
SEC("kprobe/vfs_fallocate") int on_allocate(void *ctx)
{
	impossible += 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
