// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the filter costs, for `cargo run --example filter_cost`: every run writes another source
 * address into the frame, and hands it to nothing, to the filter stage, or to the kernel's own
 * longest-prefix map, which the block list is compared with.
 */
#include "stage_filter.h"

enum filterbench_look_up {
	FILTERBENCH_NOTHING = 0,
	FILTERBENCH_STAGE = 1,
	FILTERBENCH_KERNELS_MAP = 2,
};

struct filterbench_conf {
	enum filterbench_look_up look_up;
	__u32 first; /* of the addresses that come, by their number */
	__u32 mask;  /* how many, a power of two, less 1 */
	__u32 reserved;
};

const volatile struct filterbench_conf bench SEC(".rodata.bench") = {};

__u32 position SEC(".data.state") = 1;

struct lpm_key {
	__u32 length;
	__be32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct lpm_key);
	__type(value, __u32);
} kernels_map SEC(".maps");

/* The address of a number: all differ, and lie everywhere (MurmurHash3's finaliser). */
TRIVIUM_INLINE __u32 scattered(__u32 number)
{
	number ^= number >> 16;
	number *= 0x85ebca6b;
	number ^= number >> 13;
	number *= 0xc2b2ae35;
	return number ^ number >> 16;
}

SEC("xdp")
int filterbench(struct xdp_md *ctx)
{
	struct iphdr *ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
	struct lpm_key key = { .length = 32 };

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	position ^= position << 13;
	position ^= position >> 17;
	position ^= position << 5;
	key.address = bpf_htonl(scattered(bench.first + (position & bench.mask)));
	ip->saddr = key.address;
	if (bench.look_up == FILTERBENCH_STAGE)
		return stage_filter(ctx) ? XDP_DROP : XDP_PASS;
	if (bench.look_up == FILTERBENCH_KERNELS_MAP)
		return bpf_map_lookup_elem(&kernels_map, &key) ? XDP_DROP : XDP_PASS;
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
