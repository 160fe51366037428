/* SPDX-License-Identifier: GPL-2.0-only */
/* What the generator and user space agree on; mirrored in crates/xdp and compared by its tests. */
#ifndef LIVEGEN_LAYOUT_H
#define LIVEGEN_LAYOUT_H

#include <linux/types.h>

/* Bytes of a frame that are written anew: Ethernet, one tag, IPv4, and UDP or most of TCP. */
#define LIVEGEN_HEADER 60

/* The fields that take the number of the flow. */
enum livegen_vary {
	LIVEGEN_PORTS = 1,
	LIVEGEN_SOURCE_MAC = 2,
	LIVEGEN_DESTINATION_MAC = 4,
	LIVEGEN_DESTINATION = 8,
	LIVEGEN_SOURCE = 16,
};

struct livegen_conf {
	__u64 header[7];   /* bytes 0..56 of the frame, as they go to the wire */
	__u32 header_tail; /* bytes 56..60 */
	__u32 ifindex;     /* where the frames go */
	__u32 flow_mask;   /* flows - 1, flows being a power of two */
	__u32 vary;        /* enum livegen_vary */
	__u32 random;      /* 1: flows in pseudo-random order; 0: in turn */
	__u32 tagged;      /* 1: an 802.1Q tag stands before the IP header */
	__u32 destination;       /* host order; the flow is added above destination_shift */
	__u32 destination_shift; /* 32 - prefix bits that vary */
	__u32 ip_sum;            /* sum of the IP header's words, checksum and addresses aside */
	__u32 destination_port;  /* host order */
	__u32 source;            /* host order; one that varies is the flow's scattered number */
	__u32 reserved;
};

/* What goes on from one call to the next. */
struct livegen_state {
	__u64 sent;     /* frames given to the device, whether it took them or not */
	__u32 position; /* the next flow, or the state of the random numbers: then never 0 */
	__u32 reserved;
};

#endif
