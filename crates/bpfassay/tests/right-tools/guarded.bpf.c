// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads, and looks at what a function returns that has two arguments since Linux 6.10, and
// had four. Which of the two a kernel has shows a type, a member, a constant or the version: a
// program for each.
#include "../wrong-tools/wrong.h"
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct proto_accept_arg { int flags; };
#pragma clang attribute pop
const volatile int is_new;
extern int LINUX_KERNEL_VERSION __attribute__((section(".kconfig")));
u64 accepted;

INLINE int look(u64 *ctx, int has_two)
{
	u64 returned;
	if (has_two)
		asm volatile("%0 = *(u64 *)(%1 + 16)" : "=r"(returned) : "r"(ctx));
	else
		asm volatile("%0 = *(u64 *)(%1 + 32)" : "=r"(returned) : "r"(ctx));
	if (returned)
		__atomic_fetch_add(&accepted, 1, __ATOMIC_RELAXED);
	return 0;
}
#define ACCEPT SEC("fexit/inet_csk_accept") int
ACCEPT by_type(u64 *ctx) { return look(ctx, __builtin_preserve_type_info(*(struct proto_accept_arg *)0, 0)); }
ACCEPT by_member(u64 *ctx)
{
	return look(ctx, __builtin_preserve_field_info(((struct proto_accept_arg *)0)->flags, 2));
}
ACCEPT by_constant(u64 *ctx) { return look(ctx, is_new); }
ACCEPT by_version(u64 *ctx) { return look(ctx, LINUX_KERNEL_VERSION >= 0x060a00); }
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
