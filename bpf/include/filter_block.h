/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The block list: a lookup of a source in up to millions of prefixes. The list is one array of cache lines,
 * which crates/xdp/src/filter/table.rs writes while the hook reads it. Every decision depends on one aligned
 * word, which changes atomically. A whole list is replaced in its slot of filter_lists.
 *
 * IPv4: two bits for each /24 show whether none, all or some of its addresses are listed. For "some" a hash
 * table has a word per /28, with 28 bits of the prefix and a bit for each of the 16 addresses. IPv6: there is a
 * hash table for each prefix length that occurs. A prefix takes one word if it is not longer than /64, and two
 * words otherwise. A line is filled before the next line is used, so a lookup ends at the first empty slot.
 */
#ifndef FILTER_BLOCK_H
#define FILTER_BLOCK_H

#include "filter_key.h"

struct block_line {
	__u64 word[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
			__uint(max_entries, 1);
			/*
			 * The sizes are given as numbers, because clang does not resolve a type that is named
			 * only here.
			 */
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct block_line));
		});
} filter_lists SEC(".maps");

TRIVIUM_INLINE struct block_line *block_line(void *list, __u32 line)
{
	return bpf_map_lookup_elem(list, &line);
}

TRIVIUM_INLINE int listed4(void *list, const struct filter_key *key)
{
	__u32 address = bpf_ntohl(*(const __be32 *)key->source);
	__u32 block = address >> 8;
	struct block_line *header = block_line(list, BLOCK_HEADER);
	struct block_line *states = block_line(list, BLOCK_STATES + (block >> 8));
	__u64 state, want = BLOCK_USED | address >> 4;
	__u32 at, mask, base;

	if (!header || !states)
		return 0;
	state = states->word[block >> 5 & 7] >> (block & 31) * 2 & 3;
	if (state != BLOCK_SOME)
		return state;
	mask = header->word[BLOCK_MASK];
	base = header->word[BLOCK_BASE];
	at = (__u64)(address >> 4) * header->word[BLOCK_FACTOR] >> (header->word[BLOCK_SHIFT] & 63);
	for (int i = 0; i < BLOCK_PROBES; i++) {
		struct block_line *line = block_line(list, base + ((at + i) & mask));

		if (!line)
			return 0;
#pragma unroll
		for (int slot = 0; slot < 8; slot++)
			if (line->word[slot] >> 16 == want)
				return line->word[slot] >> (address & 15) & 1;
		if (!line->word[7])
			return 0;
	}
	return 0;
}

struct block_search {
	void *list;
	__u64 high;
	__u64 low;
	__u32 found;
};

/*
 * Returns the hash of a prefix, where its search begins: a multilinear function of its 32-bit words. The upper
 * half appears random to senders that do not know the factors. This is needed, because senders can often
 * influence which addresses are listed.
 */
TRIVIUM_INLINE __u32 block_home6(const struct block_line *length, __u64 high, __u64 low)
{
	__u64 sum = (high >> 32) * length->word[BLOCK_FACTOR0] + (__u32)high * length->word[BLOCK_FACTOR1];

	sum += (low >> 32) * length->word[BLOCK_FACTOR2] + (__u32)low * length->word[BLOCK_FACTOR3];
	return sum >> 32;
}

/* Looks up an address under one prefix length. */
static long search6(__u32 index, struct block_search *search)
{
	__u32 outer = 0;
	void *list = bpf_map_lookup_elem(&filter_lists, &outer);
	struct block_line *length;
	__u64 high, low;
	__u32 at, mask, base;

	if (!list)
		return 1;
	length = block_line(list, BLOCK_LENGTHS + index);
	if (!length || !length->word[BLOCK_HIGH])
		return 1;
	high = search->high & length->word[BLOCK_HIGH];
	low = search->low & length->word[BLOCK_LOW];
	mask = length->word[BLOCK_MASK];
	base = length->word[BLOCK_BASE];
	at = block_home6(length, high, low);
	for (int i = 0; i < BLOCK_PROBES; i++) {
		struct block_line *line = block_line(list, base + ((at + i) & mask));

		if (!line)
			return 0;
		if (length->word[BLOCK_LOW]) {
#pragma unroll
			for (int slot = 0; slot < 8; slot += 2)
				if (line->word[slot] == ~high && line->word[slot + 1] == low)
					goto found;
			if (!line->word[6])
				return 0;
		} else {
#pragma unroll
			for (int slot = 0; slot < 8; slot++)
				if (line->word[slot] == ~high)
					goto found;
			if (!line->word[7])
				return 0;
		}
	}
	return 0;
found:
	search->found = 1;
	return 1;
}

TRIVIUM_INLINE __u32 filter_listed(const struct filter_key *key)
{
	__u32 outer = 0;
	void *list;
	struct block_line *header;
	struct block_search search = {};

	list = bpf_map_lookup_elem(&filter_lists, &outer);
	if (!list)
		return 0;
	if (key->family == FILTER_IPV4)
		return listed4(list, key);
	if (key->family != FILTER_IPV6)
		return 0;
	header = block_line(list, BLOCK_HEADER);
	if (!header)
		return 0;
	if (header->word[BLOCK_ALL6])
		return 1;
	search.high = bpf_be64_to_cpu(*(const __be64 *)key->source);
	search.low = bpf_be64_to_cpu(*(const __be64 *)(key->source + 8));
	/* No source begins with these bits. The table uses them for empty and removed slots. */
	if (search.high >= BLOCK_RESERVED)
		return 0;
	bpf_loop(BLOCK_LENGTHS_MAX, search6, &search, 0);
	return search.found;
}

#endif
