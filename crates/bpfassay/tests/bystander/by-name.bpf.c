// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts the reads and writes of one cgroup, which it knows by name: the workload's. All other
// processes pay for the kprobe and for this test.
#include "../wrong-tools/wrong.h"
static u64 (*const bpf_get_current_task)(void) = (void *)35;
static long (*const bpf_probe_read_kernel)(void *, u32, const void *) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *, u32, const void *) = (void *)115;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node { const char *name; };
struct cgroup { struct kernfs_node *kn; };
struct css_set { struct cgroup *dfl_cgrp; };
struct task_struct { struct css_set *cgroups; };
#pragma clang attribute pop

#define FOLLOW(to, from, field) bpf_probe_read_kernel(&to, sizeof(to), &(from)->field)

// The name of a workload's cgroup is `run-` and the run. That of a bystander ends in `-bystander`.
INLINE int is_of_workload(void)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	struct css_set *cgroups;
	struct cgroup *cgroup;
	struct kernfs_node *node;
	const char *name;
	char text[128] = {};
	FOLLOW(cgroups, task, cgroups);
	FOLLOW(cgroup, cgroups, dfl_cgrp);
	FOLLOW(node, cgroup, kn);
	FOLLOW(name, node, name);
	long length = bpf_probe_read_kernel_str(text, sizeof(text), name);
	if (length < 4 || length > 128)
		return 0;
	return text[0] == 'r' && text[1] == 'u' && text[2] == 'n' && text[(length - 2) & 127] != 'r';
}

INLINE int count_call(enum operation operation)
{
	if (!is_of_workload())
		return 0;
	struct key key = { .cgroup = bpf_get_current_cgroup_id(), .operation = operation };
	return add(value_of(&key), 0);
}

SEC("kprobe/vfs_read") int on_read(void *ctx) { return count_call(READ); }
SEC("kprobe/vfs_write") int on_write(void *ctx) { return count_call(WRITE); }
