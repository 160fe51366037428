// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counterparts for tests and benches: a sink that counts and drops, a program that passes all (a
 * veth delivers redirected frames only if its peer runs one), one that swaps the addresses and
 * sends back, and a bare redirect, which is the ceiling that other planes are compared with.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

struct sink_count {
	__u64 packets;
	__u64 bytes; /* without the frame check sequence */
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

/* What every program pays that looks at a frame: its first line comes from the sender's core. */
SEC("xdp.frags")
int sink_reading(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;

	/* Of a type that nobody sends: dropped as well, and not counted. */
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

char _license[] SEC("license") = "GPL";
