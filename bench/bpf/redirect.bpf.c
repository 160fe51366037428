// SPDX-License-Identifier: Apache-2.0
// The ceiling: what a bare redirect between two devices costs. Key: the receiving ifindex modulo 64.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&out, ctx->ingress_ifindex & 63, XDP_DROP);
}

char _license[] SEC("license") = "GPL";
