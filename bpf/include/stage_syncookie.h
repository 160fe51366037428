/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SYN cookies for TCP services. A client must return a cookie before the service sees its connection. The
 * hook answers a SYN without keeping state (RFC 4987 section 3.6), and sends the answer back by the receiving
 * device. The cookies are the kernel's own, made with a secret that all its network namespaces share.
 *
 * Scheme "cookie": the answer is the SYN+ACK that the service's kernel would send under a flood. The ACK that
 * returns the cookie goes to the service, whose kernel checks the cookie again and accepts the connection.
 * The kernel does so only for sockets that have sent cookies themselves within two minutes (tcp_syncookies
 * set to 2), so a SYN is passed to each service from time to time. If the service has received none, the hook
 * turns the segment that returns the cookie back into the client's SYN (cookie_reopen()).
 *
 * Scheme "cookie" remembers connections. While SYNs are answered, segments of other connections are dropped, unless
 * the kernel has a socket of the connection (syncookie_sockets.h). Connections that have returned no cookie, but were
 * open when the flood began, are stored separately, so forged segments cannot displace the others.
 *
 * Scheme "retry": the answer is a SYN+ACK that acknowledges a cookie instead of the SYN. A client that has
 * sent the SYN refuses the answer with a RST of this number (RFC 9293 section 3.10.7.3) and sends its SYN
 * again. This SYN passes, because the source of a RST with a valid cookie is remembered. The scheme works in
 * front of any host.
 */
#ifndef TRIVIUM_STAGE_SYNCOOKIE_H
#define TRIVIUM_STAGE_SYNCOOKIE_H

#include "syncookie_answer.h"
#include "syncookie_sockets.h"

#define SECOND 1000000000ULL
/* Time for which SYNs are still answered after their rate has become low. */
#define COOKIE_HOLD (10 * SECOND)
/* Time after a rule was added in which open connections are learned. */
#define COOKIE_LEARN (60 * SECOND)
/* Maximum difference between the sequence numbers of consecutive segments of one connection. */
#define COOKIE_WINDOW (1 << 24)
/* Interval at which a SYN of each service passes, a quarter of the interval that the kernel requires. */
#define COOKIE_KEEP (30 * SECOND)
/*
 * Rate, in SYNs per second, at which a rule passes SYNs for this purpose, and the burst in SYNs. 1,000 SYNs a second
 * are enough for 30,000 addresses and ports. Forged SYNs to more addresses and ports use up the rate, and the SYNs to
 * a service may then pass rarely or never. The service needs none of these SYNs, because a segment with a valid cookie
 * takes their place (cookie_reopen()) outside of the rate.
 */
#define COOKIE_KEPT_RATE 1000
#define COOKIE_KEPT_BURST 1000
#define COOKIE_KEPT_COST ((SECOND / COOKIE_KEPT_RATE) << FILTER_TICK_SHIFT)

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
	value &= ~COOKIE_SEARCHED;
	cookie_client(&walk->work->client, key, walk->rule->slot, kind);
	bpf_map_update_elem(&filter_clients, &walk->work->client, &value, BPF_ANY);
}

/*
 * Returns whether the SYN passes because no SYN has been passed to its address and port for COOKIE_KEEP, and stores
 * the time if it does. A SYN over the rate of the rule does not pass.
 */
TRIVIUM_INLINE int cookie_keeps(const struct cookie_walk *walk, const struct filter_key *key)
{
	struct filter_client *client = &walk->work->client;
	__u64 now = walk->now, *passed, *kept;
	__u32 slot = walk->rule->slot;

	cookie_client(client, key, slot, FILTER_CLIENT_SERVICE);
	passed = bpf_map_lookup_elem(&filter_passed, client);
	if (passed && now - *passed <= COOKIE_KEEP)
		return 0;
	kept = bpf_map_lookup_elem(&filter_kept, &slot);
	if (!kept || bucket_exceeded(kept, COOKIE_KEPT_COST, COOKIE_KEPT_BURST * COOKIE_KEPT_COST))
		return 0;
	if (!filter.scratch)
		bpf_map_update_elem(&filter_passed, client, &now, BPF_ANY);
	return 1;
}

/* Returns whether SYNs are answered with cookies at present. */
TRIVIUM_INLINE int cookie_asked(const struct cookie_walk *walk)
{
	return walk->rule->flags & FILTER_COOKIE_ALWAYS ||
	       *(volatile __u64 *)&walk->service->until > walk->now;
}

/*
 * Returns whether no SYN has been passed to the address and port of a segment for COOKIE_KEEP. Segments in the place
 * of a SYN are recorded among the clients, where forged frames cannot displace them.
 */
TRIVIUM_INLINE int cookie_is_due(const struct cookie_walk *walk, const struct filter_key *key)
{
	__u64 reopened = cookie_known(walk, key, FILTER_CLIENT_SERVICE), *passed;

	if (reopened && walk->now - reopened <= COOKIE_KEEP)
		return 0;
	/* cookie_known() has written the key. */
	passed = bpf_map_lookup_elem(&filter_passed, &walk->work->client);
	return !passed || walk->now - *passed > COOKIE_KEEP;
}

/*
 * Turns a segment that has returned its cookie into the SYN that the hook has answered, if no SYN has been passed to
 * the service. The service's kernel then answers with a cookie of its own, and accepts cookies from now on. Returns
 * whether the segment was turned into a SYN.
 *
 * For the client the kernel's answer is a repeated SYN+ACK after a lost ACK. The client sends an ACK with the number of
 * its next octet (RFC 9293 section 3.10.7.4). If the segment was an ACK without payload, this ACK returns the cookie,
 * and opens the connection. If the segment had payload or a FIN, the ACK returns no cookie, and the kernel would
 * refuse the connection because of the ACK. The caller therefore does not record the connection. The ACK is then
 * dropped, and the client sends the segment again, which opens the connection.
 *
 * While the service learns connections (`learns`), such an ACK would pass. Segments with payload or FIN are then not
 * turned into SYNs.
 *
 * Each segment has a valid cookie, so forged frames cause no SYNs. A sender with an address of its own causes at most
 * one SYN for each connection, in place of the segment that would have passed. The delay for a client is one round
 * trip, or one retransmission if the segment had payload, in at most one of the connections that a service receives
 * within COOKIE_KEEP. A client of a closed port receives the kernel's RST with its first data, because the RST that
 * answers the SYN is outside of its window.
 *
 * The SYN has no MSS option, so the kernel's cookie may differ from the hook's. Both are valid. Connection tracking on
 * the service's host sees an acknowledgement outside of the window that it has recorded.
 */
TRIVIUM_INLINE int cookie_reopen(struct xdp_md *ctx, const struct filter_key *key, const struct cookie_walk *walk,
				 int learns)
{
	int header = key->base[FILTER_BASE_PAYLOAD] - key->base[FILTER_BASE_TRANSPORT];

	if (key->fragment != FILTER_WHOLE || !cookie_asked(walk) || !cookie_is_due(walk, key))
		return 0;
	if (learns && (key->flags & TCP_FIN || cookie_segment_length(ctx, key) != header))
		return 0;
	if (!cookie_restore_syn(ctx, key, walk->work))
		return 0;
	cookie_remember(walk, key, FILTER_CLIENT_SERVICE, walk->now);
	walk->counted->through += 1;
	return 1;
}

/* Detects a flood by the rate of SYNs. */
TRIVIUM_INLINE void cookie_rate(const struct cookie_walk *walk, __u32 slot)
{
	__u64 *bucket = bpf_map_lookup_elem(&filter_buckets, &slot);
	__u64 until = walk->now + COOKIE_HOLD;

	if (!bucket || !bucket_exceeded(bucket, walk->rule->cost >> FILTER_COST_SHIFT, walk->rule->burst))
		return;
	/* Writing once a second suffices, and keeps the cache line shared among readers. */
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
	} else if (cookie_keeps(walk, key)) {
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

/* Processes a segment other than a plain SYN, under the scheme "retry". */
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
	/* The service has sent no segment that the RST could refuse. */
	return FILTER_VERDICT_DROP;
}

/*
 * Learns a connection from segments without a cookie. The connection is learned with the second segment, if
 * its numbers continue those of the first. Forged segments, each of another connection, displace only each
 * other.
 */
TRIVIUM_INLINE void cookie_learn(const struct cookie_walk *walk, const struct filter_key *key)
{
	const struct tcphdr *tcp = &walk->work->segment.tcp;
	struct filter_client *client = &walk->work->client;
	__u32 sent = bpf_ntohl(tcp->seq), heard = bpf_ntohl(tcp->ack_seq);
	__u64 numbers = (__u64)sent << 32 | heard, now = walk->now & ~COOKIE_SEARCHED, *before;

	if (filter.scratch)
		return;
	cookie_client(client, key, walk->rule->slot, FILTER_CLIENT_FLOW);
	before = bpf_map_lookup_elem(&filter_claims, client);
	if (before && sent - (__u32)(*before >> 32) < COOKIE_WINDOW && heard - (__u32)*before < COOKIE_WINDOW)
		bpf_map_update_elem(&filter_learned, client, &now, BPF_ANY);
	else
		bpf_map_update_elem(&filter_claims, client, &numbers, BPF_ANY);
}

/* Processes a segment other than a plain SYN, under the scheme "cookie". */
TRIVIUM_INLINE enum filter_verdict cookie_acknowledgement(struct xdp_md *ctx, const struct filter_key *key,
							  const struct cookie_walk *walk)
{
	const struct filter_rule *rule = walk->rule;
	int learns = rule->flags & FILTER_COOKIE_ALWAYS ? walk->now - walk->service->since < COOKIE_LEARN :
							   !cookie_asked(walk);
	struct filter_client *client = &walk->work->client;
	int learned = 0;
	__u64 *seen;

	/* In a dry run no client has received a cookie. */
	if (rule->flags & FILTER_DRY_RUN)
		return FILTER_VERDICT_CONTINUE;
	/* Connections that returned their cookies, and connections that were learned without a cookie. */
	cookie_client(client, key, rule->slot, FILTER_CLIENT_FLOW);
	seen = bpf_map_lookup_elem(&filter_clients, client);
	if (!seen) {
		seen = bpf_map_lookup_elem(&filter_learned, client);
		learned = 1;
	}
	if (seen) {
		cookie_locate(ctx, key, walk, seen, learned);
		return FILTER_VERDICT_CONTINUE;
	}
	if ((key->flags & (TCP_ACK | TCP_SYN | TCP_RST)) == TCP_ACK) {
		if (cookie_valid(ctx, key, walk->work, 0)) {
			walk->counted->valid += 1;
			if (!cookie_reopen(ctx, key, walk, learns))
				cookie_remember(walk, key, FILTER_CLIENT_FLOW, walk->now);
			return FILTER_VERDICT_CONTINUE;
		}
		/* cookie_valid() has read the segment. */
		if (learns)
			cookie_learn(walk, key);
	}
	if (learns)
		return FILTER_VERDICT_CONTINUE;
	/* Other clients may have displaced the entry of an open connection. */
	if (cookie_is_open(ctx, key, walk)) {
		cookie_remember(walk, key, FILTER_CLIENT_FLOW, walk->now);
		return FILTER_VERDICT_CONTINUE;
	}
	walk->counted->invalid += 1;
	return FILTER_VERDICT_DROP;
}

/*
 * Judges a segment to a service. With a verdict other than FILTER_VERDICT_CONTINUE the frame is the answer,
 * or must be dropped.
 */
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
 * Runs the filter (stage_filter.h) with rules that have cookies. Such a rule ends the walk and judges the
 * frame, and the walk continues with the next rule. A dry run judges the frame after the walk.
 */
static __attribute__((noinline)) int stage_services(struct xdp_md *ctx)
{
	struct filter_walk walk;
	enum filter_verdict verdict;
	struct cookie_work *work;
	__u64 common;
	__u32 slot = 0, index;
	int is_trial;

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
	walk.trial = 0;
	walk.word = 0;
	walk.words = filter.words == 1 ? 0 : common;
	walk.bits = filter.words == 1 ? common : 0;
	bpf_loop(FILTER_STEPS, walk_step, &walk, 0);
	is_trial = (walk.verdict & ((1 << FILTER_VERDICT_BITS) - 1)) != FILTER_VERDICT_SERVICE;
	if (is_trial && !walk.trial)
		return walk.verdict;
	index = is_trial ? walk.trial - 1 : walk.verdict >> FILTER_VERDICT_BITS;
	verdict = syncookie_meet(ctx, work, index);
	if (is_trial)
		return walk.verdict;
	if (verdict != FILTER_VERDICT_CONTINUE)
		return verdict;
	walk.verdict = FILTER_VERDICT_MET;
	if (walk.bits | walk.words)
		bpf_loop(FILTER_STEPS, walk_step, &walk, 0);
	return walk.verdict == FILTER_VERDICT_MET ? FILTER_VERDICT_CONTINUE : walk.verdict;
}

#endif
