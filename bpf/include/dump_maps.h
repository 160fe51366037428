/* SPDX-License-Identifier: GPL-2.0-only */
/* The constants and the maps of a capture, and what the stages note for it on their way. */
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

/* Frames that the ring had no room for. */
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

/* The frame leaves the program this way. */
TRIVIUM_INLINE void note_way(enum trivium_counter way)
{
	struct dump_frame *frame = dump_frame();

	if (frame)
		frame->head.way = way;
}

/* The rule with the counter `slot` ends the frame's way. */
TRIVIUM_INLINE void note_rule(__u32 slot)
{
	struct dump_frame *frame = dump_frame();

	if (frame)
		frame->head.rule = slot + 1;
}

#endif
