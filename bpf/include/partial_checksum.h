/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Detection of partial checksums, which a sender has left to its device (a veth completes none). Such a
 * checksum holds only the sum of the pseudo-header. It must be completed before the packet leaves by another
 * device, which the hook cannot do.
 */
#ifndef PARTIAL_CHECKSUM_H
#define PARTIAL_CHECKSUM_H

#include "trivium_headers.h"

/*
 * Folds a 64-bit sum to 16 bits, for the sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section
 * 8.1). The result is not complemented.
 */
TRIVIUM_INLINE __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Returns whether the checksum in a transport header equals the sum of the pseudo-header. */
TRIVIUM_INLINE int bare_sum(void *l4, void *end, __u8 protocol, __u64 sum)
{
	__be16 *check = l4 + (protocol == IPPROTO_TCP ? 16 : 6);

	if ((void *)(check + 1) > end)
		return 0;
	return *check == fold(sum);
}

/*
 * Returns whether the checksum of a frame may be partial. Frames that cannot be read return 1, so that the
 * worker or the kernel's stack examines them.
 */
TRIVIUM_INLINE int is_partial(void *at, void *end, __be16 ethertype)
{
	__u64 sum = 0;
	__u8 protocol;
	__u32 length;

	if (ethertype == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = at;

		if ((void *)(ip + 1) > end)
			return 1;
		protocol = ip->protocol;
		if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
			return 0;
		/* The kernel completes the checksum of packets that it fragments. */
		if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET))
			return 0;
		if (ip->ihl != 5)
			return 1;
		length = bpf_ntohs(ip->tot_len) - sizeof(*ip);
		sum = (__u64)ip->saddr + ip->daddr + bpf_htons(protocol) + bpf_htons(length);
		return bare_sum(ip + 1, end, protocol, sum);
	}
	if (ethertype == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = at;

		if ((void *)(ip + 1) > end)
			return 1;
		protocol = ip->nexthdr;
		if (protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
		    protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_AH)
			return 1;
		if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
			return 0;
#pragma unroll
		for (int word = 0; word < 4; word++)
			sum += (__u64)ip->saddr.in6_u.u6_addr32[word] + ip->daddr.in6_u.u6_addr32[word];
		sum += bpf_htons(protocol) + ip->payload_len;
		return bare_sum(ip + 1, end, protocol, sum);
	}
	/* Frames with another tag return 1. */
	return is_vlan(ethertype);
}

#endif
