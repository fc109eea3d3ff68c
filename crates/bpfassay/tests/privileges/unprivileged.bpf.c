// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// A socket filter: the kind of program that the kernel can let every user load.
#define SEC(name) __attribute__((section(name), used))
SEC("socket") int no_packets(void *ctx) { return 0; }
char LICENSE[] SEC("license") = "GPL";
