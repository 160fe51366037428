// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * The echo service (RFC 862) in the driver hook: UDP over IPv4 to port 7 goes back where it came
 * from, everything else goes on with the port's own program.
 *
 *	clang -O2 -g -target bpf -I/usr/include/$(uname -m)-linux-gnu -c reflector.bpf.c -o reflector.o
 *	trivium xdp load reflector.o --port red
 */
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "trivium.h"

#define ECHO_PORT 7
#define FRAGMENT 0x3fff /* more of them, or an offset */

/* What was sent back: packets, for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} reflected SEC(".maps");

struct echo {
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
} __attribute__((packed));

static __always_inline int asks_for_echo(const struct echo *frame)
{
	/* The lowest bit of the first octet: a group. */
	if (frame->ethernet.h_dest[0] & 1 || frame->ethernet.h_proto != bpf_htons(ETH_P_IP))
		return 0;
	if (frame->ip.version != 4 || frame->ip.ihl != 5 || frame->ip.protocol != IPPROTO_UDP)
		return 0;
	if (frame->ip.frag_off & bpf_htons(FRAGMENT))
		return 0;
	/* Two echo services would answer each other for ever. */
	return frame->udp.dest == bpf_htons(ECHO_PORT) && frame->udp.source != bpf_htons(ECHO_PORT);
}

SEC("xdp.frags")
int reflector(struct xdp_md *ctx)
{
	struct echo *frame = (void *)(long)ctx->data;
	unsigned char station[ETH_ALEN];
	__u64 *packets;
	__be32 address;
	__be16 port;
	__u32 key = 0;

	if ((void *)(frame + 1) > (void *)(long)ctx->data_end || !asks_for_echo(frame)) {
		trivium_continue(ctx);
		return XDP_ABORTED;
	}
	__builtin_memcpy(station, frame->ethernet.h_dest, ETH_ALEN);
	__builtin_memcpy(frame->ethernet.h_dest, frame->ethernet.h_source, ETH_ALEN);
	__builtin_memcpy(frame->ethernet.h_source, station, ETH_ALEN);
	address = frame->ip.daddr;
	frame->ip.daddr = frame->ip.saddr;
	frame->ip.saddr = address;
	port = frame->udp.dest;
	frame->udp.dest = frame->udp.source;
	frame->udp.source = port;
	/* The IP header's sum is the same. A sender may have left UDP's to its device: 0 is none. */
	frame->udp.check = 0;
	packets = bpf_map_lookup_elem(&reflected, &key);
	if (packets)
		*packets += 1;
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
