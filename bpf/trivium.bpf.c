// SPDX-License-Identifier: GPL-2.0-only
/*
 * The program of one port. Its stages stand here in the order in which a frame meets them:
 *
 *     filter -> exact flows -> the stage of the room that owns the port -> steer
 *
 * Each stage is one header under include/ and one inline function that either gives a verdict or
 * lets the frame through to the next; `conf` decides at load time which are present. Today:
 * filter, the kernel's own routing, the kernel's share of a routed port and of a virtual router's,
 * that one's routes, the known stations or the hot flows of a bridged one, and steer, whose exact flows
 * go before any room.
 */
#include "stage_bridge.h"
#include "stage_fib.h"
#include "stage_filter.h"
#include "stage_flows.h"
#include "stage_kernel.h"
#include "stage_route.h"
#include "stage_steer.h"
#if PORT_SERVICES
#include "stage_syncookie.h"
#endif

/*
 * What comes behind the filter. `steers` is known when this is compiled, so that a port without a
 * steering has not a single instruction of it.
 */
TRIVIUM_INLINE int port_rooms(struct xdp_md *ctx, const int steers)
{
	struct steer_way way = {};
	enum trivium_owner owner;
	int waits = ROUTE_UP;

	if (steers) {
		steer_find(ctx, &way);
		if (way.to > STEER_WORKER)
			return steer_to_kernel(ctx, &way, way.to);
	}
	/* The port is the kernel's: nothing is steered up. */
	if (fib.present) {
		int verdict = stage_fib(ctx);

		return steers ? steer_passed(ctx, &way, verdict) : verdict;
	}
	owner = conf.owner;
	if (owner != TRIVIUM_OWNER_BRIDGED && way.to != STEER_WORKER) {
		int reason = owner == TRIVIUM_OWNER_ROUTER ? stage_route(ctx) : kernel_owns(ctx);

		if (reason != NOT_THE_KERNELS) {
			count(reason);
			return steers ? steer_passed(ctx, &way, XDP_PASS) : XDP_PASS;
		}
		if (route.answers) {
			waits = route_answer(ctx);
			if (waits >= 0)
				return steers ? steer_passed(ctx, &way, waits) : waits;
		}
	}
	if (route.present & ROUTE_ORDERED)
		way.numbered = route_numbered(ctx, waits);
	if (bridge.present == BRIDGE_STAGE) {
		int verdict = stage_bridge(ctx, way.to == STEER_WORKER);

		if (verdict >= 0)
			return verdict;
		way.numbered = verdict == BRIDGE_NUMBERED;
	}
	if (flows.present) {
		int verdict = stage_flows(ctx, way.to == STEER_WORKER);

		if (verdict >= 0)
			return verdict;
		way.numbered = verdict == BRIDGE_NUMBERED;
	}
	return stage_steer(ctx, &way, steers);
}

#if PORT_SERVICES
/*
 * With rules that ask for cookies the filter and what comes behind it are functions by themselves:
 * together they would take more stack than a program has.
 */
static __attribute__((noinline)) int port_behind(struct xdp_md *ctx)
{
	return steer.present ? port_rooms(ctx, 1) : port_rooms(ctx, 0);
}

TRIVIUM_INLINE int port_hook(struct xdp_md *ctx)
{
	enum filter_verdict verdict = stage_services(ctx);

	if (verdict == FILTER_VERDICT_CONTINUE)
		return port_behind(ctx);
	if (verdict == FILTER_VERDICT_ANSWER) {
		count(TRIVIUM_COUNT_FILTER_ANSWERED);
		/* Not XDP_TX: a veth wakes its far end after that only if a program stands there. */
		return bpf_redirect(ctx->ingress_ifindex, 0);
	}
	count(verdict == FILTER_VERDICT_LIMIT ? TRIVIUM_COUNT_FILTER_LIMITED : TRIVIUM_COUNT_FILTER_DROPPED);
	return XDP_DROP;
}
#else
TRIVIUM_INLINE int port_hook(struct xdp_md *ctx)
{
	if (filter.rules) {
		enum filter_verdict verdict = stage_filter(ctx);

		if (verdict != FILTER_VERDICT_CONTINUE) {
			count(verdict == FILTER_VERDICT_LIMIT ? TRIVIUM_COUNT_FILTER_LIMITED :
								TRIVIUM_COUNT_FILTER_DROPPED);
			return XDP_DROP;
		}
	}
	return steer.present ? port_rooms(ctx, 1) : port_rooms(ctx, 0);
}
#endif

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
