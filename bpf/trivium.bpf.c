// SPDX-License-Identifier: GPL-2.0-only
/*
 * The program of one port. Its stages stand here in the order in which a frame meets them:
 *
 *     filter -> the stage of the room that owns the port -> steer
 *
 * Each stage is one header under include/ and one inline function that either gives a verdict or
 * lets the frame through to the next; `conf` decides at load time which are present. Today:
 * filter, the kernel's own routing, the kernel's share of a routed port, the known stations of a
 * bridged one, and steer.
 */
#include "stage_bridge.h"
#include "stage_fib.h"
#include "stage_filter.h"
#include "stage_kernel.h"
#include "stage_steer.h"

TRIVIUM_INLINE int port_hook(struct xdp_md *ctx)
{
	if (filter.rules) {
		enum filter_verdict verdict = stage_filter(ctx);

		if (filter.uses & FILTER_USES_COOKIES && verdict == FILTER_VERDICT_ANSWER) {
			count(TRIVIUM_COUNT_FILTER_ANSWERED);
			/* Not XDP_TX: a veth wakes its far end after that only if a program stands there. */
			return bpf_redirect(ctx->ingress_ifindex, 0);
		}
		if (verdict != FILTER_VERDICT_CONTINUE) {
			count(verdict == FILTER_VERDICT_LIMIT ? TRIVIUM_COUNT_FILTER_LIMITED :
								TRIVIUM_COUNT_FILTER_DROPPED);
			return XDP_DROP;
		}
	}
	/* The port is the kernel's: nothing is steered up. */
	if (fib.present)
		return stage_fib(ctx);
	if (conf.owner == TRIVIUM_OWNER_ROUTED) {
		int reason = kernel_owns(ctx);

		if (reason != NOT_THE_KERNELS) {
			count(reason);
			return XDP_PASS;
		}
	}
	if (bridge.present) {
		int verdict = stage_bridge(ctx);

		if (verdict != BRIDGE_UP)
			return verdict;
	}
	return stage_steer(ctx);
}

/* Takes frames in several buffers: jumbo frames, and what a sender's segmentation leaves. */
SEC("xdp.frags")
int trivium_port(struct xdp_md *ctx)
{
	return port_hook(ctx);
}

/* For drivers that refuse multi-buffer programs. */
SEC("xdp")
int trivium_linear(struct xdp_md *ctx)
{
	return port_hook(ctx);
}

char _license[] SEC("license") = "GPL";
