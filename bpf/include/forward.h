/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is done to a packet that is forwarded from here, whoever knows its way: what stands behind it
 * goes, its hop is counted. Its new Ethernet addresses are the caller's to write.
 */
#ifndef FORWARD_H
#define FORWARD_H

#include "trivium_headers.h"

/* Ethernet's shortest frame without its check sequence. */
#define ETHERNET_LEAST 60

/*
 * Takes off what is behind the packet, of frames that are longer for it than Ethernet wants; tells
 * the frame's length, 0 if that cannot be done.
 */
TRIVIUM_INLINE __u32 forward_trim(struct xdp_md *ctx, __u32 frame, __u32 packet)
{
	__u32 wanted = sizeof(struct ethhdr) + packet;

	if (wanted < ETHERNET_LEAST)
		wanted = ETHERNET_LEAST;
	if (frame <= wanted)
		return frame;
	return bpf_xdp_adjust_tail(ctx, (int)wanted - (int)frame) ? 0 : wanted;
}

/*
 * Counts the hop of a packet behind so many bytes, and tells where the addresses stand. 0 only if the
 * frame is not what it was.
 */
TRIVIUM_INLINE struct ethhdr *forward_hop(struct xdp_md *ctx, int v4, const __u32 header)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;

	if (v4) {
		struct iphdr *ip = data + header;
		__u32 check;

		if ((void *)(ip + 1) > end)
			return 0;
		/* RFC 1624, as the kernel has it. */
		check = (__u32)ip->check + bpf_htons(0x0100);
		ip->check = check + (check >= 0xffff);
		ip->ttl -= 1;
	} else {
		struct ipv6hdr *ip = data + header;

		if ((void *)(ip + 1) > end)
			return 0;
		ip->hop_limit -= 1;
	}
	return ethernet;
}

#endif
