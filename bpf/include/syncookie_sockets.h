/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lookup of a service's connections among the sockets of this machine, for the scheme "cookie" of stage_syncookie.h.
 * The maps of connections are bounded, so clients displace each other's entries. The kernel's sockets are not
 * displaced. A segment therefore passes if a socket of its connection exists.
 *
 * A service can be in any network namespace that has an identifier in the namespace of the hook's device. The kernel
 * assigns the identifier when one end of a veth moves to the other namespace. The hook finds the namespace of a service
 * by a connection that it knows, stores the namespace, and later searches there only.
 */
#ifndef TRIVIUM_SYNCOOKIE_SOCKETS_H
#define TRIVIUM_SYNCOOKIE_SOCKETS_H

#include "syncookie_answer.h"

/* Number of identifiers of network namespaces, from 0, that a search examines. */
#define COOKIE_NAMESPACES 64
/* Age of a connection, in nanoseconds, at which the service's kernel has certainly accepted it. */
#define COOKIE_ACCEPTED 100000000ULL
/* Minimum time in nanoseconds between two searches for learned connections, on each CPU. */
#define COOKIE_SEARCH_PAUSE 10000000ULL
/* Bit in the time at which a connection became known: its socket has been searched for. */
#define COOKIE_SEARCHED 1ULL

/*
 * Network namespaces of services, with identifiers as in bpf_skc_lookup_tcp(). Only a service that has accepted a
 * connection gets an entry, so no client can displace entries by connections to other addresses and ports.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_client);
	__type(value, __s64);
} filter_namespaces SEC(".maps");

/* State of a search in all namespaces. */
struct cookie_search {
	struct xdp_md *ctx;
	struct cookie_work *work;
	__s64 found; /* identifier of a namespace, or COOKIE_NAMESPACES */
};

/* Writes the addresses and ports by which sockets are searched for. */
TRIVIUM_INLINE void cookie_tuple(struct cookie_work *work, const struct filter_key *key)
{
	struct bpf_sock_tuple *tuple = &work->tuple;

	if (key->family == FILTER_IPV4) {
		__builtin_memcpy(&tuple->ipv4.saddr, key->source, 4);
		__builtin_memcpy(&tuple->ipv4.daddr, key->destination, 4);
		tuple->ipv4.sport = bpf_htons(key->source_port);
		tuple->ipv4.dport = bpf_htons(key->destination_port);
	} else {
		__builtin_memcpy(tuple->ipv6.saddr, key->source, 16);
		__builtin_memcpy(tuple->ipv6.daddr, key->destination, 16);
		tuple->ipv6.sport = bpf_htons(key->source_port);
		tuple->ipv6.dport = bpf_htons(key->destination_port);
	}
}

/*
 * Returns whether a namespace has a socket of the connection that cookie_tuple() has written. A listening socket is not
 * such a socket.
 */
static __attribute__((noinline)) int cookie_has_socket(struct xdp_md *ctx, struct cookie_work *work, __s64 namespace)
{
	struct bpf_sock *socket;
	__u32 state;

	if (work->key.family == FILTER_IPV4)
		socket = bpf_skc_lookup_tcp(ctx, &work->tuple, sizeof(work->tuple.ipv4), namespace, 0);
	else
		socket = bpf_skc_lookup_tcp(ctx, &work->tuple, sizeof(work->tuple.ipv6), namespace, 0);
	if (!socket)
		return 0;
	state = socket->state;
	bpf_sk_release(socket);
	return state != BPF_TCP_LISTEN;
}

/* Examines the hook's own namespace in the first step, and one identifier in each later step. */
static long cookie_search_step(__u32 step, struct cookie_search *search)
{
	__s64 namespace = (__s64)step + BPF_F_CURRENT_NETNS;

	if (!cookie_has_socket(search->ctx, search->work, namespace))
		return 0;
	search->found = namespace;
	return 1;
}

/*
 * Stores the namespace of the service of a known connection. `seen` is the time at which the connection became known.
 * Each connection causes at most one search of all namespaces. Forged segments can make connections that are `learned`
 * without a handshake, so the rate of searches for these is limited.
 */
TRIVIUM_INLINE void cookie_locate(struct xdp_md *ctx, const struct filter_key *key, const struct cookie_walk *walk,
				  __u64 *seen, int learned)
{
	struct cookie_search search = { .ctx = ctx, .work = walk->work, .found = COOKIE_NAMESPACES };
	struct filter_client *service = &walk->work->client;
	__s64 *known;

	if (*seen & COOKIE_SEARCHED || walk->now - *seen < COOKIE_ACCEPTED || filter.scratch)
		return;
	if (learned) {
		if (walk->now - walk->work->searched < COOKIE_SEARCH_PAUSE)
			return;
		walk->work->searched = walk->now;
	}
	*seen |= COOKIE_SEARCHED;
	cookie_tuple(walk->work, key);
	cookie_client(service, key, walk->rule->slot, FILTER_CLIENT_SERVICE);
	known = bpf_map_lookup_elem(&filter_namespaces, service);
	if (known && cookie_has_socket(ctx, walk->work, *known))
		return;
	bpf_loop(COOKIE_NAMESPACES + 1, cookie_search_step, &search, 0);
	if (search.found != COOKIE_NAMESPACES)
		bpf_map_update_elem(&filter_namespaces, service, &search.found, BPF_ANY);
}

/*
 * Returns whether a socket of the segment's connection exists in the namespace of the service. If this namespace is not
 * known, the hook's own is searched.
 */
TRIVIUM_INLINE int cookie_is_open(struct xdp_md *ctx, const struct filter_key *key, const struct cookie_walk *walk)
{
	__s64 *known;

	if (key->flags & TCP_SYN || !(key->flags & (TCP_ACK | TCP_RST)))
		return 0;
	cookie_tuple(walk->work, key);
	cookie_client(&walk->work->client, key, walk->rule->slot, FILTER_CLIENT_SERVICE);
	known = bpf_map_lookup_elem(&filter_namespaces, &walk->work->client);
	return cookie_has_socket(ctx, walk->work, known ? *known : BPF_F_CURRENT_NETNS);
}

#endif
