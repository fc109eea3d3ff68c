// Says that it counts reads and writes, and hooks vfs_read alone.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
