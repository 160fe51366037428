/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the stage of a virtual router's port and user space share. crates/xdp/src/route.rs mirrors it,
 * and its tests compare both sides through the object's BTF.
 */
#ifndef ROUTE_LAYOUT_H
#define ROUTE_LAYOUT_H

#include <linux/types.h>

/* Constants of one port's stage. */
struct route_conf {
	__u32 present; /* 1, with the flags ROUTE_HAS_VLANS, ROUTE_HAS_SERVICE, ROUTE_ORDERED and ROUTE_LIMITED */
	__u32 vrrp; /* whether the port also owns the Ethernet addresses of VRRP */
	__u64 mac;  /* address of the device, first octet lowest */
	/* The following constants concern routes in the hook. */
	__u32 answers;    /* whether the hook routes */
	__u32 partial;    /* whether senders may leave partial checksums */
	__u32 port;       /* port number in `where`, route_devices and route_counts */
	__u32 seed;       /* seed of the choice among several next hops */
	__u32 words4;     /* words of the IPv4 trie, a power of two, less one */
	__u32 words6;     /* words of the IPv6 trie, a power of two, less one */
	__u32 lines;      /* lines of route_links, a power of two, less one */
	__u32 neighbours; /* entries of route_nexthops, and entries of route_sent per CPU */
	__u32 interface;  /* number of the port's own interface */
	__u32 sources;    /* enum route_sources */
};

/*
 * Flag of `present`: some VLANs are interfaces of the router, and their frames do not belong to the kernel.
 */
#define ROUTE_HAS_VLANS 2
/* Flag of `present`: some of these VLANs have a service tag. Their frames go to the worker. */
#define ROUTE_HAS_SERVICE 4
/*
 * Flag of `present`: frames to the worker are numbered, and frames that the hook could forward wait for them
 * (route_order.h).
 */
#define ROUTE_ORDERED 8
/* Flag of `present`: control traffic to the kernel is limited (stage_punt.h). */
#define ROUTE_LIMITED 16

/* Reverse path check of packet sources (RFC 3704). */
enum route_sources {
	ROUTE_SOURCES_ANY = 0,
	ROUTE_SOURCES_STRICT = 1, /* a route to the source leads out of the receiving interface */
	ROUTE_SOURCES_LOOSE = 2,  /* a route to the source exists */
};

/*
 * Entries by VLAN identifier: 0, the number of the VLAN's interface plus 1, or ROUTE_VLAN_UP if its frames go
 * to the worker.
 */
#define ROUTE_VLANS 4096
#define ROUTE_VLAN_UP 0xffff

/* Maximum number of a router's own addresses of each family. */
#define ROUTE_OWN 65536

/*
 * A bit for each hash value of the own addresses, for each family. Most transit destinations find no bit set,
 * so the hash tables of own addresses, which have as many buckets as entries, are not read. Hashes have 16
 * bits (route_is_own4, route_is_own6).
 */
struct route_own_bits {
	__u64 words[1024];
};
#define ROUTE_MIX 0x9e3779b97f4a7c15ULL
#define ROUTE_MIX_LOW 0xd6e8feb86659fd93ULL

/*
 * A trie that crates/lookup writes: the default hop, the entries of the root, and nodes of three words. The
 * words of a node show which of 64 slots are nodes, where other hops begin, and where both are stored. User
 * space sets the length of the map.
 */
struct route_trie {
	__u64 words[1 << 20];
};

/* Flag of a root entry in its upper half: the lower half is the index of a node. */
#define ROUTE_NODE (1ULL << 63)
#define ROUTE_ROOT4 18
#define ROUTE_ROOT6 16

/* Kind of a path (crates/router/src/mirror.rs) in its upper half. The lower half is a number. */
enum route_path {
	ROUTE_PATH_UP = 0, /* the worker decides */
	ROUTE_PATH_WAY = 1,
	ROUTE_PATH_GROUP = 2,
	ROUTE_PATH_BLACKHOLE = 3,
};

/* Next hops of a group by flow bucket. */
#define ROUTE_BUCKETS 1024
struct route_group {
	__u32 ways[ROUTE_BUCKETS];
};

/* A neighbour that packets are sent to. */
struct route_neighbour {
	__u64 to;    /* Ethernet address, first octet lowest, and flags */
	__u64 place; /* device, above the number of the router's interface */
	__u64 high;  /* IP address of the neighbour on the link of that device */
	__u64 low;
};

/* Flags of `to`: the address may be used, and destinations are on the link itself. */
#define ROUTE_RESOLVED (1ULL << 48)
#define ROUTE_ON_LINK (1ULL << 49)

/* A hash line of neighbour numbers, below bits of the hash of their addresses. 0 when a slot is free. */
#define ROUTE_LINE 8
struct route_line {
	__u64 entries[ROUTE_LINE];
};

/* An interface of the router. */
struct route_interface {
	__u64 from;  /* Ethernet address, first octet lowest, below flags and tag */
	__u64 where; /* kernel device, above 12 bits of the port number and 20 bits of the MTU */
};

/*
 * Fields of `from`: whether the device accepts redirected frames, whether also multi-buffer frames, and the
 * VLAN of the tag (0 for none).
 */
#define ROUTE_TAKES (1ULL << 48)
#define ROUTE_TAKES_MULTI (1ULL << 49)
#define ROUTE_TAG 52
#define ROUTE_WHERE_PORT 20
#define ROUTE_PORT 0xfff
#define ROUTE_MTU 0xfffff

#define ROUTE_INTERFACES 1024

/*
 * Secret numbers of the hash of route_links, six for each of an address's two places. They also select the
 * buckets of the frame order (route_order.h).
 */
#define ROUTE_LINK_SECRETS 12

/*
 * Address families that the hook routes. With ROUTE_WATCHED, the packets of queues with a worker go to the
 * worker, for an observer. With ROUTE_WATCHED_TEST, all packets do.
 */
struct route_switch {
	__u64 families;
};

#define ROUTE_IPV4 1
#define ROUTE_IPV6 2
#define ROUTE_WATCHED 4
#define ROUTE_WATCHED_TEST 8

/* Packets and bytes that one CPU has sent to a neighbour. */
struct route_sent {
	__u64 packets;
	__u64 bytes;
};

/* Packets and bytes that a port has received or sent. */
struct route_count {
	__u64 rx_packets;
	__u64 rx_bytes;
	__u64 tx_packets;
	__u64 tx_bytes;
};

/* Maximum number of ports of one process. */
#define ROUTE_PORTS 1024

#endif
