/* SPDX-License-Identifier: GPL-2.0-only */
/* Layout that the generator and user space share, mirrored in crates/xdp and compared by its tests. */
#ifndef LIVEGEN_LAYOUT_H
#define LIVEGEN_LAYOUT_H

#include <linux/types.h>

/* Number of bytes that are written into each frame: Ethernet, one tag, IPv4, and UDP or most of TCP. */
#define LIVEGEN_HEADER 60

/* Fields that carry the flow number. */
enum livegen_vary {
	LIVEGEN_PORTS = 1,
	LIVEGEN_SOURCE_MAC = 2,
	LIVEGEN_DESTINATION_MAC = 4,
	LIVEGEN_DESTINATION = 8,
	LIVEGEN_SOURCE = 16,
};

struct livegen_conf {
	__u64 header[7];   /* bytes 0..56 of the frame, in network byte order */
	__u32 header_tail; /* bytes 56..60 */
	__u32 ifindex;     /* output device */
	__u32 flow_mask;   /* number of flows, a power of two, less one */
	__u32 vary;        /* enum livegen_vary */
	__u32 random;      /* 1 for flows in pseudo-random order, 0 for sequential order */
	__u32 tagged;      /* 1 if an 802.1Q tag precedes the IP header */
	__u32 destination;       /* host byte order. The flow is added above destination_shift */
	__u32 destination_shift; /* 32 less the number of prefix bits that vary */
	__u32 ip_sum;            /* sum of the IP header's words without checksum and addresses */
	__u32 destination_port;  /* host byte order */
	__u32 source;            /* host byte order. A varying source is the flow's scattered address */
	__u32 reserved;
};

/* State that is kept between calls. */
struct livegen_state {
	__u64 sent;     /* number of frames given to the device, whether it accepted them or not */
	__u32 position; /* number of the next flow, or the state of the random numbers, which is never 0 */
	__u32 reserved;
};

#endif
