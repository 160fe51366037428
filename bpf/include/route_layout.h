/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the stage of a virtual router's port and user space agree on; crates/xdp/src/route.rs mirrors
 * it, and its tests compare both sides through the object's BTF.
 */
#ifndef ROUTE_LAYOUT_H
#define ROUTE_LAYOUT_H

#include <linux/types.h>

/* The constants of one port's stage. */
struct route_conf {
	__u32 present; /* 1, perhaps with ROUTE_HAS_VLANS, ROUTE_HAS_SERVICE and ROUTE_ORDERED */
	__u32 vrrp; /* whether the Ethernet addresses of VRRP are the port's, too */
	__u64 mac;  /* the device's address, first octet lowest */
	/* Of routes that are answered here: */
	__u32 answers;    /* whether they are */
	__u32 partial;    /* whether senders leave checksums open */
	__u32 port;       /* its number: in `where`, in route_devices and in route_counts */
	__u32 seed;       /* of the choice among several ways */
	__u32 words4;     /* of the IPv4 trie, a power of two, less one */
	__u32 words6;     /* of the IPv6 trie */
	__u32 lines;      /* of route_links, a power of two, less one */
	__u32 neighbours; /* of route_nexthops: of route_sent each CPU has so many */
	__u32 interface;  /* the number of its own interface */
	__u32 sources;    /* enum route_sources */
};

/* Of `present`: some VLANs are the router's interfaces, and their frames are not the kernel's. */
#define ROUTE_HAS_VLANS 2
/* Some of these stand behind a service tag, whose frames are all the worker's. */
#define ROUTE_HAS_SERVICE 4
/* Frames that go up are numbered, and those that are answered wait for them (route_order.h). */
#define ROUTE_ORDERED 8

/* What is asked of the sources of packets (RFC 3704). */
enum route_sources {
	ROUTE_SOURCES_ANY = 0,
	ROUTE_SOURCES_STRICT = 1, /* a route leads there by the interface that the packet came by */
	ROUTE_SOURCES_LOOSE = 2,  /* a route leads there */
};

/* Of each VLAN identifier: 0, the number of its interface and 1, or that its frames are the worker's. */
#define ROUTE_VLANS 4096
#define ROUTE_VLAN_UP 0xffff

/* Addresses of each family that a router can have of its own. */
#define ROUTE_OWN 65536

/*
 * Of each family a bit for each hash that one of its own addresses has: what goes elsewhere mostly meets none, and the tables of own
 * addresses, whose hash buckets are as many as addresses fit, are not read. Hashes are of 16 bits (route_mix4, route_mix6).
 */
struct route_own_bits {
	__u64 words[1024];
};
#define ROUTE_MIX 0x9e3779b97f4a7c15ULL
#define ROUTE_MIX_LOW 0xd6e8feb86659fd93ULL

/*
 * What crates/lookup writes: the default hop, the root's entries, and nodes of three words, which say
 * which of 64 slots are nodes, where other hops begin, and where both stand. User space gives the
 * map its length.
 */
struct route_trie {
	__u64 words[1 << 20];
};

/* In the upper half of an entry of the root: its lower half is the place of a node. */
#define ROUTE_NODE (1ULL << 63)
#define ROUTE_ROOT4 18
#define ROUTE_ROOT6 16

/* What a path says (crates/router/src/mirror.rs), in its upper half; the lower half is a number. */
enum route_path {
	ROUTE_PATH_UP = 0, /* the worker knows */
	ROUTE_PATH_WAY = 1,
	ROUTE_PATH_GROUP = 2,
	ROUTE_PATH_BLACKHOLE = 3,
};

/* Ways by buckets of flows. */
#define ROUTE_BUCKETS 1024
struct route_group {
	__u32 ways[ROUTE_BUCKETS];
};

/* Whom packets are sent to. */
struct route_neighbour {
	__u64 to;    /* its address, first octet lowest, and flags */
	__u64 place; /* its device, above the number of the router's interface */
	__u64 high;  /* the address that it is found by behind that device */
	__u64 low;
};

/* Of `to`: the address may be used; destinations are on the link itself. */
#define ROUTE_RESOLVED (1ULL << 48)
#define ROUTE_ON_LINK (1ULL << 49)

/* Numbers of neighbours, below parts of their addresses' hash; 0: free. */
#define ROUTE_LINE 8
struct route_line {
	__u64 entries[ROUTE_LINE];
};

/* One of the router's interfaces. */
struct route_interface {
	__u64 from;  /* its address, first octet lowest, below flags and tag */
	__u64 where; /* its device in the kernel, above 12 bits of the port's number and 20 of the MTU */
};

/* Of `from`: the device takes redirected frames, and such of several buffers; the VLAN of its tag, 0: none. */
#define ROUTE_TAKES (1ULL << 48)
#define ROUTE_TAKES_MULTI (1ULL << 49)
#define ROUTE_TAG 52
#define ROUTE_WHERE_PORT 20
#define ROUTE_PORT 0xfff
#define ROUTE_MTU 0xfffff

#define ROUTE_INTERFACES 1024

/* Secret numbers of the hash of route_links: six for each of its two places. */
#define ROUTE_LINK_SECRETS 12

/* What is answered at all. */
struct route_switch {
	__u64 families;
};

#define ROUTE_IPV4 1
#define ROUTE_IPV6 2

/* What was sent to a neighbour by one CPU. */
struct route_sent {
	__u64 packets;
	__u64 bytes;
};

/* What was received or sent by a port. */
struct route_count {
	__u64 rx_packets;
	__u64 rx_bytes;
	__u64 tx_packets;
	__u64 tx_bytes;
};

/* As many ports as one process has. */
#define ROUTE_PORTS 1024

#endif
