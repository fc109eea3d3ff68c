// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* kprobe at function entry and kretprobe at its return: counts what was returned. */
#define ENTRY(function) SEC("kprobe/" function)
#define RETURN(function) SEC("kretprobe/" function)
#include "return.h"
