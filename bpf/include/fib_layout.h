/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the stage of the kernel's routing and user space agree on; crates/xdp/src/fib.rs mirrors it,
 * and its tests compare both sides through the object's BTF.
 */
#ifndef FIB_LAYOUT_H
#define FIB_LAYOUT_H

#include <linux/types.h>

/* The constants of one port's stage. */
struct fib_conf {
	__u32 present;
	__u32 sources;  /* whether the way back to an IPv4 source must lead to this port (rp_filter) */
	__u32 partial;  /* whether senders leave checksums open */
	__u32 reserved;
	__u64 mac;      /* the device's address, first octet lowest */
};

/* What was sent by one device. */
struct fib_count {
	__u64 packets;
	__u64 bytes;
};

/* Devices of one namespace. */
#define FIB_DEVICES 4096

/* Under its index a device takes single buffers; under this and its index, several of a frame. */
#define FIB_MULTI_BUFFER (1U << 31)

#endif
