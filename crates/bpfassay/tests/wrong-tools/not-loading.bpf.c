// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Follows a number as if it were an address: the verifier refuses it.
#include "wrong.h"
u64 sum;
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	sum += *(const u64 *)ctx[2];
	return 0;
}
