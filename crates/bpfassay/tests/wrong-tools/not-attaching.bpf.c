// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// On a function that no kernel has.
#include "wrong.h"
u64 calls;
SEC("kprobe/bpfassay_no_such_function") int on_nothing(void *registers)
{
	calls++;
	return 0;
}
