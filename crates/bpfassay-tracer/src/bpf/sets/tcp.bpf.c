// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * TCP: bytes that processes send and receive, as the calls returned them, and the time in the
 * calls. Kernel threads (NFS) send by tcp_sendmsg, too, and receive by tcp_recvmsg or read_sock.
 */
#include "calls.h"

SEC("kprobe/tcp_sendmsg")
int send_entry(struct pt_regs *ctx)
{
	begins(EVENT_TCP_SEND, 0);
	return 0;
}

/* Both return int (net/ipv4/tcp.c, 5.10 to 7.2). */
SEC("kretprobe/tcp_sendmsg")
int send_return(struct pt_regs *ctx)
{
	return returns_bytes(EVENT_TCP_SEND, EVENT_TCP_SEND, (int)PT_REGS_RC(ctx));
}

SEC("kprobe/tcp_recvmsg")
int receive_entry(struct pt_regs *ctx)
{
	begins(EVENT_TCP_RECEIVE, 0);
	return 0;
}

SEC("kretprobe/tcp_recvmsg")
int receive_return(struct pt_regs *ctx)
{
	return returns_bytes(EVENT_TCP_RECEIVE, EVENT_TCP_RECEIVE, (int)PT_REGS_RC(ctx));
}
