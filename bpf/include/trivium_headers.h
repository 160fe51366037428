/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Header facts that UAPI headers do not carry, and the cursor that stages read frames with.
 * Only the linear part of a multi-buffer frame is read: headers that reach beyond it count as
 * malformed.
 */
#ifndef TRIVIUM_HEADERS_H
#define TRIVIUM_HEADERS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "trivium_maps.h"

/* IEEE 802.1Q clause 9.6 */
struct vlan_tag {
	__be16 control;
	__be16 ethertype;
};

/* RFC 8200 section 4: what hop-by-hop, routing and destination headers begin with. */
struct ipv6_extension {
	__u8 next;
	__u8 length; /* in units of 8 bytes beyond the first 8; AH: 4 bytes beyond the first 8 */
};

#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_FRAGMENT_OFFSET 0x1fff

/* Six octets of eight that are read at an address, first octet lowest. */
#define MAC_MASK 0xffffffffffffULL

#define VLAN_TAGS_MAX 2
#define IPV6_EXTENSIONS_MAX 6

struct frame {
	struct xdp_md *ctx;
	void *at; /* the next byte to read */
	void *end;
};

TRIVIUM_INLINE struct frame frame_open(struct xdp_md *ctx)
{
	struct frame frame = {
		.ctx = ctx,
		.at = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	return frame;
}

/* Bytes from the cursor to the end of the frame, fragments of a multi-buffer frame included. */
TRIVIUM_INLINE __u32 frame_left(const struct frame *frame)
{
	__u32 before = frame->at - (void *)(long)frame->ctx->data;

	return bpf_xdp_get_buff_len(frame->ctx) - before;
}

/*
 * Bytes between `data_meta` and the frame: what a user's program has left there, or an earlier stage;
 * negative where the driver takes no metadata, and then bpf_xdp_adjust_meta() fails.
 */
TRIVIUM_INLINE int metadata_bytes(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data - (void *)(long)ctx->data_meta;
}

TRIVIUM_INLINE int is_vlan(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

/* Reads past the tags to the ethertype of the payload; false when the frame ends before it. */
TRIVIUM_INLINE int skip_vlans(struct frame *frame, __be16 *ethertype)
{
#pragma unroll
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		struct vlan_tag *tag = frame->at;

		if (!is_vlan(*ethertype))
			return 1;
		if ((void *)(tag + 1) > frame->end)
			return 0;
		*ethertype = tag->ethertype;
		frame->at = tag + 1;
	}
	return 1;
}

#endif
