/* SPDX-License-Identifier: GPL-2.0-only */
/* What the capture of a hook and user space agree on; mirrored in crates/xdp. */
#ifndef DUMP_LAYOUT_H
#define DUMP_LAYOUT_H

#include <linux/types.h>

/* Most bytes of a frame that are copied, at entry and at exit each: a power of two. */
#define DUMP_SNAP_MAX 2048

struct dump_conf {
	__u32 snap;     /* bytes that are copied, at most DUMP_SNAP_MAX */
	__u32 verdicts; /* a bit for each verdict that is wanted */
	__u32 entry;    /* whether frames are wanted as they come */
	__u32 exit;     /* whether frames are wanted as the program leaves them */
};

/* One frame; its bytes at entry and then those at exit follow without a gap. */
struct dump_record {
	__u64 at; /* bpf_ktime_get_ns() at entry */
	__u32 ifindex;
	__u32 queue;
	__u32 verdict;
	__u32 entry_length; /* bytes of the whole frame */
	__u32 exit_length;
	__u32 entry_bytes; /* bytes that follow */
	__u32 exit_bytes;
	__u32 way;  /* enum trivium_counter; TRIVIUM_COUNTERS if nothing was counted */
	__u32 rule; /* 1 and the counter of the filter's rule that ended its way; 0: none did */
	__u32 reserved;
};

/* A record on its way, with room for what the verifier fears beyond two copies. */
struct dump_frame {
	struct dump_record head;
	__u8 bytes[3 * DUMP_SNAP_MAX];
};

#endif
