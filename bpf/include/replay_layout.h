/* SPDX-License-Identifier: GPL-2.0-only */
/* Layout that the replay of recorded frames and user space share, mirrored in crates/xdp. */
#ifndef REPLAY_LAYOUT_H
#define REPLAY_LAYOUT_H

#include <linux/types.h>

/* Maximum length of a frame in bytes: a payload of 1500 bytes with two VLAN tags. */
#define REPLAY_FRAME_MAX 1522

struct replay_conf {
	__u32 ifindex; /* output device */
	__u32 frames;  /* number of elements of the map */
	__u32 random;  /* 1 for pseudo-random order, 0 for sequential order */
	__u32 reserved;
};

struct replay_frame {
	__u32 length;
	__u8 bytes[REPLAY_FRAME_MAX];
	__u8 reserved[2];
};

#endif
