/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Detection of partial checksums, which a sender has left to its device (a veth completes none). Such a
 * checksum holds only the sum of the pseudo-header. It must be completed before the packet leaves by another
 * device, which the hook cannot do.
 *
 * One complete checksum in 65,536 also equals the sum of the pseudo-header. If its packet went to the worker,
 * later packets of the flow would wait behind it. The hook therefore verifies such a checksum over the whole
 * segment. It does not where the preceding TCP or UDP packet of the queue had a partial checksum, because the
 * sender then leaves all of them to its device.
 */
#ifndef PARTIAL_CHECKSUM_H
#define PARTIAL_CHECKSUM_H

#include "trivium_headers.h"

/*
 * Folds a 64-bit sum to 16 bits, for the sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section
 * 8.1). The result is not complemented.
 */
TRIVIUM_INLINE __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Length in octets of the parts in which a segment is summed, and the maximum number of parts. */
#define CHECKSUM_PART 64
#define CHECKSUM_PARTS 256
/* Maximum offset in octets of a part in the frame. */
#define CHECKSUM_AT_MAX 0x3fff

/* A segment that is being summed. */
struct checksum_sum {
	struct xdp_md *ctx;
	__u32 at;   /* offset of the next part in the frame */
	__u32 left; /* length in octets that is not summed yet */
	__u32 sum;
};

/*
 * Sums the next part of a segment: CHECKSUM_PART octets, or 4, or the last octets. Reads the frame directly,
 * because the stack has no space for a copy.
 */
static long checksum_add(__u32 index __attribute__((unused)), void *data)
{
	struct checksum_sum *segment = data;
	__u8 *part = (void *)(long)segment->ctx->data, *end = (void *)(long)segment->ctx->data_end;
	__u32 at = segment->at, left = segment->left, length = 4;
	union {
		__u8 octets[4];
		__u32 word;
	} last = {};

	if (!left || at > CHECKSUM_AT_MAX)
		return 1;
	part += at;
	if (left >= CHECKSUM_PART && part + CHECKSUM_PART <= end) {
		length = CHECKSUM_PART;
		segment->sum = bpf_csum_diff(0, 0, (void *)part, CHECKSUM_PART, segment->sum);
	} else if (left >= 4) {
		if (part + 4 > end)
			return 1;
		segment->sum = bpf_csum_diff(0, 0, (void *)part, 4, segment->sum);
	} else {
		if (part + 1 > end)
			return 1;
		last.octets[0] = part[0];
		if (left > 1) {
			if (part + 2 > end)
				return 1;
			last.octets[1] = part[1];
		}
		if (left > 2) {
			if (part + 3 > end)
				return 1;
			last.octets[2] = part[2];
		}
		length = left;
		segment->sum = bpf_csum_diff(0, 0, &last.word, 4, segment->sum);
	}
	segment->at = at + length;
	segment->left = left - length;
	return 0;
}

/*
 * Returns whether the checksum of the segment at the offset `at` is complete and correct. `sum` is the sum of
 * the pseudo-header.
 */
static __attribute__((noinline)) int checksum_is_complete(struct xdp_md *ctx, __u32 at, __u32 length, __u32 sum)
{
	struct checksum_sum segment = { .ctx = ctx, .at = at, .left = length, .sum = sum };

	bpf_loop(CHECKSUM_PARTS, checksum_add, &segment, 0);
	return !segment.left && fold(segment.sum) == 0xffff;
}

/* The transport segment of a frame. */
struct checksum_segment {
	void *l4;
	__u32 length; /* in octets */
	__u32 sum;    /* of the pseudo-header */
};

/*
 * Writes the segment, and returns whether the checksum in its header equals the sum of the pseudo-header.
 */
TRIVIUM_INLINE int bare_sum(void *l4, void *end, __u8 protocol, __u64 sum, __u32 length,
			    struct checksum_segment *segment)
{
	__be16 *check = l4 + (protocol == IPPROTO_TCP ? 16 : 6);

	if ((void *)(check + 1) > end)
		return 0;
	segment->l4 = l4;
	segment->length = length;
	segment->sum = fold(sum);
	return *check == segment->sum;
}

/*
 * Returns whether the checksum of a frame may be partial. Frames that cannot be read return 1, so that the
 * worker or the kernel's stack examines them. Writes the segment of a TCP or UDP packet that is no fragment, or
 * a segment without length for other frames.
 */
TRIVIUM_INLINE int may_be_partial(void *at, void *end, __be16 ethertype, struct checksum_segment *segment)
{
	__u64 sum = 0;
	__u8 protocol;
	__u32 length;

	segment->length = 0;
	if (ethertype == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = at;

		if ((void *)(ip + 1) > end)
			return 1;
		protocol = ip->protocol;
		if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
			return 0;
		/* The kernel completes the checksum of packets that it fragments. */
		if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET))
			return 0;
		if (ip->ihl != 5)
			return 1;
		length = bpf_ntohs(ip->tot_len) - sizeof(*ip);
		sum = (__u64)ip->saddr + ip->daddr + bpf_htons(protocol) + bpf_htons(length);
		return bare_sum(ip + 1, end, protocol, sum, length, segment);
	}
	if (ethertype == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = at;

		if ((void *)(ip + 1) > end)
			return 1;
		protocol = ip->nexthdr;
		if (protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
		    protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_AH)
			return 1;
		if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
			return 0;
#pragma unroll
		for (int word = 0; word < 4; word++)
			sum += (__u64)ip->saddr.in6_u.u6_addr32[word] + ip->daddr.in6_u.u6_addr32[word];
		sum += bpf_htons(protocol) + ip->payload_len;
		return bare_sum(ip + 1, end, protocol, sum, bpf_ntohs(ip->payload_len), segment);
	}
	/* Frames with another tag return 1. */
	return is_vlan(ethertype);
}

/*
 * Returns whether the checksum of a frame is partial, or the frame cannot be read. `last` is whether the
 * preceding TCP or UDP packet of the queue had a partial checksum, or 0.
 */
TRIVIUM_INLINE int is_partial(struct xdp_md *ctx, void *at, void *end, __be16 ethertype, __u32 *last)
{
	struct checksum_segment segment;

	if (!may_be_partial(at, end, ethertype, &segment)) {
		if (segment.length && last && *last)
			*last = 0;
		return 0;
	}
	if (!segment.length || (last && *last))
		return 1;
	if (checksum_is_complete(ctx, segment.l4 - (void *)(long)ctx->data, segment.length, segment.sum))
		return 0;
	if (last)
		*last = 1;
	return 1;
}

#endif
