// Loses every second event.
#include "wrong.h"
u64 serial;
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return serial++ & 1 ? 0 : count(ctx, READ, 4); }
