/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the probes need of the kernel, declared by hand: CO-RE relocates each access to the running kernel's layout,
 * so only the names and types of the members used here matter. No vmlinux.h, no header of the build machine.
 */
#ifndef BPFASSAY_KERNEL_H
#define BPFASSAY_KERNEL_H

/* Tells libbpf's headers to use the kernel's names for registers, and that the types below exist. */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;

typedef __u64 u64;
typedef __u32 u32;
typedef __u8 u8;
typedef unsigned long size_t;
typedef long ssize_t;
typedef long long loff_t;

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
};
enum { BPF_NOEXIST = 1 };

/* Registers as a kprobe's context has them. Their layout is ABI, so they are not relocated. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs;
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
#elif defined(__TARGET_ARCH_riscv)
struct pt_regs;
struct user_regs_struct {
	unsigned long pc, ra, sp, gp, tp, t0, t1, t2, s0, s1, a0, a1, a2, a3, a4, a5, a6, a7;
	unsigned long s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, t3, t4, t5, t6;
};
#else
#error "no register layout for this architecture"
#endif

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
};

struct vfsmount {
	struct super_block *mnt_sb;
};

/* fs/mount.h; `mnt` is not its first member in the kernel. */
struct mount {
	struct vfsmount mnt;
	int mnt_id;
};

struct path {
	struct vfsmount *mnt;
};

struct file {
	struct path f_path;
};

#pragma clang attribute pop

#endif
