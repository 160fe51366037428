/* SPDX-License-Identifier: GPL-2.0-only */
/* Constants and maps of a capture, and the notes that stages make for it. */
#ifndef DUMP_MAPS_H
#define DUMP_MAPS_H

#include "dump_layout.h"
#include "trivium_layout.h"

const volatile struct dump_conf dump SEC(".rodata.dump") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dump_frame);
} dump_frames SEC(".maps");

/* Number of frames that did not fit into the ring. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dump_missed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} dump_ring SEC(".maps");

TRIVIUM_INLINE struct dump_frame *dump_frame(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&dump_frames, &key);
}

/* Notes the counter under which the program counts the frame. */
TRIVIUM_INLINE void note_way(enum trivium_counter way)
{
	struct dump_frame *frame = dump_frame();

	if (frame)
		frame->head.way = way;
}

/* Notes that the rule with the counter index `slot` ends the processing of the frame. */
TRIVIUM_INLINE void note_rule(__u32 slot)
{
	struct dump_frame *frame = dump_frame();

	if (frame)
		frame->head.rule = slot + 1;
}

#endif
