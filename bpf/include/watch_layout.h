/* SPDX-License-Identifier: GPL-2.0-only */
/* Layout that the loss counter and user space share, mirrored in crates/xdp. */
#ifndef WATCH_LAYOUT_H
#define WATCH_LAYOUT_H

#include <linux/types.h>

enum watch_event {
	WATCH_EXCEPTION = 0, /* aborted, an unknown verdict, or one that the driver does not support */
	WATCH_REDIRECT = 1,  /* a redirect that the target refused */
	WATCH_DEVICE = 2,    /* a redirected frame that the target device did not accept */
	WATCH_TRANSMIT = 3,  /* a frame to transmit back that the device did not accept */
	WATCH_CPU = 4,	     /* a redirected frame for a CPU whose queue was full */
};

struct watch_key {
	/* Inode of the receiving device's network namespace. 0 where the kernel does not report it. */
	__u32 netns;
	__u32 ifindex; /* receiving device in its namespace. For a CPU, the id of the CPU map */
	enum watch_event event;
	__u32 code;    /* the verdict of an exception, the number of a CPU, or an error number */
};

/* A single loss event. */
struct watch_told {
	__u64 at; /* bpf_ktime_get_ns() */
	struct watch_key key;
	__u32 frames;
	__u32 reserved;
};

struct watch_conf {
	__u32 each; /* whether each loss is also reported in the ring */
};

/* Maximum number of combinations of device and code. Further losses are counted under a key of zeros. */
#define WATCH_CAPACITY 4096

#endif
