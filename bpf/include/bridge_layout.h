/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the bridge stage and user space share. crates/xdp/src/bridge/ mirrors it, and its tests compare
 * both sides through the object's BTF.
 */
#ifndef BRIDGE_LAYOUT_H
#define BRIDGE_LAYOUT_H

#include <linux/types.h>

enum bridge_where {
	BRIDGE_PORT = 0xfff,
	BRIDGE_TAGGED = 1 << 16,    /* frames leave with a tag */
	BRIDGE_PROTECTED = 1 << 17, /* the station's port is protected */
	BRIDGE_STATIC = 1 << 18,    /* the station never moves */
	BRIDGE_REACHED = 1 << 19,   /* the device accepts redirected frames */
	/* Positions of the longest frame length in bytes: the low two bits, and the other bits. */
	BRIDGE_LENGTH_LOW = 12,
	BRIDGE_LENGTH_HIGH = 20,
};

/* A station of the table. A cache line holds four of them. */
struct bridge_station {
	__u64 key;   /* VLAN above the 48 bits of the MAC address (first octet lowest). 0 if the slot is empty */
	enum bridge_where where; /* port number, flags and frame length */
	__u32 used;  /* second in which the station was last seen as a source, written by the hook */
};

#define BRIDGE_STATIONS 4

struct bridge_line {
	struct bridge_station at[BRIDGE_STATIONS];
};

/* No VLAN: untagged frames go to the worker. */
#define BRIDGE_NO_VLAN 0xffff

/* Stage that reads the station table. */
enum bridge_presence {
	BRIDGE_STAGE = 1,     /* the stage of a bridge that learns by itself */
	BRIDGE_FOR_FLOWS = 2, /* flows with the action NORMAL */
};

/* Tagged frames that the hook forwards. */
enum bridge_tags {
	BRIDGE_TAGS_NONE = 0,
	BRIDGE_TAGS_ALL = 1,
	BRIDGE_TAGS_BUT_UNTAGGED = 2, /* all but those of the VLAN of untagged frames */
};

/* Constants of one port's bridge stage. Without a port there is no stage. */
struct bridge_conf {
	enum bridge_presence present;
	__u32 port;       /* port number in `where`, bridge_devices and bridge_counts */
	__u32 untagged;   /* VLAN of untagged frames, or BRIDGE_NO_VLAN */
	__u32 tagged;     /* enum bridge_tags */
	__u32 protect;    /* whether the port is protected */
	__u32 learning;   /* whether stations are learned on the port */
	__u32 partial;    /* whether senders may leave partial checksums */
	__u32 shift;      /* shift of the table's hash */
	__u64 factor;     /* factor of the table's hash, odd and secret */
};

/* Number of buckets per queue. The frames of each bucket keep their order. */
#define BRIDGE_BUCKETS 4096
#define BRIDGE_BUCKETS_OF_LINE 16
#define BRIDGE_BUCKET_LINES (BRIDGE_BUCKETS / BRIDGE_BUCKETS_OF_LINE)

/* State of the frame order of one queue. The hook writes the first cache line, and user space writes the second. */
struct bridge_order {
	/* Number of the last frame sent to the worker. Some frames have no space for the number. */
	__u32 sent;
	__u32 waiting; /* numbered frames that went to the worker only because earlier frames were pending */
	__u32 partial; /* whether the last TCP or UDP packet had a partial checksum (partial_checksum.h) */
	__u32 reserved0[13];
	__u64 done;   /* all frames up to this number have left the worker */
	__u64 now;    /* seconds */
	__u64 hold;   /* whether frames that wait for earlier frames are dropped, because the queue overflows */
	/* Whether all frames go to the worker, for an observer: 1 if the queue has a worker, 2 always. */
	__u64 bypass;
	__u64 reserved1[4];
};

struct bridge_flows {
	__u32 last[BRIDGE_BUCKETS_OF_LINE];
};

/* Mark in front of every frame that is sent to the worker. */
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

/* Maximum number of ports of one process. */
#define BRIDGE_PORTS 1024

#endif
