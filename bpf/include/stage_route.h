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
 * where the router's tables are present (route_answer.h). Otherwise they go through steer to the worker,
 * which looks up the route and rewrites the packet.
 */
#ifndef TRIVIUM_STAGE_ROUTE_H
#define TRIVIUM_STAGE_ROUTE_H

#include "route_answer.h"

/*
 * Returns the counter of the reason why the frame belongs to the kernel, NOT_THE_KERNELS if it is to be routed,
 * or TO_THE_WORKER. The function is not inlined, because it would cost ports with other functions registers, even
 * though the code is removed there.
 */
static __attribute__((noinline)) int stage_route(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *header;
	struct ethhdr *ethernet = data;
	__u32 left = bpf_xdp_get_buff_len(ctx) - sizeof(*ethernet);
	int v4, reason, has_priority = 0;
	__be16 protocol;

	if ((void *)(ethernet + 1) > end)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	header = ethernet + 1;
	protocol = ethernet->h_proto;
	if (is_vlan(protocol)) {
		struct route_tagged *frame = data;

		if ((void *)(frame + 1) > end || frame->tag.control & bpf_htons(ROUTE_VLANS - 1))
			return route.present & ROUTE_HAS_VLANS && route_vlan(ethernet, end) ?
				       NOT_THE_KERNELS :
				       TRIVIUM_COUNT_ROUTE_TAGGED;
		/* A priority tag is no tag (IEEE 802.1Q 6.9), for the kernel as for the worker. */
		has_priority = 1;
		header = frame + 1;
		protocol = frame->tag.ethertype;
		left -= sizeof(frame->tag);
		if (is_vlan(protocol))
			return TO_THE_WORKER;
	}
	v4 = protocol == bpf_htons(ETH_P_IP);
	if (!v4 && protocol != bpf_htons(ETH_P_IPV6))
		return TRIVIUM_COUNT_PASSED_CONTROL;
	if (ethernet->h_dest[0] & 1)
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (!route_is_for(ethernet, route.mac, v4))
		return TRIVIUM_COUNT_ROUTE_STATION;
	reason = v4 ? route_ipv4(header, end, left) : route_ipv6(header, end, left);
	/* Only the worker removes the tag. */
	if (has_priority && reason == NOT_THE_KERNELS)
		return TO_THE_WORKER;
	/* The kernel forwards these packets without the check of the source, which the worker makes. */
	if (route.sources != ROUTE_SOURCES_ANY && reason == TRIVIUM_COUNT_ROUTE_OPTIONS)
		return TO_THE_WORKER;
	return reason;
}

#endif
