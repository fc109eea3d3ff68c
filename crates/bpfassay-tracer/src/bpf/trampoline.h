/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* Arguments by number, for programs on a BPF trampoline. The return value follows the last one. */
#ifndef BPFASSAY_TRAMPOLINE_H
#define BPFASSAY_TRAMPOLINE_H

#include "counters.h"
#include <bpf/bpf_tracing.h>

typedef unsigned long long context;

/* See registers.h. */
static __always_inline unsigned long argument(context *ctx, __u32 index)
{
	unsigned long value = 0;

	switch (index) {
	case 0:
		value = ctx[0];
		asm volatile("" : "+r"(value) : "i"(0));
		break;
	case 1:
		value = ctx[1];
		asm volatile("" : "+r"(value) : "i"(1));
		break;
	case 2:
		value = ctx[2];
		asm volatile("" : "+r"(value) : "i"(2));
		break;
	case 3:
		value = ctx[3];
		asm volatile("" : "+r"(value) : "i"(3));
		break;
	case 4:
		value = ctx[4];
		asm volatile("" : "+r"(value) : "i"(4));
		break;
	case 5:
		value = ctx[5];
		asm volatile("" : "+r"(value) : "i"(5));
		break;
	case 6:
		value = ctx[6];
		asm volatile("" : "+r"(value) : "i"(6));
		break;
	}
	return value;
}

/* The verifier knows the type of `file`, so these are plain loads without a helper call. */
static __always_inline bool subject_of_argument(struct subject *subject, const struct file *file, bool plain)
{
	const struct vfsmount *mnt = file->f_path.mnt;

	return subject_of_mount(subject, mnt, mnt->mnt_sb->s_dev, plain);
}

#endif
