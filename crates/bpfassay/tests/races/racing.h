// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// What the racing tools and their right counterparts have in common: calls of vfs_read by the name
// of the process, which the ranks of a workload share.
#pragma once
#include "../wrong-tools/wrong.h"

INLINE struct key key_of_ranks(const struct file *file)
{
	struct key key = key_of(file, READ);
	key.cgroup = key.device = 0;
	return key;
}
