// SPDX-License-Identifier: Apache-2.0
// The far end of the bench. `sink` counts and drops the generator's frames (IPv4, UDP, port 9) and
// passes all else; `pass` only makes a veth take redirected frames (it needs a program for that).
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} delivered SEC(".maps");

SEC("xdp")
int sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	__u64 *count;

	if (data + 42 > end || *(__be16 *)(data + 12) != bpf_htons(ETH_P_IP) ||
	    *(__u8 *)(data + 23) != IPPROTO_UDP || *(__be16 *)(data + 36) != bpf_htons(9))
		return XDP_PASS;
	count = bpf_map_lookup_elem(&delivered, &zero);
	if (count)
		(*count)++;
	return XDP_DROP;
}

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
