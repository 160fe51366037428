/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The first stage: rules in their order, the block list among what they ask for. A frame that no
 * rule drops goes on to the next stage.
 */
#ifndef TRIVIUM_STAGE_FILTER_H
#define TRIVIUM_STAGE_FILTER_H

#include "filter_rules.h"

TRIVIUM_INLINE enum filter_verdict stage_filter(struct xdp_md *ctx)
{
	struct filter_key key = {};
	struct filter_walk walk = { .ctx = ctx, .key = &key };

	filter_read(ctx, &key);
	find_rows(&walk);
	if (filter.words == 1)
		walk.bits = common_word(&walk, 0);
	else
		walk.words = common_word(&walk, 0);
	if (walk.bits | walk.words)
		bpf_loop(FILTER_RULES_MAX + FILTER_RULES_MAX / 64 + 1, walk_step, &walk, 0);
	return walk.verdict;
}

#endif
