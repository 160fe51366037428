/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the hook and user space agree on: the program's constants, the counters and the sizes of
 * the maps. crates/xdp mirrors every value here; its tests compare both sides through the
 * object's BTF, so a change on one side alone fails.
 */
#ifndef TRIVIUM_LAYOUT_H
#define TRIVIUM_LAYOUT_H

#include <linux/types.h>

/* Who owns the frames of the port. */
enum trivium_owner {
	/* A bridge (or a tenant): the kernel gets nothing. */
	TRIVIUM_OWNER_BRIDGED = 0,
	/* A routed port: the kernel keeps its own traffic, the rest is the router's. */
	TRIVIUM_OWNER_ROUTED = 1,
	/* The same of a virtual router, whose ports share its own addresses: stage_route.h. */
	TRIVIUM_OWNER_ROUTER = 2,
};

/*
 * One counter per way out of the program, in packets. Every frame increments exactly one, so
 * their sum is the number of frames seen. Append only: a successor process reads the maps of an
 * older program.
 */
enum trivium_counter {
	TRIVIUM_COUNT_STEERED = 0,        /* redirected to the queue's socket */
	TRIVIUM_COUNT_DOWN_PASSED = 1,    /* no socket in the slot, when_down = pass */
	TRIVIUM_COUNT_DOWN_DROPPED = 2,   /* no socket in the slot, when_down = drop */
	TRIVIUM_COUNT_PASSED_CONTROL = 3, /* neither IPv4 nor IPv6: ARP, LLDP, LACP, ... */
	TRIVIUM_COUNT_PASSED_GROUP = 4,   /* broadcast or multicast, by MAC or IP address */
	TRIVIUM_COUNT_PASSED_LOCAL4 = 5,  /* to an IPv4 address of this host */
	TRIVIUM_COUNT_PASSED_LOCAL6 = 6,  /* to an IPv6 address of this host, or link-local */
	TRIVIUM_COUNT_PASSED_FRAGMENT = 7,  /* an IP fragment, first ones included */
	TRIVIUM_COUNT_PASSED_MALFORMED = 8, /* headers truncated, contradictory or too deep */
	TRIVIUM_COUNT_ABORTED = 9,        /* a verdict that no stage may give: a defect */
	TRIVIUM_COUNT_FILTER_DROPPED = 10, /* a rule of the filter says drop */
	TRIVIUM_COUNT_FILTER_LIMITED = 11, /* over the rate of a rule of the filter */
	TRIVIUM_COUNT_BRIDGED = 12,	/* redirected to the device of a known station */
	TRIVIUM_COUNT_BRIDGE_LOST = 13, /* its device went, or the frame has no room for a tag */
	TRIVIUM_COUNT_BRIDGE_HELD = 14, /* the queue overflows, and its flow changes to the hook */
	TRIVIUM_COUNT_FIB_FORWARDED = 15, /* routed as the kernel would, and redirected */
	/* The rest of a port in the kernel's care went to its stack: */
	TRIVIUM_COUNT_FIB_STATION = 16, /* for another station's MAC address */
	TRIVIUM_COUNT_FIB_TAGGED = 17,  /* with a VLAN tag */
	TRIVIUM_COUNT_FIB_ADDRESS = 18, /* from or to an address that is not forwarded as it is */
	TRIVIUM_COUNT_FIB_TTL = 19,     /* TTL or hop limit of 1 or 0 */
	TRIVIUM_COUNT_FIB_OPTIONS = 20, /* IPv4 options, IPv6 extension headers */
	TRIVIUM_COUNT_FIB_PARTIAL = 21, /* its checksum is to be completed */
	/* In the order of the codes that bpf_fib_lookup() returns, from 1 on. */
	TRIVIUM_COUNT_FIB_BLACKHOLE = 22,
	TRIVIUM_COUNT_FIB_UNREACHABLE = 23,
	TRIVIUM_COUNT_FIB_PROHIBIT = 24,
	TRIVIUM_COUNT_FIB_NO_ROUTE = 25,  /* none, or to this host, to a broadcast address */
	TRIVIUM_COUNT_FIB_DISABLED = 26,  /* forwarding is off at the device */
	TRIVIUM_COUNT_FIB_TUNNEL = 27,    /* the route encapsulates */
	TRIVIUM_COUNT_FIB_NEIGHBOR = 28,  /* the next hop's MAC address is not known */
	TRIVIUM_COUNT_FIB_TOO_LONG = 29,  /* for the route or the device */
	TRIVIUM_COUNT_FIB_FAILED = 30,    /* a helper refused, or gave a code that is not known here */
	TRIVIUM_COUNT_FIB_SAME_DEVICE = 31, /* back to where it came from: the sender may be told */
	TRIVIUM_COUNT_FIB_NO_DEVICE = 32, /* the device takes no redirected frames like this one */
	TRIVIUM_COUNT_STEER_KERNEL = 33, /* given to the kernel by an exact flow or the table */
	TRIVIUM_COUNT_STEER_CPU = 34,   /* the same, on another CPU */
	TRIVIUM_COUNT_FILTER_ANSWERED = 35, /* made an answer with a SYN cookie, and sent back */
	/* A virtual router's port left it to the kernel: */
	TRIVIUM_COUNT_ROUTE_STATION = 36, /* for another station's MAC address */
	TRIVIUM_COUNT_ROUTE_TAGGED = 37,  /* with a VLAN tag */
	TRIVIUM_COUNT_ROUTE_ADDRESS = 38, /* an address that leaves no network, or its own source */
	TRIVIUM_COUNT_ROUTE_TTL = 39,     /* TTL or hop limit of 1 or 0 */
	TRIVIUM_COUNT_ROUTE_OPTIONS = 40, /* IPv4 options, an IPv6 hop-by-hop header */
	TRIVIUM_COUNT_ROUTE_FORWARDED = 41, /* a route was known here, and it was redirected */
	TRIVIUM_COUNT_ROUTE_BLACKHOLE = 42, /* its route says so; dropped */
	TRIVIUM_COUNT_FLOW_FORWARDED = 43, /* of a cached flow of OpenFlow's rules, and redirected */
	TRIVIUM_COUNT_FLOW_DROPPED = 44, /* the same, and its rules drop it */
	TRIVIUM_COUNT_ROUTE_REVERSE_PATH = 45, /* the way back to its source leads elsewhere; dropped */
	TRIVIUM_COUNTERS = 46,
};

/*
 * The constants of one port's program. They are frozen before the program is loaded, so the
 * verifier removes the branches of what is not chosen.
 */
struct trivium_conf {
	enum trivium_owner owner;
	__u32 when_down; /* the verdict when the queue's slot has no socket: XDP_PASS or XDP_DROP */
	__u32 queues;    /* slots of the map xsks; a frame of a higher queue follows when_down */
	enum trivium_counter counters; /* how many this program keeps: user space checks it */
};

/* Local addresses of each family that one port can know. */
#define TRIVIUM_LOCAL_CAPACITY 4096

#endif
