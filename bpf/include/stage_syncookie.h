/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections to a service are asked for a cookie before the service hears of them. A SYN is
 * answered from here, without memory of it (RFC 4987 section 3.6), and sent back the way that it came.
 * The cookies are the kernel's own, of its secret that all its network namespaces share.
 *
 * Scheme "cookie": the answer is a SYN+ACK as the service's kernel would make it under a flood. The
 * ACK that brings its cookie goes on to the service, whose kernel checks it again and accepts the
 * connection; it does so only for sockets that have made cookies themselves within two minutes
 * (tcp_syncookies = 2), so now and then a SYN is let through to each. Connections are remembered,
 * and what belongs to none is dropped while SYNs are answered. Those that have brought no cookie, but
 * were open when the flood began, are remembered apart: whatever is forged takes no place of the others.
 *
 * Scheme "retry": the answer is a SYN+ACK that acknowledges a cookie instead of the SYN. A client
 * that has sent one refuses that with a RST of this number (RFC 9293 section 3.10.7.3) and sends
 * its SYN again, which passes, since the source of a RST with a cookie is remembered. This works in
 * front of any host.
 */
#ifndef TRIVIUM_STAGE_SYNCOOKIE_H
#define TRIVIUM_STAGE_SYNCOOKIE_H

#include "syncookie_answer.h"

#define SECOND 1000000000ULL
/* SYNs are answered until their rate has been low for so long. */
#define COOKIE_HOLD (10 * SECOND)
/* Connections that are open already become known in this time after a rule came. */
#define COOKIE_LEARN (60 * SECOND)
/* Sequence numbers of one connection's segments, one after the other, differ by less. */
#define COOKIE_WINDOW (1 << 24)
/* A SYN of each service goes through this often: a quarter of the time that its kernel asks for. */
#define COOKIE_KEEP (30 * SECOND)

TRIVIUM_INLINE void cookie_client(struct filter_client *client, const struct filter_key *key, __u32 slot,
				  enum filter_client_kind kind)
{
	__builtin_memset(client, 0, sizeof(*client));
	client->slot = slot;
	client->kind = kind << 2 | key->family;
	if (kind != FILTER_CLIENT_SERVICE)
		__builtin_memcpy(client->source, key->source, sizeof(client->source));
	if (kind == FILTER_CLIENT_FLOW)
		client->source_port = key->source_port;
	if (kind != FILTER_CLIENT_SOURCE) {
		__builtin_memcpy(client->destination, key->destination, sizeof(client->destination));
		client->destination_port = key->destination_port;
	}
}

TRIVIUM_INLINE __u64 cookie_known(const struct cookie_walk *walk, const struct filter_key *key,
				  enum filter_client_kind kind)
{
	__u64 *value;

	cookie_client(&walk->work->client, key, walk->rule->slot, kind);
	value = bpf_map_lookup_elem(&filter_clients, &walk->work->client);
	return value ? *value : 0;
}

TRIVIUM_INLINE void cookie_remember(const struct cookie_walk *walk, const struct filter_key *key,
				    enum filter_client_kind kind, __u64 value)
{
	if (filter.scratch)
		return;
	cookie_client(&walk->work->client, key, walk->rule->slot, kind);
	bpf_map_update_elem(&filter_clients, &walk->work->client, &value, BPF_ANY);
}

/* Whether SYNs are answered now. */
TRIVIUM_INLINE int cookie_asked(const struct cookie_walk *walk)
{
	return walk->rule->flags & FILTER_COOKIE_ALWAYS ||
	       *(volatile __u64 *)&walk->service->until > walk->now;
}

/* Notices a flood by the rate of SYNs. */
TRIVIUM_INLINE void cookie_rate(const struct cookie_walk *walk, __u32 slot)
{
	__u64 *bucket = bpf_map_lookup_elem(&filter_buckets, &slot);
	__u64 until = walk->now + COOKIE_HOLD;

	if (!bucket || !bucket_exceeded(bucket, walk->rule->cost >> FILTER_COST_SHIFT, walk->rule->burst))
		return;
	/* Once a second is often enough, and leaves the line to the readers. */
	if (until - *(volatile __u64 *)&walk->service->until > SECOND)
		*(volatile __u64 *)&walk->service->until = until;
}

TRIVIUM_INLINE enum filter_verdict cookie_syn(struct xdp_md *ctx, const struct filter_key *key,
					      struct cookie_walk *walk)
{
	const struct filter_rule *rule = walk->rule;

	if (!(rule->flags & FILTER_COOKIE_ALWAYS))
		cookie_rate(walk, rule->slot);
	if (!cookie_asked(walk))
		goto through;
	if (rule->flags & FILTER_COOKIE_RETRY) {
		if (cookie_known(walk, key, FILTER_CLIENT_SOURCE) > walk->now)
			goto through;
	} else if (walk->now - cookie_known(walk, key, FILTER_CLIENT_SERVICE) > COOKIE_KEEP) {
		cookie_remember(walk, key, FILTER_CLIENT_SERVICE, walk->now);
		goto through;
	}
	if (key->fragment != FILTER_WHOLE || !cookie_read(ctx, key, &walk->work->segment))
		goto refused;
	if (rule->flags & FILTER_DRY_RUN) {
		walk->counted->answered += 1;
		return FILTER_VERDICT_ANSWER;
	}
	cookie_addresses(&walk->work->ip, key);
	if (!cookie_write(ctx, key, walk))
		goto refused;
	cookie_seal(key, walk->work, rule->answer >> 16 & 0xff);
	if (!cookie_put(ctx, key, walk->work))
		goto refused;
	walk->counted->answered += 1;
	return FILTER_VERDICT_ANSWER;
through:
	walk->counted->through += 1;
	return FILTER_VERDICT_CONTINUE;
refused:
	walk->counted->refused += 1;
	return FILTER_VERDICT_DROP;
}

/* A segment that is no plain SYN, under the scheme "retry". */
TRIVIUM_INLINE enum filter_verdict cookie_refusal(struct xdp_md *ctx, const struct filter_key *key,
						  const struct cookie_walk *walk)
{
	const struct filter_rule *rule = walk->rule;

	if (key->flags & TCP_SYN && cookie_asked(walk)) {
		walk->counted->refused += 1;
		return FILTER_VERDICT_DROP;
	}
	if ((key->flags & (TCP_RST | TCP_ACK | TCP_SYN)) != TCP_RST || !cookie_asked(walk) ||
	    rule->flags & FILTER_DRY_RUN ||
	    cookie_known(walk, key, FILTER_CLIENT_SOURCE) > walk->now)
		return FILTER_VERDICT_CONTINUE;
	if (!cookie_valid(ctx, key, walk->work, 1)) {
		walk->counted->invalid += 1;
		return FILTER_VERDICT_CONTINUE;
	}
	walk->counted->valid += 1;
	cookie_remember(walk, key, FILTER_CLIENT_SOURCE, walk->now + rule->sample * SECOND);
	/* The service has sent nothing that could be refused. */
	return FILTER_VERDICT_DROP;
}

/* Whether a connection has been learned that has brought no cookie. */
TRIVIUM_INLINE int cookie_is_learned(const struct cookie_walk *walk, const struct filter_key *key)
{
	cookie_client(&walk->work->client, key, walk->rule->slot, FILTER_CLIENT_FLOW);
	return !!bpf_map_lookup_elem(&filter_learned, &walk->work->client);
}

/*
 * Learns a connection from segments that bring no cookie: by the second one, if its numbers go on from
 * those of the one before. Forged ones, each of another connection, take no place but each other's.
 */
TRIVIUM_INLINE void cookie_learn(const struct cookie_walk *walk, const struct filter_key *key)
{
	const struct tcphdr *tcp = &walk->work->segment.tcp;
	struct filter_client *client = &walk->work->client;
	__u32 sent = bpf_ntohl(tcp->seq), heard = bpf_ntohl(tcp->ack_seq);
	__u64 numbers = (__u64)sent << 32 | heard, now = walk->now, *before;

	if (filter.scratch)
		return;
	cookie_client(client, key, walk->rule->slot, FILTER_CLIENT_FLOW);
	before = bpf_map_lookup_elem(&filter_claims, client);
	if (before && sent - (__u32)(*before >> 32) < COOKIE_WINDOW && heard - (__u32)*before < COOKIE_WINDOW)
		bpf_map_update_elem(&filter_learned, client, &now, BPF_ANY);
	else
		bpf_map_update_elem(&filter_claims, client, &numbers, BPF_ANY);
}

/* The same under the scheme "cookie". */
TRIVIUM_INLINE enum filter_verdict cookie_acknowledgement(struct xdp_md *ctx, const struct filter_key *key,
							  const struct cookie_walk *walk)
{
	const struct filter_rule *rule = walk->rule;
	int learns = rule->flags & FILTER_COOKIE_ALWAYS ? walk->now - walk->service->since < COOKIE_LEARN :
							   !cookie_asked(walk);

	/* In a dry run nobody was asked for a cookie. */
	if (rule->flags & FILTER_DRY_RUN || cookie_known(walk, key, FILTER_CLIENT_FLOW) ||
	    cookie_is_learned(walk, key))
		return FILTER_VERDICT_CONTINUE;
	if ((key->flags & (TCP_ACK | TCP_SYN | TCP_RST)) == TCP_ACK) {
		if (cookie_valid(ctx, key, walk->work, 0)) {
			walk->counted->valid += 1;
			cookie_remember(walk, key, FILTER_CLIENT_FLOW, walk->now);
			return FILTER_VERDICT_CONTINUE;
		}
		/* The segment has been read. */
		if (learns)
			cookie_learn(walk, key);
	}
	if (learns)
		return FILTER_VERDICT_CONTINUE;
	walk->counted->invalid += 1;
	return FILTER_VERDICT_DROP;
}

/* What becomes of a segment to a service. A frame that is given another verdict than to go on is the answer, or nobody's. */
static __attribute__((noinline)) int syncookie_meet(struct xdp_md *ctx, struct cookie_work *work, __u32 index)
{
	struct filter_rule *rule = bpf_map_lookup_elem(&filter_rules, &index);
	struct cookie_walk walk = { .rule = rule, .work = work, .now = bpf_ktime_get_ns() };
	const struct filter_key *key = &work->key;
	enum filter_verdict verdict;
	struct filter_count *count;
	__u32 slot, length = bpf_xdp_get_buff_len(ctx);

	if (!rule)
		return FILTER_VERDICT_CONTINUE;
	slot = rule->slot;
	walk.service = bpf_map_lookup_elem(&filter_services, &slot);
	walk.counted = bpf_map_lookup_elem(&filter_answers, &slot);
	count = bpf_map_lookup_elem(&filter_counts, &slot);
	if (!walk.service || !walk.counted || !count)
		return FILTER_VERDICT_CONTINUE;
	if ((key->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN)
		verdict = cookie_syn(ctx, key, &walk);
	else if (rule->flags & FILTER_COOKIE_RETRY)
		verdict = cookie_refusal(ctx, key, &walk);
	else
		verdict = cookie_acknowledgement(ctx, key, &walk);
	if (verdict == FILTER_VERDICT_CONTINUE)
		return verdict;
	count->acted += 1;
	count->acted_bytes += length;
	if (rule->flags & FILTER_DRY_RUN)
		return FILTER_VERDICT_CONTINUE;
	note_rule(slot);
	return verdict;
}

/*
 * The filter (stage_filter.h) with rules that ask for cookies: such a rule ends the walk, judges,
 * and the walk goes on behind it.
 */
static __attribute__((noinline)) int stage_services(struct xdp_md *ctx)
{
	struct filter_walk walk;
	enum filter_verdict verdict;
	struct cookie_work *work;
	__u64 common;
	__u32 slot = 0;

	work = bpf_map_lookup_elem(&filter_work, &slot);
	if (!work)
		return FILTER_VERDICT_CONTINUE;
	__builtin_memset(&work->key, 0, sizeof(work->key));
	walk.ctx = ctx;
	walk.key = &work->key;
	filter_read(ctx, &work->key);
	common = find_rows(&walk);
	if (!common)
		return FILTER_VERDICT_CONTINUE;
	walk.length = bpf_xdp_get_buff_len(ctx);
	walk.verdict = FILTER_VERDICT_CONTINUE;
	walk.word = 0;
	walk.words = filter.words == 1 ? 0 : common;
	walk.bits = filter.words == 1 ? common : 0;
	bpf_loop(FILTER_STEPS, walk_step, &walk, 0);
	if ((walk.verdict & ((1 << FILTER_VERDICT_BITS) - 1)) != FILTER_VERDICT_SERVICE)
		return walk.verdict;
	verdict = syncookie_meet(ctx, work, walk.verdict >> FILTER_VERDICT_BITS);
	if (verdict != FILTER_VERDICT_CONTINUE)
		return verdict;
	walk.verdict = FILTER_VERDICT_MET;
	if (walk.bits | walk.words)
		bpf_loop(FILTER_STEPS, walk_step, &walk, 0);
	return walk.verdict == FILTER_VERDICT_MET ? FILTER_VERDICT_CONTINUE : walk.verdict;
}

#endif
