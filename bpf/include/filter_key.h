/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What rules see of a frame. Headers are read from its linear part. A transport header that is
 * cut short, or in a later fragment, has no ports, flags or payload: the frame still meets the
 * rules that do not ask for them.
 */
#ifndef FILTER_KEY_H
#define FILTER_KEY_H

#include <linux/tcp.h>

#include "filter_maps.h"
#include "trivium_headers.h"

#define FILTER_NOWHERE 0xffffffff

struct filter_key {
	__u8 source[16] __attribute__((aligned(8))); /* IPv4: the first four */
	__u8 destination[16];
	__u32 family;
	__u32 fragment;
	__u32 protocol;
	__u32 source_port;
	__u32 destination_port;
	__u32 vlan;
	__u32 flags;
	/* Offsets in the frame by enum filter_base, or FILTER_NOWHERE. */
	__u32 base[4];
};

/* RFC 8200 section 4.5 */
struct ipv6_fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* in its upper 13 bits; the lowest is set when more follow */
	__be32 id;
};

TRIVIUM_INLINE __u32 frame_offset(const struct frame *frame)
{
	return frame->at - (void *)(long)frame->ctx->data;
}

/* TCP, UDP, DCCP, SCTP and UDP-Lite begin with both ports. */
TRIVIUM_INLINE int has_ports(__u32 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_DCCP ||
	       protocol == IPPROTO_SCTP || protocol == IPPROTO_UDPLITE;
}

TRIVIUM_INLINE void key_transport(struct frame *frame, struct filter_key *key)
{
	__u32 at = frame_offset(frame);
	__be16 *ports = frame->at;

	/* Rules may ask for the protocol alone. */
	if (!filter.field[FILTER_FIELD_SOURCE_PORT].present && !filter.field[FILTER_FIELD_DESTINATION_PORT].present &&
	    !filter.field[FILTER_FIELD_FLAGS].present && !filter.probe[0].length)
		return;
	if (key->fragment == FILTER_LATER)
		return;
	key->base[FILTER_BASE_TRANSPORT] = at;
	if (!has_ports(key->protocol) || (void *)(ports + 2) > frame->end)
		return;
	key->source_port = bpf_ntohs(ports[0]);
	key->destination_port = bpf_ntohs(ports[1]);
	if (key->protocol == IPPROTO_UDP || key->protocol == IPPROTO_UDPLITE) {
		key->base[FILTER_BASE_PAYLOAD] = at + 8;
	} else if (key->protocol == IPPROTO_TCP) {
		__u8 *tcp = frame->at;

		if ((void *)(tcp + sizeof(struct tcphdr)) > frame->end)
			return;
		key->flags = tcp[13];
		if (tcp[12] >> 4 >= 5)
			key->base[FILTER_BASE_PAYLOAD] = at + (tcp[12] >> 4) * 4;
	}
}

TRIVIUM_INLINE int wants_source(void)
{
	return filter.field[FILTER_FIELD_SOURCE].present || filter.field[FILTER_FIELD_LISTED].present ||
	       filter.uses & FILTER_USES_SOURCES || PORT_SERVICES;
}

/* False when the header cannot be read. */
TRIVIUM_INLINE int key_ipv4(struct frame *frame, struct filter_key *key)
{
	struct iphdr *ip = frame->at;
	__u32 header, fragment;

	if ((void *)(ip + 1) > frame->end || ip->version != 4 || ip->ihl < 5)
		return 0;
	if (wants_source())
		__builtin_memcpy(key->source, &ip->saddr, 4);
	if (filter.field[FILTER_FIELD_DESTINATION].present)
		__builtin_memcpy(key->destination, &ip->daddr, 4);
	if (!filter.transport)
		return 1;
	header = ip->ihl * 4;
	if (frame->at + header > frame->end) {
		key->fragment = FILTER_UNREADABLE;
		return 1;
	}
	key->protocol = ip->protocol;
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & IPV4_FRAGMENT_OFFSET)
		key->fragment = FILTER_LATER;
	else if (fragment & IPV4_MORE_FRAGMENTS)
		key->fragment = FILTER_FIRST;
	frame->at += header;
	key_transport(frame, key);
	return 1;
}

/* Walks the extension headers (RFC 8200 section 4) to the transport header; false: not there. */
TRIVIUM_INLINE int key_extensions(struct frame *frame, struct filter_key *key, __u8 next)
{
	for (int i = 0; i <= IPV6_EXTENSIONS_MAX; i++) {
		struct ipv6_extension *extension = frame->at;
		__u32 length;

		key->protocol = next;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_AH && next != IPPROTO_FRAGMENT) {
			key_transport(frame, key);
			return 1;
		}
		if ((void *)(extension + 1) > frame->end)
			return 0;
		if (next == IPPROTO_FRAGMENT) {
			struct ipv6_fragment_header *fragment = frame->at;
			__u16 offset;

			if ((void *)(fragment + 1) > frame->end)
				return 0;
			offset = bpf_ntohs(fragment->offset);
			next = fragment->next;
			frame->at = fragment + 1;
			if (offset >> 3) {
				/* What follows is not a header. */
				key->fragment = FILTER_LATER;
				key->protocol = next;
				return 1;
			}
			if (offset & 1)
				key->fragment = FILTER_FIRST;
			continue;
		}
		length = next == IPPROTO_AH ? (extension->length + 2) * 4 : (extension->length + 1) * 8;
		next = extension->next;
		frame->at += length;
	}
	return 0;
}

TRIVIUM_INLINE int key_ipv6(struct frame *frame, struct filter_key *key)
{
	struct ipv6hdr *ip = frame->at;

	if ((void *)(ip + 1) > frame->end || ip->version != 6)
		return 0;
	if (wants_source())
		__builtin_memcpy(key->source, &ip->saddr, 16);
	if (filter.field[FILTER_FIELD_DESTINATION].present)
		__builtin_memcpy(key->destination, &ip->daddr, 16);
	if (!filter.transport)
		return 1;
	frame->at = ip + 1;
	if (!key_extensions(frame, key, ip->nexthdr)) {
		key->fragment = FILTER_UNREADABLE;
		key->protocol = 0;
	}
	return 1;
}

TRIVIUM_INLINE void key_network(struct frame *frame, struct filter_key *key, __be16 ethertype)
{
	__u32 at = frame_offset(frame);
	int readable;

	if (ethertype == bpf_htons(ETH_P_IP)) {
		key->family = FILTER_IPV4;
		readable = key_ipv4(frame, key);
	} else if (ethertype == bpf_htons(ETH_P_IPV6)) {
		key->family = FILTER_IPV6;
		readable = key_ipv6(frame, key);
	} else {
		return;
	}
	key->base[FILTER_BASE_NETWORK] = at;
	if (!readable)
		key->family = FILTER_MALFORMED;
}

/*
 * Not inlined, and not static: the verifier walks it once by itself, and what comes after it once
 * for all of its outcomes instead of once for each.
 */
__attribute__((noinline)) int filter_read(struct xdp_md *ctx, struct filter_key *key)
{
	struct frame frame = frame_open(ctx);
	struct ethhdr *ethernet = frame.at;
	struct vlan_tag *tag;
	__be16 ethertype;

	if (!key)
		return 0;
	key->family = FILTER_OTHER;
	key->fragment = FILTER_WHOLE;
	key->protocol = 0;
	key->source_port = FILTER_NO_PORT;
	key->destination_port = FILTER_NO_PORT;
	key->vlan = FILTER_NO_VLAN;
	key->flags = FILTER_NO_FLAGS;
	key->base[FILTER_BASE_FRAME] = 0;
	key->base[FILTER_BASE_NETWORK] = FILTER_NOWHERE;
	key->base[FILTER_BASE_TRANSPORT] = FILTER_NOWHERE;
	key->base[FILTER_BASE_PAYLOAD] = FILTER_NOWHERE;
	if ((void *)(ethernet + 1) > frame.end)
		return 0;
	ethertype = ethernet->h_proto;
	frame.at = ethernet + 1;
	tag = frame.at;
	if (is_vlan(ethertype) && (void *)(tag + 1) <= frame.end)
		key->vlan = bpf_ntohs(tag->control) & 0xfff;
	if (skip_vlans(&frame, &ethertype))
		key_network(&frame, key, ethertype);
	return 0;
}

#endif
