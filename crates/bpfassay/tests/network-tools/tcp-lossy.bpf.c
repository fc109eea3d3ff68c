// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts as tcp.bpf.c does, all but every third call.
#define EVERY 3
#include "tcp.bpf.c"
