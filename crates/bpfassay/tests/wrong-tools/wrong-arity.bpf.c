// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Takes a sixth argument of vfs_read, which has four, from its register: a number that means nothing.
#include "wrong.h"
#if defined(FOR_x86_64)
#define SIXTH 64 // r9
#elif defined(FOR_aarch64)
#define SIXTH 40 // x5
#elif defined(FOR_riscv64)
#define SIXTH 120 // a5
#endif
u64 sum;
SEC("kprobe/vfs_read") int on_read(const char *registers)
{
	__sync_fetch_and_add(&sum, *(const u64 *)(registers + SIXTH));
	return 0;
}
