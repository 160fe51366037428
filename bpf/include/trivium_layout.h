/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the hook and user space share: the program's constants, the counters and the sizes of the maps.
 * crates/xdp mirrors every value. Its tests compare both sides through the object's BTF, so a change on one
 * side alone fails.
 */
#ifndef TRIVIUM_LAYOUT_H
#define TRIVIUM_LAYOUT_H

#include <linux/types.h>

/* Owner of the port's frames. */
enum trivium_owner {
	/* A bridge or a tenant. No frame goes to the kernel. */
	TRIVIUM_OWNER_BRIDGED = 0,
	/* A routed port. The kernel keeps its own traffic, and the router gets the rest. */
	TRIVIUM_OWNER_ROUTED = 1,
	/*
	 * A port of a virtual router, which shares the router's own addresses with its other ports:
	 * stage_route.h.
	 */
	TRIVIUM_OWNER_ROUTER = 2,
	/* Nothing. Every frame is dropped before all stages, because the filter of the port is not there yet. */
	TRIVIUM_OWNER_CLOSED = 3,
};

/*
 * Counters of packets, one per outcome of the program. Every frame increments exactly one, so their sum is
 * the number of frames seen. New counters are only appended, because a successor process reads the maps of an
 * older program.
 */
enum trivium_counter {
	TRIVIUM_COUNT_STEERED = 0,        /* redirected to the queue's socket */
	TRIVIUM_COUNT_DOWN_PASSED = 1,    /* passed: no socket in the slot, when_down is pass */
	TRIVIUM_COUNT_DOWN_DROPPED = 2,   /* dropped: no socket in the slot and when_down is drop, or closed */
	TRIVIUM_COUNT_PASSED_CONTROL = 3, /* passed: neither IPv4 nor IPv6, for example ARP, LLDP, LACP */
	TRIVIUM_COUNT_PASSED_GROUP = 4,   /* passed: broadcast or multicast, by MAC or IP address */
	TRIVIUM_COUNT_PASSED_LOCAL4 = 5,  /* passed: to an IPv4 address of this host */
	TRIVIUM_COUNT_PASSED_LOCAL6 = 6,  /* passed: to an IPv6 address of this host, or link-local */
	TRIVIUM_COUNT_PASSED_FRAGMENT = 7,  /* passed: IP fragment, including first fragments */
	TRIVIUM_COUNT_PASSED_MALFORMED = 8, /* passed: headers truncated, contradictory or too many */
	TRIVIUM_COUNT_ABORTED = 9,        /* a stage returned an invalid verdict, which is a defect */
	TRIVIUM_COUNT_FILTER_DROPPED = 10, /* dropped by a rule of the filter */
	TRIVIUM_COUNT_FILTER_LIMITED = 11, /* dropped: over the rate of a filter rule */
	TRIVIUM_COUNT_BRIDGED = 12,	/* redirected to the device of a known station */
	TRIVIUM_COUNT_BRIDGE_LOST = 13, /* dropped: device is gone, or no space for a tag */
	TRIVIUM_COUNT_BRIDGE_HELD = 14, /* dropped: waited for earlier frames of its flow while the queue overflowed */
	TRIVIUM_COUNT_FIB_FORWARDED = 15, /* forwarded according to the kernel's routes */
	/* Frames that a port with kernel routing passes to the stack: */
	TRIVIUM_COUNT_FIB_STATION = 16, /* to another station's MAC address */
	TRIVIUM_COUNT_FIB_TAGGED = 17,  /* VLAN tag */
	TRIVIUM_COUNT_FIB_ADDRESS = 18, /* from or to an address that must not be forwarded */
	TRIVIUM_COUNT_FIB_TTL = 19,     /* TTL or hop limit of 1 or 0 */
	TRIVIUM_COUNT_FIB_OPTIONS = 20, /* IPv4 options, IPv6 extension headers */
	TRIVIUM_COUNT_FIB_PARTIAL = 21, /* partial checksum */
	/* These are in the order of the codes that bpf_fib_lookup() returns, from 1 on. */
	TRIVIUM_COUNT_FIB_BLACKHOLE = 22,
	TRIVIUM_COUNT_FIB_UNREACHABLE = 23,
	TRIVIUM_COUNT_FIB_PROHIBIT = 24,
	TRIVIUM_COUNT_FIB_NO_ROUTE = 25,  /* no route, or a route to this host or to a broadcast address */
	TRIVIUM_COUNT_FIB_DISABLED = 26,  /* forwarding is disabled on the device */
	TRIVIUM_COUNT_FIB_TUNNEL = 27,    /* the route encapsulates */
	TRIVIUM_COUNT_FIB_NEIGHBOR = 28,  /* the next hop's MAC address is unknown */
	TRIVIUM_COUNT_FIB_TOO_LONG = 29,  /* longer than the MTU of the route or the device */
	TRIVIUM_COUNT_FIB_FAILED = 30,    /* a helper failed, or returned an unknown code */
	TRIVIUM_COUNT_FIB_SAME_DEVICE = 31, /* output device is input device: the stack may send a redirect */
	TRIVIUM_COUNT_FIB_NO_DEVICE = 32, /* the device accepts no redirected frames of this kind */
	TRIVIUM_COUNT_STEERING_KERNEL = 33, /* passed to the kernel by an exact flow or the table */
	/* Passed to the kernel on another CPU by an exact flow or the table. */
	TRIVIUM_COUNT_STEERING_CPU = 34,
	TRIVIUM_COUNT_FILTER_ANSWERED = 35, /* turned into an answer with a SYN cookie, and sent back */
	/* Frames that a virtual router's port passes to the kernel: */
	TRIVIUM_COUNT_ROUTE_STATION = 36, /* to another station's MAC address */
	TRIVIUM_COUNT_ROUTE_TAGGED = 37,  /* VLAN tag that is not configured */
	/* An address that is never routed, or the router's own as the source. */
	TRIVIUM_COUNT_ROUTE_ADDRESS = 38,
	TRIVIUM_COUNT_ROUTE_TTL = 39,     /* TTL or hop limit of 1 or 0 */
	TRIVIUM_COUNT_ROUTE_OPTIONS = 40, /* IPv4 options, or an IPv6 hop-by-hop header */
	TRIVIUM_COUNT_ROUTE_FORWARDED = 41, /* forwarded according to a virtual router's route */
	TRIVIUM_COUNT_ROUTE_BLACKHOLE = 42, /* dropped by a blackhole route of a virtual router */
	TRIVIUM_COUNT_FLOW_FORWARDED = 43, /* matched a cached OpenFlow flow, and redirected */
	TRIVIUM_COUNT_FLOW_DROPPED = 44, /* dropped by the actions of a cached OpenFlow flow */
	TRIVIUM_COUNT_ROUTE_REVERSE_PATH = 45, /* dropped: the reverse path of the source leads elsewhere */
	TRIVIUM_COUNT_ROUTE_LIMITED = 46, /* dropped: over a limit of a virtual router's control traffic */
	TRIVIUM_COUNTERS = 47,
};

/*
 * Constants of one port's program. They are frozen before the program is loaded, so the verifier removes
 * branches that are not used.
 */
struct trivium_conf {
	enum trivium_owner owner;
	__u32 when_down; /* verdict when the queue's slot has no socket: XDP_PASS or XDP_DROP */
	__u32 queues;    /* slots of the map xsks. Frames of a higher queue get the verdict when_down */
	enum trivium_counter counters; /* number of counters of this program, which user space checks */
};

/* Maximum number of local addresses of each family on a port. */
#define TRIVIUM_LOCAL_CAPACITY 4096

#endif
