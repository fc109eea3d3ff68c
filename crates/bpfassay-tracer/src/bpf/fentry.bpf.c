// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * BPF trampolines at function entry. On a preemptible kernel they can miss calls: see fexit.bpf.c.
 */
#include "trampoline.h"

#define HOOK(function) SEC("fentry/" function)
#include "entry.h"
