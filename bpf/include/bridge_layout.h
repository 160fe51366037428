/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the bridge stage and user space agree on; crates/xdp/src/bridge/ mirrors it, and its tests
 * compare both sides through the object's BTF.
 */
#ifndef BRIDGE_LAYOUT_H
#define BRIDGE_LAYOUT_H

#include <linux/types.h>

enum bridge_where {
	BRIDGE_PORT = 0xfff,
	BRIDGE_TAGGED = 1 << 16,    /* frames leave with a tag */
	BRIDGE_PROTECTED = 1 << 17, /* its port is protected */
	BRIDGE_STATIC = 1 << 18,    /* never moves */
	BRIDGE_REACHED = 1 << 19,   /* its device takes redirected frames */
	/* Bytes of the longest frame: two bits here, the others above. */
	BRIDGE_LENGTH_LOW = 12,
	BRIDGE_LENGTH_HIGH = 20,
};

/* A station of the table, as one cache line holds four of them. */
struct bridge_station {
	__u64 key;   /* VLAN above 48 bits of address, first octet lowest; 0: empty */
	enum bridge_where where; /* its port, flags and length */
	__u32 used;  /* second in which it was last seen as a source; the hook writes it */
};

#define BRIDGE_STATIONS 4

struct bridge_line {
	struct bridge_station at[BRIDGE_STATIONS];
};

/* No VLAN: untagged frames are not the hook's. */
#define BRIDGE_NO_VLAN 0xffff

/* Who asks for known stations. */
enum bridge_presence {
	BRIDGE_STAGE = 1,     /* the stage of a bridge that learns alone */
	BRIDGE_FOR_FLOWS = 2, /* flows whose rules say NORMAL */
};

/* Which frames with a tag are taken. */
enum bridge_tags {
	BRIDGE_TAGS_NONE = 0,
	BRIDGE_TAGS_ALL = 1,
	BRIDGE_TAGS_BUT_UNTAGGED = 2, /* but for that of the VLAN of untagged frames */
};

/* The constants of one port's bridge stage; without a port there is no stage. */
struct bridge_conf {
	enum bridge_presence present;
	__u32 port;       /* its number: in `where`, in bridge_devices and in bridge_counts */
	__u32 untagged;   /* VLAN of untagged frames, or BRIDGE_NO_VLAN */
	__u32 tagged;     /* enum bridge_tags */
	__u32 protect;    /* whether it is protected */
	__u32 learning;   /* whether stations are learned here */
	__u32 partial;    /* whether senders leave checksums open */
	__u32 shift;      /* of the table's hash */
	__u64 factor;     /* of the table's hash: odd, secret */
};

/* Flows whose order is kept apart, per queue. */
#define BRIDGE_BUCKETS 4096
#define BRIDGE_BUCKETS_OF_LINE 16
#define BRIDGE_BUCKET_LINES (BRIDGE_BUCKETS / BRIDGE_BUCKETS_OF_LINE)

/*
 * The order of one queue. The first line is the hook's, the second is user space's.
 */
struct bridge_order {
	__u32 sent;    /* number of the last frame steered up; some had no room for it */
	__u32 waiting; /* frames that went up, with their number, for the sake of their order alone */
	__u32 reserved0[14];
	__u64 done;   /* all frames up to this number have left */
	__u64 now;    /* seconds */
	__u64 hold;   /* drop what waits for its order: the queue loses frames anyway */
	__u64 bypass; /* steer everything up: somebody watches */
	__u64 reserved1[4];
};

struct bridge_flows {
	__u32 last[BRIDGE_BUCKETS_OF_LINE];
};

/* In front of every frame that is steered up. */
struct bridge_mark {
	__u32 number;
	__u32 check; /* number ^ BRIDGE_MARK */
};

#define BRIDGE_MARK 0x54726976

struct bridge_count {
	__u64 rx_packets;
	__u64 rx_bytes;
	__u64 tx_packets;
	__u64 tx_bytes;
};

/* As many ports as one process has. */
#define BRIDGE_PORTS 1024

#endif
