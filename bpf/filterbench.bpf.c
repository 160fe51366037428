// SPDX-License-Identifier: GPL-2.0-only
/*
 * Benchmark of the filter, for `cargo run --example filter_cost`. Every run writes another source address
 * into the frame. The frame is then ignored, passed to the filter stage, or looked up in the kernel's
 * longest-prefix map, with which the block list is compared.
 */
#include "stage_filter.h"

enum filterbench_look_up {
	FILTERBENCH_NOTHING = 0,
	FILTERBENCH_STAGE = 1,
	FILTERBENCH_KERNELS_MAP = 2,
};

struct filterbench_conf {
	enum filterbench_look_up look_up;
	__u32 first; /* number of the first source address */
	__u32 mask;  /* number of source addresses, a power of two, less 1 */
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

/*
 * Returns the address of a number. The addresses differ and are spread over the whole address space
 * (finaliser of MurmurHash3).
 */
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
