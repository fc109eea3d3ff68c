// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts sectors of 512 bytes, though its figures are KiB.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	return count_returned((const void *)ctx[0], READ, (long)ctx[4] > 0 ? ctx[4] >> 9 : ctx[4]);
}
