/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Matching of rules by bit vectors (Lakshman and Stiliadis, SIGCOMM 1998). Each field of the frame selects a
 * row with one bit per rule, and the rules with a bit in every row match. With more than 64 rules a row
 * begins with a summary, which has a bit per word that is not zero (Baboescu and Varghese, SIGCOMM 2001), so
 * only words with a possible match are read. The lowest bit is the first rule.
 */
#ifndef FILTER_RULES_H
#define FILTER_RULES_H

#include "filter_block.h"
#include "filter_key.h"

#define FILTER_NODE 0x80000000u

#define FILTER_ROWS (FILTER_FIELDS + FILTER_PROBES_MAX)

/* State of a walk over the matching rules. */
struct filter_walk {
	struct xdp_md *ctx;
	struct filter_key *key;
	__u64 words; /* summary of words yet to be read */
	__u64 bits;  /* rules of the current word yet to be tried */
	__u32 word;
	__u32 verdict; /* enum filter_verdict, with the index of a rule with cookies above it */
	__u32 length;  /* length of the frame */
	/* Index of the first matching dry-run rule with cookies, plus 1. Used only with PORT_SERVICES. */
	__u32 trial;
	/* Rows of the fields that are present. Other elements are never written or read. */
	__u32 row[FILTER_ROWS];
};

enum filter_verdict {
	FILTER_VERDICT_CONTINUE = 0,
	FILTER_VERDICT_DROP = 1,
	FILTER_VERDICT_LIMIT = 2,
	FILTER_VERDICT_ANSWER = 3,  /* the frame has become an answer */
	FILTER_VERDICT_SERVICE = 4, /* a rule with cookies must judge before the walk continues */
	FILTER_VERDICT_MET = 5,     /* a rule with cookies has let the frame pass */
};

#define FILTER_VERDICT_BITS 3

/* Maximum number of steps of a walk: all rules, and all words of rules. */
#define FILTER_STEPS (FILTER_RULES_MAX + FILTER_RULES_MAX / 64 + 1)

/* Position of the lowest bit, by de Bruijn's sequence. */
static const __u8 filter_places[64] = {
	0,  1,	2,  53, 3,  7,	54, 27, 4,  38, 41, 8,	34, 55, 48, 28, 62, 5,	39, 46, 44, 42,
	22, 9,	24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

TRIVIUM_INLINE __u32 lowest_bit(__u64 bits)
{
	return filter_places[((bits & -bits) * 0x022fdd63cc95386dull) >> 58];
}

/* Returns the class of a value from the table of a field. */
TRIVIUM_INLINE __u32 class_of(enum filter_field field, __u32 value)
{
	__u32 line = filter.field[field].table + value / 32;
	struct filter_line16 *classes = bpf_map_lookup_elem(&filter_classes, &line);

	return classes ? classes->at[value & 31] : 0;
}

TRIVIUM_INLINE __u32 trie_entry(__u32 line, __u32 index)
{
	struct filter_line32 *entries;

	line += index / 16;
	entries = bpf_map_lookup_elem(&filter_tries, &line);
	return entries ? entries->at[index & 15] : 0;
}

/* Returns the class of the longest prefix that covers an address. */
TRIVIUM_INLINE __u32 class_of_address(__u32 root, const __u8 *address, int bytes)
{
	__u32 entry = trie_entry(root, address[0] << 8 | address[1]);

#pragma unroll
	for (int i = 2; i < 16; i++) {
		if (i >= bytes || !(entry & FILTER_NODE))
			break;
		entry = trie_entry(entry & ~FILTER_NODE, address[i]);
	}
	return entry;
}

/* Returns the row of an address field. Class 0 belongs to frames without addresses. */
TRIVIUM_INLINE __u32 address_row(enum filter_field field, __u32 family, const __u8 *address)
{
	__u32 rows = filter.field[field].rows;

	if (family == FILTER_IPV4)
		return rows + class_of_address(filter.field[field].table, address, 4);
	if (family == FILTER_IPV6)
		return rows + class_of_address(filter.field[field].table6, address, 16);
	return rows;
}

/* Returns the row of a probe. Class 0 belongs to frames that lack the bytes or have other values. */
TRIVIUM_INLINE __u32 probe_row(struct filter_walk *walk, __u32 probe)
{
	struct filter_probe_key key = { .probe = probe };
	__u32 base = walk->key->base[filter.probe[probe].base & 3];
	__u32 rows = filter.probe[probe].rows;
	__u32 length = filter.probe[probe].length;
	__u32 *class;

	if (base == FILTER_NOWHERE || length > sizeof(key.value))
		return rows;
	if (bpf_xdp_load_bytes(walk->ctx, base + filter.probe[probe].offset, &key.value, length))
		return rows;
	key.value &= filter.probe[probe].mask;
	class = bpf_map_lookup_elem(&filter_probes, &key);
	return class ? rows + *class : rows;
}

TRIVIUM_INLINE __u64 row_word(__u32 row, __u32 place)
{
	__u32 index = row * filter.stride + place;
	__u64 *word = bpf_map_lookup_elem(&filter_rows, &index);

	return word ? *word : 0;
}

/* Looks up a field, and returns from the function when no rule can match. */
#define ASK(walk, common, is_present, field, found)                                                \
	if (is_present) {                                                                          \
		(walk)->row[field] = (found);                                                      \
		(common) &= row_word((walk)->row[field], 0);                                       \
		if (!(common))                                                                     \
			return 0;                                                                  \
	}

#define ASK_TABLE(walk, common, name, value)                                                       \
	ASK(walk, common, filter.field[name].present, name, filter.field[name].rows + class_of(name, value))

/*
 * Finds the rows of a frame and returns the conjunction of their first words. The cheapest fields come first.
 */
TRIVIUM_INLINE __u64 find_rows(struct filter_walk *walk)
{
	struct filter_key *key = walk->key;
	__u64 common = ~0ull;
	__u32 length = 0;

	ASK_TABLE(walk, common, FILTER_FIELD_KIND, key->family << 10 | key->fragment << 8 | key->protocol);
	ASK_TABLE(walk, common, FILTER_FIELD_SOURCE_PORT, key->source_port);
	ASK_TABLE(walk, common, FILTER_FIELD_DESTINATION_PORT, key->destination_port);
	ASK_TABLE(walk, common, FILTER_FIELD_VLAN, key->vlan);
	ASK_TABLE(walk, common, FILTER_FIELD_FLAGS, key->flags);
	if (filter.field[FILTER_FIELD_LENGTH].present)
		length = bpf_xdp_get_buff_len(walk->ctx);
	ASK_TABLE(walk, common, FILTER_FIELD_LENGTH, length > 65535 ? 65535 : length);
	ASK(walk, common, filter.field[FILTER_FIELD_LISTED].present, FILTER_FIELD_LISTED,
	    filter.field[FILTER_FIELD_LISTED].rows + filter_listed(key));
	ASK(walk, common, filter.field[FILTER_FIELD_SOURCE].present, FILTER_FIELD_SOURCE,
	    address_row(FILTER_FIELD_SOURCE, key->family, key->source));
	ASK(walk, common, filter.field[FILTER_FIELD_DESTINATION].present, FILTER_FIELD_DESTINATION,
	    address_row(FILTER_FIELD_DESTINATION, key->family, key->destination));
#pragma unroll
	for (int i = 0; i < FILTER_PROBES_MAX; i++)
		ASK(walk, common, filter.probe[i].length, FILTER_FIELDS + i, probe_row(walk, i));
	return common;
}

/* Returns the conjunction of the rows' words at one index. */
TRIVIUM_INLINE __u64 common_word(const struct filter_walk *walk, __u32 place)
{
	__u64 bits = ~0ull;

#pragma unroll
	for (int i = 0; i < FILTER_ROWS; i++)
		if (i < FILTER_FIELDS ? filter.field[i].present : filter.probe[i - FILTER_FIELDS].length)
			bits &= row_word(walk->row[i], place);
	return bits;
}

/*
 * Returns whether a frame of this cost exceeds the bucket's rate. A frame that does not exceed the rate is
 * charged.
 */
TRIVIUM_INLINE int bucket_exceeded(__u64 *bucket, __u64 cost, __u64 burst)
{
	__u64 now = bpf_ktime_get_ns() << FILTER_TICK_SHIFT;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 spent = *(volatile __u64 *)bucket;
		__u64 from = spent > now ? spent : now;

		if (from + cost > now + burst)
			return 1;
		if (__sync_val_compare_and_swap(bucket, spent, from + cost) == spent)
			return 0;
	}
	/* After this many failed attempts, the bucket counts as empty. */
	return 1;
}

/* Returns the bucket of the frame's source under a rule. Creates a new one if needed. */
TRIVIUM_INLINE __u64 *source_bucket(const struct filter_walk *walk, const struct filter_rule *rule)
{
	const struct filter_key *key = walk->key;
	/* Frames without a source address share a bucket. */
	int has_source = key->family == FILTER_IPV4 || key->family == FILTER_IPV6;
	struct filter_source source = { .slot = rule->slot, .family = has_source ? key->family : FILTER_OTHER };
	const __u64 full = 0;
	__u64 *bucket;

	if (key->family == FILTER_IPV4) {
		*(__be32 *)source.address = *(const __be32 *)key->source & rule->source4;
	} else if (key->family == FILTER_IPV6) {
		__be64 *masked = (__be64 *)source.address;
		const __be64 *whole = (const __be64 *)key->source;

		masked[0] = whole[0] & rule->source6[0];
		masked[1] = whole[1] & rule->source6[1];
	}
	bucket = bpf_map_lookup_elem(&filter_sources, &source);
	if (bucket)
		return bucket;
	bpf_map_update_elem(&filter_sources, &source, &full, BPF_NOEXIST);
	return bpf_map_lookup_elem(&filter_sources, &source);
}

TRIVIUM_INLINE int rate_exceeded(const struct filter_walk *walk, const struct filter_rule *rule)
{
	__u64 units = rule->flags & FILTER_BYTES ? walk->length : 1;
	__u64 cost = (rule->cost * units) >> FILTER_COST_SHIFT;
	__u32 slot = rule->slot;
	__u64 *bucket;

	/*
	 * Sources without a bucket (the kernel has no free entry at the moment) share the bucket of the rule.
	 */
	if (filter.uses & FILTER_USES_SOURCES && rule->flags & FILTER_PER_SOURCE)
		bucket = source_bucket(walk, rule);
	else
		bucket = 0;
	if (!bucket)
		bucket = bpf_map_lookup_elem(&filter_buckets, &slot);
	return bucket ? bucket_exceeded(bucket, cost, rule->burst) : 0;
}

/* Writes a sample of the frame to the ring. When the ring is full, only counts the sample. */
TRIVIUM_INLINE void sample(const struct filter_walk *walk, const struct filter_rule *rule)
{
	struct filter_sample *sample = bpf_ringbuf_reserve(&filter_samples, sizeof(*sample), 0);
	__u32 length = walk->length, key = 0;

	if (!sample) {
		__u64 *missed = bpf_map_lookup_elem(&filter_missed, &key);

		if (missed)
			*missed += 1;
		return;
	}
	sample->time = bpf_ktime_get_ns();
	sample->slot = rule->slot;
	sample->ifindex = walk->ctx->ingress_ifindex;
	sample->length = length;
	if (length > FILTER_SAMPLE_BYTES)
		length = FILTER_SAMPLE_BYTES;
	/* The verifier must see that the length is neither 0 nor too large. */
	if (length == 0 || bpf_xdp_load_bytes(walk->ctx, 0, sample->head, length))
		length = 0;
	sample->captured = length;
	bpf_ringbuf_submit(sample, 0);
}

/* Counts a match and applies the rule. Returns whether the walk ends. */
TRIVIUM_INLINE int apply(struct filter_walk *walk, __u32 index)
{
	struct filter_rule *rule = bpf_map_lookup_elem(&filter_rules, &index);
	struct filter_count *count;
	__u32 slot, dry;
	int acted = 0, last = 0;

	if (!rule)
		return 0;
	if (filter.uses & FILTER_USES_EXPIRY && rule->flags & FILTER_EXPIRES &&
	    bpf_ktime_get_coarse_ns() >= rule->expires)
		return 0;
	slot = rule->slot;
	count = bpf_map_lookup_elem(&filter_counts, &slot);
	if (!count)
		return 0;
	if (PORT_SERVICES && rule->action == FILTER_COOKIE) {
		/*
		 * Only the first matching rule with cookies is applied. A dry-run rule is applied only if no
		 * other rule is.
		 */
		if (walk->verdict == FILTER_VERDICT_MET || (rule->flags & FILTER_DRY_RUN && walk->trial))
			return 0;
		if (rule->flags & FILTER_DRY_RUN) {
			walk->trial = index + 1;
			count->packets += 1;
			count->bytes += walk->length;
			return 0;
		}
		walk->verdict = FILTER_VERDICT_SERVICE | index << FILTER_VERDICT_BITS;
		count->packets += 1;
		count->bytes += walk->length;
		return 1;
	}
	dry = rule->flags & FILTER_DRY_RUN;
	/* FILTER_COOKIE does not occur here. The cast keeps the compiler from generating code for it. */
	switch ((__u32)rule->action) {
	case FILTER_DROP:
		acted = last = 1;
		if (!dry)
			note_rule(slot);
		if (PORT_SERVICES && dry)
			break;
		walk->verdict = dry ? FILTER_VERDICT_CONTINUE : FILTER_VERDICT_DROP;
		break;
	case FILTER_PASS:
		acted = last = 1;
		break;
	case FILTER_COUNT:
		break;
	case FILTER_SAMPLE:
		if (!(filter.uses & FILTER_USES_SAMPLES))
			break;
		acted = bpf_get_prandom_u32() <= rule->sample;
		if (acted && !dry)
			sample(walk, rule);
		break;
	case FILTER_LIMIT:
		if (!(filter.uses & FILTER_USES_RATES))
			break;
		acted = last = rate_exceeded(walk, rule);
		if (acted && !dry) {
			note_rule(slot);
			walk->verdict = FILTER_VERDICT_LIMIT;
		}
		break;
	}
	count->packets += 1;
	count->bytes += walk->length;
	count->acted += acted;
	count->acted_bytes += acted ? walk->length : 0;
	return last && !dry;
}

/* Processes one matching rule, or one word of rules. */
static long walk_step(__u32 step, struct filter_walk *walk)
{
	__u64 bits = walk->bits;

	(void)step;
	if (!bits) {
		if (!walk->words)
			return 1;
		walk->word = lowest_bit(walk->words);
		walk->words &= walk->words - 1;
		bits = common_word(walk, walk->word + 1);
		if (!bits)
			return 0;
	}
	walk->bits = bits & (bits - 1);
	return apply(walk, walk->word * 64 + lowest_bit(bits));
}

#endif
