// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// clang-19 -target bpf -g -O2 -c reads.bpf.c -o reads.bpf.o
typedef unsigned long long u64;
#define SEC(n) __attribute__((section(n), used))
u64 sink;
unsigned code;
static long (*get_func_ret)(void *, u64 *) = (void *)184;
SEC("fexit/vfs_read") int right(u64 *ctx) { sink += ctx[4]; return 0; }
SEC("fexit/vfs_readv") int flags_for_return(u64 *ctx) { sink += ctx[4]; return 0; }
SEC("fexit/vfs_readv") int right_of_five(u64 *ctx) { if (ctx[5] > 7) sink += ctx[4]; return 0; }
SEC("fexit/vfs_readv") int asks(u64 *ctx) { u64 ret = 0; get_func_ret(ctx, &ret); sink += ret + ctx[4]; return 0; }
SEC("fexit/vfs_read") int too_many(u64 *ctx) { if (sink) sink += ctx[5]; return 0; }
SEC("fentry/vfs_read") int no_return_yet(u64 *ctx) { sink += ctx[4]; return 0; }
SEC("fentry/vfs_read") int first(u64 *ctx) { sink += ctx[2]; return 0; }
SEC("fexit/put") int of_nothing(u64 *ctx) { sink += ctx[1]; return 0; }
SEC("fentry/gone") int gone(u64 *ctx) { sink += ctx[0]; return 0; }
static __attribute__((noinline)) u64 sub(u64 *ctx) { return ctx[9] + sink; }
SEC("fentry/vfs_read") int hands_on(u64 *ctx) { sink += sub(ctx); return 0; }
/* pt_regs: x86_64 r8 (fifth argument) is at 72; aarch64 regs[4] at 32; riscv64 a4 at 112. */
SEC("kprobe/vfs_read") int fifth_on_x86_64(u64 *ctx) { sink += ctx[9]; return 0; }
SEC("kprobe/vfs_read") int fifth_on_aarch64(u64 *ctx) { sink += ctx[4]; return 0; }
SEC("tracepoint/x/y") int other(u64 *ctx) { sink += ctx[9]; return 0; }
SEC("fexit/vfs_mkdir") int pointer_for_error(u64 *ctx) { if ((int)ctx[4] < 0) sink++; return 0; }
SEC("fexit/vfs_mkdir") int pointer_for_truth(u64 *ctx) { if ((int)ctx[4]) sink++; return 0; }
SEC("fexit/vfs_mkdir") int argument_for_error(u64 *ctx) { if ((int)ctx[2]) sink++; return 0; }
SEC("fexit/vfs_mkdir") int pointer_stored(u64 *ctx) { code = ctx[4]; return 0; }
SEC("fexit/vfs_mkdir") int right_of_pointer(u64 *ctx) { if (ctx[4] > -4096ULL) sink++; return 0; }
SEC("fexit/vfs_mkdir") int mode(u64 *ctx) { if ((int)ctx[3] < 0) code = ctx[3]; return 0; }
SEC("fentry/vfs_mkdir") int mode_before(u64 *ctx) { code = ctx[3]; return 0; }
char LICENSE[] SEC("license") = "GPL";
