/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Changes to a packet that the hook forwards, whatever table it uses: removal of padding, and decrement of the
 * TTL or hop limit. The caller writes the new Ethernet addresses.
 */
#ifndef FORWARD_H
#define FORWARD_H

#include "trivium_headers.h"

/* Minimum length of an Ethernet frame in bytes, without frame check sequence. */
#define ETHERNET_LEAST 60

/*
 * Removes bytes that follow the packet, but does not shorten the frame below the Ethernet minimum. Returns the
 * length of the frame, or 0 on failure.
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
 * Decrements the TTL or hop limit of a packet that begins after `header` bytes. Returns the Ethernet header,
 * or 0 if the frame no longer holds an IP header.
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
		/* Incremental checksum update of RFC 1624, as in the kernel. */
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
