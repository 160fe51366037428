// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs for the far ends of tests and benches: a sink that counts and drops, a program that passes all
 * frames (a veth delivers redirected frames only if its peer runs a program), a reflector that swaps the
 * addresses, and a plain redirect, which is the upper bound for other data planes.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct sink_count {
	__u64 packets;
	__u64 bytes; /* without frame check sequence */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_count);
} sunk SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

static __attribute__((always_inline)) inline int drop(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct sink_count *count = bpf_map_lookup_elem(&sunk, &key);

	if (count) {
		count->packets += 1;
		count->bytes += bpf_xdp_get_buff_len(ctx);
	}
	return XDP_DROP;
}

SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	return drop(ctx);
}

/*
 * A sink that reads each frame, as every real program does. The first cache line of the frame comes from the
 * sender's core.
 */
SEC("xdp.frags")
int sink_reading(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;

	/* Frames with this type do not occur. They would be dropped without being counted. */
	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end || ethernet->h_proto == 0xffff)
		return XDP_DROP;
	return drop(ctx);
}

SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

SEC("xdp.frags")
int reflect(struct xdp_md *ctx)
{
	__u16 *address = (void *)(long)ctx->data;

	if ((void *)(address + ETH_HLEN / 2) > (void *)(long)ctx->data_end)
		return XDP_DROP;
#pragma unroll
	for (int i = 0; i < ETH_ALEN / 2; i++) {
		__u16 destination = address[i];

		address[i] = address[i + ETH_ALEN / 2];
		address[i + ETH_ALEN / 2] = destination;
	}
	return XDP_TX;
}

SEC("xdp.frags")
int redirect(struct xdp_md *ctx)
{
	(void)ctx;
	return bpf_redirect_map(&target, 0, XDP_DROP);
}

/*
 * Minimal forwarding according to the kernel's routes: IPv4 without any other checks. This is the upper bound
 * for the stage of kernel routing.
 */
SEC("xdp.frags")
int route(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct bpf_fib_lookup look_up = {};
	__u32 check;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end || ip->ttl <= 1)
		return XDP_PASS;
	look_up.family = 2; /* AF_INET */
	look_up.l4_protocol = ip->protocol;
	look_up.tos = ip->tos;
	look_up.tot_len = bpf_ntohs(ip->tot_len);
	look_up.ipv4_src = ip->saddr;
	look_up.ipv4_dst = ip->daddr;
	look_up.ifindex = ctx->ingress_ifindex;
	if (bpf_fib_lookup(ctx, &look_up, sizeof(look_up), 0))
		return XDP_PASS;
	check = (__u32)ip->check + bpf_htons(0x0100);
	ip->check = check + (check >= 0xffff);
	ip->ttl -= 1;
	__builtin_memcpy(ethernet->h_dest, look_up.dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, look_up.smac, ETH_ALEN);
	return bpf_redirect_map(&target, 0, XDP_DROP);
}

char _license[] SEC("license") = "GPL";
