/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the stage of a bridge that goes by OpenFlow's rules and user space agree on; crates/xdp/src/flows/
 * mirrors it, and its tests compare both sides through the object's BTF.
 */
#ifndef FLOWS_LAYOUT_H
#define FLOWS_LAYOUT_H

#include <linux/types.h>

#define FLOW_WORDS 8
/* Different masks at the same time. */
#define FLOW_MASKS 8
/* 2^64 over the golden ratio */
#define FLOW_SPREAD 0x9e3779b97f4a7c15ULL
/* Of a line of the table. */
#define FLOW_PLACES 8
/* Flows by whose hash it is remembered which mask the last packet met. */
#define FLOW_HINTS 4096

/* The constants of one port's stage. */
struct flows_conf {
	__u32 present;
	__u32 port;    /* its number: in keys, in bridge_devices and in bridge_counts */
	__u32 partial; /* whether senders leave checksums open */
	__u32 lines;   /* of flow_table, a power of two, less one */
	__u64 factors[FLOW_WORDS]; /* of the hashes, one for each word: odd, secret */
};

/* Places of flows in flow_entries plus one, below 32 bits of their hash; 0: free. */
struct flow_line {
	__u64 places[FLOW_PLACES];
};

/* The key that the workers' caches know (crates/packet/src/flow_key.rs), octet for octet. */
struct flow_key {
	__u8 in_port[2]; /* lower octet first */
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

/* l2_flags, l3_kind, and the bit of a TCI in the key that says that the tag is there. */
#define FLOW_OUTER_IS_SERVICE 1
#define FLOW_IPV4 1
#define FLOW_ARP 2
#define FLOW_IPV6 3
#define FLOW_TAG_PRESENT 0x1000

struct flow_mask {
	__u64 words[FLOW_WORDS];
};

/* What is done to a flow's packets. */
enum flow_does {
	FLOW_DROPS = 1 << 0,
	FLOW_POPS = 1 << 1,   /* the tag goes */
	FLOW_PUSHES = 1 << 2, /* a tag comes, after that */
	FLOW_SETS_IP = 1 << 3, /* addresses, TOS, TTL or ports */
	FLOW_NORMAL = 1 << 4, /* they go where the bridge knows the station, and nothing else is done */
};

/* A flow. It is not changed while a program may know it. */
struct flow_entry {
	__u64 key[FLOW_WORDS]; /* masked */
	__u32 mask;            /* the number of its mask */
	enum flow_does does;
	__u32 port;            /* by which it leaves */
	__u16 tci_mask;        /* of the tag that it came with */
	__u16 tci;
	__u64 eth_mask[2];     /* destination, source */
	__u64 eth[2];
	__u16 tag[2];          /* that is put on: TPID and TCI */
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

/* What a flow has done here. */
struct flow_count {
	__u64 packets;
	__u64 bytes;
	__u64 used; /* nanoseconds of CLOCK_MONOTONIC, as coarse as the kernel's tick */
	__u64 reserved;
};

/* By the number of a port: bytes of the longest frame that it takes, without a tag; 0: none. */
struct flow_port {
	__u64 longest;
};

struct flow_state {
	__u64 until; /* nanoseconds: from then on nothing is answered, since nobody looks after the flows */
};

/* The number of a mask that is worth trying first. */
struct flow_hint {
	__u64 mask;
};

/* What is read of a frame: on the stack there is no room for it. */
struct flow_frame {
	struct flow_key key;
	__u32 l3; /* where the IP header begins; 0: there is none */
	__u32 tagged;
	__u32 slot; /* where the flow stands that it belongs to */
	__u32 reserved;
};

#endif
