/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frame order of a virtual router's port. Every frame for the worker is numbered (stage_bridge.h), and the
 * bucket of its two IP addresses stores the number. The hook forwards a frame only when all frames of its
 * bucket that went to the worker have left. No frame therefore overtakes another of its flow when the flow
 * moves from the worker to the hook. Flows move after an upgrade, at the end of a capture, or when a
 * neighbour is resolved.
 */
#ifndef ROUTE_ORDER_H
#define ROUTE_ORDER_H

#include "route_tags.h"
#include "stage_bridge.h"

/* Results of route_order_check() other than XDP_DROP. */
#define ROUTE_SETTLED (-2)
/* The frame goes to the worker only because earlier frames of its bucket are pending. */
#define ROUTE_WAITS BRIDGE_WAITS

/* Secret numbers of the router. They select the places of on-link addresses (route_answer.h) and the buckets. */
const volatile __u64 route_link_secrets[ROUTE_LINK_SECRETS] SEC(".rodata.links") = {};

/*
 * Returns a number for a frame's IP addresses, which may follow one tag. Returns 0 for a frame without
 * addresses. The number is a sum of products of secret 64-bit factors and 32-bit words of the addresses
 * (multilinear hashing, as in route_link_hash()), whose upper half selects a bucket. Senders do not know the
 * factors, and cannot choose addresses that share a bucket with others.
 */
static __attribute__((noinline)) __u64 route_addresses(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *header;
	struct ethhdr *ethernet = data;
	const volatile __u64 *secret = route_link_secrets;
	__be16 protocol;

	if ((void *)(ethernet + 1) > end)
		return 0;
	header = ethernet + 1;
	protocol = ethernet->h_proto;
	if (is_vlan(protocol)) {
		struct route_tagged *frame = data;

		if ((void *)(frame + 1) > end)
			return 0;
		header = frame + 1;
		protocol = frame->tag.ethertype;
	}
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > end)
			return 0;
		return secret[0] + secret[1] * ip->saddr + secret[2] * ip->daddr;
	}
	if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = header;
		__u64 sum = secret[3];

		if ((void *)(ip + 1) > end)
			return 0;
#pragma unroll
		for (int word = 0; word < 4; word++) {
			sum += secret[4 + word] * ip->saddr.in6_u.u6_addr32[word];
			sum += secret[8 + word] * ip->daddr.in6_u.u6_addr32[word];
		}
		return sum;
	}
	return 0;
}

/* Returns the place where the number of the last frame for the worker with these addresses is stored. */
TRIVIUM_INLINE __u32 *route_bucket(struct xdp_md *ctx, __u32 queue)
{
	__u32 bucket = route_addresses(ctx) >> 52;
	__u32 line = queue * BRIDGE_BUCKET_LINES + bucket / BRIDGE_BUCKETS_OF_LINE;
	struct bridge_flows *flows = bpf_map_lookup_elem(&bridge_buckets, &line);

	return flows ? &flows->last[bucket % BRIDGE_BUCKETS_OF_LINE] : 0;
}

/* Returns ROUTE_SETTLED if the hook may forward the frame, or ROUTE_WAITS or XDP_DROP. */
static __attribute__((noinline)) int route_order_check(struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index, *bucket;
	struct bridge_order *order = bpf_map_lookup_elem(&bridge_orders, &queue);

	/*
	 * Frames of a queue without order state never go to a worker. In most cases no frame of the queue is
	 * pending.
	 */
	if (!order || *(volatile __u64 *)&order->done == order->sent)
		return ROUTE_SETTLED;
	bucket = route_bucket(ctx, queue);
	if (!bucket || bridge_settled(order, *bucket, queue))
		return ROUTE_SETTLED;
	if (!order->hold)
		return ROUTE_WAITS;
	count(TRIVIUM_COUNT_BRIDGE_HELD);
	return XDP_DROP;
}

/* Numbers a frame for the worker, if the frame has space for the number. */
static __attribute__((noinline)) int route_numbered(struct xdp_md *ctx, int why)
{
	__u32 queue = ctx->rx_queue_index;
	struct bridge_order *order = bpf_map_lookup_elem(&bridge_orders, &queue);

	return order && bridge_up(ctx, order, route_bucket(ctx, queue), why) == BRIDGE_NUMBERED;
}

#endif
