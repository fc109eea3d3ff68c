// Counts each event twice.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
SEC("fexit/vfs_read") int on_read_again(u64 *ctx) { return count(ctx, READ, 4); }
