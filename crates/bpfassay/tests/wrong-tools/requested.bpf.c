// Counts at the entry, where only the bytes asked for are known.
#include "wrong.h"
SEC("fentry/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 2); }
