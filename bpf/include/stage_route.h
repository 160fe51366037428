/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stage of a virtual router's port. These frames go to the kernel:
 *
 * - protocols other than IP, multicast and broadcast, frames for other stations, and packets for the router's
 *   own addresses
 * - packets that need an answer or must not be forwarded as they are: an expired hop limit, IPv4 options,
 *   hop-by-hop headers, addresses that are never routed, invalid headers
 *
 * All other packets are routed, including fragments and partial checksums as received. The hook routes them
 * where the router's tables are present (route_answer.h). Otherwise they go through steering to the worker,
 * which looks up the route and rewrites the packet.
 *
 * Where the reverse path check is configured, it applies to packets for the router's own addresses, too, as in
 * Linux (fib_validate_source).
 */
#ifndef TRIVIUM_STAGE_ROUTE_H
#define TRIVIUM_STAGE_ROUTE_H

#include "route_answer.h"

/*
 * Returns whether an IPv6 packet can only come from the link: from a link-local address, or neighbour discovery
 * (RFC 4861) with the hop limit of packets that no router has forwarded.
 */
TRIVIUM_INLINE int route_from_link(struct ipv6hdr *ip, void *end)
{
	__u8 *type = (void *)(ip + 1);

	if ((ip->saddr.in6_u.u6_addr16[0] & bpf_htons(0xffc0)) == bpf_htons(0xfe80))
		return 1;
	return ip->nexthdr == IPPROTO_ICMPV6 && ip->hop_limit == 255 && (void *)(type + 1) <= end &&
	       *type >= 133 && *type <= 137;
}

/*
 * Checks the source of a packet that belongs to the kernel for `reason`. Returns `reason` if the kernel may have the
 * packet, TRIVIUM_COUNT_ROUTE_REVERSE_PATH if the packet must be dropped, or TO_THE_WORKER if only the worker can
 * check it.
 */
static __attribute__((noinline)) int route_source(struct xdp_md *ctx, int reason, int v4, int tagged)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct route_switch *on = bpf_map_lookup_elem(&route_switch, &zero);

	data += sizeof(struct ethhdr) + (tagged ? ROUTE_TAG_BYTES : 0);
	/* The kernel would forward these packets, and only the worker checks them. */
	if (reason == TRIVIUM_COUNT_ROUTE_OPTIONS)
		return TO_THE_WORKER;
	if (v4) {
		struct iphdr *ip = data;

		/* DHCP clients have no address yet. The kernel receives no other packets of this source. */
		if ((void *)(ip + 1) > end || !ip->saddr)
			return reason;
	} else {
		struct ipv6hdr *ip = data;

		if ((void *)(ip + 1) > end || route_from_link(ip, end))
			return reason;
	}
	if (reason == TRIVIUM_COUNT_ROUTE_ADDRESS)
		return TO_THE_WORKER;
	if (reason != TRIVIUM_COUNT_PASSED_LOCAL4 && reason != TRIVIUM_COUNT_PASSED_LOCAL6)
		return reason;
	if (!route.answers || !on || !(ROUTE_WORD(on->families) & (v4 ? ROUTE_IPV4 : ROUTE_IPV6)))
		return reason;
	switch (route_back(ctx, route.interface, v4, tagged)) {
	case ROUTE_NOT_BACK:
		return TRIVIUM_COUNT_ROUTE_REVERSE_PATH;
	case ROUTE_BACK_UNKNOWN:
		return TO_THE_WORKER;
	default:
		/* A packet to the router itself may have any of several reverse paths. */
		return reason;
	}
}

/*
 * Returns whether the kernel would accept an IPv4 packet that the checks of the hook cannot read: a packet of
 * total length 0 that is to be segmented (iph_totlen), or options that end after the first buffer. `left` is
 * the number of bytes of the frame from the header on.
 */
TRIVIUM_INLINE int route_evades(struct iphdr *ip, void *end, __u32 left)
{
	__u32 length;

	if ((void *)(ip + 1) > end)
		return 0;
	length = ip->ihl * 4;
	return !ip->tot_len || ((__u64)(end - (void *)ip) < length && left >= length);
}

/*
 * Returns the counter of the reason why the frame belongs to the kernel, NOT_THE_KERNELS if it is to be routed,
 * TO_THE_WORKER, or TRIVIUM_COUNT_ROUTE_REVERSE_PATH if it must be dropped. The function is not inlined, because
 * it would cost ports with other functions registers, even though the code is removed there.
 */
static __attribute__((noinline)) int stage_route(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *header;
	struct ethhdr *ethernet = data;
	__u32 left = bpf_xdp_get_buff_len(ctx) - sizeof(*ethernet);
	int v4, reason, is_group, has_priority = 0;
	__be16 protocol;

	if ((void *)(ethernet + 1) > end)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	header = ethernet + 1;
	protocol = ethernet->h_proto;
	if (is_vlan(protocol)) {
		struct route_tagged *frame = data;

		/* The rest of the tag is after the first buffer. */
		if ((void *)(frame + 1) > end && left >= sizeof(frame->tag))
			return TO_THE_WORKER;
		if ((void *)(frame + 1) > end || frame->tag.control & bpf_htons(ROUTE_VLANS - 1))
			return route.present & ROUTE_HAS_VLANS && route_vlan(ethernet, end) ?
				       NOT_THE_KERNELS :
				       TRIVIUM_COUNT_ROUTE_TAGGED;
		/* A priority tag is no tag (IEEE 802.1Q 6.9), for the kernel as for the worker. */
		has_priority = 1;
		header = frame + 1;
		protocol = frame->tag.ethertype;
		left -= sizeof(frame->tag);
		/* route_untag() has left another tag only if the tags fill the first buffer. */
		if (is_vlan(protocol))
			return TO_THE_WORKER;
	}
	v4 = protocol == bpf_htons(ETH_P_IP);
	if (!v4 && protocol != bpf_htons(ETH_P_IPV6))
		return TRIVIUM_COUNT_PASSED_CONTROL;
	/*
	 * The header is after the first buffer. The kernel would read it, without any of the limits and checks
	 * of the hook.
	 */
	if (header + sizeof(struct iphdr) > end && left >= sizeof(struct iphdr))
		return TO_THE_WORKER;
	if (v4 && (route.sources != ROUTE_SOURCES_ANY || route.present & ROUTE_LIMITED) &&
	    route_evades(header, end, left))
		return TO_THE_WORKER;
	is_group = ethernet->h_dest[0] & 1;
	if (is_group && route.sources == ROUTE_SOURCES_ANY)
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (!is_group && !route_is_for(ethernet, route.mac, v4))
		return TRIVIUM_COUNT_ROUTE_STATION;
	reason = v4 ? route_ipv4(header, end, left) : route_ipv6(header, end, left);
	/* A header that ends after the first buffer looks malformed here. */
	if (reason == TRIVIUM_COUNT_PASSED_MALFORMED && (__u64)(end - header) < left)
		return TO_THE_WORKER;
	/*
	 * The kernel also receives unicast packets that arrive at a group address. If the destination is not an
	 * address of the router, it may be the broadcast address of a network. Only the worker checks the
	 * sources of such packets.
	 */
	if (is_group && (reason == TRIVIUM_COUNT_PASSED_GROUP || reason == TRIVIUM_COUNT_PASSED_MALFORMED))
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (is_group && reason != TRIVIUM_COUNT_PASSED_LOCAL4 && reason != TRIVIUM_COUNT_PASSED_LOCAL6)
		return TO_THE_WORKER;
	/* Only the worker removes the tag. */
	if (has_priority && reason == NOT_THE_KERNELS)
		return TO_THE_WORKER;
	if (route.sources != ROUTE_SOURCES_ANY && reason >= 0)
		return route_source(ctx, reason, v4, has_priority);
	return reason;
}

#endif
