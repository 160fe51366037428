/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The first stage: rules in their order, including the block list. A frame that no rule drops continues with
 * the next stage. Rules with cookies are in stage_syncookie.h.
 */
#ifndef TRIVIUM_STAGE_FILTER_H
#define TRIVIUM_STAGE_FILTER_H

#include "filter_rules.h"

TRIVIUM_INLINE enum filter_verdict stage_filter(struct xdp_md *ctx)
{
	struct filter_key key = {};
	struct filter_walk walk;
	__u64 common;

	walk.ctx = ctx;
	walk.key = &key;
	filter_read(ctx, &key);
	common = find_rows(&walk);
	if (!common)
		return FILTER_VERDICT_CONTINUE;
	walk.length = bpf_xdp_get_buff_len(ctx);
	walk.verdict = FILTER_VERDICT_CONTINUE;
	walk.word = 0;
	if (filter.words == 1) {
		/* In most cases the first matching rule is also the last one. */
		if (apply(&walk, filter.rules == 1 ? 0 : lowest_bit(common)))
			return walk.verdict;
		walk.words = 0;
		walk.bits = common & (common - 1);
		if (!walk.bits)
			return walk.verdict;
	} else {
		walk.words = common;
		walk.bits = 0;
	}
	bpf_loop(FILTER_STEPS, walk_step, &walk, 0);
	return walk.verdict;
}

#endif
