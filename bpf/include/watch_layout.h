/* SPDX-License-Identifier: GPL-2.0-only */
/* What the counter of the kernel's losses and user space agree on; mirrored in crates/xdp. */
#ifndef WATCH_LAYOUT_H
#define WATCH_LAYOUT_H

#include <linux/types.h>

enum watch_event {
	WATCH_EXCEPTION = 0, /* aborted, a verdict that is none, or one that the driver cannot do */
	WATCH_REDIRECT = 1,  /* a redirect that its target refused */
	WATCH_DEVICE = 2,    /* redirected to a device that then did not take it */
	WATCH_TRANSMIT = 3,  /* transmitted back by a device that then did not take it */
	WATCH_CPU = 4,	     /* redirected to a CPU whose queue is full */
};

struct watch_key {
	__u32 netns;   /* inode of the receiving device's namespace; 0 where the kernel does not tell */
	__u32 ifindex; /* of the receiving device, there; for a CPU, the id of the map of CPUs */
	enum watch_event event;
	__u32 code;    /* the verdict of an exception, the CPU, else the error number */
};

/* One loss as it happens. */
struct watch_told {
	__u64 at; /* bpf_ktime_get_ns() */
	struct watch_key key;
	__u32 frames;
	__u32 reserved;
};

struct watch_conf {
	__u32 each; /* whether each loss is told by itself, too */
};

/* Combinations of devices and codes that are told apart; the rest is counted under zeros. */
#define WATCH_CAPACITY 4096

#endif
