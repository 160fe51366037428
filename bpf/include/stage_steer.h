/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The last stage. The frame goes to the socket of its receive queue, or follows when_down.
 *
 * If a steering is configured, exact flows are looked up before the stage of the port's function, because they
 * are explicit decisions of the operator. Frames about which no other stage has decided are steered by a table
 * that is indexed by the flow hash. Flows and table select the worker, the kernel, or the kernel on another
 * CPU.
 */
#ifndef TRIVIUM_STAGE_STEER_H
#define TRIVIUM_STAGE_STEER_H

#include "bridge_layout.h"
#include "steer_frame.h"

/* Exact flows. User space sets the number of slots. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct steer_key);
	__type(value, struct steer_flow);
} steer_flows SEC(".maps");

/* Counts of exact flows, by slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_count);
} steer_hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_table);
} steer_table SEC(".maps");

/* Counts by enum steer_counted. User space sets max_entries for the number of CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STEER_COUNT_CPU);
	__type(key, __u32);
	__type(value, struct steer_count);
} steer_counts SEC(".maps");

/* Target CPUs. Multi-buffer programs and other programs cannot share a CPU map. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} steer_cpus SEC(".maps");

/* State of a frame in the steering stage. */
struct steer_way {
	__u32 to; /* enum steer_to, as selected by the exact flow */
	__u32 hash;
	__u32 mark;
	__u32 numbered; /* whether the bridge's number is in front of the frame */
};

TRIVIUM_INLINE void steer_counted(__u32 which, __u32 length)
{
	struct steer_count *counted = bpf_map_lookup_elem(&steer_counts, &which);

	if (!counted)
		return;
	counted->packets += 1;
	counted->bytes += length;
}

/* Reads the frame and looks up its exact flow. */
TRIVIUM_INLINE void steer_find(struct xdp_md *ctx, struct steer_way *way)
{
	struct steer_frame frame = {};
	struct steer_flow *flow;
	struct steer_count *hit;

	steer_read(ctx, &frame);
	way->hash = frame.hash;
	if (!steer.flows || !frame.exact)
		return;
	flow = bpf_map_lookup_elem(&steer_flows, &frame.key);
	if (!flow || (flow->expires && bpf_ktime_get_coarse_ns() >= flow->expires))
		return;
	way->to = flow->to;
	way->mark = flow->mark;
	hit = bpf_map_lookup_elem(&steer_hits, &flow->slot);
	if (!hit)
		return;
	/* Several queues share the counts. */
	__sync_fetch_and_add(&hit->packets, 1);
	__sync_fetch_and_add(&hit->bytes, bpf_xdp_get_buff_len(ctx));
}

/*
 * Writes hash and mark in front of the frame and its number. Without space the frame has neither. The
 * metadata replaces metadata of a custom program.
 */
TRIVIUM_INLINE void steer_note(struct xdp_md *ctx, const struct steer_way *way)
{
	struct steer_meta *meta;

	if (!steer.metadata)
		return;
	if (bpf_xdp_adjust_meta(ctx, metadata_bytes(ctx) - (int)sizeof(*meta))) {
		steer_counted(STEER_COUNT_UNMARKED, bpf_xdp_get_buff_len(ctx));
		return;
	}
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return;
	meta->hash = way->hash;
	meta->mark = way->mark;
	if (!way->numbered) {
		meta->number = 0;
		meta->check = 0;
	}
}

/*
 * Sends a frame to a CPU. If the CPU is not in the map, the frame stays with the kernel on the receiving CPU.
 */
TRIVIUM_INLINE int steer_to_cpu(struct xdp_md *ctx, __u32 cpu)
{
	int verdict = bpf_redirect_map(&steer_cpus, cpu, XDP_PASS);

	steer_counted(verdict == XDP_REDIRECT ? STEER_COUNT_CPU + cpu : STEER_COUNT_KERNEL,
		      bpf_xdp_get_buff_len(ctx));
	return verdict;
}

/* Passes a frame to the kernel, on the receiving CPU or on another one. */
TRIVIUM_INLINE int steer_to_kernel(struct xdp_md *ctx, const struct steer_way *way, __u32 to)
{
	int verdict = XDP_PASS;

	steer_note(ctx, way);
	if (to & STEER_CPU)
		verdict = steer_to_cpu(ctx, to & (STEER_CPU - 1));
	else
		steer_counted(STEER_COUNT_KERNEL, bpf_xdp_get_buff_len(ctx));
	count(verdict == XDP_REDIRECT ? TRIVIUM_COUNT_STEERING_CPU : TRIVIUM_COUNT_STEERING_KERNEL);
	return verdict;
}

TRIVIUM_INLINE __u32 steer_by_table(__u32 hash)
{
	__u32 key = 0;
	struct steer_table *table = bpf_map_lookup_elem(&steer_table, &key);

	/* The table may change while it is read, so the word is read once. */
	return table ? *(volatile __u32 *)&table->to[hash % STEER_BUCKETS] : STEER_WORKER;
}

/* Steers a frame that another stage has counted and passes to the kernel. The table may select its CPU. */
TRIVIUM_INLINE int steer_passed(struct xdp_md *ctx, const struct steer_way *way, int verdict)
{
	__u32 to;

	if (verdict != XDP_PASS)
		return verdict;
	steer_note(ctx, way);
	if (!steer.table)
		return verdict;
	to = steer_by_table(way->hash);
	return to & STEER_CPU ? steer_to_cpu(ctx, to & (STEER_CPU - 1)) : verdict;
}

TRIVIUM_INLINE int stage_steer(struct xdp_md *ctx, const struct steer_way *way, const int steers)
{
	int verdict;

	if (steers) {
		__u32 to = way->to;

		if (steer.table && to == STEER_ROOM)
			to = steer_by_table(way->hash);
		if (to > STEER_WORKER)
			return steer_to_kernel(ctx, way, to);
		if (to == STEER_WORKER)
			steer_counted(STEER_COUNT_WORKER, bpf_xdp_get_buff_len(ctx));
		steer_note(ctx, way);
	}
	/* The low bits of the flags are the verdict when the slot is empty or out of range. */
	verdict = bpf_redirect_map(&xsks, ctx->rx_queue_index, conf.when_down);

	enum trivium_counter way_out = verdict == XDP_REDIRECT ? TRIVIUM_COUNT_STEERED :
				       verdict == XDP_PASS     ? TRIVIUM_COUNT_DOWN_PASSED :
				       verdict == XDP_DROP     ? TRIVIUM_COUNT_DOWN_DROPPED :
								 TRIVIUM_COUNT_ABORTED;

	count(way_out);
	return verdict;
}

#endif
