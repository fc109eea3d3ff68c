// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* kprobe at function entry. */
#include "registers.h"

#define HOOK(function) SEC("kprobe/" function)
#include "entry.h"
