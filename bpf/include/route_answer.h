/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Routing of a virtual router in the hook. Packets to a known neighbour leave as the worker would send them, if
 * the output device accepts redirected frames. The writer of the worker's tables (crates/router/src/mirror.rs)
 * also writes the tables of the hook. It changes data that the hook can reach only in single words.
 *
 * These packets go to the worker:
 *
 * - packets without a route, or with a route that rejects packets
 * - packets to a neighbour that is not resolved
 * - packets that are too long, or would leave through the receiving interface
 * - tagged packets (route_tags.h), except those of VLANs that are interfaces
 *
 * Packets that fail the reverse path check are dropped, where the check is configured.
 */
#ifndef ROUTE_ANSWER_H
#define ROUTE_ANSWER_H

#include "forward.h"
#include "route_order.h"
#include "route_tags.h"
#include "steer_frame.h"

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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_switch);
} route_switch SEC(".maps");

/*
 * Counts of packets sent to neighbours: route.neighbours entries for each CPU. The map is mapped, so user
 * space reads all counts at once.
 */
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

/* Fields read from a frame for its flow hash. The stack has no space for them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_frame);
} route_frames SEC(".maps");

/* The frame goes to the worker. */
#define ROUTE_UP (-1)

#define ROUTE_STRIDE 6
#define ROUTE_NODE_WORDS 3

/* Returns the number of set bits up to and including the slot's, of 64. BPF has no instruction for it. */
TRIVIUM_INLINE __u32 route_rank(__u64 bits, __u32 slot)
{
	bits <<= 63 - slot;
	bits -= bits >> 1 & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return bits * 0x0101010101010101ULL >> 56;
}

/*
 * Returns the path number of an address, or 0 for none. The first bit of the address is the highest. The
 * index of each load depends on the load before it, so no load is made too early.
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

/*
 * Returns the next hop of a group that the frame's flow takes. The worker makes the same choice
 * (crates/router/src/buckets.rs).
 */
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

TRIVIUM_INLINE __u32 route_link_spread(__u32 half)
{
	half = (half ^ half >> 16) * 0x85ebca6b;
	half = (half ^ half >> 13) * 0xc2b2ae35;
	return half ^ half >> 16;
}

/*
 * Returns the two places of an address on the link of a device, as in crates/router/src/link_hash.rs. The
 * function is not inlined, to save stack in its caller.
 */
static __attribute__((noinline)) __u64 route_link_hash(__u32 device, __u64 high, __u64 low)
{
	const volatile __u64 *secret = route_link_secrets;
	__u64 first = secret[0] + secret[1] * device, second = secret[6] + secret[7] * device;

	first += secret[2] * (high >> 32) + secret[3] * (__u32)high;
	second += secret[8] * (high >> 32) + secret[9] * (__u32)high;
	first += secret[4] * (low >> 32) + secret[5] * (__u32)low;
	second += secret[10] * (low >> 32) + secret[11] * (__u32)low;
	return (__u64)route_link_spread(first >> 32) << 32 | route_link_spread(second >> 32);
}

/* Returns the neighbour number of an address on the link of a device, or 0 if the address is unknown. */
TRIVIUM_INLINE __u32 route_on_link(__u32 device, __u64 high, __u64 low)
{
	__u64 hash = route_link_hash(device, high, low);

	for (int choice = 0; choice < 2; choice++) {
		__u32 at = (choice ? hash : hash >> 32) & route.lines;
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

/* Counts a packet to a neighbour. `length` is in bytes without tags. */
TRIVIUM_INLINE void route_counted(__u32 number, __u32 port, __u32 length, int tagged, __u32 vlan)
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
		counted->rx_bytes += length + (tagged ? ROUTE_TAG_BYTES : 0);
	}
	counted = bpf_map_lookup_elem(&route_counts, &port);
	if (counted) {
		counted->tx_packets += 1;
		counted->tx_bytes += length + (vlan ? ROUTE_TAG_BYTES : 0);
	}
}

/* State of a packet that is to be routed. */
struct route_packet {
	__u64 high, low; /* destination, as an IPv6 address */
	__u32 length;    /* length in bytes, from the IP header */
	__u32 interface; /* number of the receiving interface */
	int v4, tagged;
};

/*
 * Sends the frame to a neighbour, or to the destination itself if it is on the link. Otherwise returns
 * ROUTE_UP or ROUTE_WAITS.
 */
TRIVIUM_INLINE int route_send(struct xdp_md *ctx, __u32 number, const struct route_packet *packet)
{
	struct route_neighbour *neighbour = bpf_map_lookup_elem(&route_nexthops, &number);
	__u32 length = bpf_xdp_get_buff_len(ctx), interface, port, vlan;
	struct route_interface *out;
	__u64 to, place, from, where;
	struct ethhdr *ethernet;
	void *addresses;

	if (!neighbour)
		return ROUTE_UP;
	to = ROUTE_WORD(neighbour->to);
	place = ROUTE_WORD(neighbour->place);
	if (to & ROUTE_ON_LINK) {
		number = route_on_link(place >> 32, packet->high, packet->low);
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
	vlan = from >> ROUTE_TAG;
	if (!(from & ROUTE_TAKES) || where >> 32 != place >> 32 || interface == packet->interface)
		return ROUTE_UP;
	if (packet->length > (where & ROUTE_MTU))
		return ROUTE_UP;
	if (!(from & ROUTE_TAKES_MULTI) && length != ctx->data_end - ctx->data)
		return ROUTE_UP;
	/* The device may have been deleted meanwhile. */
	if (bpf_redirect_map(&route_devices, port, XDP_PASS) != XDP_REDIRECT)
		return ROUTE_UP;
	if (route.present & ROUTE_ORDERED) {
		int may = route_order_check(ctx);

		if (may != ROUTE_SETTLED)
			return may;
	}
	length = forward_trim(ctx, length - (packet->tagged ? ROUTE_TAG_BYTES : 0), packet->length);
	if (!length || ((packet->tagged || vlan) && !route_retag(ctx, packet->tagged, vlan)))
		return ROUTE_UP;
	ethernet = vlan ? forward_hop(ctx, packet->v4, sizeof(struct route_tagged)) :
			  forward_hop(ctx, packet->v4, sizeof(struct ethhdr));
	if (!ethernet)
		return ROUTE_UP;
	addresses = ethernet;
	*(__u64 *)addresses = (to & MAC_MASK) | from << 48;
	*(__u32 *)(addresses + 8) = from >> 16;
	route_counted(number, port, length, packet->tagged, vlan);
	count(TRIVIUM_COUNT_ROUTE_FORWARDED);
	return XDP_REDIRECT;
}

/* Returns the path number of an IPv6 address, or 0 for none. */
TRIVIUM_INLINE __u32 route_find6(const struct in6_addr *address, __u64 *high, __u64 *low)
{
	__u32 zero = 0;
	struct route_trie *trie = bpf_map_lookup_elem(&route_trie6, &zero);

	*high = (__u64)bpf_ntohl(address->in6_u.u6_addr32[0]) << 32 | bpf_ntohl(address->in6_u.u6_addr32[1]);
	*low = (__u64)bpf_ntohl(address->in6_u.u6_addr32[2]) << 32 | bpf_ntohl(address->in6_u.u6_addr32[3]);
	return trie ? route_find(trie->words, route.words6, *high, *low, ROUTE_ROOT6, 19) : 0;
}

/*
 * Like route_find6(), for an IPv4 address. Sets `high` and `low` to the IPv4-mapped IPv6 address (RFC 4291,
 * 2.5.5.2), by which route_links is searched.
 */
TRIVIUM_INLINE __u32 route_find4(__be32 address, __u64 *high, __u64 *low)
{
	__u64 number = bpf_ntohl(address);
	__u32 zero = 0;
	struct route_trie *trie = bpf_map_lookup_elem(&route_trie4, &zero);

	*high = 0;
	*low = 0xffff00000000ULL | number;
	return trie ? route_find(trie->words, route.words4, number << 32, 0, ROUTE_ROOT4, 3) : 0;
}

/* ROUTE_BACK_SEVERAL: several next hops lead to the source, and only the worker knows their interfaces. */
enum route_back { ROUTE_BACK, ROUTE_NOT_BACK, ROUTE_BACK_SEVERAL, ROUTE_BACK_UNKNOWN };

/*
 * Returns whether a route leads to the source of a packet, and in strict mode out of this interface
 * (crates/router/src/reverse.rs).
 */
static __attribute__((noinline)) enum route_back route_back(struct xdp_md *ctx, __u32 interface, int v4,
							    int tagged)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct route_neighbour *neighbour;
	__u64 high, low, said, *path;
	__u32 hop, number;

	data += sizeof(struct ethhdr) + (tagged ? ROUTE_TAG_BYTES : 0);
	if (v4) {
		struct iphdr *ip = data;

		if ((void *)(ip + 1) > end)
			return ROUTE_BACK_UNKNOWN;
		hop = route_find4(ip->saddr, &high, &low);
	} else {
		struct ipv6hdr *ip = data;

		if ((void *)(ip + 1) > end)
			return ROUTE_BACK_UNKNOWN;
		hop = route_find6(&ip->saddr, &high, &low);
	}
	if (!hop)
		return ROUTE_NOT_BACK;
	path = bpf_map_lookup_elem(&route_paths, &hop);
	if (!path)
		return ROUTE_BACK_UNKNOWN;
	said = ROUTE_WORD(*path);
	number = said;
	switch (said >> 32) {
	case ROUTE_PATH_WAY:
		if (route.sources == ROUTE_SOURCES_LOOSE)
			return ROUTE_BACK;
		neighbour = bpf_map_lookup_elem(&route_nexthops, &number);
		if (!neighbour)
			return ROUTE_BACK_UNKNOWN;
		return (ROUTE_WORD(neighbour->place) & 0xffff) == interface ? ROUTE_BACK : ROUTE_NOT_BACK;
	case ROUTE_PATH_GROUP:
		return route.sources == ROUTE_SOURCES_LOOSE ? ROUTE_BACK : ROUTE_BACK_SEVERAL;
	case ROUTE_PATH_BLACKHOLE:
		return ROUTE_NOT_BACK;
	default:
		return ROUTE_BACK_UNKNOWN;
	}
}

/*
 * Returns whether a packet goes to the worker, because packets are observed there (capture or trace). If the
 * daemon was killed, the flag of its observers may still be set, but the queue has no worker.
 */
TRIVIUM_INLINE int route_watched(struct xdp_md *ctx, __u64 families)
{
	__u32 queue = ctx->rx_queue_index;

	if (!(families & (ROUTE_WATCHED | ROUTE_WATCHED_TEST)))
		return 0;
	return families & ROUTE_WATCHED_TEST || bpf_map_lookup_elem(&xsks, &queue);
}

TRIVIUM_INLINE int route_is_partial(struct xdp_md *ctx, void *header, void *end, __be16 protocol)
{
	struct bridge_order *order = 0;

	if (route.present & ROUTE_ORDERED) {
		__u32 queue = ctx->rx_queue_index;

		order = bpf_map_lookup_elem(&bridge_orders, &queue);
	}
	return is_partial(ctx, header, end, protocol, order ? &order->partial : 0);
}

/*
 * Routes a frame. Returns a verdict, ROUTE_UP, or ROUTE_WAITS. The frame has either a complete IP header with
 * addresses and a hop limit that may be forwarded, or the tag of a VLAN that is an interface.
 */
static __attribute__((noinline)) int route_answer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *header;
	struct route_packet packet = { .interface = route.interface };
	struct ethhdr *ethernet = data;
	__u32 zero = 0, hop, number;
	struct route_switch *on = bpf_map_lookup_elem(&route_switch, &zero);
	__be16 protocol;
	__u64 said, *path, families;

	if (!on || (void *)(ethernet + 1) > end)
		return ROUTE_UP;
	header = ethernet + 1;
	protocol = ethernet->h_proto;
	if (route.present & ROUTE_HAS_VLANS && is_vlan(protocol)) {
		struct route_tagged *frame = data;

		packet.interface = route_arrival(ctx);
		if (packet.interface == ROUTE_NOWHERE || (void *)(frame + 1) > end)
			return ROUTE_UP;
		header = frame + 1;
		protocol = frame->tag.ethertype;
		packet.tagged = 1;
	}
	packet.v4 = protocol == bpf_htons(ETH_P_IP);
	families = ROUTE_WORD(on->families);
	if (!(families & (packet.v4 ? ROUTE_IPV4 : ROUTE_IPV6)) || route_watched(ctx, families))
		return ROUTE_UP;
	if (route.partial && route_is_partial(ctx, header, end, protocol))
		return ROUTE_UP;
	if (packet.v4) {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > end)
			return ROUTE_UP;
		packet.length = bpf_ntohs(ip->tot_len);
		hop = route_find4(ip->daddr, &packet.high, &packet.low);
	} else {
		struct ipv6hdr *ip = header;

		if ((void *)(ip + 1) > end)
			return ROUTE_UP;
		packet.length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		hop = route_find6(&ip->daddr, &packet.high, &packet.low);
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
	if (route.sources != ROUTE_SOURCES_ANY) {
		switch (route_back(ctx, packet.interface, packet.v4, packet.tagged)) {
		case ROUTE_BACK:
			break;
		case ROUTE_NOT_BACK:
			count(TRIVIUM_COUNT_ROUTE_REVERSE_PATH);
			return XDP_DROP;
		default:
			return ROUTE_UP;
		}
	}
	return route_send(ctx, number, &packet);
}

#endif
