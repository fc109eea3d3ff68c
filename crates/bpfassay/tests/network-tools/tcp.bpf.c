// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts what is sent and received over TCP, by process.
#include "../wrong-tools/wrong.h"

struct traffic_key { char comm[16]; u32 receives; };

struct {
	__uint(type, HASH);
	__uint(max_entries, 1024);
	__type(key, struct traffic_key);
	__type(value, struct value);
} traffic SEC(".maps");

#ifndef EVERY
#define EVERY 1
#endif
u64 serial;

INLINE int on(u32 receives, long returned)
{
	const struct value zero = {};
	struct traffic_key key = { .receives = receives };
	if (EVERY > 1 && __sync_fetch_and_add(&serial, 1) % EVERY == 0)
		return 0;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	if (!bpf_map_lookup_elem(&traffic, &key))
		bpf_map_update_elem(&traffic, &key, &zero, NOEXIST);
	return add(bpf_map_lookup_elem(&traffic, &key), returned);
}

// int tcp_sendmsg(struct sock *, struct msghdr *, size_t)
SEC("fexit/tcp_sendmsg") int on_send(u64 *ctx) { return on(0, (int)ctx[3]); }
// int tcp_recvmsg(struct sock *, struct msghdr *, size_t, int, int *), since Linux 5.19
SEC("fexit/tcp_recvmsg") int on_receive(u64 *ctx) { return on(1, (int)ctx[5]); }
