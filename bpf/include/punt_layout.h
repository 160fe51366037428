/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the limits of control traffic and user space share. crates/xdp/src/route/punts.rs mirrors it, and
 * its tests compare both sides through the object's BTF.
 */
#ifndef PUNT_LAYOUT_H
#define PUNT_LAYOUT_H

#include <linux/types.h>

/* Classes with a limit, as in crates/packet/src/punt_class.rs. */
enum punt_class {
	PUNT_SESSION = 0,
	PUNT_PEER = 1,
	PUNT_PEER_MULTIHOP = 2,
	PUNT_NEIGHBOUR = 3,
	PUNT_ARP = 4,
	PUNT_ND = 5,
	PUNT_RA = 6,
	PUNT_OSPF = 7,
	PUNT_ISIS = 8,
	PUNT_RIP = 9,
	PUNT_RIPNG = 10,
	PUNT_BFD = 11,
	PUNT_BGP = 12,
	PUNT_VRRP = 13,
	PUNT_LACP = 14,
	PUNT_LLDP = 15,
	PUNT_DHCP = 16,
	PUNT_IGMP = 17,
	PUNT_MLD = 18,
	PUNT_NOT_IP = 19,
	PUNT_GROUP = 20,
	PUNT_OWN = 21,
	PUNT_CLASSES = 22, /* also the value for a frame that no class limits */
};

/* Number of per-interface shares in each class, and number of per-source shares in each class. A power of two. */
#define PUNT_SHARES 256

/* Rate of a class. */
struct punt_rate {
	__u64 interval; /* nanoseconds for each packet, or 0 if no packet is passed */
	__u64 burst;    /* nanoseconds that a packet within its shares may take in advance */
	__u64 open;     /* nanoseconds that a packet beyond its shares may take in advance */
};

/*
 * State of a router's limits. A bucket and a share are the time until which their tokens are spent (ITU-T I.371,
 * virtual scheduling), in nanoseconds of the monotonic clock.
 */
struct punt_state {
	struct punt_rate rates[PUNT_CLASSES];
	__u64 secrets[4]; /* secret numbers of the hash that selects a source's share */
	__u64 buckets[PUNT_CLASSES];
	__u64 interfaces[PUNT_CLASSES][PUNT_SHARES];
	__u64 sources[PUNT_CLASSES][PUNT_SHARES];
};

/*
 * A known peer of the host's routing daemons. An IPv4 address is in the first four bytes of its field, and the
 * other bytes are 0. Fields that do not concern a peer of this kind are 0.
 */
struct punt_peer {
	__u16 kind; /* PUNT_SESSION, PUNT_PEER or PUNT_PEER_MULTIHOP, with PUNT_IPV6 */
	__u16 interface;
	__be16 here_port;
	__be16 far_port;
	__u8 here[16];
	__u8 far[16];
};

#define PUNT_IPV6 0x100

/* Maximum number of known peers of a router. */
#define PUNT_PEERS 8192

/* Packets of one class that one CPU has passed to the kernel, and that it has dropped. */
struct punt_count {
	__u64 passed;
	__u64 dropped;
};

#endif
