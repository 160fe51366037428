/* SPDX-License-Identifier: GPL-2.0-only */
/* Layout that a capture at the hook and user space share, mirrored in crates/xdp. */
#ifndef DUMP_LAYOUT_H
#define DUMP_LAYOUT_H

#include <linux/types.h>

/* Maximum number of bytes copied of a frame, at entry and at exit each. A power of two. */
#define DUMP_SNAP_MAX 2048

struct dump_conf {
	__u32 snap;     /* bytes that are copied, at most DUMP_SNAP_MAX */
	__u32 verdicts; /* a bit for each verdict that is captured */
	__u32 entry;    /* whether frames are captured as received */
	__u32 exit;     /* whether frames are captured as the program left them */
};

/* A captured frame. Its bytes at entry and then those at exit follow without a gap. */
struct dump_record {
	__u64 at; /* bpf_ktime_get_ns() at entry */
	__u32 ifindex;
	__u32 queue;
	__u32 verdict;
	__u32 entry_length; /* length of the whole frame in bytes */
	__u32 exit_length;
	__u32 entry_bytes; /* number of bytes that follow */
	__u32 exit_bytes;
	__u32 way;  /* enum trivium_counter, or TRIVIUM_COUNTERS if nothing was counted */
	__u32 rule; /* counter index of the filter rule that ended the processing, plus 1. 0 for none */
	__u32 reserved;
};

/* A record under construction. It has space for three copies, because the verifier cannot bound two. */
struct dump_frame {
	struct dump_record head;
	__u8 bytes[3 * DUMP_SNAP_MAX];
};

#endif
