/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Extraction of the fields that rules match. Headers are read from the linear part of a frame, and only up to
 * the length in the IP header, because padding follows it. Later fragments have no ports, flags or payload. A
 * frame in which the fields that rules match cannot be reached is FILTER_UNREADABLE.
 * crates/xdp/src/filter/compiled.rs decides the treatment of these frames.
 */
#ifndef FILTER_KEY_H
#define FILTER_KEY_H

#include <linux/tcp.h>

#include "filter_maps.h"
#include "trivium_headers.h"

#define FILTER_NOWHERE 0xffffffff

/* Maximum number of tags examined, whatever their identifiers. Offsets after them are below 128. */
#define FILTER_TAGS_MAX 16
/* Number of bytes from the first byte of an Ethernet header to its EtherType. */
#define FILTER_TYPE_OFFSET 12
/*
 * Minimum offset at which an IPv6 fragment cannot overlap headers. A later fragment that begins before this
 * byte of the fragmentable part can overlap the extension headers and the transport header of the first
 * fragment. The minimum MTU is 1280 bytes, so no sender needs a fragment below this offset.
 */
#define FILTER_FRAGMENT6_LEAST 64

struct filter_key {
	__u8 source[16] __attribute__((aligned(8))); /* IPv4 uses the first four bytes */
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

/* Fragment header, RFC 8200 section 4.5. */
struct ipv6_fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* offset in the upper 13 bits. The lowest bit is set when more fragments follow */
	__be32 id;
};

TRIVIUM_INLINE __u32 frame_offset(const struct frame *frame)
{
	long offset = frame->at - (void *)(long)frame->ctx->data;

	/* With fewer than 64 bits, the compiler would spill halves of pointers to the stack. */
	asm volatile("" : "+r"(offset));
	return offset;
}

/* Returns whether a protocol begins with both ports: TCP, UDP, DCCP, SCTP and UDP-Lite. */
TRIVIUM_INLINE int has_ports(__u32 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_DCCP ||
	       protocol == IPPROTO_SCTP || protocol == IPPROTO_UDPLITE;
}

/* Returns whether rules match fields of the TCP header after the ports. Rules with cookies read the flags. */
TRIVIUM_INLINE int asks_tcp(void)
{
	return filter.field[FILTER_FIELD_FLAGS].present || filter.probe[0].length || PORT_SERVICES;
}

/* Reads the transport header of a packet that ends at the offset `end` of the frame. */
TRIVIUM_INLINE void key_transport(struct frame *frame, struct filter_key *key, __u32 end)
{
	__u32 at = frame_offset(frame);
	__be16 *ports = frame->at;

	if (at > end) {
		key->fragment = FILTER_UNREADABLE;
		return;
	}
	/* Rules may match only the protocol. */
	if (!filter.field[FILTER_FIELD_SOURCE_PORT].present && !filter.field[FILTER_FIELD_DESTINATION_PORT].present &&
	    !asks_tcp())
		return;
	key->base[FILTER_BASE_TRANSPORT] = at;
	if (!has_ports(key->protocol))
		return;
	if ((void *)(ports + 2) > frame->end || at + 4 > end) {
		key->fragment = FILTER_UNREADABLE;
		return;
	}
	key->source_port = bpf_ntohs(ports[0]);
	key->destination_port = bpf_ntohs(ports[1]);
	if (key->protocol == IPPROTO_UDP || key->protocol == IPPROTO_UDPLITE) {
		key->base[FILTER_BASE_PAYLOAD] = at + 8;
	} else if (key->protocol == IPPROTO_TCP && asks_tcp()) {
		__u8 *tcp = frame->at;

		if ((void *)(tcp + sizeof(struct tcphdr)) > frame->end || at + sizeof(struct tcphdr) > end) {
			key->fragment = FILTER_UNREADABLE;
			return;
		}
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

/* Reads an IPv4 header. Returns 0 when the fixed header cannot be read. */
TRIVIUM_INLINE int key_ipv4(struct frame *frame, struct filter_key *key)
{
	struct iphdr *ip = frame->at;
	__u32 header, total, fragment;

	if ((void *)(ip + 1) > frame->end || ip->version != 4 || ip->ihl < 5)
		return 0;
	if (wants_source())
		__builtin_memcpy(key->source, &ip->saddr, 4);
	if (filter.field[FILTER_FIELD_DESTINATION].present)
		__builtin_memcpy(key->destination, &ip->daddr, 4);
	if (!filter.transport)
		return 1;
	header = ip->ihl * 4;
	key->protocol = ip->protocol;
	total = bpf_ntohs(ip->tot_len);
	fragment = bpf_ntohs(ip->frag_off) & (IPV4_FRAGMENT_OFFSET | IPV4_MORE_FRAGMENTS);
	/* A length of 0 belongs to a packet that will be segmented, and never to a fragment. */
	if (frame->at + header > frame->end || (total ? total < header : fragment)) {
		key->fragment = FILTER_UNREADABLE;
		return 1;
	}
	total = total ? frame_offset(frame) + total : FILTER_NOWHERE;
	if (fragment & IPV4_FRAGMENT_OFFSET) {
		/*
		 * The fragment overlaps the transport header of the first fragment, to which the rules have
		 * already been applied (RFC 3128).
		 */
		key->fragment = key->protocol == IPPROTO_TCP &&
						(fragment & IPV4_FRAGMENT_OFFSET) * 8 < sizeof(struct tcphdr) ?
					FILTER_UNREADABLE :
					FILTER_LATER;
		return 1;
	}
	if (fragment)
		key->fragment = FILTER_FIRST;
	frame->at += header;
	key_transport(frame, key, total);
	return 1;
}

/*
 * Walks the extension headers (RFC 8200 section 4) up to the transport header. Stops at the offset `end` of
 * the frame. Returns 0 when the transport header is not found.
 */
TRIVIUM_INLINE int key_extensions(struct frame *frame, struct filter_key *key, __u8 next, __u32 end)
{
	for (int i = 0; i <= IPV6_EXTENSIONS_MAX; i++) {
		struct ipv6_extension *extension = frame->at;
		__u32 length;

		key->protocol = next;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_AH && next != IPPROTO_FRAGMENT) {
			key_transport(frame, key, end);
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
			/*
			 * A fragment in a packet of unknown length is unreadable. The headers after an atomic
			 * fragment header are read.
			 */
			if (offset >> 3 || offset & 1) {
				if (frame_offset(frame) > end || end == FILTER_NOWHERE)
					return 0;
				key->fragment = FILTER_FIRST;
			}
			if (offset >> 3) {
				/* The bytes that follow are not a header. */
				key->fragment = (offset & ~7u) < FILTER_FRAGMENT6_LEAST ? FILTER_UNREADABLE :
											 FILTER_LATER;
				key->protocol = next;
				return 1;
			}
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
	__u32 end;

	if ((void *)(ip + 1) > frame->end || ip->version != 6)
		return 0;
	if (wants_source())
		__builtin_memcpy(key->source, &ip->saddr, 16);
	if (filter.field[FILTER_FIELD_DESTINATION].present)
		__builtin_memcpy(key->destination, &ip->daddr, 16);
	if (!filter.transport)
		return 1;
	end = frame_offset(frame) + sizeof(*ip) + bpf_ntohs(ip->payload_len);
	/* A length of 0 belongs to a jumbogram or to a packet that will be segmented. */
	if (!ip->payload_len)
		end = FILTER_NOWHERE;
	frame->at = ip + 1;
	if (!key_extensions(frame, key, ip->nexthdr, end)) {
		key->fragment = FILTER_UNREADABLE;
		key->protocol = 0;
	}
	return 1;
}

/* Least EtherType. Smaller values are lengths (IEEE 802.3). */
#define FILTER_LEAST_TYPE 0x0600

/* Header that follows a length and carries the EtherType of a packet (IEEE 802.2, RFC 1042). */
struct filter_snap {
	__u8 sap[2];
	__u8 control;
	__u8 oui[3];
	__be16 ethertype;
} __attribute__((packed));

/*
 * Returns whether IP or a tag follows a length. Linux does not read such frames as IP, but other receivers
 * do.
 */
TRIVIUM_INLINE int is_snap_ip(struct frame *frame, __be16 length)
{
	struct filter_snap *snap = frame->at;

	if (bpf_ntohs(length) >= FILTER_LEAST_TYPE || (void *)(snap + 1) > frame->end)
		return 0;
	return snap->sap[0] == 0xaa && snap->sap[1] == 0xaa &&
	       (snap->ethertype == bpf_htons(ETH_P_IP) || snap->ethertype == bpf_htons(ETH_P_IPV6) ||
		is_vlan(snap->ethertype));
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
		if (is_snap_ip(frame, ethertype))
			key->fragment = FILTER_UNREADABLE;
		return;
	}
	key->base[FILTER_BASE_NETWORK] = at;
	if (!readable) {
		key->family = FILTER_MALFORMED;
		key->fragment = FILTER_UNREADABLE;
	}
}

/*
 * Returns the offset of the EtherType after all tags, or 0 if it cannot be reached. A tag with identifier 0
 * has no VLAN (IEEE 802.1Q clause 6.9.1), and receivers remove any number of such tags. The VLAN is that of
 * the outermost other tag.
 *
 * The function is global, so the verifier processes the code that follows once, and not once for each number
 * of tags.
 */
__attribute__((noinline)) int filter_tags(struct xdp_md *ctx, struct filter_key *key)
{
	struct frame frame = frame_open(ctx);
	struct ethhdr *ethernet = frame.at;
	__be16 ethertype;

	if (!key || (void *)(ethernet + 1) > frame.end)
		return 0;
	ethertype = ethernet->h_proto;
	frame.at = ethernet + 1;
	for (__u32 i = 0; i <= FILTER_TAGS_MAX; i++) {
		struct vlan_tag *tag = frame.at;
		__u32 vid;

		if (!is_vlan(ethertype))
			return FILTER_TYPE_OFFSET + i * sizeof(*tag);
		if (i == FILTER_TAGS_MAX || (void *)(tag + 1) > frame.end)
			return 0;
		vid = bpf_ntohs(tag->control) & 0xfff;
		if (vid && key->vlan == FILTER_NO_VLAN)
			key->vlan = vid;
		ethertype = tag->ethertype;
		frame.at = tag + 1;
	}
	return 0;
}

/*
 * Reads the fields of a frame. The function is neither inlined nor static, so the verifier processes it once,
 * and the code that follows once for all of its results.
 */
__attribute__((noinline)) int filter_read(struct xdp_md *ctx, struct filter_key *key)
{
	struct frame frame = frame_open(ctx);
	__be16 *ethertype;
	__u32 at;

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
	at = filter_tags(ctx, key);
	/* The verifier needs this mask. Offsets are below 128. */
	asm volatile("" : "+r"(at));
	ethertype = frame.at + (at & 127);
	if (at && (void *)(ethertype + 1) <= frame.end) {
		frame.at = ethertype + 1;
		key_network(&frame, key, *ethertype);
		return 0;
	}
	key->fragment = FILTER_UNREADABLE;
	return 0;
}

#endif
