// SPDX-License-Identifier: GPL-2.0-only
/*
 * The port's program with a capture around it. It replaces the plain program on the same maps while a capture
 * runs. (Tracing programs at the entry and exit of the plain program would need no replacement, but not all
 * kernels support them there.) The verdict of a frame is known only at its exit, so the bytes at entry are
 * kept in per-CPU memory until then. One CPU processes one frame at a time. When the ring is full, the copy
 * is left out and counted, and the frame is not affected.
 */
#define PORT_DUMP 1
#include "trivium.bpf.c"

/* Copies the head of the frame and returns the number of bytes copied. */
TRIVIUM_INLINE __u32 dump_copy(struct xdp_md *ctx, void *to, __u64 there)
{
	/* The length has 64 bits throughout, because the verifier loses bounds when the width changes. */
	__u64 length = there < dump.snap ? there : dump.snap;

	if (length == 0 || length > DUMP_SNAP_MAX || bpf_xdp_load_bytes(ctx, 0, to, length))
		return 0;
	return length;
}

TRIVIUM_INLINE void dump_entry(struct xdp_md *ctx)
{
	struct dump_frame *frame = dump_frame();
	__u64 length = bpf_xdp_get_buff_len(ctx);

	if (!frame)
		return;
	frame->head.at = bpf_ktime_get_ns();
	frame->head.way = TRIVIUM_COUNTERS;
	frame->head.rule = 0;
	frame->head.entry_length = length;
	frame->head.entry_bytes = dump.entry ? dump_copy(ctx, frame->bytes, length) : 0;
}

TRIVIUM_INLINE void dump_exit(struct xdp_md *ctx, int verdict)
{
	struct dump_frame *frame = dump_frame();
	__u64 length = bpf_xdp_get_buff_len(ctx);
	__u32 key = 0, before, after;
	__u64 *missed = bpf_map_lookup_elem(&dump_missed, &key);

	if (!frame || !missed || !(dump.verdicts & 1 << (verdict & 7)))
		return;
	before = frame->head.entry_bytes;
	if (before > DUMP_SNAP_MAX)
		return;
	frame->head.ifindex = ctx->ingress_ifindex;
	frame->head.queue = ctx->rx_queue_index;
	frame->head.verdict = verdict;
	frame->head.exit_length = length;
	after = dump.exit ? dump_copy(ctx, frame->bytes + before, length) : 0;
	if (after > DUMP_SNAP_MAX)
		return;
	frame->head.exit_bytes = after;
	if (bpf_ringbuf_output(&dump_ring, frame, sizeof(frame->head) + before + after, 0))
		*missed += 1;
}

TRIVIUM_INLINE int dumped_hook(struct xdp_md *ctx)
{
	int verdict;

	dump_entry(ctx);
	verdict = port_hook(ctx);
	dump_exit(ctx, verdict);
	return verdict;
}

/* A process that takes over a port recognises the program by these names. */
SEC("xdp.frags")
int trivium_portdmp(struct xdp_md *ctx)
{
	return dumped_hook(ctx);
}

SEC("xdp")
int trivium_lindmp(struct xdp_md *ctx)
{
	return dumped_hook(ctx);
}
