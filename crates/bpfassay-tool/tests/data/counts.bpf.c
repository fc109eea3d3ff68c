// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// clang-19 -target bpf -g -O2 -c counts.bpf.c -o counts.bpf.o
typedef unsigned long long u64; typedef unsigned int u32;
#define SEC(n) __attribute__((section(n), used))
#define __uint(n, v) int (*n)[v]
#define __type(n, v) typeof(v) *n
struct key { u64 cgroup; u32 major, minor; u32 operation; char comm[12]; };
struct value { u64 calls; u64 bytes; int errors; };
struct { __uint(type, 5); __uint(max_entries, 64); __type(key, struct key); __type(value, struct value); } counts SEC(".maps");
SEC("fexit/vfs_read") int on_read(void *ctx) { return 0; }
char LICENSE[] SEC("license") = "GPL";
