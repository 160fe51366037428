/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Conversion of a SYN to its answer, and of a segment with a valid cookie to its SYN: cookies, options,
 * checksums. stage_syncookie.h decides which frames are converted. The kernel's helpers read addresses, ports
 * and sequence numbers from headers in any memory. The headers for the helpers are built here, so the frame
 * itself may have any format.
 */
#ifndef TRIVIUM_SYNCOOKIE_ANSWER_H
#define TRIVIUM_SYNCOOKIE_ANSWER_H

#include "filter_rules.h"
#include "partial_checksum.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define TCP_HEADER 20
#define TCP_HEADER_MAX 60

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_MSS 2
#define OPTION_SCALE 3
#define OPTION_SACK 4
#define OPTION_TIME 8

/* Number of timestamp bits that encode the client's options, as in cookie_init_timestamp() of the kernel. */
#define COOKIE_TIME_BITS 6
#define COOKIE_TIME_SCALE 0xf /* no window scale */
#define COOKIE_TIME_SACK 0x10

/* Maximum number of option bytes in an answer: MSS, SACK and timestamps, window scale. */
#define COOKIE_OPTIONS 20

/* Minimum length of an Ethernet frame in bytes, without frame check sequence. */
#define COOKIE_FRAME_LEAST 60

union cookie_ip {
	struct iphdr v4;
	struct ipv6hdr v6;
	__u32 words[10];
};

/* A TCP header with its options: first the client's, then the answer's in its place. */
struct cookie_segment {
	union {
		struct tcphdr tcp;
		__u8 bytes[64];
		__u32 words[16];
	};
	__u32 length;
	__u32 at;
	__be32 time;
	__u32 has_time;
	__u32 has_sack;
	__u32 scale; /* above 14 for none */
};

/*
 * Working memory that does not fit on the stack. No other frame is processed on this CPU until the frame is
 * judged.
 */
struct cookie_work {
	struct filter_key key;
	struct filter_client client;
	struct cookie_segment segment;
	union cookie_ip ip;
	struct bpf_sock_tuple tuple;
	__u8 stations[2 * ETH_ALEN];
	__u8 swapped[2 * ETH_ALEN];
	__u64 searched; /* time of the last search of all namespaces for a learned connection */
};

/*
 * Clients of services that have returned a cookie, and services for which such a client's segment took the place of a
 * SYN. When the map is full, the least recently seen entry is evicted. Frames of forged sources add no entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_client);
	__type(value, __u64);
} filter_clients SEC(".maps");

/*
 * Connections that have returned no cookie, but sent consecutive segments, with the time of learning. When
 * the map is full, the least recently seen one is evicted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_client);
	__type(value, __u64);
} filter_learned SEC(".maps");

/*
 * Addresses and ports of services, with the time at which a SYN was last passed to each. Forged frames to many
 * addresses and ports displace only each other.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_client);
	__type(value, __u64);
} filter_passed SEC(".maps");

/*
 * Token buckets of the rules with cookies, for SYNs that are passed to services. Forged frames to many addresses
 * and ports of a rule pass at the rule's rate.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FILTER_SERVICES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} filter_kept SEC(".maps");

/*
 * Connections that have sent one segment. The value is its sequence number, above its acknowledgement number.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_client);
	__type(value, __u64);
} filter_claims SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FILTER_SERVICES_MAX);
	__type(key, __u32);
	__type(value, struct filter_service);
} filter_services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FILTER_SERVICES_MAX);
	__type(key, __u32);
	__type(value, struct filter_answer);
} filter_answers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_work);
} filter_work SEC(".maps");

/* State of a frame in the stage. */
struct cookie_walk {
	const struct filter_rule *rule;
	struct filter_service *service;
	struct filter_answer *counted;
	struct cookie_work *work;
	__u64 now;
};

/* Writes the key of a client, connection or service. */
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

/* Writes both addresses, from which cookies are made together with ports and numbers. */
TRIVIUM_INLINE void cookie_addresses(union cookie_ip *ip, const struct filter_key *key)
{
	__builtin_memset(ip, 0, sizeof(*ip));
	if (key->family == FILTER_IPV4) {
		__builtin_memcpy(&ip->v4.saddr, key->source, 4);
		__builtin_memcpy(&ip->v4.daddr, key->destination, 4);
	} else {
		__builtin_memcpy(&ip->v6.saddr, key->source, 16);
		__builtin_memcpy(&ip->v6.daddr, key->destination, 16);
	}
}

/* Reads the TCP header without its options. Returns 0 when it is truncated. */
TRIVIUM_INLINE int cookie_read(struct xdp_md *ctx, const struct filter_key *key, struct cookie_segment *segment)
{
	__u32 at = key->base[FILTER_BASE_TRANSPORT];

	__builtin_memset(segment, 0, sizeof(*segment));
	return at != FILTER_NOWHERE && !bpf_xdp_load_bytes(ctx, at, segment->bytes, TCP_HEADER);
}

/* Reads the TCP options. */
TRIVIUM_INLINE int cookie_read_options(struct xdp_md *ctx, const struct filter_key *key,
				       struct cookie_segment *segment)
{
	__u32 length = (segment->bytes[12] >> 4) * 4;
	__u32 more;

	if (length < TCP_HEADER)
		return 0;
	segment->length = length;
	more = length - TCP_HEADER;
	barrier_var(more);
	if (!more)
		return 1;
	if (more > TCP_HEADER_MAX - TCP_HEADER)
		return 0;
	return !bpf_xdp_load_bytes(ctx, key->base[FILTER_BASE_TRANSPORT] + TCP_HEADER, segment->bytes + TCP_HEADER,
				   more);
}

/* Reads the next option. Returns 1 after the last one. */
static long cookie_option(__u32 step, struct cookie_walk *walk)
{
	struct cookie_segment *segment = &walk->work->segment;
	__u32 at = segment->at;
	__u8 kind, length;

	(void)step;
	if (at >= segment->length || at >= TCP_HEADER_MAX)
		return 1;
	kind = segment->bytes[at & 63];
	if (kind == OPTION_END)
		return 1;
	if (kind == OPTION_NOP) {
		segment->at = at + 1;
		return 0;
	}
	length = segment->bytes[(at + 1) & 63];
	if (at + 1 >= segment->length || length < 2 || at + length > segment->length)
		return 1;
	if (kind == OPTION_SCALE && length == 3) {
		__u8 scale = segment->bytes[(at + 2) & 63];

		segment->scale = scale > 14 ? 14 : scale;
	} else if (kind == OPTION_SACK && length == 2) {
		segment->has_sack = 1;
	} else if (kind == OPTION_TIME && length == 10) {
		segment->has_time = 1;
		segment->time = segment->bytes[(at + 2) & 63] | segment->bytes[(at + 3) & 63] << 8 |
				segment->bytes[(at + 4) & 63] << 16 | (__u32)segment->bytes[(at + 5) & 63] << 24;
	}
	segment->at = at + length;
	return 0;
}

/* Returns the kernel's timestamp clock in milliseconds. The low bits encode the client's options. */
TRIVIUM_INLINE __u32 cookie_time(const struct cookie_segment *segment, __u64 now)
{
	__u32 clock = now / 1000000;
	__u32 options = segment->scale <= 14 ? segment->scale : COOKIE_TIME_SCALE;
	__u32 time;

	if (segment->has_sack)
		options |= COOKIE_TIME_SACK;
	time = (clock >> COOKIE_TIME_BITS << COOKIE_TIME_BITS) | options;
	return time > clock ? time - (1 << COOKIE_TIME_BITS) : time;
}

/* Replaces the client's options by those of the answer. Returns their length in bytes. */
TRIVIUM_INLINE __u32 cookie_write_options(struct cookie_segment *segment, const struct filter_rule *rule,
					  __u32 family, __u64 now)
{
	__u32 scale = rule->answer >> 24, mss = rule->answer & 0xffff;
	__u32 length = 4;

	if (!mss)
		mss = family == FILTER_IPV4 ? 1460 : 1440;
	segment->words[5] = bpf_htonl(OPTION_MSS << 24 | 4 << 16 | mss);
	if (filter.uses & FILTER_USES_COOKIE_OPTIONS && scale <= 14 && segment->has_time) {
		segment->words[6] = bpf_htonl(segment->has_sack ? OPTION_SACK << 24 | 2 << 16 | OPTION_TIME << 8 | 10 :
								  OPTION_NOP << 24 | OPTION_NOP << 16 |
									  OPTION_TIME << 8 | 10);
		segment->words[7] = bpf_htonl(cookie_time(segment, now));
		segment->words[8] = segment->time;
		length = 16;
		if (segment->scale <= 14) {
			segment->words[9] = bpf_htonl(OPTION_NOP << 24 | OPTION_SCALE << 16 | 3 << 8 | scale);
			length = 20;
		}
	}
	return length;
}

/* Replaces the client's TCP header by that of the answer. Returns 0 when no cookie could be made. */
TRIVIUM_INLINE int cookie_write(struct xdp_md *ctx, const struct filter_key *key, struct cookie_walk *walk)
{
	struct cookie_segment *segment = &walk->work->segment;
	union cookie_ip *ip = &walk->work->ip;
	int retry = walk->rule->flags & FILTER_COOKIE_RETRY;
	__be16 source = segment->tcp.source, destination = segment->tcp.dest;
	__be32 client = segment->tcp.seq;
	__u32 options = 0, window = 0, number, acknowledged, mss;
	__s64 made;

	if (retry) {
		/* The RST will not contain the number of the SYN. */
		segment->tcp.seq = 0;
		segment->words[3] = 0;
		segment->tcp.doff = TCP_HEADER / 4;
		segment->length = TCP_HEADER;
		if (key->family == FILTER_IPV4)
			made = bpf_tcp_raw_gen_syncookie_ipv4(&ip->v4, &segment->tcp, TCP_HEADER);
		else
			made = bpf_tcp_raw_gen_syncookie_ipv6(&ip->v6, &segment->tcp, TCP_HEADER);
	} else {
		__u32 length;

		if (!cookie_read_options(ctx, key, segment))
			return 0;
		length = segment->length;
		if (length > TCP_HEADER_MAX)
			return 0;
		if (key->family == FILTER_IPV4)
			made = bpf_tcp_raw_gen_syncookie_ipv4(&ip->v4, &segment->tcp, length);
		else
			made = bpf_tcp_raw_gen_syncookie_ipv6(&ip->v6, &segment->tcp, length);
	}
	if (made < 0)
		return 0;
	acknowledged = bpf_ntohl(client) + 1;
	number = made;
	if (retry) {
		/* The answer would be a valid acknowledgement of the SYN. */
		if (number == acknowledged)
			return 0;
		acknowledged = number;
		number = bpf_get_prandom_u32();
	} else {
		segment->at = TCP_HEADER;
		segment->scale = COOKIE_TIME_SCALE;
		if (filter.uses & FILTER_USES_COOKIE_OPTIONS)
			bpf_loop(TCP_HEADER_MAX - TCP_HEADER, cookie_option, walk, 0);
		/* All fields that were read are in variables now. */
		__builtin_memset(segment->bytes + TCP_HEADER, 0, sizeof(segment->bytes) - TCP_HEADER);
		options = cookie_write_options(segment, walk->rule, key->family, walk->now);
		/* Size of a client's initial window (RFC 6928). The service sends its own window later. */
		mss = walk->rule->answer & 0xffff;
		window = 10 * (mss ? mss : 1460);
		if (window > 65535)
			window = 65535;
	}
	segment->tcp.source = destination;
	segment->tcp.dest = source;
	segment->tcp.seq = bpf_htonl(number);
	segment->tcp.ack_seq = bpf_htonl(acknowledged);
	segment->words[3] = bpf_htonl((TCP_HEADER + options) / 4 << 28 | (TCP_SYN | TCP_ACK) << 16 | window);
	segment->words[4] = 0;
	segment->length = TCP_HEADER + options;
	return 1;
}

/* Builds the IP header of the answer, and both checksums. */
TRIVIUM_INLINE void cookie_seal(const struct filter_key *key, struct cookie_work *work, __u32 ttl)
{
	struct cookie_segment *segment = &work->segment;
	union cookie_ip *ip = &work->ip;
	__u64 sum = bpf_htons(IPPROTO_TCP) + bpf_htons(segment->length), header = 0;

#pragma unroll
	for (int word = 0; word < (TCP_HEADER + COOKIE_OPTIONS) / 4; word++)
		sum += segment->words[word];
	__builtin_memset(ip, 0, sizeof(*ip));
	if (key->family == FILTER_IPV4) {
		__builtin_memcpy(&ip->v4.saddr, key->destination, 4);
		__builtin_memcpy(&ip->v4.daddr, key->source, 4);
		sum += (__u64)ip->v4.saddr + ip->v4.daddr;
		ip->words[0] = bpf_htonl(0x45000000 | (sizeof(ip->v4) + segment->length));
		ip->words[1] = bpf_htonl(0x4000); /* not fragmented, with the flag "don't fragment" */
		ip->words[2] = bpf_htonl(ttl << 24 | IPPROTO_TCP << 16);
#pragma unroll
		for (int word = 0; word < 5; word++)
			header += ip->words[word];
		ip->v4.check = ~fold(header);
	} else {
		__builtin_memcpy(&ip->v6.saddr, key->destination, 16);
		__builtin_memcpy(&ip->v6.daddr, key->source, 16);
#pragma unroll
		for (int word = 2; word < 10; word++)
			sum += ip->words[word];
		ip->words[0] = bpf_htonl(0x60000000);
		ip->words[1] = bpf_htonl(segment->length << 16 | IPPROTO_TCP << 8 | ttl);
	}
	segment->tcp.check = ~fold(sum);
}

/* Turns the frame into the answer. Returns 0 on failure, after which the frame must be dropped. */
TRIVIUM_INLINE int cookie_put(struct xdp_md *ctx, const struct filter_key *key, struct cookie_work *work)
{
	__u32 network = key->base[FILTER_BASE_NETWORK];
	__u32 header = key->family == FILTER_IPV4 ? sizeof(work->ip.v4) : sizeof(work->ip.v6);
	__u32 length = work->segment.length, frame;

	if (network > sizeof(struct ethhdr) + VLAN_TAGS_MAX * sizeof(struct vlan_tag))
		return 0;
	frame = network + header + length;
	if (frame < COOKIE_FRAME_LEAST) {
		length += COOKIE_FRAME_LEAST - frame;
		frame = COOKIE_FRAME_LEAST;
	}
	barrier_var(length);
	if (length < TCP_HEADER || length > TCP_HEADER + COOKIE_OPTIONS)
		return 0;
	if (bpf_xdp_adjust_tail(ctx, (int)frame - (int)bpf_xdp_get_buff_len(ctx)) ||
	    bpf_xdp_load_bytes(ctx, 0, work->stations, sizeof(work->stations)))
		return 0;
	/* The source or the destination is multicast or broadcast. */
	if ((work->stations[0] | work->stations[ETH_ALEN]) & 1)
		return 0;
	__builtin_memcpy(work->swapped, work->stations + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(work->swapped + ETH_ALEN, work->stations, ETH_ALEN);
	if (bpf_xdp_store_bytes(ctx, 0, work->swapped, sizeof(work->swapped)) ||
	    bpf_xdp_store_bytes(ctx, network, &work->ip, header) ||
	    bpf_xdp_store_bytes(ctx, network + header, work->segment.bytes, length))
		return 0;
	return 1;
}

/* Returns whether the segment returns the cookie with which a SYN was answered. */
TRIVIUM_INLINE int cookie_valid(struct xdp_md *ctx, const struct filter_key *key, struct cookie_work *work, int retry)
{
	struct tcphdr *tcp = &work->segment.tcp;

	if (!cookie_read(ctx, key, &work->segment))
		return 0;
	if (retry) {
		/*
		 * The number of the segment is the cookie, made for a SYN with the number 0: see
		 * cookie_write().
		 */
		tcp->ack_seq = bpf_htonl(bpf_ntohl(tcp->seq) + 1);
		tcp->seq = bpf_htonl(1);
	}
	cookie_addresses(&work->ip, key);
	if (key->family == FILTER_IPV4)
		return !bpf_tcp_raw_check_syncookie_ipv4(&work->ip.v4, tcp);
	return !bpf_tcp_raw_check_syncookie_ipv6(&work->ip.v6, tcp);
}

/* Returns the length in octets of a TCP segment with its header, or -1 if the IP header cannot be read. */
TRIVIUM_INLINE int cookie_segment_length(struct xdp_md *ctx, const struct filter_key *key)
{
	__u32 network = key->base[FILTER_BASE_NETWORK];
	/* The options and extension headers between the fixed IP header and the segment. */
	int before = key->base[FILTER_BASE_TRANSPORT] - network;
	__be16 length;

	if (key->family == FILTER_IPV4) {
		if (bpf_xdp_load_bytes(ctx, network + offsetof(struct iphdr, tot_len), &length, sizeof(length)))
			return -1;
		return bpf_ntohs(length) - before;
	}
	if (bpf_xdp_load_bytes(ctx, network + offsetof(struct ipv6hdr, payload_len), &length, sizeof(length)))
		return -1;
	return bpf_ntohs(length) + (int)sizeof(struct ipv6hdr) - before;
}

/*
 * Returns whether the segment that cookie_valid() has read may have a partial checksum, which holds the sum of the
 * pseudo-header.
 */
TRIVIUM_INLINE int cookie_is_partial(struct xdp_md *ctx, const struct filter_key *key, const struct cookie_work *work)
{
	int length = cookie_segment_length(ctx, key);
	__u64 sum = bpf_htons(IPPROTO_TCP);

	if (length < 0)
		return 1;
	sum += bpf_htons((__u16)length);
	/* cookie_valid() has written the addresses, and zeros to the rest of the IP header. */
#pragma unroll
	for (int word = 0; word < 10; word++)
		sum += work->ip.words[word];
	return work->segment.tcp.check == fold(sum);
}

/*
 * Turns the segment that cookie_valid() has read into the SYN of its connection, with the options and the payload of
 * the segment. Returns 0 if the frame cannot be written. A partial checksum stays valid, because the pseudo-header does
 * not change. Other checksums are updated by the difference (RFC 1624).
 */
TRIVIUM_INLINE int cookie_restore_syn(struct xdp_md *ctx, const struct filter_key *key, struct cookie_work *work)
{
	struct cookie_segment *segment = &work->segment;
	__u64 sum = (__u16)~segment->tcp.check;

#pragma unroll
	for (int word = 1; word <= 3; word++)
		sum += (__u32)~segment->words[word];
	segment->tcp.seq = bpf_htonl(bpf_ntohl(segment->tcp.seq) - 1);
	segment->tcp.ack_seq = 0;
	segment->bytes[12] &= 0xf0;
	segment->bytes[13] = TCP_SYN;
#pragma unroll
	for (int word = 1; word <= 3; word++)
		sum += segment->words[word];
	if (!cookie_is_partial(ctx, key, work))
		segment->tcp.check = ~fold(sum);
	return !bpf_xdp_store_bytes(ctx, key->base[FILTER_BASE_TRANSPORT], segment->bytes, TCP_HEADER);
}

#endif
