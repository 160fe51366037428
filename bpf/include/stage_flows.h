/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stage of a port whose bridge has OpenFlow rules. Packets of frequently used flows of the workers' caches
 * are processed in the hook, where the hook supports their actions: drop, or send through one port after
 * setting header fields and adding or removing a tag. All other frames go to the worker.
 *
 * The key of a frame equals the worker's key octet for octet. Frames for which this cannot be ensured go to the
 * worker: a second tag, IP options, extension headers, fragments, and contradictory lengths. A flow is looked
 * up under one of a few masks. The mask that the flow matched last is tried first, so most packets need one
 * lookup.
 *
 * Order is kept as in stage_bridge.h, with the same numbers. A frame that the stage cannot parse may belong to
 * a flow of which the stage parses other frames. The bucket of such a frame depends only on the frame's
 * Ethernet addresses. The hook forwards a frame only when neither of its two buckets has pending frames.
 *
 * Packets with the action NORMAL are sent according to the station table, as in the bridge stage. If a station
 * is unknown, or the frame is multicast or broadcast, the frame goes to the worker, which learns and floods.
 *
 * Consistency: user space removes a flow by writing 0 to its place. It reuses the flow's slot only when all
 * programs that were running have ended. When user space does not renew the table in time, the hook finds no
 * flows.
 */
#ifndef TRIVIUM_STAGE_FLOWS_H
#define TRIVIUM_STAGE_FLOWS_H

#include "flows_key.h"

TRIVIUM_INLINE __u64 flow_product(__u64 word, __u64 secret)
{
	return (__u64)((__u32)word + (__u32)secret) * ((__u32)(word >> 32) + (__u32)(secret >> 32));
}

/* Returns the flow that a frame matches under one mask, or 0 if there is none. */
static __attribute__((noinline)) struct flow_entry *flow_by(struct flow_frame *seen, __u32 number)
{
	struct flow_mask *mask = bpf_map_lookup_elem(&flow_masks, &number);
	/*
	 * The hash is a sum of independent products. Each product has the halves of one word, after a secret
	 * was added to both. Senders that choose words cannot predict the change of the sum (NH: Black and
	 * others, "UMAC", 1999). The tables use the upper half of another product.
	 */
	__u64 hash = number * flows.factors[0];
	__u32 at;

	/* Every mask in use contains the port, which is in the first word. */
	if (!mask || !seen || !mask->words[0])
		return 0;
#pragma unroll
	for (int word = 0; word < FLOW_WORDS; word++)
		hash += flow_product(FLOW_WORD(seen, word) & mask->words[word], flows.factors[word]);
	hash *= FLOW_SPREAD;
	at = (hash ^ hash >> 32) & flows.lines;
#pragma unroll
	for (int choice = 0; choice < 2; choice++) {
		struct flow_line *line;

		at ^= choice;
		line = bpf_map_lookup_elem(&flow_table, &at);
		if (!line)
			return 0;
		for (int nth = 0; nth < FLOW_PLACES; nth++) {
			__u64 place = *(volatile __u64 *)&line->places[nth];
			__u32 slot = (__u32)place - 1;
			struct flow_entry *entry;
			__u64 differs = 0;

			if (!place || (place ^ hash) >> 32)
				continue;
			entry = bpf_map_lookup_elem(&flow_entries, &slot);
			if (!entry || entry->mask != number)
				continue;
#pragma unroll
			for (int word = 0; word < FLOW_WORDS; word++)
				differs |= (FLOW_WORD(seen, word) & mask->words[word]) ^ entry->key[word];
			if (!differs) {
				seen->slot = slot;
				return entry;
			}
		}
	}
	return 0;
}

/*
 * Returns the flow that a frame matches. The mask of the last matching frame of the same hash is tried first,
 * then the other masks.
 */
static __attribute__((noinline)) struct flow_entry *flow_find(struct flow_frame *seen, __u64 hash)
{
	__u32 at = hash >> 32 & (FLOW_HINTS - 1), first = 0;
	struct flow_hint *hint = bpf_map_lookup_elem(&flow_hints, &at);
	struct flow_entry *entry;

	if (!hint)
		return 0;
	first = *(volatile __u64 *)&hint->mask;
	entry = flow_by(seen, first);
	if (entry)
		return entry;
	for (__u32 number = 0; number < FLOW_MASKS; number++) {
		if (number == first)
			continue;
		entry = flow_by(seen, number);
		if (entry) {
			*(volatile __u64 *)&hint->mask = number;
			return entry;
		}
	}
	return 0;
}

/* Returns a checksum updated from one sum of words to another: RFC 1624, equation 3. */
TRIVIUM_INLINE __u16 flow_mended(__u16 check, __u64 old, __u64 new)
{
	return ~fold((__u64)(__u16)~check + (__u16)~fold(old) + new);
}

/* Updates a checksum of TCP, UDP or ICMPv6. A UDP checksum of 0 means that there is none. */
TRIVIUM_INLINE void flow_mend_l4(__u16 *check, __u64 old, __u64 new, int udp)
{
	__u16 now;

	if (!check || (udp && !*check))
		return;
	now = flow_mended(*check, old, new);
	*check = udp && !now ? 0xffff : now;
}

TRIVIUM_INLINE __u64 flow_halves(__u32 word)
{
	return (word & 0xffff) + (word >> 16);
}

/* Sets bits of an address of `words` words. Returns the sums of the old and the new words. */
TRIVIUM_INLINE void flow_set_address(__u32 *to, const __u32 *value, const __u32 *mask, const int words,
				     __u64 *old, __u64 *new)
{
	*old = 0;
	*new = 0;
#pragma unroll
	for (int word = 0; word < words; word++) {
		*old += flow_halves(to[word]);
		to[word] = (to[word] & ~mask[word]) | (value[word] & mask[word]);
		*new += flow_halves(to[word]);
	}
}

/* Sets bits of one 16-bit word of an IPv4 header. */
TRIVIUM_INLINE void flow_set_half(struct iphdr *ip, __u16 *to, __u16 value, __u16 mask)
{
	__u16 old = *to;

	*to = (old & ~mask) | (value & mask);
	ip->check = flow_mended(ip->check, old, *to);
}

TRIVIUM_INLINE int flow_any(const __u32 *mask)
{
	return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}

/*
 * Sets IPv4 fields in the worker's order (crates/switch/src/flow/rewrite.rs), because a one's complement sum
 * of 0 has two representations.
 */
TRIVIUM_INLINE int flow_set_ipv4(struct iphdr *ip, void *end, struct flow_entry *entry, __u8 proto)
{
	__u16 *check = 0;
	__u32 *ports = (void *)(ip + 1);
	__u64 old, new;
	int udp = proto == IPPROTO_UDP;

	if ((void *)(ip + 1) > end)
		return 0;
	if (proto == IPPROTO_TCP || udp) {
		check = (void *)(ip + 1) + (udp ? 6 : 16);
		if ((void *)(ip + 1) + 18 > end && (!udp || (void *)(ip + 1) + 8 > end))
			return 0;
	}
	if (entry->src_mask[0]) {
		flow_set_address(&ip->saddr, entry->src, entry->src_mask, 1, &old, &new);
		ip->check = flow_mended(ip->check, old, new);
		if (check)
			flow_mend_l4(check, old, new, udp);
	}
	if (entry->dst_mask[0]) {
		flow_set_address(&ip->daddr, entry->dst, entry->dst_mask, 1, &old, &new);
		ip->check = flow_mended(ip->check, old, new);
		if (check)
			flow_mend_l4(check, old, new, udp);
	}
	if (entry->tos_mask)
		flow_set_half(ip, (__u16 *)ip, bpf_htons(entry->tos), bpf_htons(entry->tos_mask));
	if (entry->ttl_mask)
		flow_set_half(ip, (__u16 *)&ip->ttl, bpf_htons(entry->ttl << 8),
			      bpf_htons(entry->ttl_mask << 8));
	if (entry->ports_mask && check) {
		flow_set_address(ports, &entry->ports, &entry->ports_mask, 1, &old, &new);
		flow_mend_l4(check, old, new, udp);
	}
	return 1;
}

TRIVIUM_INLINE int flow_set_ipv6(struct ipv6hdr *ip, void *end, struct flow_entry *entry, __u8 proto)
{
	__u32 *ports = (void *)(ip + 1);
	__u8 *octets = (void *)ip;
	int udp = proto == IPPROTO_UDP;
	__u16 *check = 0;
	__u64 old, new;

	if ((void *)(ip + 1) > end)
		return 0;
	if (proto == IPPROTO_TCP) {
		check = (void *)(ip + 1) + 16;
		if ((void *)(check + 1) > end)
			return 0;
	} else if (udp) {
		check = (void *)(ip + 1) + 6;
		if ((void *)(check + 1) > end)
			return 0;
	} else if (proto == IPPROTO_ICMPV6) {
		check = (void *)(ip + 1) + 2;
		if ((void *)(check + 1) > end)
			return 0;
	}
	if (flow_any(entry->src_mask)) {
		flow_set_address(ip->saddr.in6_u.u6_addr32, entry->src, entry->src_mask, 4, &old, &new);
		if (check)
			flow_mend_l4(check, old, new, udp);
	}
	if (flow_any(entry->dst_mask)) {
		flow_set_address(ip->daddr.in6_u.u6_addr32, entry->dst, entry->dst_mask, 4, &old, &new);
		if (check)
			flow_mend_l4(check, old, new, udp);
	}
	if (entry->tos_mask) {
		octets[0] = (octets[0] & ~(entry->tos_mask >> 4)) | (entry->tos & entry->tos_mask) >> 4;
		octets[1] = (octets[1] & ~(entry->tos_mask << 4)) | (entry->tos & entry->tos_mask) << 4;
	}
	if (entry->ttl_mask)
		ip->hop_limit = (ip->hop_limit & ~entry->ttl_mask) | (entry->ttl & entry->ttl_mask);
	if (entry->ports_mask && check) {
		flow_set_address(ports, &entry->ports, &entry->ports_mask, 1, &old, &new);
		flow_mend_l4(check, old, new, udp);
	}
	return 1;
}

/* Writes the header fields. Returns 0 if the headers are not in place. */
static __attribute__((noinline)) int flow_write(struct xdp_md *ctx, struct flow_frame *seen,
						struct flow_entry *entry)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u16 *address = data;
	__u16 *tci = data + sizeof(struct ethhdr);
	void *at;

	if (!seen || !entry || data + sizeof(struct ethhdr) + TAG_BYTES > end)
		return 0;
	if (entry->eth_mask[0] | entry->eth_mask[1]) {
		__u16 *mask = (void *)entry->eth_mask, *value = (void *)entry->eth;

#pragma unroll
		for (int half = 0; half < 3; half++) {
			address[half] = (address[half] & ~mask[half]) | (value[half] & mask[half]);
			address[half + 3] =
				(address[half + 3] & ~mask[half + 4]) | (value[half + 4] & mask[half + 4]);
		}
	}
	if (seen->tagged && entry->tci_mask)
		*tci = (*tci & ~entry->tci_mask) | (entry->tci & entry->tci_mask);
	if (!(entry->does & FLOW_SETS_IP))
		return 1;
	if (seen->key.l3_kind == FLOW_IPV4 && seen->tagged)
		return flow_set_ipv4(data + sizeof(struct ethhdr) + TAG_BYTES, end, entry, seen->key.proto);
	if (seen->key.l3_kind == FLOW_IPV4)
		return flow_set_ipv4(data + sizeof(struct ethhdr), end, entry, seen->key.proto);
	at = data + sizeof(struct ethhdr) + (seen->tagged ? TAG_BYTES : 0);
	if (seen->key.l3_kind == FLOW_IPV6)
		return flow_set_ipv6(at, end, entry, seen->key.proto);
	return 1;
}

/* Removes and adds tags as the flow requires. */
TRIVIUM_INLINE int flow_tag(struct xdp_md *ctx, struct flow_entry *entry)
{
	if (entry->does & FLOW_POPS && !bridge_retag(ctx, 0, 0))
		return 0;
	if (entry->does & FLOW_PUSHES) {
		__u16 *tag;

		if (!bridge_retag(ctx, 1, 0))
			return 0;
		tag = (void *)(long)ctx->data + 12;
		if ((void *)(tag + 2) > (void *)(long)ctx->data_end)
			return 0;
		tag[0] = entry->tag[0];
		tag[1] = entry->tag[1];
	}
	return 1;
}

TRIVIUM_INLINE void flow_counted(struct flow_frame *seen, __u32 length, __u64 now)
{
	__u32 slot = seen->slot;
	struct flow_count *counted = bpf_map_lookup_elem(&flow_counts, &slot);

	if (!counted)
		return;
	/* The queues of one port share the counts. Other ports do not use them. */
	if (conf.queues > 1) {
		__sync_fetch_and_add(&counted->packets, 1);
		__sync_fetch_and_add(&counted->bytes, length);
	} else {
		counted->packets += 1;
		counted->bytes += length;
	}
	if (counted->used != now)
		counted->used = now;
}

TRIVIUM_INLINE __u32 *flow_bucket(__u32 queue, __u64 hash, int read)
{
	__u32 bucket = hash >> 40 & (FLOW_READ_BUCKETS - 1), line;
	struct bridge_flows *kept;

	if (!read)
		bucket += FLOW_READ_BUCKETS;
	line = queue * BRIDGE_BUCKET_LINES + bucket / BRIDGE_BUCKETS_OF_LINE;
	kept = bpf_map_lookup_elem(&bridge_buckets, &line);
	return kept ? &kept->last[bucket % BRIDGE_BUCKETS_OF_LINE] : 0;
}

/* Sends a frame according to a flow. Returns a verdict, or BRIDGE_UP if the unchanged frame must go to the worker. */
TRIVIUM_INLINE int flow_send(struct xdp_md *ctx, struct flow_frame *seen, struct flow_entry *entry,
			     __u32 length)
{
	__u32 left = length, port = entry->port;
	struct flow_port *to = bpf_map_lookup_elem(&flow_ports, &port);
	int tagged = seen->tagged, verdict;

	if (entry->does & FLOW_POPS) {
		left -= TAG_BYTES;
		tagged = 0;
	}
	if (entry->does & FLOW_PUSHES) {
		left += TAG_BYTES;
		tagged = 1;
	}
	if (!to || left - (tagged ? TAG_BYTES : 0) > *(volatile __u64 *)&to->longest)
		return BRIDGE_UP;
	if (!flow_write(ctx, seen, entry) || !flow_tag(ctx, entry)) {
		count(TRIVIUM_COUNT_BRIDGE_LOST);
		return XDP_DROP;
	}
	/* The redirect fails when the device was deleted meanwhile. */
	verdict = bpf_redirect_map(&bridge_devices, port, XDP_DROP);
	if (verdict == XDP_REDIRECT) {
		bridge_counted(port, left, 0);
		count(TRIVIUM_COUNT_FLOW_FORWARDED);
	} else {
		count(TRIVIUM_COUNT_BRIDGE_LOST);
	}
	return verdict;
}

/* Returns the VLAN of a frame in the bridge, or BRIDGE_NO_VLAN where the worker must decide. */
TRIVIUM_INLINE __u16 flow_vlan(const struct flow_frame *seen)
{
	__u16 vid = bpf_ntohs(seen->key.outer) & 0xfff;

	if (!seen->tagged)
		return bridge.untagged;
	if (!bridge_takes_tag(vid) || seen->key.l2_flags & FLOW_OUTER_IS_SERVICE)
		return BRIDGE_NO_VLAN;
	return vid;
}

/*
 * Returns an address as a key of the station table. Addresses in the flow key are aligned to two bytes only.
 */
TRIVIUM_INLINE __u64 flow_station(const __u8 *address, __u16 vid)
{
	const __u16 *halves = (const void *)address;

	return halves[0] | (__u64)halves[1] << 16 | (__u64)halves[2] << 32 | (__u64)vid << 48;
}

/* Returns the place to which the action NORMAL sends a frame, as bridge_way() does. */
static __attribute__((noinline)) __u32 flow_way(struct flow_frame *seen, struct bridge_order *order,
						 __u32 length)
{
	__u16 vid;

	if (!seen || !order || seen->key.eth_dst[0] & 1)
		return 0;
	vid = flow_vlan(seen);
	if (vid == BRIDGE_NO_VLAN)
		return 0;
	return bridge_way(order, flow_station(seen->key.eth_src, vid), flow_station(seen->key.eth_dst, vid),
			  length - (seen->tagged ? TAG_BYTES : 0));
}

/* Sends a frame to the place that flow_way() returned. */
static __attribute__((noinline)) int flow_normal(struct xdp_md *ctx, struct flow_frame *seen, __u32 to_where,
						 __u32 length)
{
	if (!seen)
		return BRIDGE_UP;
	return bridge_send(ctx, to_where, !!seen->tagged, flow_vlan(seen), length,
			   TRIVIUM_COUNT_FLOW_FORWARDED);
}

TRIVIUM_INLINE int flow_answer(struct xdp_md *ctx, struct bridge_order *order, __u32 **bucket, int up)
{
	__u32 length = bpf_xdp_get_buff_len(ctx), queue = ctx->rx_queue_index, zero = 0, *others;
	struct flow_frame *seen = bpf_map_lookup_elem(&flow_frames, &zero);
	struct flow_state *state = bpf_map_lookup_elem(&flow_state, &zero);
	struct flow_entry *entry;
	__u64 addresses, hash, now;
	__u32 to_where = 0;
	int verdict;

	if (!seen || !state)
		return BRIDGE_UP;
	verdict = flow_read(ctx, seen, length);
	/* The port's number is constant, and is not a part of either hash. */
	addresses = FLOW_WORD(seen, 1) * flows.factors[1] + *(__u32 *)&seen->key.eth_src[2] * flows.factors[2];
	others = flow_bucket(queue, addresses, 0);
	if (!verdict) {
		*bucket = others;
		return BRIDGE_UP;
	}
	hash = addresses + FLOW_WORD(seen, 0) * flows.factors[0];
#pragma unroll
	for (int word = 3; word < 7; word++)
		hash += FLOW_WORD(seen, word) * flows.factors[word];
	/* TCP flags, TOS and TTL change within a flow, so they are not a part of the hash. */
	hash += ((__u64)*(__u32 *)&seen->key.eth_type << 32 | *(__u32 *)&seen->key.src_port) * flows.factors[7];
	*bucket = flow_bucket(queue, hash, 1);
	if (!*bucket || !others || up || bridge_bypassed(order, queue))
		return BRIDGE_UP;
	now = bpf_ktime_get_coarse_ns();
	if (now >= *(volatile __u64 *)&state->until)
		return BRIDGE_UP;
	entry = flow_find(seen, hash);
	if (!entry)
		return BRIDGE_UP;
	if (flows.partial && seen->l3) {
		void *end = (void *)(long)ctx->data_end;
		void *l3 = (void *)(long)ctx->data + (seen->l3 & 31);

		if (is_partial(ctx, l3, end, seen->key.eth_type, &order->partial))
			return BRIDGE_UP;
	}
	if (entry->does & FLOW_DROPS) {
		flow_counted(seen, length, now);
		bridge_counted(flows.port, length, 1);
		count(TRIVIUM_COUNT_FLOW_DROPPED);
		return XDP_DROP;
	}
	if (entry->does & FLOW_NORMAL) {
		if (bridge.present == BRIDGE_FOR_FLOWS)
			to_where = flow_way(seen, order, length);
		if (!to_where)
			return BRIDGE_UP;
	}
	if (!bridge_settled(order, **bucket, queue) || !bridge_settled(order, *others, queue)) {
		if (!order->hold)
			return BRIDGE_WAITS;
		count(TRIVIUM_COUNT_BRIDGE_HELD);
		return XDP_DROP;
	}
	if (bridge.present == BRIDGE_FOR_FLOWS && to_where) {
		flow_counted(seen, length, now);
		return flow_normal(ctx, seen, to_where, length);
	}
	verdict = flow_send(ctx, seen, entry, length);
	if (verdict != BRIDGE_UP) {
		flow_counted(seen, length, now);
		bridge_counted(flows.port, length, 1);
	}
	return verdict;
}

/* Runs the stage of cached flows. With `up` the frame goes to the worker in any case. */
TRIVIUM_INLINE int stage_flows(struct xdp_md *ctx, int up)
{
	__u32 queue = ctx->rx_queue_index, *bucket = 0;
	struct bridge_order *order = bpf_map_lookup_elem(&bridge_orders, &queue);
	int verdict;

	/* The queue has no order state, so no worker serves it. Steer applies when_down. */
	if (!order)
		return BRIDGE_UP;
	verdict = flow_answer(ctx, order, &bucket, up);
	return verdict >= 0 ? verdict : bridge_up(ctx, order, bucket, verdict);
}

#endif
