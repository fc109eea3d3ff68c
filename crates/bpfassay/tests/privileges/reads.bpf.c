// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads. The kernel wants CAP_BPF and CAP_PERFMON to load the program, and nothing to attach it.
#include "../wrong-tools/wrong.h"
u64 calls;
SEC("fentry/vfs_read") int on_read(void *ctx)
{
	__sync_fetch_and_add(&calls, 1);
	return 0;
}
