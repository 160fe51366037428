// SPDX-License-Identifier: GPL-2.0-only
/*
 * The traffic generator for tests and benches, run by BPF_PROG_TEST_RUN in live-frames mode. Every run writes
 * the headers of one flow into a recycled frame and redirects the frame to a device. The pages come back as
 * the receiver left them (MAC addresses rewritten, TTL decremented), so all headers are written each time.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "livegen_layout.h"

const volatile struct livegen_conf conf SEC(".rodata.conf") = {};

/* Live frames run on one CPU per call. A second generator has its own object and its own state. */
struct livegen_state state SEC(".data.state") = {
	.position = 1,
};

static __attribute__((always_inline)) inline __u32 next_flow(void)
{
	__u32 at = state.position;

	if (conf.random) {
		/*
		 * Marsaglia's xorshift32, with period 2^32 - 1. It never returns 0 from a seed other than 0.
		 */
		at ^= at << 13;
		at ^= at >> 17;
		at ^= at << 5;
		state.position = at;
	} else {
		state.position = at + 1;
	}
	return at & conf.flow_mask;
}

/*
 * Adds the flow to the last four bytes of an address, so the group and local bits stay those of the template.
 */
static __attribute__((always_inline)) inline void vary_mac(__u8 *address, __u32 flow)
{
	*(__be32 *)(address + 2) = bpf_htonl(bpf_ntohl(*(__be32 *)(address + 2)) + flow);
}

/*
 * Returns the scattered address of a number. The function is a bijection (the last step of MurmurHash3), so
 * no two flows share an address.
 */
static __attribute__((always_inline)) inline __u32 scattered(__u32 number)
{
	number = (number ^ number >> 16) * 0x85ebca6b;
	number = (number ^ number >> 13) * 0xc2b2ae35;
	return number ^ number >> 16;
}

static __attribute__((always_inline)) inline void vary_addresses(struct iphdr *ip, __u32 flow)
{
	__u32 source = conf.vary & LIVEGEN_SOURCE ? scattered(flow) : conf.source;
	__u32 destination = conf.destination;
	__u32 sum = conf.ip_sum + (source >> 16) + (source & 0xffff);

	if (conf.vary & LIVEGEN_DESTINATION)
		destination += flow << conf.destination_shift;
	sum += (destination >> 16) + (destination & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->saddr = bpf_htonl(source);
	ip->daddr = bpf_htonl(destination);
	ip->check = bpf_htons(~sum & 0xffff);
}

SEC("xdp")
int livegen(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	__u64 *words = data;
	__u32 flow, l3 = sizeof(struct ethhdr);

	/*
	 * The program is parked on the device itself (see live.rs). Received frames are not part of the
	 * generated traffic.
	 */
	if (ctx->ingress_ifindex == conf.ifindex)
		return XDP_PASS;
	if (data + LIVEGEN_HEADER > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < LIVEGEN_HEADER / 8; i++)
		words[i] = conf.header[i];
	*(__u32 *)(words + LIVEGEN_HEADER / 8) = conf.header_tail;

	flow = next_flow();
	if (conf.tagged)
		l3 += 4;
	if (conf.vary & LIVEGEN_DESTINATION_MAC)
		vary_mac(data, flow);
	if (conf.vary & LIVEGEN_SOURCE_MAC)
		vary_mac(data + ETH_ALEN, flow);
	if (conf.vary & (LIVEGEN_SOURCE | LIVEGEN_DESTINATION))
		vary_addresses(data + l3, flow);
	if (conf.vary & LIVEGEN_PORTS) {
		__be16 *ports = data + l3 + sizeof(struct iphdr);

		ports[0] = bpf_htons(1024 + (flow & 0x3fff));
		ports[1] = bpf_htons(conf.destination_port + (flow >> 14));
	}
	state.sent++;
	return bpf_redirect(conf.ifindex, 0);
}

char _license[] SEC("license") = "GPL";
