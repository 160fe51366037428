/* SPDX-License-Identifier: GPL-2.0-only */
/* What the replay of recorded frames and user space agree on; mirrored in crates/xdp. */
#ifndef REPLAY_LAYOUT_H
#define REPLAY_LAYOUT_H

#include <linux/types.h>

/* An Ethernet frame of 1500 bytes' payload with two VLAN tags. */
#define REPLAY_FRAME_MAX 1522

struct replay_conf {
	__u32 ifindex; /* where the frames go */
	__u32 frames;  /* elements of the map */
	__u32 random;  /* 1: in pseudo-random order; 0: in turn */
	__u32 reserved;
};

struct replay_frame {
	__u32 length;
	__u8 bytes[REPLAY_FRAME_MAX];
	__u8 reserved[2];
};

#endif
