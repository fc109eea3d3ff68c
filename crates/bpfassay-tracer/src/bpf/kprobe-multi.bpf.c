// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* kretprobe through fprobe: counts what was returned. */
#define ENTRY(function) SEC("kprobe.multi/" function)
#define RETURN(function) SEC("kretprobe.multi/" function)
#include "return.h"
