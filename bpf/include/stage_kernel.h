/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's share of a routed port. The kernel answers ARP and ND, receives packets to its addresses and
 * multicast (OSPF, VRRP, IGMP, LLDP), reassembles, and handles frames that this program cannot read. All
 * other packets are transit traffic and belong to the router, including packets with an expired TTL or IP
 * options.
 */
#ifndef TRIVIUM_STAGE_KERNEL_H
#define TRIVIUM_STAGE_KERNEL_H

#include "trivium_headers.h"

/* The frame does not belong to the kernel. */
#define NOT_THE_KERNELS (-1)
/* The frame goes to the worker, and is not routed by the hook. */
#define TO_THE_WORKER (-2)

/* Returns the counter of the reason why the frame belongs to the kernel, or NOT_THE_KERNELS. */
TRIVIUM_INLINE int kernel_owns_ipv4(struct frame *frame)
{
	struct iphdr *ip = frame->at;
	__u32 header, total;
	__be32 destination;

	if ((void *)(ip + 1) > frame->end)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header < sizeof(*ip) || total < header)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	if (frame->at + header > frame->end || total > frame_left(frame))
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	destination = ip->daddr;
	/* 224.0.0.0/4 is multicast. 240.0.0.0/4 is reserved and includes the limited broadcast address. */
	if ((destination & bpf_htonl(0xe0000000)) == bpf_htonl(0xe0000000))
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (bpf_map_lookup_elem(&local4, &destination))
		return TRIVIUM_COUNT_PASSED_LOCAL4;
	if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET))
		return TRIVIUM_COUNT_PASSED_FRAGMENT;
	return NOT_THE_KERNELS;
}

/* Walks the extension headers (RFC 8200 section 4) until a fragment header or the payload. */
TRIVIUM_INLINE int ipv6_fragment(struct frame *frame, __u8 next)
{
	for (int i = 0; i < IPV6_EXTENSIONS_MAX; i++) {
		struct ipv6_extension *extension = frame->at;
		__u32 length;

		if (next == IPPROTO_FRAGMENT)
			return TRIVIUM_COUNT_PASSED_FRAGMENT;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_AH)
			return NOT_THE_KERNELS;
		if ((void *)(extension + 1) > frame->end)
			return TRIVIUM_COUNT_PASSED_MALFORMED;
		length = next == IPPROTO_AH ? (extension->length + 2) * 4 : (extension->length + 1) * 8;
		next = extension->next;
		frame->at += length;
	}
	return TRIVIUM_COUNT_PASSED_MALFORMED;
}

TRIVIUM_INLINE int kernel_owns_ipv6(struct frame *frame)
{
	struct ipv6hdr *ip = frame->at;
	struct in6_addr destination;

	if ((void *)(ip + 1) > frame->end || ip->version != 6)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	/* A payload length of 0 means a jumbogram, which is left to the kernel. */
	if (ip->payload_len == 0 && ip->nexthdr == IPPROTO_HOPOPTS)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	if (sizeof(*ip) + bpf_ntohs(ip->payload_len) > frame_left(frame))
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	destination = ip->daddr;
	if (destination.in6_u.u6_addr8[0] == 0xff)
		return TRIVIUM_COUNT_PASSED_GROUP;
	/* fe80::/10 is never forwarded (RFC 4291 section 2.5.6), so the kernel receives or drops it. */
	if ((destination.in6_u.u6_addr16[0] & bpf_htons(0xffc0)) == bpf_htons(0xfe80))
		return TRIVIUM_COUNT_PASSED_LOCAL6;
	if (bpf_map_lookup_elem(&local6, &destination))
		return TRIVIUM_COUNT_PASSED_LOCAL6;
	frame->at = ip + 1;
	return ipv6_fragment(frame, ip->nexthdr);
}

TRIVIUM_INLINE int kernel_owns(struct xdp_md *ctx)
{
	struct frame frame = frame_open(ctx);
	struct ethhdr *ethernet = frame.at;
	__be16 ethertype;

	if ((void *)(ethernet + 1) > frame.end)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	ethertype = ethernet->h_proto;
	frame.at = ethernet + 1;
	if (!skip_vlans(&frame, &ethertype))
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	if (ethertype != bpf_htons(ETH_P_IP) && ethertype != bpf_htons(ETH_P_IPV6))
		return TRIVIUM_COUNT_PASSED_CONTROL;
	/* The group bit of IEEE 802, which includes broadcast. */
	if (ethernet->h_dest[0] & 1)
		return TRIVIUM_COUNT_PASSED_GROUP;
	return ethertype == bpf_htons(ETH_P_IP) ? kernel_owns_ipv4(&frame) : kernel_owns_ipv6(&frame);
}

#endif
