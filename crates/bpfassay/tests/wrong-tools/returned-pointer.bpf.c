// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Takes what do_filp_open returns, a pointer, for an error number of 32 bits: half of an address is often negative.
#include "wrong.h"
u64 errors;
SEC("fexit/do_filp_open") int on_open(u64 *ctx)
{
	if ((int)ctx[3] < 0)
		__sync_fetch_and_add(&errors, 1);
	return 0;
}
