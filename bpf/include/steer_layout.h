/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the steer stage and user space agree on; crates/xdp/src/steer/ mirrors it, and its tests
 * compare both sides through the object's BTF.
 */
#ifndef STEER_LAYOUT_H
#define STEER_LAYOUT_H

#include <linux/types.h>

/* Where a frame goes. */
enum steer_to {
	STEER_ROOM = 0,      /* nobody says: the port's other stages decide */
	STEER_WORKER = 1,    /* to the socket of its queue */
	STEER_KERNEL = 2,    /* to the kernel, on the CPU that it came to */
	STEER_CPU = 1 << 16, /* to the kernel, on the CPU of this number */
};

/* The constants of one port's stage; without it a port has a socket for each queue and no more. */
struct steer_conf {
	__u32 present;
	__u32 flows;    /* slots of exact flows; 0: none are looked up */
	__u32 table;    /* whether what no flow names goes by the table */
	__u32 metadata; /* whether hash and mark go in front of what leaves for a socket or the kernel */
};

#define STEER_NO_VLAN 0xffff

enum steer_kind {
	STEER_IPV4 = 4,
	STEER_IPV6 = 6,
	STEER_PORTS = 16, /* with ports: TCP, UDP and SCTP */
};

/* One direction of a conversation. */
struct steer_key {
	__u8 source[16]; /* IPv4: the first four */
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
	__u16 vlan; /* of its only tag, or STEER_NO_VLAN without one and with a priority tag */
	__u8 protocol;
	__u8 kind; /* enum steer_kind */
};

struct steer_flow {
	__u32 to;   /* enum steer_to */
	__u32 mark; /* for whoever reads the frame's metadata */
	__u32 slot; /* of its counts */
	__u32 live; /* whether it came while the daemon ran, and not from the configuration */
	__u64 expires; /* CLOCK_MONOTONIC in nanoseconds; 0: never */
};

struct steer_count {
	__u64 packets;
	__u64 bytes;
};

/*
 * In front of a frame, data_meta pointing at it. The last two are the bridge's number (struct
 * bridge_mark), so that this always stands right before the frame; without one they are zero.
 */
struct steer_meta {
	__u32 hash; /* of its conversation, as the workers have it */
	__u32 mark; /* of its exact flow, or zero */
	__u32 number;
	__u32 check;
};

/* Low bits of the flow's hash. */
#define STEER_BUCKETS 256

struct steer_table {
	__u32 to[STEER_BUCKETS]; /* enum steer_to, of which no bucket has STEER_ROOM */
	__u32 live; /* whether it was changed while the daemon ran */
	__u32 reserved;
};

/* What the stage has decided, by target; CPUs follow in their order. */
enum steer_counted {
	STEER_COUNT_UNMARKED = 0, /* frames that had no room for metadata */
	STEER_COUNT_WORKER = 1,
	STEER_COUNT_KERNEL = 2,
	STEER_COUNT_CPU = 3,
};

#endif
