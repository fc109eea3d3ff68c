/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * The kernel's types that the probes use. CO-RE relocates each access to the running kernel's
 * layout: names and types of used members suffice. No build machine's header is used.
 */
#ifndef BPFASSAY_KERNEL_H
#define BPFASSAY_KERNEL_H

/* Makes libbpf's headers use the kernel's register names, and expect the types below. */
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
typedef _Bool bool;
enum { false, true };
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY, BPF_NOEXIST };
enum { BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#include "arch.h"

/* include/uapi/linux/bpf.h */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
};

struct dentry;

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct super_block *d_sb;
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};

/* fs/mount.h. In the kernel, `mnt` is not the first member. */
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	int mnt_id;
};

struct path {
	struct vfsmount *mnt;
};

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	struct inode *f_inode;
	struct path f_path;
};

/* fs/internal.h, 5.10 to 7.2 */
struct open_flags {
	int open_flag;
};

/* The argument of vfs_rename from 5.12 on (9fe61450972d). */
struct renamedata {
	struct dentry *old_dentry;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_io_accounting {
	u64 rchar;
	u64 wchar;
	u64 syscr;
	u64 syscw;
};

struct thread_info {
	/* x86_64 */
	u32 status;
};

/* arm64 */
struct thread_info___flags {
	unsigned long flags;
};

struct task_struct {
	struct thread_info thread_info;
	/* From 5.14 on (2f064a59a11f). */
	unsigned int __state;
	unsigned int flags;
	int pid;
	int tgid;
	struct files_struct *files;
	struct task_io_accounting ioac;
	struct css_set *cgroups;
};

/* kernel/trace/trace.h and include/trace/syscall.h, by their names in BTF */
struct trace_event_raw_sys_enter {
	long id;
	unsigned long args[6];
};

struct trace_event_raw_sys_exit {
	long id;
	long ret;
};

#pragma clang attribute pop

/* include/linux/fs.h: set in f_mode of a file that this open created */
#define FMODE_CREATED 0x100000
/* The same file, 5.10 to 7.2: a flag of opens by execve, and of no system call. */
#define FMODE_EXEC 0x20

/* include/linux/err.h */
#define IS_ERR_VALUE(x) ((unsigned long)(x) >= (unsigned long)-4095)

#endif
