/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the steering stage and user space share. crates/xdp/src/steer/ mirrors it, and its tests compare
 * both sides through the object's BTF.
 */
#ifndef STEER_LAYOUT_H
#define STEER_LAYOUT_H

#include <linux/types.h>

/* Target of a frame. */
enum steer_to {
	STEER_ROOM = 0,      /* not decided: the port's other stages decide */
	STEER_WORKER = 1,    /* the socket of the receive queue */
	STEER_KERNEL = 2,    /* the kernel, on the receiving CPU */
	STEER_CPU = 1 << 16, /* the kernel, on the CPU of this number */
};

/* Constants of one port's stage. Without the stage a port has only a socket for each queue. */
struct steer_conf {
	__u32 present;
	__u32 flows;    /* number of slots for exact flows. With 0 none are looked up */
	__u32 table;    /* whether the table decides about frames that no flow matches */
	__u32 metadata; /* whether hash and mark are written in front of frames for a socket or the kernel */
};

#define STEER_NO_VLAN 0xffff

enum steer_kind {
	STEER_IPV4 = 4,
	STEER_IPV6 = 6,
	STEER_PORTS = 16, /* with ports: TCP, UDP and SCTP */
};

/* One direction of a conversation. */
struct steer_key {
	__u8 source[16]; /* IPv4 uses the first four bytes */
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
	__u16 vlan; /* VLAN of the only tag, or STEER_NO_VLAN for untagged frames and priority tags */
	__u8 protocol;
	__u8 kind; /* enum steer_kind */
};

struct steer_flow {
	__u32 to;   /* enum steer_to */
	__u32 mark; /* mark in the frame's metadata */
	__u32 slot; /* index of the flow's counts */
	__u32 live; /* whether the flow was added at run time, and not by the configuration */
	__u64 expires; /* CLOCK_MONOTONIC in nanoseconds. 0 for never */
};

struct steer_count {
	__u64 packets;
	__u64 bytes;
};

/*
 * Metadata in front of a frame, at data_meta. The last two words are the bridge's number (struct
 * bridge_mark), so the number is always immediately in front of the frame. They are zero without a number.
 */
struct steer_meta {
	__u32 hash; /* hash of the frame's conversation, equal to the workers' hash */
	__u32 mark; /* mark of the exact flow, or zero */
	__u32 number;
	__u32 check;
};

/* Number of buckets, selected by the low bits of the flow's hash. */
#define STEER_BUCKETS 256

struct steer_table {
	__u32 to[STEER_BUCKETS]; /* enum steer_to. No bucket has STEER_ROOM */
	__u32 live; /* whether the table was changed at run time */
	__u32 reserved;
};

/* Index of the counts of frames that the stage has decided, by target. The CPUs follow in their order. */
enum steer_counted {
	STEER_COUNT_UNMARKED = 0, /* frames without space for metadata */
	STEER_COUNT_WORKER = 1,
	STEER_COUNT_KERNEL = 2,
	STEER_COUNT_CPU = 3,
};

#endif
