/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks of a packet on a virtual router's port: whether the packet is for the router, and whether it may be
 * forwarded as it is. The caller decides on packets that fail.
 */
#ifndef ROUTE_CHECKS_H
#define ROUTE_CHECKS_H

#include "ip_checks.h"
#include "route_layout.h"
#include "stage_kernel.h"
#include "trivium_headers.h"

const volatile struct route_conf route SEC(".rodata.route") = {};

/* Reads a word that its writer may be changing. */
#define ROUTE_WORD(place) (*(volatile __u64 *)&(place))

/*
 * The router's own addresses, including the broadcast addresses of its subnets. The router's ports share the
 * maps.
 */
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

/* Bits of the own addresses: entry 0 for IPv4, entry 1 for IPv6. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct route_own_bits);
} route_own_bits SEC(".maps");

/* Returns whether an address with this hash can be one of the router's own. */
TRIVIUM_INLINE int route_may_be_own(__u32 family, __u32 hash)
{
	struct route_own_bits *bits = bpf_map_lookup_elem(&route_own_bits, &family);

	return !bits || ROUTE_WORD(bits->words[hash >> 6 & 1023]) >> (hash & 63) & 1;
}

TRIVIUM_INLINE int route_is_own4(__be32 address)
{
	return route_may_be_own(0, address * ROUTE_MIX >> 48) && bpf_map_lookup_elem(&route_own4, &address);
}

TRIVIUM_INLINE int route_is_own6(struct in6_addr *address)
{
	__u64 high = (__u64)address->in6_u.u6_addr32[1] << 32 | address->in6_u.u6_addr32[0];
	__u64 low = (__u64)address->in6_u.u6_addr32[3] << 32 | address->in6_u.u6_addr32[2];
	__u64 mixed = high * ROUTE_MIX;

	mixed = ((mixed ^ mixed >> 32) ^ low) * ROUTE_MIX_LOW;
	return route_may_be_own(1, mixed >> 48) && bpf_map_lookup_elem(&route_own6, address);
}

/*
 * VRRP addresses: 00:00:5e:00:01:xx for IPv4, 00:00:5e:00:02:xx for IPv6 (RFC 9568 section 7.3), first octet
 * lowest.
 */
#define VRRP_MAC 0x00005e0000ULL
#define VRRP_MAC_IPV4 (VRRP_MAC | 1ULL << 32)
#define VRRP_MAC_IPV6 (VRRP_MAC | 2ULL << 32)
#define VRRP_MAC_MASK 0xffffffffffULL

/*
 * Returns whether the frame is for an interface, by the interface's address or by a VRRP address of the
 * packet's family.
 */
TRIVIUM_INLINE int route_is_for(struct ethhdr *ethernet, __u64 mac, int v4)
{
	__u64 to = *(__u64 *)ethernet->h_dest & MAC_MASK;

	if (to == mac)
		return 1;
	return route.vrrp && (to & VRRP_MAC_MASK) == (v4 ? VRRP_MAC_IPV4 : VRRP_MAC_IPV6);
}

/*
 * Returns the counter of the reason why an IPv4 packet belongs to the kernel, or NOT_THE_KERNELS. route_ipv6()
 * is the corresponding function for IPv6.
 */
TRIVIUM_INLINE int route_ipv4(struct iphdr *ip, void *end, __u32 left)
{
	__be32 destination;

	if (!ipv4_stands(ip, end) || (ip->ihl == 5 && !ipv4_length(ip, left)))
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	destination = ip->daddr;
	/* The kernel receives both broadcast addresses at any station address, 0.0.0.0 from source 0.0.0.0 only. */
	if (ipv4_is_group(destination) || !destination || destination == bpf_htonl(0xffffffff))
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (route_is_own4(destination))
		return TRIVIUM_COUNT_PASSED_LOCAL4;
	if (ip->ihl > 5)
		return TRIVIUM_COUNT_ROUTE_OPTIONS;
	if (ipv4_is_confined(ip->saddr) || ipv4_is_confined(destination))
		return TRIVIUM_COUNT_ROUTE_ADDRESS;
	/*
	 * The source is the router itself. The kernel drops the packet, unless configured to accept its own
	 * source addresses.
	 */
	if (route_is_own4(ip->saddr))
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
	if (route_is_own6(&destination))
		return TRIVIUM_COUNT_PASSED_LOCAL6;
	/*
	 * Every router on the path examines a hop-by-hop header. Other extension headers concern only the
	 * destination.
	 */
	if (ip->nexthdr == IPPROTO_HOPOPTS)
		return TRIVIUM_COUNT_ROUTE_OPTIONS;
	if (ipv6_is_confined(&ip->saddr) || ipv6_is_confined(&destination))
		return TRIVIUM_COUNT_ROUTE_ADDRESS;
	return ip->hop_limit <= 1 ? TRIVIUM_COUNT_ROUTE_TTL : NOT_THE_KERNELS;
}

#endif
