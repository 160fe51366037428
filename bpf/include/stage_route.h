/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stage of a virtual router's port. What is the kernel's own stays with it: other protocols than
 * IP, groups, frames for other stations, packets for the router's own addresses. So does what must be
 * answered, or is not forwarded as it is: an expired hop limit, options, hop-by-hop headers, addresses
 * that leave no network, headers that are wrong. The rest is to be routed, fragments and open
 * checksums as they came: here, where the router's tables are (route_answer.h), else it goes on to
 * steer, to the worker, which looks up and rewrites.
 */
#ifndef TRIVIUM_STAGE_ROUTE_H
#define TRIVIUM_STAGE_ROUTE_H

#include "ip_checks.h"
#include "route_answer.h"
#include "stage_kernel.h"
#include "trivium_headers.h"

/* The router's own addresses, those of its subnets' broadcasts among them. Its ports share the maps. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ROUTE_OWN);
	__type(key, __be32);
	__type(value, __u32);
} route_own4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ROUTE_OWN);
	__type(key, struct in6_addr);
	__type(value, __u32);
} route_own6 SEC(".maps");

/* 00:00:5e:00:01:xx for IPv4, 00:00:5e:00:02:xx for IPv6 (RFC 9568 section 7.3), first octet lowest. */
#define VRRP_MAC 0x00005e0000ULL
#define VRRP_MAC_IPV4 (VRRP_MAC | 1ULL << 32)
#define VRRP_MAC_IPV6 (VRRP_MAC | 2ULL << 32)
#define VRRP_MAC_MASK 0xffffffffffULL

/* The VLANs that are interfaces: read where ROUTE_HAS_VLANS says so. */
const volatile __u32 route_vlans[ROUTE_VLAN_WORDS] SEC(".rodata.vlans") = {};

/* Whether the outer tag is that of such a VLAN. Its frames are the worker's, whatever is in them. */
TRIVIUM_INLINE int route_is_vlan(struct ethhdr *ethernet, void *end)
{
	struct vlan_tag *tag = (void *)(ethernet + 1);
	__u32 vid;

	if (ethernet->h_proto != bpf_htons(ETH_P_8021Q) || (void *)(tag + 1) > end)
		return 0;
	vid = bpf_ntohs(tag->control) & 0xfff;
	return route_vlans[vid >> 5] >> (vid & 31) & 1;
}

/* Whether the frame is for the port: by its device's address, or by VRRP's for the packet's family. */
TRIVIUM_INLINE int route_is_for_port(struct ethhdr *ethernet, int v4)
{
	__u64 to = *(__u64 *)ethernet->h_dest & MAC_MASK;

	if (to == route.mac)
		return 1;
	return route.vrrp && (to & VRRP_MAC_MASK) == (v4 ? VRRP_MAC_IPV4 : VRRP_MAC_IPV6);
}

TRIVIUM_INLINE int route_ipv4(struct iphdr *ip, void *end, __u32 left)
{
	__be32 source, destination;

	if (!ipv4_stands(ip, end) || (ip->ihl == 5 && !ipv4_length(ip, left)))
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	destination = ip->daddr;
	if (ipv4_is_group(destination))
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (bpf_map_lookup_elem(&route_own4, &destination))
		return TRIVIUM_COUNT_PASSED_LOCAL4;
	if (ip->ihl > 5)
		return TRIVIUM_COUNT_ROUTE_OPTIONS;
	if (ipv4_is_confined(ip->saddr) || ipv4_is_confined(destination))
		return TRIVIUM_COUNT_ROUTE_ADDRESS;
	/* As if the router itself had sent it: the kernel drops it, unless it is told to accept that. */
	source = ip->saddr;
	if (bpf_map_lookup_elem(&route_own4, &source))
		return TRIVIUM_COUNT_ROUTE_ADDRESS;
	return ip->ttl <= 1 ? TRIVIUM_COUNT_ROUTE_TTL : NOT_THE_KERNELS;
}

TRIVIUM_INLINE int route_ipv6(struct ipv6hdr *ip, void *end, __u32 left)
{
	struct in6_addr destination;

	if (!ipv6_length(ip, end, left))
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	destination = ip->daddr;
	if (ipv6_is_group(&destination))
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (bpf_map_lookup_elem(&route_own6, &destination))
		return TRIVIUM_COUNT_PASSED_LOCAL6;
	/* Every router on the way looks at this one; the others are for those that the packet is for. */
	if (ip->nexthdr == IPPROTO_HOPOPTS)
		return TRIVIUM_COUNT_ROUTE_OPTIONS;
	if (ipv6_is_confined(&ip->saddr) || ipv6_is_confined(&destination))
		return TRIVIUM_COUNT_ROUTE_ADDRESS;
	return ip->hop_limit <= 1 ? TRIVIUM_COUNT_ROUTE_TTL : NOT_THE_KERNELS;
}

/*
 * Tells the counter of the reason why the frame is the kernel's, or NOT_THE_KERNELS: it is to be routed.
 * A function by itself: inlined, it would cost ports of other rooms registers, though it is removed there.
 */
static __attribute__((noinline)) int stage_route(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	__u32 left = bpf_xdp_get_buff_len(ctx) - sizeof(*ethernet);
	int v4;

	if ((void *)(ethernet + 1) > end)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	v4 = ethernet->h_proto == bpf_htons(ETH_P_IP);
	if (is_vlan(ethernet->h_proto))
		return route.present & ROUTE_HAS_VLANS && route_is_vlan(ethernet, end) ?
			       NOT_THE_KERNELS :
			       TRIVIUM_COUNT_ROUTE_TAGGED;
	if (!v4 && ethernet->h_proto != bpf_htons(ETH_P_IPV6))
		return TRIVIUM_COUNT_PASSED_CONTROL;
	if (ethernet->h_dest[0] & 1)
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (!route_is_for_port(ethernet, v4))
		return TRIVIUM_COUNT_ROUTE_STATION;
	return v4 ? route_ipv4((void *)(ethernet + 1), end, left) :
		    route_ipv6((void *)(ethernet + 1), end, left);
}

#endif
