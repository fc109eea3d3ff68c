// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * BPF trampoline at function entry. On a preemptible kernel it can miss calls as one copy of fexit does: see there.
 */
#include "trampoline.h"

#define HOOK(function) SEC("fentry/" function)
#include "entry.h"
