// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads. Loading the program takes CAP_BPF and CAP_PERFMON, and attaching it takes nothing.
#include "../wrong-tools/wrong.h"
u64 calls;
SEC("fentry/vfs_read") int on_read(void *ctx)
{
	__sync_fetch_and_add(&calls, 1);
	return 0;
}
