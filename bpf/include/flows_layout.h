/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the stage of cached OpenFlow flows and user space share. crates/xdp/src/flows/ mirrors it, and
 * its tests compare both sides through the object's BTF.
 */
#ifndef FLOWS_LAYOUT_H
#define FLOWS_LAYOUT_H

#include <linux/types.h>

#define FLOW_WORDS 8
/* Maximum number of different masks at a time. */
#define FLOW_MASKS 8
/* 2^64 over the golden ratio. */
#define FLOW_SPREAD 0x9e3779b97f4a7c15ULL
/* Number of places per line of the table. */
#define FLOW_PLACES 8
/* Number of hints, selected by a flow's hash. A hint holds the mask that the flow's last packet matched. */
#define FLOW_HINTS 4096

/* Constants of one port's stage. */
struct flows_conf {
	__u32 present;
	__u32 port;    /* port number in keys, bridge_devices and bridge_counts */
	__u32 partial; /* whether senders may leave partial checksums */
	__u32 lines;   /* number of lines of flow_table, a power of two, less one */
	__u64 factors[FLOW_WORDS]; /* secret odd factors of the hashes, one for each word */
};

/*
 * A line of places. A place holds the index of a flow in flow_entries plus one in its lower half, and 32 bits
 * of the flow's hash in its upper half. A free place holds 0.
 */
struct flow_line {
	__u64 places[FLOW_PLACES];
};

/* Flow key, equal to the key of the workers' caches octet for octet (crates/packet/src/flow_key.rs). */
struct flow_key {
	__u8 in_port[2]; /* low octet first */
	__u8 l2_flags;
	__u8 l3_kind;
	__be16 outer;
	__be16 inner;
	__u8 eth_dst[6];
	__u8 eth_src[6];
	__be16 eth_type;
	__u8 proto;
	__u8 fragment;
	__u32 ip_src[4];
	__u32 ip_dst[4];
	__be16 src_port;
	__be16 dst_port;
	__be16 tcp_flags;
	__u8 tos;
	__u8 ttl;
} __attribute__((aligned(8)));

/* Values of l2_flags and l3_kind, and the bit of a TCI in the key that means that the tag is present. */
#define FLOW_OUTER_IS_SERVICE 1
#define FLOW_IPV4 1
#define FLOW_ARP 2
#define FLOW_IPV6 3
#define FLOW_TAG_PRESENT 0x1000

struct flow_mask {
	__u64 words[FLOW_WORDS];
};

/* Actions on the packets of a flow. */
enum flow_does {
	FLOW_DROPS = 1 << 0,
	FLOW_POPS = 1 << 1,   /* removes the tag */
	FLOW_PUSHES = 1 << 2, /* adds a tag, after FLOW_POPS */
	FLOW_SETS_IP = 1 << 3, /* sets addresses, TOS, TTL or ports */
	FLOW_NORMAL = 1 << 4, /* sends according to the station table of the bridge, without other actions */
};

/* A flow. It does not change while a running program may use it. */
struct flow_entry {
	__u64 key[FLOW_WORDS]; /* masked key */
	__u32 mask;            /* number of the mask */
	enum flow_does does;
	__u32 port;            /* number of the output port */
	__u16 tci_mask;        /* TCI bits to set in the received tag */
	__u16 tci;
	__u64 eth_mask[2];     /* Ethernet addresses: destination, source */
	__u64 eth[2];
	__u16 tag[2];          /* TPID and TCI of the tag to add */
	__u32 ports_mask;
	__u32 ports;
	__u8 tos_mask;
	__u8 tos;
	__u8 ttl_mask;
	__u8 ttl;
	__u32 src_mask[4];
	__u32 src[4];
	__u32 dst_mask[4];
	__u32 dst[4];
	__u64 reserved[8];
};

/* Counts of a flow in the hook. */
struct flow_count {
	__u64 packets;
	__u64 bytes;
	__u64 used; /* nanoseconds of CLOCK_MONOTONIC, with the resolution of the kernel's tick */
	__u64 reserved;
};

/* Longest frame that a port accepts, in bytes without a tag, by port number. 0 for none. */
struct flow_port {
	__u64 longest;
};

struct flow_state {
	/* Time in nanoseconds from which the stage finds no flows, because user space has not renewed the table. */
	__u64 until;
};

/* Number of the mask to try first. */
struct flow_hint {
	__u64 mask;
};

/* Fields read from a frame. The stack has no space for them. */
struct flow_frame {
	struct flow_key key;
	__u32 l3; /* offset of the IP header, or 0 for none */
	__u32 tagged;
	__u32 slot; /* index of the matching flow */
	__u32 reserved;
};

#endif
