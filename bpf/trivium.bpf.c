// SPDX-License-Identifier: GPL-2.0-only
/*
 * The XDP program of one port. A frame passes its stages in this order:
 *
 *     filter -> exact flows -> stage of the port's function -> steering
 *
 * A closed port drops every frame before the first stage.
 *
 * Each stage is one header under include/ and one inline function, which either returns a verdict or passes
 * the frame on to the next stage. `conf` selects the present stages at load time:
 *
 * - the filter
 * - kernel routing
 * - the kernel's share of a routed port, or of a virtual router's port
 * - the routes of a virtual router
 * - the known stations or the cached flows of a bridged port
 * - steering, whose exact flows take precedence over the port's function
 */
#include "stage_bridge.h"
#include "stage_fib.h"
#include "stage_filter.h"
#include "stage_flows.h"
#include "stage_kernel.h"
#include "stage_punt.h"
#include "stage_route.h"
#include "stage_steer.h"
#if PORT_SERVICES
#include "stage_syncookie.h"
#endif

/*
 * Runs the stages after the filter. `steers` is a compile-time constant, so a port without a steering has no
 * instructions for it.
 */
TRIVIUM_INLINE int port_function(struct xdp_md *ctx, const int steers)
{
	struct steer_way way = {};
	enum trivium_owner owner;
	int waits = ROUTE_UP;

	if (steers) {
		steer_find(ctx, &way);
		if (way.to > STEER_WORKER)
			return steer_to_kernel(ctx, &way, way.to);
	}
	/* The port uses kernel routing, so no frame is redirected to a socket. */
	if (fib.present) {
		int verdict = stage_fib(ctx);

		return steers ? steer_passed(ctx, &way, verdict) : verdict;
	}
	owner = conf.owner;
	if (owner != TRIVIUM_OWNER_BRIDGED && way.to != STEER_WORKER) {
		int reason = owner == TRIVIUM_OWNER_ROUTER ? stage_route(ctx) : kernel_owns(ctx);

		if (reason == TRIVIUM_COUNT_ROUTE_REVERSE_PATH) {
			count(TRIVIUM_COUNT_ROUTE_REVERSE_PATH);
			return XDP_DROP;
		}
		if (reason >= 0) {
			if (punt_drops(ctx, reason)) {
				count(TRIVIUM_COUNT_ROUTE_LIMITED);
				return XDP_DROP;
			}
			count(reason);
			return steers ? steer_passed(ctx, &way, XDP_PASS) : XDP_PASS;
		}
		if (route.answers && reason != TO_THE_WORKER) {
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
 * Runs the stages after the filter. With SYN cookies, these stages and the filter are separate functions.
 * Together they would exceed the stack of a program.
 */
static __attribute__((noinline)) int port_behind(struct xdp_md *ctx)
{
	return steer.present ? port_function(ctx, 1) : port_function(ctx, 0);
}

TRIVIUM_INLINE int port_stages(struct xdp_md *ctx)
{
	enum filter_verdict verdict;

	if (conf.owner == TRIVIUM_OWNER_ROUTER)
		route_untag(ctx);
	verdict = stage_services(ctx);
	if (verdict == FILTER_VERDICT_CONTINUE)
		return port_behind(ctx);
	if (verdict == FILTER_VERDICT_ANSWER) {
		count(TRIVIUM_COUNT_FILTER_ANSWERED);
		/* XDP_TX is not used, because a veth then wakes its peer only if the peer runs a program. */
		return bpf_redirect(ctx->ingress_ifindex, 0);
	}
	count(verdict == FILTER_VERDICT_LIMIT ? TRIVIUM_COUNT_FILTER_LIMITED : TRIVIUM_COUNT_FILTER_DROPPED);
	return XDP_DROP;
}
#else
TRIVIUM_INLINE int port_stages(struct xdp_md *ctx)
{
	if (conf.owner == TRIVIUM_OWNER_ROUTER)
		route_untag(ctx);
	if (filter.rules) {
		enum filter_verdict verdict = stage_filter(ctx);

		if (verdict != FILTER_VERDICT_CONTINUE) {
			count(verdict == FILTER_VERDICT_LIMIT ? TRIVIUM_COUNT_FILTER_LIMITED :
								TRIVIUM_COUNT_FILTER_DROPPED);
			return XDP_DROP;
		}
	}
	return steer.present ? port_function(ctx, 1) : port_function(ctx, 0);
}
#endif

TRIVIUM_INLINE int port_hook(struct xdp_md *ctx)
{
	if (conf.owner == TRIVIUM_OWNER_CLOSED) {
		count(TRIVIUM_COUNT_DOWN_DROPPED);
		return XDP_DROP;
	}
	return port_stages(ctx);
}

/* Build that accepts multi-buffer frames: jumbo frames, and frames that a sender has not segmented. */
SEC("xdp.frags")
int trivium_port(struct xdp_md *ctx)
{
	return port_hook(ctx);
}

/* Build for drivers that refuse multi-buffer programs. */
SEC("xdp")
int trivium_linear(struct xdp_md *ctx)
{
	return port_hook(ctx);
}

char _license[] SEC("license") = "GPL";
