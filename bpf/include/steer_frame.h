/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reading of a frame for steering: its exact flow, and the hash of its conversation. The hash equals that of
 * the workers (crates/packet/src/flow_key/). Both directions have the same hash. Fragments are hashed by
 * their addresses, and frames other than IP by their stations. Lengths are checked as in the workers, so that
 * both agree on truncated frames and wrong lengths. A test compares the two.
 */
#ifndef STEER_FRAME_H
#define STEER_FRAME_H

#include "steer_layout.h"
#include "trivium_headers.h"

const volatile struct steer_conf steer SEC(".rodata.steer") = {};

/*
 * Fields read from a frame. Positions are offsets in memory, and the reading functions are global functions
 * that the verifier processes once each, without knowledge of the offsets. The verifier's cost is therefore
 * the sum over all kinds of frames, and not the product.
 */
struct steer_frame {
	struct steer_key key;
	__u64 ends[4];   /* words of both addresses */
	__u32 at;        /* offset of the next header from the beginning of the frame */
	__u32 end;       /* offset of the end of the IP packet, by its header */
	__u32 ethertype; /* EtherType after tags and SNAP, in network byte order */
	__u32 tags;
	__u32 fragment;
	__u32 operation; /* operation of ARP */
	__u32 hash;
	__u32 exact; /* whether the key can match an exact flow */
	__u32 hops;  /* TTL or hop limit */
};

/* Maximum length of a frame and offset of a header. */
#define STEER_PLACE_MAX 0x3fff

#define STEER_EXTENSIONS_MAX 8
#define STEER_ETHERTYPE_LEAST 0x600
#define STEER_LLC 0x5ff
#define STEER_FRAGMENTED 0x3fff

#define STEER_K0 0x6a09e667f3bcc909ULL
#define STEER_K1 0xbb67ae8584caa73bULL
#define STEER_K2 0x3c6ef372fe94f82bULL

#define STEER_ANY_FRAGMENT 1
#define STEER_LATER_FRAGMENT 2

/* Returns the combined halves of the 128-bit product. */
TRIVIUM_INLINE __u64 steer_fold(__u64 a, __u64 b)
{
	__u64 a_low = (__u32)a, a_high = a >> 32, b_low = (__u32)b, b_high = b >> 32;
	__u64 low = a_low * b_low, one = a_low * b_high, other = a_high * b_low;
	__u64 middle = (low >> 32) + (__u32)one + (__u32)other;
	__u64 high = a_high * b_high + (one >> 32) + (other >> 32) + (middle >> 32);

	return (a * b) ^ high;
}

TRIVIUM_INLINE __u32 steer_hash(__u64 from, __u64 to, __be16 ethertype, __u8 protocol)
{
	__u64 kind = ((__u64)ethertype | (__u64)protocol << 16) << 40;

	return steer_fold(from ^ kind ^ STEER_K0, to ^ kind ^ STEER_K0) * STEER_K2 >> 32;
}

/* Returns the address of a station as a number. */
TRIVIUM_INLINE __u64 steer_station(const __u8 *address)
{
	return bpf_be64_to_cpu(*(const __be64 *)address) >> 16;
}

TRIVIUM_INLINE void steer_fragment(struct steer_frame *seen, int later)
{
	seen->fragment = STEER_ANY_FRAGMENT | (later ? STEER_LATER_FRAGMENT : 0);
}

/* Returns a pointer to `length` bytes at the current offset, or 0 where the first buffer has fewer. */
TRIVIUM_INLINE void *steer_bytes(struct xdp_md *ctx, const struct steer_frame *seen, __u32 length)
{
	void *data = (void *)(long)ctx->data;
	__u64 at = seen->at;

	if (at > STEER_PLACE_MAX)
		return 0;
	data += at;
	return data + length > (void *)(long)ctx->data_end ? 0 : data;
}

/* Returns the number of bytes from the current offset to the end of all buffers. */
TRIVIUM_INLINE __u32 steer_left(struct xdp_md *ctx, const struct steer_frame *seen)
{
	__u32 length = bpf_xdp_get_buff_len(ctx);

	return length > seen->at ? length - seen->at : 0;
}

/* Reads the addresses, the tags and the EtherType. Returns 0 for a truncated frame. */
__attribute__((noinline)) int steer_link(struct xdp_md *ctx, struct steer_frame *seen)
{
	struct frame frame = frame_open(ctx);
	struct ethhdr *ethernet = frame.at;
	struct vlan_tag *tag;
	__be16 ethertype;
	__u8 *snap;

	if (!seen)
		return 0;
	seen->key.vlan = STEER_NO_VLAN;
	if ((void *)(ethernet + 1) > frame.end)
		return 0;
	ethertype = ethernet->h_proto;
	seen->ends[0] = steer_station(ethernet->h_source);
	seen->ends[2] = steer_station(ethernet->h_dest);
	frame.at = ethernet + 1;
#pragma unroll
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		tag = frame.at;
		if (!is_vlan(ethertype))
			break;
		if ((void *)(tag + 1) > frame.end)
			return 0;
		if (i == 0 && tag->control & bpf_htons(0xfff))
			seen->key.vlan = bpf_ntohs(tag->control) & 0xfff;
		ethertype = tag->ethertype;
		frame.at = tag + 1;
		seen->tags = i + 1;
	}
	if (bpf_ntohs(ethertype) < STEER_ETHERTYPE_LEAST) {
		/* The field is a length. An EtherType may follow in a SNAP header (RFC 1042). */
		snap = frame.at;
		ethertype = bpf_htons(STEER_LLC);
		if ((void *)(snap + 8) <= frame.end && snap[0] == 0xaa && snap[1] == 0xaa &&
		    snap[2] == 3 && !snap[3] && !snap[4] && !snap[5] && snap[6] >= 6) {
			ethertype = *(__be16 *)(snap + 6);
			frame.at = snap + 8;
		}
	}
	seen->ethertype = ethertype;
	seen->at = frame.at - (void *)(long)ctx->data;
	return 1;
}

/*
 * Reads an IPv4 header. Returns 0 if it is malformed before its addresses are read, in which case the frame
 * is hashed by its stations.
 */
__attribute__((noinline)) int steer_ipv4(struct xdp_md *ctx, struct steer_frame *seen)
{
	struct iphdr *ip;
	__u32 header, length;
	__u16 fragment;

	if (!seen)
		return 0;
	ip = steer_bytes(ctx, seen, sizeof(*ip));
	if (!ip || ip->version != 4 || ip->ihl < 5)
		return 0;
	header = ip->ihl * 4;
	length = bpf_ntohs(ip->tot_len);
	if ((void *)ip + header > (void *)(long)ctx->data_end || length < header ||
	    length > steer_left(ctx, seen))
		return 0;
	__builtin_memcpy(seen->key.source, &ip->saddr, 4);
	__builtin_memcpy(seen->key.destination, &ip->daddr, 4);
	seen->ends[0] = ip->saddr;
	seen->ends[2] = ip->daddr;
	seen->hops = ip->ttl;
	seen->key.kind = STEER_IPV4;
	seen->key.protocol = ip->protocol;
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & STEER_FRAGMENTED)
		steer_fragment(seen, fragment & IPV4_FRAGMENT_OFFSET);
	seen->end = seen->at + length;
	seen->at += header;
	return 1;
}

__attribute__((noinline)) int steer_ipv6(struct xdp_md *ctx, struct steer_frame *seen)
{
	struct ipv6hdr *ip;
	__u32 length, room;

	if (!seen)
		return 0;
	ip = steer_bytes(ctx, seen, sizeof(*ip));
	if (!ip || ip->version != 6)
		return 0;
	room = steer_left(ctx, seen);
	length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (length > room)
		return 0;
	/* A jumbogram (RFC 2675) has length 0 and extends to the end of the frame. */
	if (ip->payload_len == 0 && ip->nexthdr == IPPROTO_HOPOPTS)
		length = room;
	__builtin_memcpy(seen->key.source, &ip->saddr, 16);
	__builtin_memcpy(seen->key.destination, &ip->daddr, 16);
	__builtin_memcpy(seen->ends, &ip->saddr, 32);
	seen->hops = ip->hop_limit;
	seen->key.kind = STEER_IPV6;
	seen->key.protocol = ip->nexthdr;
	seen->end = seen->at + length;
	seen->at += sizeof(*ip);
	return 1;
}

TRIVIUM_INLINE int steer_is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT ||
	       next == IPPROTO_DSTOPTS || next == IPPROTO_AH;
}

/* Kind of the header that follows: another extension, the transport header, or a truncated header. */
enum steer_next { STEER_EXTENSION, STEER_TRANSPORT, STEER_CUT };

/* Reads one extension header. */
__attribute__((noinline)) int steer_extension(struct xdp_md *ctx, struct steer_frame *seen)
{
	struct ipv6_extension *extension;
	__u16 fragment = 0;
	__u32 size;
	__u8 next;

	if (!seen)
		return STEER_CUT;
	next = seen->key.protocol;
	if (!steer_is_extension(next))
		return STEER_TRANSPORT;
	extension = steer_bytes(ctx, seen, 8);
	if (!extension)
		return STEER_CUT;
	if (next == IPPROTO_FRAGMENT) {
		size = 8;
		fragment = bpf_ntohs(*(__be16 *)(extension + 1)) & 0xfff9;
	} else if (next == IPPROTO_AH) {
		size = (extension->length + 2) * 4;
	} else {
		size = (extension->length + 1) * 8;
	}
	if (seen->at + size > seen->end)
		return STEER_CUT;
	seen->key.protocol = extension->next;
	seen->at += size;
	/*
	 * A fragment header with offset 0 and without "more" is an atomic fragment, which is a whole packet
	 * (RFC 6946).
	 */
	if (fragment)
		steer_fragment(seen, fragment & 0xfff8);
	if (!steer_is_extension(extension->next) || fragment & 0xfff8)
		return STEER_TRANSPORT;
	return STEER_EXTENSION;
}

/* Reads the ports. Returns 0 if the transport header is truncated. */
__attribute__((noinline)) int steer_transport(struct xdp_md *ctx, struct steer_frame *seen)
{
	__u8 *header;
	__u32 left, length;

	if (!seen)
		return 0;
	if (seen->fragment & STEER_LATER_FRAGMENT)
		return 1;
	left = seen->end > seen->at ? seen->end - seen->at : 0;
	if (seen->key.protocol == IPPROTO_TCP) {
		header = steer_bytes(ctx, seen, 20);
		if (!header || left < 20)
			return 0;
		length = (header[12] >> 4) * 4;
		if (length < 20 || length > left)
			return 0;
	} else if (seen->key.protocol == IPPROTO_UDP) {
		header = steer_bytes(ctx, seen, 8);
		if (!header || left < 8)
			return 0;
	} else if (seen->key.protocol == IPPROTO_SCTP) {
		header = steer_bytes(ctx, seen, 12);
		if (!header || left < 12)
			return 0;
	} else {
		return 1;
	}
	seen->key.source_port = *(__be16 *)header;
	seen->key.destination_port = *(__be16 *)(header + 2);
	seen->key.kind |= STEER_PORTS;
	return 1;
}

/* Reads the operation of ARP and RARP for IPv4, which is a part of the hash. */
__attribute__((noinline)) int steer_arp(struct xdp_md *ctx, struct steer_frame *seen)
{
	__u8 *message;

	if (!seen)
		return 0;
	message = steer_bytes(ctx, seen, 28);
	if (!message || *(__be16 *)message != bpf_htons(1) ||
	    *(__be16 *)(message + 2) != bpf_htons(ETH_P_IP) || message[4] != 6 || message[5] != 4)
		return 0;
	seen->operation = message[6] ? 0 : message[7];
	return 0;
}

/* Reads a frame. All fields are zero without an Ethernet header. */
__attribute__((noinline)) int steer_read(struct xdp_md *ctx, struct steer_frame *seen)
{
	__u64 from, to, ports = 0;
	int known = 0, next;
	__u8 protocol;

	if (!seen || !steer_link(ctx, seen))
		return 0;
	if (seen->ethertype == bpf_htons(ETH_P_IP)) {
		known = steer_ipv4(ctx, seen);
		if (known)
			seen->exact = steer_transport(ctx, seen);
	} else if (seen->ethertype == bpf_htons(ETH_P_IPV6)) {
		known = steer_ipv6(ctx, seen);
		next = known && steer_is_extension(seen->key.protocol) ? STEER_EXTENSION : STEER_TRANSPORT;
		for (int i = 0; i < STEER_EXTENSIONS_MAX; i++) {
			if (next != STEER_EXTENSION)
				break;
			next = steer_extension(ctx, seen);
		}
		if (known && next == STEER_TRANSPORT)
			seen->exact = steer_transport(ctx, seen);
	} else if (seen->ethertype == bpf_htons(ETH_P_ARP) ||
		   seen->ethertype == bpf_htons(ETH_P_RARP)) {
		steer_arp(ctx, seen);
	}
	if (!known) {
		seen->hash = steer_hash(seen->ends[0], seen->ends[2], seen->ethertype, seen->operation);
		return 0;
	}
	protocol = seen->key.protocol;
	if (!seen->fragment)
		ports = seen->key.source_port | (__u64)seen->key.destination_port << 16;
	else if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP)
		/* All fragments of a flow go to the same target, and only the first has ports. */
		seen->exact = 0;
	/* An exact flow has at most one tag. */
	if (seen->tags > 1)
		seen->exact = 0;
	from = (seen->ends[0] * STEER_K1) ^ seen->ends[1] ^ (ports & 0xffff) << 20;
	to = (seen->ends[2] * STEER_K1) ^ seen->ends[3] ^ (ports >> 16) << 20;
	seen->hash = steer_hash(from, to, seen->ethertype, protocol);
	return 0;
}

#endif
