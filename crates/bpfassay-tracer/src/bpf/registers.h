/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* Arguments by number, for programs whose context is the registers at function entry. */
#ifndef BPFASSAY_REGISTERS_H
#define BPFASSAY_REGISTERS_H

#include "counters.h"
#include <bpf/bpf_tracing.h>

typedef struct pt_regs context;

/*
 * One case is left once `index` is known, at load time. The empty assembler lines keep the compiler
 * from merging the cases into a load at a computed offset, which the verifier forbids.
 */
static __always_inline unsigned long argument(context *ctx, __u32 index)
{
	unsigned long value = 0;

	switch (index) {
	case 0:
		value = PT_REGS_PARM1(ctx);
		asm volatile("" : "+r"(value) : "i"(0));
		break;
	case 1:
		value = PT_REGS_PARM2(ctx);
		asm volatile("" : "+r"(value) : "i"(1));
		break;
	case 2:
		value = PT_REGS_PARM3(ctx);
		asm volatile("" : "+r"(value) : "i"(2));
		break;
	}
	return value;
}

static __always_inline bool subject_of_argument(struct subject *subject, const struct file *file, bool plain)
{
	return subject_of_open(subject, file, plain);
}

#endif
