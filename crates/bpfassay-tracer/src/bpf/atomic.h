/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
#ifndef BPFASSAY_ATOMIC_H
#define BPFASSAY_ATOMIC_H

/*
 * Adds without fetching the old value, the only atomic operation that kernels before 5.12 accept.
 * From LLVM 20 on, `__sync_fetch_and_add` fetches the value even if it is not used, because it also
 * orders memory. A relaxed addition does not.
 */
#define ATOMIC_ADD(counter, amount) ((void)__atomic_fetch_add(counter, amount, __ATOMIC_RELAXED))

#endif
