/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Routes of a virtual router answered right here: what goes to a neighbour that is known, by a device
 * that takes redirected frames, leaves as the worker would send it. The tables are the worker's own
 * writer's (crates/router/src/mirror.rs), who writes nothing that can be reached from here but single
 * words. Everything else goes up: no route, one that refuses, addresses yet to be found, frames that
 * are too long, way out by the device that it came from.
 */
#ifndef ROUTE_ANSWER_H
#define ROUTE_ANSWER_H

#include "forward.h"
#include "ip_checks.h"
#include "route_layout.h"
#include "steer_frame.h"

const volatile struct route_conf route SEC(".rodata.route") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_trie);
} route_trie4 SEC(".maps"), route_trie6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} route_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_group);
} route_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_neighbour);
} route_nexthops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_line);
} route_links SEC(".maps");

/* The router's interfaces by their numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ROUTE_INTERFACES);
	__type(key, __u32);
	__type(value, struct route_interface);
} route_outputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_switch);
} route_switch SEC(".maps");

/* route.neighbours for one CPU after the other: mapped, so that all of them are read at once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_sent);
} route_sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, ROUTE_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} route_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROUTE_PORTS);
	__type(key, __u32);
	__type(value, struct route_count);
} route_counts SEC(".maps");

/* What is read of a frame for its flow's hash: on the stack there is no room for it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_frame);
} route_frames SEC(".maps");

/* The frame is the worker's. */
#define ROUTE_UP (-1)

#define ROUTE_STRIDE 6
#define ROUTE_NODE_WORDS 3

/* A word that its writer may be changing. */
#define ROUTE_WORD(place) (*(volatile __u64 *)&(place))

/* Set bits up to and with the slot's, of 64: BPF has no instruction for it. */
TRIVIUM_INLINE __u32 route_rank(__u64 bits, __u32 slot)
{
	bits <<= 63 - slot;
	bits -= bits >> 1 & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return bits * 0x0101010101010101ULL >> 56;
}

/*
 * The number of the path of an address, its first bit highest; 0: none. Each load's place comes from
 * the one before it, so none is made too early.
 */
TRIVIUM_INLINE __u32 route_find(__u64 *words, __u32 mask, __u64 high, __u64 low, const int root,
				const int steps)
{
	__u64 entry = ROUTE_WORD(words[(1 + (high >> (64 - root))) & mask]);
	__u32 hop = entry, at = entry;

	if (entry & ROUTE_NODE) {
		hop = 0;
		high = high << root | low >> (64 - root);
		low <<= root;
		for (int step = 0; step < steps; step++) {
			__u32 slot = high >> (64 - ROUTE_STRIDE);
			__u64 nodes = ROUTE_WORD(words[at & mask]);
			__u64 bases = ROUTE_WORD(words[(at + 2) & mask]);

			if (!(nodes >> slot & 1)) {
				__u32 nth = route_rank(ROUTE_WORD(words[(at + 1) & mask]), slot) - 1;

				at = (__u32)(bases >> 32) + (nth >> 1);
				hop = ROUTE_WORD(words[at & mask]) >> (nth & 1 ? 32 : 0);
				break;
			}
			at = (__u32)bases + ROUTE_NODE_WORDS * (route_rank(nodes, slot) - 1);
			high = high << ROUTE_STRIDE | low >> (64 - ROUTE_STRIDE);
			low <<= ROUTE_STRIDE;
		}
	}
	return hop ? hop : ROUTE_WORD(words[0]);
}

/* The way of a group that the frame's flow takes, as the worker's (crates/router/src/buckets.rs). */
static __attribute__((noinline)) __u32 route_way(struct xdp_md *ctx, __u32 group)
{
	struct route_group *ways = bpf_map_lookup_elem(&route_groups, &group);
	struct steer_frame *seen;
	__u32 mixed, zero = 0;

	seen = bpf_map_lookup_elem(&route_frames, &zero);
	if (!ways || !seen)
		return 0;
	__builtin_memset(seen, 0, sizeof(*seen));
	steer_read(ctx, seen);
	mixed = (seen->hash ^ route.seed) * 0x85ebca6b;
	mixed = (mixed ^ mixed >> 13) * 0xc2b2ae35;
	return *(volatile __u32 *)&ways->ways[mixed >> 16 & (ROUTE_BUCKETS - 1)];
}

/* The number of an address behind a device; 0: it is not known there. */
TRIVIUM_INLINE __u32 route_on_link(__u32 device, __u64 high, __u64 low)
{
	__u64 hash = (high ^ (__u64)device << 32 ^ device) * 0x9e3779b97f4a7c15ULL;

	hash = (hash ^ hash >> 32 ^ low) * 0xd6e8feb86659fd93ULL;
	hash ^= hash >> 32;
	for (int choice = 0; choice < 2; choice++) {
		__u32 at = (choice ? hash >> 16 : hash >> 40) & route.lines;
		struct route_line *line = bpf_map_lookup_elem(&route_links, &at);

		if (!line)
			return 0;
		for (int nth = 0; nth < ROUTE_LINE; nth++) {
			__u64 entry = ROUTE_WORD(line->entries[nth]);
			__u32 number = entry & 0xffffff;
			struct route_neighbour *found;

			if ((entry ^ hash << 24) >> 24)
				continue;
			found = bpf_map_lookup_elem(&route_nexthops, &number);
			if (found && number && ROUTE_WORD(found->high) == high &&
			    ROUTE_WORD(found->low) == low && ROUTE_WORD(found->place) >> 32 == device)
				return number;
		}
	}
	return 0;
}

TRIVIUM_INLINE void route_counted(__u32 number, __u32 port, __u32 length)
{
	__u32 at = bpf_get_smp_processor_id() * route.neighbours + number, own = route.port;
	struct route_sent *sent = bpf_map_lookup_elem(&route_sent, &at);
	struct route_count *counted = bpf_map_lookup_elem(&route_counts, &own);

	if (sent) {
		sent->packets += 1;
		sent->bytes += length;
	}
	if (counted) {
		counted->rx_packets += 1;
		counted->rx_bytes += length;
	}
	counted = bpf_map_lookup_elem(&route_counts, &port);
	if (counted) {
		counted->tx_packets += 1;
		counted->tx_bytes += length;
	}
}

/* Sends the frame to a neighbour, or to its own destination where that is on the link; or ROUTE_UP, as it was. */
TRIVIUM_INLINE int route_send(struct xdp_md *ctx, __u32 number, __u64 high, __u64 low, __u32 packet,
			      int v4)
{
	struct route_neighbour *neighbour = bpf_map_lookup_elem(&route_nexthops, &number);
	__u32 length = bpf_xdp_get_buff_len(ctx), interface, port;
	struct route_interface *out;
	__u64 to, place, from, where;
	struct ethhdr *ethernet;
	void *addresses;

	if (!neighbour)
		return ROUTE_UP;
	to = ROUTE_WORD(neighbour->to);
	place = ROUTE_WORD(neighbour->place);
	if (to & ROUTE_ON_LINK) {
		number = route_on_link(place >> 32, high, low);
		neighbour = bpf_map_lookup_elem(&route_nexthops, &number);
		if (!neighbour)
			return ROUTE_UP;
		to = ROUTE_WORD(neighbour->to);
		place = ROUTE_WORD(neighbour->place);
	}
	if (!(to & ROUTE_RESOLVED))
		return ROUTE_UP;
	interface = place & 0xffff;
	out = bpf_map_lookup_elem(&route_outputs, &interface);
	if (!out)
		return ROUTE_UP;
	from = ROUTE_WORD(out->from);
	where = ROUTE_WORD(out->where);
	port = where >> ROUTE_WHERE_PORT & ROUTE_PORT;
	if (!(from & ROUTE_TAKES) || where >> 32 != place >> 32 || port == route.port)
		return ROUTE_UP;
	if (packet > (where & ROUTE_MTU))
		return ROUTE_UP;
	if (!(from & ROUTE_TAKES_MULTI) && length != ctx->data_end - ctx->data)
		return ROUTE_UP;
	/* The device may have gone a moment ago. */
	if (bpf_redirect_map(&route_devices, port, XDP_PASS) != XDP_REDIRECT)
		return ROUTE_UP;
	length = forward_trim(ctx, length, packet);
	if (!length)
		return ROUTE_UP;
	ethernet = forward_hop(ctx, v4);
	if (!ethernet)
		return ROUTE_UP;
	addresses = ethernet;
	*(__u64 *)addresses = (to & MAC_MASK) | from << 48;
	*(__u32 *)(addresses + 8) = from >> 16;
	route_counted(number, port, length);
	count(TRIVIUM_COUNT_ROUTE_FORWARDED);
	return XDP_REDIRECT;
}

/*
 * A verdict, or ROUTE_UP. The frame has a whole IP header, whose addresses and hop limit are fit to go on, or
 * the tag of a VLAN that is an interface.
 */
static __attribute__((noinline)) int route_answer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	__u32 zero = 0, packet, hop, number;
	struct route_switch *on = bpf_map_lookup_elem(&route_switch, &zero);
	struct route_trie *trie;
	__u64 high, low, said, *path;
	int v4;

	if (!on || (void *)(ethernet + 1) > end)
		return ROUTE_UP;
	v4 = ethernet->h_proto == bpf_htons(ETH_P_IP);
	/* Tagged: the worker's. */
	if (route.present & ROUTE_HAS_VLANS && !v4 && ethernet->h_proto != bpf_htons(ETH_P_IPV6))
		return ROUTE_UP;
	if (!(ROUTE_WORD(on->families) & (v4 ? ROUTE_IPV4 : ROUTE_IPV6)))
		return ROUTE_UP;
	if (route.partial && is_partial(ethernet + 1, end, ethernet->h_proto))
		return ROUTE_UP;
	if (v4) {
		struct iphdr *ip = (void *)(ethernet + 1);

		trie = bpf_map_lookup_elem(&route_trie4, &zero);
		if (!trie || (void *)(ip + 1) > end)
			return ROUTE_UP;
		packet = bpf_ntohs(ip->tot_len);
		high = bpf_ntohl(ip->daddr);
		hop = route_find(trie->words, route.words4, high << 32, 0, ROUTE_ROOT4, 3);
		/* As an IPv6 address (RFC 4291, 2.5.5.2), which it is found by on links. */
		low = 0xffff00000000ULL | high;
		high = 0;
	} else {
		struct ipv6hdr *ip = (void *)(ethernet + 1);

		trie = bpf_map_lookup_elem(&route_trie6, &zero);
		if (!trie || (void *)(ip + 1) > end)
			return ROUTE_UP;
		packet = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		high = (__u64)bpf_ntohl(ip->daddr.in6_u.u6_addr32[0]) << 32 |
		       bpf_ntohl(ip->daddr.in6_u.u6_addr32[1]);
		low = (__u64)bpf_ntohl(ip->daddr.in6_u.u6_addr32[2]) << 32 |
		      bpf_ntohl(ip->daddr.in6_u.u6_addr32[3]);
		hop = route_find(trie->words, route.words6, high, low, ROUTE_ROOT6, 19);
	}
	path = bpf_map_lookup_elem(&route_paths, &hop);
	if (!path)
		return ROUTE_UP;
	said = ROUTE_WORD(*path);
	number = said;
	switch (said >> 32) {
	case ROUTE_PATH_WAY:
		break;
	case ROUTE_PATH_GROUP:
		number = route_way(ctx, number);
		break;
	case ROUTE_PATH_BLACKHOLE:
		count(TRIVIUM_COUNT_ROUTE_BLACKHOLE);
		return XDP_DROP;
	default:
		return ROUTE_UP;
	}
	return route_send(ctx, number, high, low, packet, v4);
}

#endif
