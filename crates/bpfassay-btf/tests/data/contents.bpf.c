// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// What can be set before an object runs. contents.bpf.o was made of it: clang-19 -target bpf -O2 -g -c contents.bpf.c
#define SEC(name) __attribute__((section(name), used))
#define __type(name, value) typeof(value) *name
#define __uint(name, value) int(*name)[value]

typedef unsigned int u32;
typedef unsigned long long u64;

struct conf {
	u64 index;
	u64 magic;
	struct {
		short low;
		char name[8];
	} inner;
	u32 flag : 1;
};

struct {
	__uint(type, 1);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct conf);
} conf_map SEC(".maps");

struct {
	__uint(type, 1);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
} sizes_only SEC(".maps");

const volatile u32 first = 1;
const volatile int pid = 0;
const volatile char comm[16] = "any";
const volatile _Bool all = 0;
const volatile struct {
	int x;
} pair = { 5 };
u64 seen;

SEC("fexit/vfs_read")
int on_read(u64 *ctx)
{
	if (all || pid == (int)ctx[4] || comm[0] == 'x' || pair.x == (int)first)
		seen++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
