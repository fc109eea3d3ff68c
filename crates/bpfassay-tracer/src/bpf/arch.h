/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* Differences between architectures: registers, system call numbers, 32-bit tasks. No defaults. */
#ifndef BPFASSAY_ARCH_H
#define BPFASSAY_ARCH_H

/*
 * struct pt_regs: the registers in a kprobe's context. The layout is ABI and not relocated.
 * ARCH_GENERIC_CALLS: calls have the numbers of asm-generic/unistd.h; older calls do not exist.
 * ARCH_IS_COMPAT: whether the calling task is in a 32-bit call, which has a different number.
 */
#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

/* arch/x86/entry/syscalls/syscall_64.tbl */
#define ARCH_OLDER_CALLS
enum {
	NR_read = 0, NR_write = 1, NR_open = 2, NR_pread64 = 17, NR_pwrite64 = 18, NR_readv = 19, NR_writev = 20,
	NR_fsync = 74, NR_fdatasync = 75, NR_rename = 82, NR_mkdir = 83, NR_rmdir = 84, NR_creat = 85, NR_unlink = 87,
	NR_mknod = 133, NR_openat = 257, NR_mkdirat = 258, NR_mknodat = 259, NR_unlinkat = 263, NR_renameat = 264,
	NR_preadv = 295, NR_pwritev = 296, NR_renameat2 = 316, NR_preadv2 = 327, NR_pwritev2 = 328, NR_openat2 = 437,
};

/* TS_COMPAT, arch/x86/include/asm/thread_info.h */
#define ARCH_IS_COMPAT() \
	({ \
		const struct task_struct *_task = (void *)bpf_get_current_task(); \
		BPF_CORE_READ(_task, thread_info.status) & 0x2; \
	})

#elif defined(__TARGET_ARCH_arm64)

struct pt_regs;
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};

#define ARCH_GENERIC_CALLS

/* TIF_32BIT, arch/arm64/include/asm/thread_info.h */
#define ARCH_IS_COMPAT() \
	({ \
		const struct task_struct *_task = (void *)bpf_get_current_task(); \
		const struct thread_info___flags *_info = (void *)&_task->thread_info; \
		BPF_CORE_READ(_info, flags) >> 22 & 1; \
	})

#elif defined(__TARGET_ARCH_riscv)

struct pt_regs;
struct user_regs_struct {
	unsigned long pc, ra, sp, gp, tp, t0, t1, t2, s0, s1, a0, a1, a2, a3, a4, a5, a6, a7;
	unsigned long s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, t3, t4, t5, t6;
};

#define ARCH_GENERIC_CALLS

/* Debian's riscv64 has no 32-bit programs. */
#define ARCH_IS_COMPAT() false

#else
#error "bpf/arch.h has no entry for this architecture"
#endif

#ifdef ARCH_GENERIC_CALLS
enum {
	NR_mknodat = 33, NR_mkdirat = 34, NR_unlinkat = 35, NR_renameat = 38, NR_openat = 56, NR_read = 63,
	NR_write = 64, NR_readv = 65, NR_writev = 66, NR_pread64 = 67, NR_pwrite64 = 68, NR_preadv = 69,
	NR_pwritev = 70, NR_fsync = 82, NR_fdatasync = 83, NR_renameat2 = 276, NR_preadv2 = 286, NR_pwritev2 = 287,
	NR_openat2 = 437,
};
#endif

#endif
