/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Header definitions that the UAPI headers lack, and the cursor with which stages read frames. Only the linear
 * part of a multi-buffer frame is read. Headers that extend beyond it count as malformed.
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

/* VLAN tag, IEEE 802.1Q clause 9.6. */
struct vlan_tag {
	__be16 control;
	__be16 ethertype;
};

/* First bytes of hop-by-hop, routing and destination options headers, RFC 8200 section 4. */
struct ipv6_extension {
	__u8 next;
	/* Length in units of 8 bytes beyond the first 8, for AH in units of 4 bytes beyond the first 8. */
	__u8 length;
};

#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_FRAGMENT_OFFSET 0x1fff

/* Mask of the six octets of a MAC address in the eight that are read, first octet lowest. */
#define MAC_MASK 0xffffffffffffULL

#define VLAN_TAGS_MAX 2
#define IPV6_EXTENSIONS_MAX 6

struct frame {
	struct xdp_md *ctx;
	void *at; /* next byte to read */
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

/*
 * Returns the number of bytes from the cursor to the end of the frame, including all buffers of a
 * multi-buffer frame.
 */
TRIVIUM_INLINE __u32 frame_left(const struct frame *frame)
{
	__u32 before = frame->at - (void *)(long)frame->ctx->data;

	return bpf_xdp_get_buff_len(frame->ctx) - before;
}

/*
 * Returns the number of metadata bytes in front of the frame, which a custom program or an earlier stage has
 * left. Negative where the driver supports no metadata, in which case bpf_xdp_adjust_meta() fails.
 */
TRIVIUM_INLINE int metadata_bytes(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data - (void *)(long)ctx->data_meta;
}

TRIVIUM_INLINE int is_vlan(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

/* Skips the VLAN tags up to the EtherType of the payload. Returns 0 when the frame ends before it. */
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
