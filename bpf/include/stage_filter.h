/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The first stage: rules in their order, the block list among what they ask for. A frame that no
 * rule drops, and that is not answered with a cookie, goes on to the next stage.
 */
#ifndef TRIVIUM_STAGE_FILTER_H
#define TRIVIUM_STAGE_FILTER_H

#include "filter_rules.h"
#include "stage_syncookie.h"

#define FILTER_STEPS (FILTER_RULES_MAX + FILTER_RULES_MAX / 64 + 1)

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
	if (filter.words == 1 && filter.uses & FILTER_USES_COOKIES) {
		walk.words = 0;
		walk.bits = common;
	} else if (filter.words == 1) {
		/* Most often the first rule that matches is the last that is asked. */
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
	if (filter.uses & FILTER_USES_COOKIES &&
	    (walk.verdict & ((1 << FILTER_VERDICT_BITS) - 1)) == FILTER_VERDICT_SERVICE) {
		enum filter_verdict verdict = syncookie_meet(ctx, &key, walk.verdict >> FILTER_VERDICT_BITS);

		if (verdict != FILTER_VERDICT_CONTINUE)
			return verdict;
		walk.verdict = FILTER_VERDICT_MET;
		if (walk.bits | walk.words)
			bpf_loop(FILTER_STEPS, walk_step, &walk, 0);
		if (walk.verdict == FILTER_VERDICT_MET)
			return FILTER_VERDICT_CONTINUE;
	}
	return walk.verdict;
}

#endif
