/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stage of a port that is in the kernel's own routing: what the kernel would forward without
 * further ado leaves from here, by the kernel's tables of routes and neighbours, with the same
 * bytes. Everything else goes on to the stack as it came: what is for this host, what must be
 * answered (expired, too long, unreachable), fragments, options, tags, what is malformed.
 *
 * The stack's other hands on a forwarded packet are missed: netfilter, IPsec policies, tc. Its
 * checks of addresses and checksums are made here, or sent to it.
 */
#ifndef TRIVIUM_STAGE_FIB_H
#define TRIVIUM_STAGE_FIB_H

#include "fib_layout.h"
#include "forward.h"
#include "ip_checks.h"
#include "partial_checksum.h"
#include "trivium_headers.h"

const volatile struct fib_conf fib SEC(".rodata.fib") = {};

/* Devices that take redirected frames, by their index: see FIB_MULTI_BUFFER. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 2 * FIB_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} fib_devices SEC(".maps");

/*
 * What this port gave to each of them, if its index is small, as nearly all are: a look-up without
 * a hash.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FIB_DEVICES);
	__type(key, __u32);
	__type(value, struct fib_count);
} fib_near_counts SEC(".maps");

/* What it gave to those of larger index; under 0, to those that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FIB_DEVICES);
	__type(key, __u32);
	__type(value, struct fib_count);
} fib_counts SEC(".maps");

#define FIB_AF_INET 2
#define FIB_AF_INET6 10

/* Every IPv4 device carries so much (RFC 791), and every IPv6 device so much (RFC 8200). */
#define IPV4_MTU_LEAST 68
#define IPV6_MTU_LEAST 1280

/* A stage of a packet's way here that was passed: not yet a reason. */
#define FIB_ON (-1)

/* Ports as the kernel's rules and multipath see them: first in the header of these. */
TRIVIUM_INLINE void fib_ports(struct bpf_fib_lookup *route, void *l4, void *end)
{
	__be16 *ports = l4;

	switch (route->l4_protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_DCCP:
	case IPPROTO_SCTP:
		if ((void *)(ports + 2) > end)
			return;
		route->sport = ports[0];
		route->dport = ports[1];
	}
}

/* Reads an IPv4 header into a question for the kernel's table; FIB_ON, or why it goes to the stack. */
TRIVIUM_INLINE int fib_ipv4(struct bpf_fib_lookup *route, struct iphdr *ip, void *end, __u32 left)
{
	__u32 total;

	if (!ipv4_stands(ip, end))
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	if (ip->ihl > 5)
		return TRIVIUM_COUNT_FIB_OPTIONS;
	total = ipv4_length(ip, left);
	if (!total)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	if (ipv4_is_group(ip->daddr))
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (ipv4_is_confined(ip->saddr) || ipv4_is_confined(ip->daddr))
		return TRIVIUM_COUNT_FIB_ADDRESS;
	if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET))
		return TRIVIUM_COUNT_PASSED_FRAGMENT;
	if (ip->ttl <= 1)
		return TRIVIUM_COUNT_FIB_TTL;
	route->family = FIB_AF_INET;
	route->l4_protocol = ip->protocol;
	route->tot_len = total;
	route->tos = ip->tos;
	route->ipv4_src = ip->saddr;
	route->ipv4_dst = ip->daddr;
	fib_ports(route, ip + 1, end);
	return FIB_ON;
}

/* The same of an IPv6 header. */
TRIVIUM_INLINE int fib_ipv6(struct bpf_fib_lookup *route, struct ipv6hdr *ip, void *end, __u32 left)
{
	__u32 total = ipv6_length(ip, end, left);

	if (!total)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	/* The helper cannot be asked about it. */
	if (total > 0xffff)
		return TRIVIUM_COUNT_FIB_TOO_LONG;
	if (ipv6_is_group(&ip->daddr))
		return TRIVIUM_COUNT_PASSED_GROUP;
	if (ipv6_is_confined(&ip->saddr) || ipv6_is_confined(&ip->daddr))
		return TRIVIUM_COUNT_FIB_ADDRESS;
	switch (ip->nexthdr) {
	case IPPROTO_FRAGMENT:
		return TRIVIUM_COUNT_PASSED_FRAGMENT;
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
	case IPPROTO_MH:
	case 139: /* HIP, RFC 7401 */
	case 140: /* Shim6, RFC 5533 */
		return TRIVIUM_COUNT_FIB_OPTIONS;
	}
	if (ip->hop_limit <= 1)
		return TRIVIUM_COUNT_FIB_TTL;
	route->family = FIB_AF_INET6;
	route->l4_protocol = ip->nexthdr;
	route->tot_len = total;
	route->flowinfo = *(__be32 *)ip & bpf_htonl(0x0fffffff);
	__builtin_memcpy(route->ipv6_src, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(route->ipv6_dst, &ip->daddr, sizeof(ip->daddr));
	fib_ports(route, ip + 1, end);
	return FIB_ON;
}

/*
 * Whether the stack may refuse this IPv4 source: its own address, or one whose way back leads
 * elsewhere. Of several ways back one is looked at; the stack looks at all.
 */
TRIVIUM_INLINE int fib_doubtful(struct xdp_md *ctx, __be32 source, __be32 destination, __u8 tos)
{
	struct bpf_fib_lookup back = {
		.family = FIB_AF_INET,
		.ifindex = ctx->ingress_ifindex,
		.tos = tos,
		.ipv4_src = destination,
		.ipv4_dst = source,
	};

	if (bpf_map_lookup_elem(&local4, &source))
		return 1;
	if (!fib.sources)
		return 0;
	return bpf_fib_lookup(ctx, &back, sizeof(back), BPF_FIB_LOOKUP_SKIP_NEIGH) ||
	       back.ifindex != ctx->ingress_ifindex;
}

TRIVIUM_INLINE void fib_counted(__u32 ifindex, __u32 length)
{
	struct fib_count *counted;

	if (ifindex < FIB_DEVICES)
		counted = bpf_map_lookup_elem(&fib_near_counts, &ifindex);
	else
		counted = bpf_map_lookup_elem(&fib_counts, &ifindex);
	if (!counted)
		return;
	counted->packets += 1;
	counted->bytes += length;
}

/* Tells the counter; what is not forwarded is as it came. */
TRIVIUM_INLINE int fib_forward(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct bpf_fib_lookup route = {};
	__u32 length = bpf_xdp_get_buff_len(ctx), packet, device, mtu;
	__be32 source = 0, destination = 0;
	int v4, reason;
	__u8 tos = 0;
	long code;

	if ((void *)(ethernet + 1) > end)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	v4 = ethernet->h_proto == bpf_htons(ETH_P_IP);
	if (is_vlan(ethernet->h_proto))
		return TRIVIUM_COUNT_FIB_TAGGED;
	if (!v4 && ethernet->h_proto != bpf_htons(ETH_P_IPV6))
		return TRIVIUM_COUNT_PASSED_CONTROL;
	if (ethernet->h_dest[0] & 1)
		return TRIVIUM_COUNT_PASSED_GROUP;
	if ((*(__u64 *)ethernet->h_dest & MAC_MASK) != fib.mac)
		return TRIVIUM_COUNT_FIB_STATION;

	route.ifindex = ctx->ingress_ifindex;
	if (v4)
		reason = fib_ipv4(&route, (void *)(ethernet + 1), end, length - sizeof(*ethernet));
	else
		reason = fib_ipv6(&route, (void *)(ethernet + 1), end, length - sizeof(*ethernet));
	if (reason != FIB_ON)
		return reason;
	if (fib.partial && is_partial(ethernet + 1, end, ethernet->h_proto))
		return TRIVIUM_COUNT_FIB_PARTIAL;

	/* The answer takes the place of the question. */
	packet = route.tot_len;
	if (v4) {
		source = route.ipv4_src;
		destination = route.ipv4_dst;
		tos = route.tos;
	}
	code = bpf_fib_lookup(ctx, &route, sizeof(route), 0);
	if (code < 0 || code > BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return TRIVIUM_COUNT_FIB_FAILED;
	if (code)
		return TRIVIUM_COUNT_FIB_BLACKHOLE - BPF_FIB_LKUP_RET_BLACKHOLE + code;
	if (route.ifindex == ctx->ingress_ifindex)
		return TRIVIUM_COUNT_FIB_SAME_DEVICE;
	if (v4 && fib_doubtful(ctx, source, destination, tos))
		return TRIVIUM_COUNT_FIB_ADDRESS;
	/* A route may have an MTU of its own, above its device's. */
	mtu = packet;
	if (packet > (v4 ? IPV4_MTU_LEAST : IPV6_MTU_LEAST)) {
		code = bpf_check_mtu(ctx, route.ifindex, &mtu, 0, 0);
		/* Below zero there is no answer: the device went. */
		if (code)
			return code < 0 ? TRIVIUM_COUNT_FIB_FAILED : TRIVIUM_COUNT_FIB_TOO_LONG;
	}
	device = route.ifindex;
	if (length != (__u32)(end - data))
		device |= FIB_MULTI_BUFFER;
	if (bpf_redirect_map(&fib_devices, device, XDP_PASS) != XDP_REDIRECT)
		return TRIVIUM_COUNT_FIB_NO_DEVICE;
	length = forward_trim(ctx, length, packet);
	if (!length)
		return TRIVIUM_COUNT_FIB_FAILED;
	ethernet = forward_hop(ctx, v4, sizeof(struct ethhdr));
	if (!ethernet)
		return TRIVIUM_COUNT_FIB_FAILED;
	__builtin_memcpy(ethernet->h_dest, route.dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, route.smac, ETH_ALEN);
	fib_counted(route.ifindex, length);
	return TRIVIUM_COUNT_FIB_FORWARDED;
}

TRIVIUM_INLINE int stage_fib(struct xdp_md *ctx)
{
	int way = fib_forward(ctx);

	count(way);
	return way == TRIVIUM_COUNT_FIB_FORWARDED ? XDP_REDIRECT : XDP_PASS;
}

#endif
