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

#include "route_answer.h"

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
		return route.present & ROUTE_HAS_VLANS && route_vlan(ethernet, end) ?
			       NOT_THE_KERNELS :
			       TRIVIUM_COUNT_ROUTE_TAGGED;
	if (!v4 && ethernet->h_proto != bpf_htons(ETH_P_IPV6))
		return TRIVIUM_COUNT_PASSED_CONTROL;
	if (ethernet->h_dest[0] & 1)
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (!route_is_for(ethernet, route.mac, v4))
		return TRIVIUM_COUNT_ROUTE_STATION;
	return v4 ? route_ipv4((void *)(ethernet + 1), end, left) :
		    route_ipv6((void *)(ethernet + 1), end, left);
}

#endif
