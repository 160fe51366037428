/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stage of a port with kernel routing. Packets that the kernel would forward without special treatment
 * leave from the hook, according to the kernel's routes and neighbours, with the bytes that the kernel would
 * send. All other packets go to the stack unchanged: packets for this host, packets that need an answer
 * (expired, too long, unreachable), fragments, options, tags, and malformed packets.
 *
 * Other processing of the stack does not apply to packets that the hook forwards: netfilter, IPsec policies,
 * tc. The stack's checks of addresses and checksums are made here, or the packet is left to the stack.
 */
#ifndef TRIVIUM_STAGE_FIB_H
#define TRIVIUM_STAGE_FIB_H

#include "fib_layout.h"
#include "forward.h"
#include "ip_checks.h"
#include "partial_checksum.h"
#include "trivium_headers.h"

const volatile struct fib_conf fib SEC(".rodata.fib") = {};

/* Devices that accept redirected frames, by index: see FIB_MULTI_BUFFER. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 2 * FIB_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} fib_devices SEC(".maps");

/*
 * Counts of this port's packets by output device, for devices with a small index, as nearly all have. The
 * lookup needs no hash.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FIB_DEVICES);
	__type(key, __u32);
	__type(value, struct fib_count);
} fib_near_counts SEC(".maps");

/* Counts of this port's packets for devices with a larger index. Key 0 holds the sum of deleted devices. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FIB_DEVICES);
	__type(key, __u32);
	__type(value, struct fib_count);
} fib_counts SEC(".maps");

#define FIB_AF_INET 2
#define FIB_AF_INET6 10

/* Minimum MTU of every IPv4 device (RFC 791) and every IPv6 device (RFC 8200), in bytes. */
#define IPV4_MTU_LEAST 68
#define IPV6_MTU_LEAST 1280

/* The check has passed, and the packet may still be forwarded. */
#define FIB_ON (-1)

/*
 * Sets the ports as the kernel's rules and multipath use them. They are first in the header of these
 * protocols.
 */
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

/*
 * Fills the parameters of a kernel lookup from an IPv4 header. Returns FIB_ON, or the reason to leave the
 * packet to the stack.
 */
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

/* Like fib_ipv4(), for an IPv6 header. */
TRIVIUM_INLINE int fib_ipv6(struct bpf_fib_lookup *route, struct ipv6hdr *ip, void *end, __u32 left)
{
	__u32 total = ipv6_length(ip, end, left);

	if (!total)
		return TRIVIUM_COUNT_PASSED_MALFORMED;
	/* The helper takes a length of 16 bits. */
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
 * Returns whether the stack may refuse this IPv4 source: an address of this host, or an address whose reverse
 * path leads elsewhere. Only one of several reverse paths is examined, whereas the stack examines all.
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

/*
 * Forwards a packet and returns its counter. A packet that is not forwarded stays unchanged, unless
 * forwarding fails in its last steps.
 */
TRIVIUM_INLINE int fib_forward(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct bpf_fib_lookup route = {};
	struct checksum_segment segment;
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
	/* The kernel completes the checksum, and forwards a complete one as it is. */
	if (fib.partial && may_be_partial(ethernet + 1, end, ethernet->h_proto, &segment))
		return TRIVIUM_COUNT_FIB_PARTIAL;

	/* The result of the lookup overwrites its parameters. */
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
	/* A route may have an MTU above that of its device. */
	mtu = packet;
	if (packet > (v4 ? IPV4_MTU_LEAST : IPV6_MTU_LEAST)) {
		code = bpf_check_mtu(ctx, route.ifindex, &mtu, 0, 0);
		/* A negative code means that the device is gone. */
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
