/* SPDX-License-Identifier: GPL-2.0-only */
/* The last stage: the frame goes to the socket of its receive queue, or follows when_down. */
#ifndef TRIVIUM_STAGE_STEER_H
#define TRIVIUM_STAGE_STEER_H

#include "trivium_maps.h"

TRIVIUM_INLINE int stage_steer(struct xdp_md *ctx)
{
	/* The low bits of the flags are the verdict when the slot is empty or out of range. */
	int verdict = bpf_redirect_map(&xsks, ctx->rx_queue_index, conf.when_down);

	enum trivium_counter way = verdict == XDP_REDIRECT ? TRIVIUM_COUNT_STEERED :
				   verdict == XDP_PASS	   ? TRIVIUM_COUNT_DOWN_PASSED :
				   verdict == XDP_DROP	   ? TRIVIUM_COUNT_DOWN_DROPPED :
							     TRIVIUM_COUNT_ABORTED;

	count(way);
	return verdict;
}

#endif
