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
	__u32 present;
	__u32 vrrp; /* whether the Ethernet addresses of VRRP are the port's, too */
	__u64 mac;  /* the device's address, first octet lowest */
};

/* Addresses of each family that a router can have of its own. */
#define ROUTE_OWN 65536

#endif
