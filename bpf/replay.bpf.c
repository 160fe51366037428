// SPDX-License-Identifier: GPL-2.0-only
/*
 * The generator of recorded frames, which sends the frames of a map one after the other. It is run by
 * BPF_PROG_TEST_RUN in live-frames mode, where each run gets a recycled frame of full length.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "livegen_layout.h"
#include "replay_layout.h"

const volatile struct replay_conf conf SEC(".rodata.conf") = {};

struct livegen_state state SEC(".data.state") = {
	.position = 1,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct replay_frame);
} replay_frames SEC(".maps");

/* Returns the index of the frame to send, and advances to the next one. */
static __attribute__((always_inline)) inline __u32 next_frame(void)
{
	__u32 at = state.position;

	if (conf.random) {
		/* Marsaglia's xorshift32, as in livegen. */
		at ^= at << 13;
		at ^= at >> 17;
		at ^= at << 5;
		state.position = at;
		/* The high bits of a product replace a division. */
		return (__u64)at * conf.frames >> 32;
	}
	state.position = at < conf.frames ? at + 1 : 1;
	return at - 1;
}

SEC("xdp")
int replay(struct xdp_md *ctx)
{
	__u32 length, key;
	struct replay_frame *frame;

	/* The program is parked on the device itself. Received frames are not part of the replay. */
	if (ctx->ingress_ifindex == conf.ifindex)
		return XDP_PASS;
	key = next_frame();
	frame = bpf_map_lookup_elem(&replay_frames, &key);
	if (!frame)
		return XDP_ABORTED;
	length = frame->length;
	if (length < ETH_HLEN || length > REPLAY_FRAME_MAX)
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, (int)length - (int)bpf_xdp_get_buff_len(ctx)))
		return XDP_ABORTED;
	if (bpf_xdp_store_bytes(ctx, 0, frame->bytes, length))
		return XDP_ABORTED;
	state.sent++;
	return bpf_redirect(conf.ifindex, 0);
}

char _license[] SEC("license") = "GPL";
