/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks of a packet's first header that all routing stages share: whether the header is complete, and
 * whether its addresses may be forwarded. Each stage decides on the result.
 */
#ifndef IP_CHECKS_H
#define IP_CHECKS_H

#include "partial_checksum.h"
#include "trivium_headers.h"

/* Returns whether an address is multicast, 224.0.0.0/4. */
TRIVIUM_INLINE int ipv4_is_group(__be32 address)
{
	return (address & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000);
}

/* Returns whether an address is never forwarded (RFC 6890), or is invalid as a source. */
TRIVIUM_INLINE int ipv4_is_confined(__be32 address)
{
	__u8 first = bpf_ntohl(address) >> 24;

	return first == 0 || first == 127 || first >= 224 ||
	       (address & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000);
}

/* Returns whether an address is multicast, ff00::/8. */
TRIVIUM_INLINE int ipv6_is_group(const struct in6_addr *address)
{
	return address->in6_u.u6_addr8[0] == 0xff;
}

/*
 * Returns whether an address is never forwarded: ::/64 (including ::, ::1 and IPv4-mapped addresses),
 * fe80::/10, or multicast.
 */
TRIVIUM_INLINE int ipv6_is_confined(const struct in6_addr *address)
{
	if (ipv6_is_group(address))
		return 1;
	if ((address->in6_u.u6_addr16[0] & bpf_htons(0xffc0)) == bpf_htons(0xfe80))
		return 1;
	return !address->in6_u.u6_addr32[0] && !address->in6_u.u6_addr32[1];
}

/* Returns whether the first 20 bytes are an IPv4 header. */
TRIVIUM_INLINE int ipv4_stands(struct iphdr *ip, void *end)
{
	return (void *)(ip + 1) <= end && ip->version == 4 && ip->ihl >= 5;
}

/*
 * Returns the length of a packet whose header has no options. Returns 0 if the length exceeds the frame or
 * the header checksum is wrong.
 */
TRIVIUM_INLINE __u32 ipv4_length(struct iphdr *ip, __u32 left)
{
	__u32 *words = (__u32 *)ip, total = bpf_ntohs(ip->tot_len);
	__u64 sum = 0;

	if (total < sizeof(*ip) || total > left)
		return 0;
#pragma unroll
	for (int word = 0; word < 5; word++)
		sum += words[word];
	return fold(sum) == 0xffff ? total : 0;
}

/*
 * Returns the length of an IPv6 packet with its header. Returns 0 if there is no header or the length exceeds
 * the frame.
 */
TRIVIUM_INLINE __u32 ipv6_length(struct ipv6hdr *ip, void *end, __u32 left)
{
	__u32 total;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return 0;
	total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	return total > left ? 0 : total;
}

#endif
