/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the stage of kernel routing and user space share. crates/xdp/src/fib.rs mirrors it, and its
 * tests compare both sides through the object's BTF.
 */
#ifndef FIB_LAYOUT_H
#define FIB_LAYOUT_H

#include <linux/types.h>

/* Constants of one port's stage. */
struct fib_conf {
	__u32 present;
	__u32 sources;  /* whether the reverse path of an IPv4 source must lead to this port (rp_filter) */
	__u32 partial;  /* whether senders may leave partial checksums */
	__u32 reserved;
	__u64 mac;      /* address of the device, first octet lowest */
};

/* Packets and bytes sent through one device. */
struct fib_count {
	__u64 packets;
	__u64 bytes;
};

/* Maximum number of devices of one namespace. */
#define FIB_DEVICES 4096

/*
 * Flag in the key of a device. The index alone is for single-buffer frames, and the index with the flag for
 * multi-buffer frames.
 */
#define FIB_MULTI_BUFFER (1U << 31)

#endif
