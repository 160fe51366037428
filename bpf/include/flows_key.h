/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Maps of the stage of cached flows, and the key of a frame, which equals the worker's key octet for octet.
 */
#ifndef TRIVIUM_FLOWS_KEY_H
#define TRIVIUM_FLOWS_KEY_H

#include "flows_layout.h"
#include "stage_bridge.h"

const volatile struct flows_conf flows SEC(".rodata.flows") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_line);
} flow_table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_entry);
} flow_entries SEC(".maps");

/* Counts of flows, by the index of the entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_count);
} flow_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLOW_MASKS);
	__type(key, __u32);
	__type(value, struct flow_mask);
} flow_masks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BRIDGE_PORTS);
	__type(key, __u32);
	__type(value, struct flow_port);
} flow_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_state);
} flow_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW_HINTS);
	__type(key, __u32);
	__type(value, struct flow_hint);
} flow_hints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_frame);
} flow_frames SEC(".maps");

/* Number of buckets for frames that the stage can parse. The buckets for all other frames follow. */
#define FLOW_READ_BUCKETS (BRIDGE_BUCKETS / 2)

#define FLOW_WORD(seen, nth) (((__u64 *)&(seen)->key)[nth])

/*
 * Words of the key, assembled in registers. A word that is stored in pieces and then read as a whole would
 * wait for the stores.
 */
union flow_port_word {
	struct {
		__u8 in_port[2];
		__u8 l2_flags;
		__u8 l3_kind;
		__be16 outer;
		__be16 inner;
	};
	__u64 word;
};

union flow_type_word {
	struct {
		__u32 eth_src;
		__be16 eth_type;
		__u8 proto;
		__u8 fragment;
	};
	__u64 word;
};

union flow_l4_word {
	struct {
		__be16 src_port;
		__be16 dst_port;
		__be16 tcp_flags;
		__u8 tos;
		__u8 ttl;
	};
	__u64 word;
};

union flow_halves {
	__u32 half[2];
	__u64 word;
};

/* Reads type and code of an ICMP or IGMP message. */
TRIVIUM_INLINE void flow_kind(union flow_l4_word *l4_word, const __u8 *l4)
{
	l4_word->src_port = bpf_htons(l4[0]);
	l4_word->dst_port = bpf_htons(l4[1]);
}

/*
 * Reads the header that follows an IP header, of which `left` bytes belong to the packet. Returns 0 if the
 * worker may parse the header differently.
 */
TRIVIUM_INLINE int flow_read_l4(union flow_l4_word *word, __u8 proto, void *l4, void *end, __u32 left, int v4)
{
	__be16 *ports = l4;
	__u8 *octets = l4;

	switch (proto) {
	case IPPROTO_TCP:
		if (left < 20 || l4 + 20 > end)
			return 0;
		if (octets[12] < 0x50 || (octets[12] >> 4) * 4 > left)
			return 0;
		word->tcp_flags = ports[6] & bpf_htons(0x0fff);
		break;
	case IPPROTO_UDP:
		if (left < 8 || l4 + 8 > end)
			return 0;
		break;
	case IPPROTO_SCTP:
		if (left < 12 || l4 + 12 > end)
			return 0;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_IGMP:
		if (!v4)
			return 1;
		if (left < 8 || l4 + 8 > end)
			return 0;
		flow_kind(word, octets);
		return 1;
	case IPPROTO_ICMPV6:
		if (v4)
			return 1;
		if (left < 4 || l4 + 4 > end)
			return 0;
		flow_kind(word, octets);
		return 1;
	default:
		return 1;
	}
	word->src_port = ports[0];
	word->dst_port = ports[1];
	return 1;
}

TRIVIUM_INLINE int flow_read_ipv4(struct flow_frame *seen, union flow_type_word *type, void *at, void *end)
{
	union flow_halves source = {}, destination = {};
	union flow_l4_word l4 = {};
	struct iphdr *ip = at;
	__u32 total;
	int known;

	if ((void *)(ip + 1) > end || *(__u8 *)at != 0x45)
		return 0;
	total = bpf_ntohs(ip->tot_len);
	if (total < sizeof(*ip) || total > end - at)
		return 0;
	if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET))
		return 0;
	source.half[0] = ip->saddr;
	destination.half[0] = ip->daddr;
	FLOW_WORD(seen, 3) = source.word;
	FLOW_WORD(seen, 5) = destination.word;
	l4.tos = ip->tos;
	l4.ttl = ip->ttl;
	type->proto = ip->protocol;
	known = flow_read_l4(&l4, ip->protocol, ip + 1, end, total - sizeof(*ip), 1);
	FLOW_WORD(seen, 7) = l4.word;
	return known;
}

TRIVIUM_INLINE int flow_read_ipv6(struct flow_frame *seen, union flow_type_word *type, void *at, void *end)
{
	struct ipv6hdr *ip = at;
	union flow_l4_word l4 = {};
	union flow_halves pair;
	__u32 payload;
	__u8 *octets = at;
	int known;

	if ((void *)(ip + 1) > end || octets[0] >> 4 != 6)
		return 0;
	payload = bpf_ntohs(ip->payload_len);
	if ((long)(sizeof(*ip) + payload) > end - at)
		return 0;
	switch (ip->nexthdr) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
		return 0;
	}
#pragma unroll
	for (int word = 0; word < 2; word++) {
		pair.half[0] = ip->saddr.in6_u.u6_addr32[2 * word];
		pair.half[1] = ip->saddr.in6_u.u6_addr32[2 * word + 1];
		FLOW_WORD(seen, 3 + word) = pair.word;
		pair.half[0] = ip->daddr.in6_u.u6_addr32[2 * word];
		pair.half[1] = ip->daddr.in6_u.u6_addr32[2 * word + 1];
		FLOW_WORD(seen, 5 + word) = pair.word;
	}
	l4.tos = octets[0] << 4 | octets[1] >> 4;
	l4.ttl = ip->hop_limit;
	type->proto = ip->nexthdr;
	known = flow_read_l4(&l4, ip->nexthdr, ip + 1, end, payload, 0);
	FLOW_WORD(seen, 7) = l4.word;
	return known;
}

/* Reads ARP for Ethernet and IPv4 (RFC 826). Other messages have no fields in the key. */
TRIVIUM_INLINE int flow_read_arp(struct flow_frame *seen, union flow_type_word *type, void *at, void *end)
{
	union flow_halves source = {}, destination = {};
	__u8 *octets = at;
	__be16 *halves = at;

	if (at + 28 > end)
		return 0;
	if (halves[0] != bpf_htons(1) || halves[1] != bpf_htons(ETH_P_IP) || octets[4] != 6 || octets[5] != 4)
		return 0;
	type->proto = octets[6] ? 0 : octets[7];
	/* The addresses are aligned to two bytes only. */
	source.half[0] = halves[7] | (__u32)halves[8] << 16;
	destination.half[0] = halves[12] | (__u32)halves[13] << 16;
	FLOW_WORD(seen, 3) = source.word;
	FLOW_WORD(seen, 5) = destination.word;
	return 1;
}

/* Fills the key. Returns 0 if the worker's key for the frame may differ. */
static __attribute__((noinline)) int flow_read(struct xdp_md *ctx, struct flow_frame *seen, __u32 length)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	union flow_port_word port = {};
	union flow_type_word type = {};
	struct ethhdr *ethernet = data;
	void *at = ethernet + 1;
	__be16 ethertype;
	int known = 1;

	if (!seen)
		return 0;
	__builtin_memset(seen, 0, sizeof(*seen));
	if (at > end)
		return 0;
	/* Eight octets of the addresses are read first, then the remaining four. */
	FLOW_WORD(seen, 1) = *(__u64 *)data;
	type.eth_src = *(__u32 *)(data + 8);
	FLOW_WORD(seen, 2) = type.word;
	/* Only the first buffer is read. Shorter frames have no space for changes of tags. */
	if (end - data != length || at + TAG_BYTES > end)
		return 0;
	port.in_port[0] = flows.port;
	port.in_port[1] = flows.port >> 8;
	ethertype = ethernet->h_proto;
	if (is_vlan(ethertype)) {
		struct vlan_tag *tag = at;

		if ((tag->control & bpf_htons(0x0fff)) == bpf_htons(0x0fff))
			return 0;
		if (ethertype == bpf_htons(ETH_P_8021AD))
			port.l2_flags = FLOW_OUTER_IS_SERVICE;
		port.outer = tag->control | bpf_htons(FLOW_TAG_PRESENT);
		ethertype = tag->ethertype;
		if (is_vlan(ethertype))
			return 0;
		at = tag + 1;
		seen->tagged = 1;
	}
	if (bpf_ntohs(ethertype) < ETH_P_802_3_MIN)
		return 0;
	type.eth_type = ethertype;
	switch (ethertype) {
	case bpf_htons(ETH_P_IP):
		seen->l3 = at - data;
		port.l3_kind = FLOW_IPV4;
		known = flow_read_ipv4(seen, &type, at, end);
		break;
	case bpf_htons(ETH_P_IPV6):
		seen->l3 = at - data;
		port.l3_kind = FLOW_IPV6;
		known = flow_read_ipv6(seen, &type, at, end);
		break;
	case bpf_htons(ETH_P_ARP):
	case bpf_htons(ETH_P_RARP):
		port.l3_kind = FLOW_ARP;
		known = flow_read_arp(seen, &type, at, end);
		break;
	}
	FLOW_WORD(seen, 0) = port.word;
	FLOW_WORD(seen, 2) = type.word;
	return known;
}

#endif
