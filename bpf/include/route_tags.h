/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of VLANs that are interfaces of a virtual router. The hook routes tagged packets that it would route
 * without the tag. All other frames of these VLANs go to the worker. These include frames for the kernel, which
 * the worker passes to the kernel through the VLAN's own device.
 */
#ifndef ROUTE_TAGS_H
#define ROUTE_TAGS_H

#include "route_checks.h"

/* VLANs of the port that are interfaces. Read where ROUTE_HAS_VLANS is set. */
const volatile __u16 route_vlans[ROUTE_VLANS] SEC(".rodata.vlans") = {};

/* The router's interfaces by number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ROUTE_INTERFACES);
	__type(key, __u32);
	__type(value, struct route_interface);
} route_outputs SEC(".maps");

#define ROUTE_NOWHERE 0xffffffff
#define ROUTE_TAG_BYTES 4

/* A tagged frame: the Ethernet header, the tag, and the EtherType of the packet. */
struct route_tagged {
	struct ethhdr ethernet;
	struct vlan_tag tag;
};

/* Maximum number of tags in the first buffer of a frame. */
#define ROUTE_TAGS_MAX 1024

/* State of the search for the last of the priority tags in front of a frame. */
struct route_priority {
	struct xdp_md *ctx;
	__u32 at; /* offset of the first tag that stays */
};

/* Goes on to the next tag if a priority tag is followed by another tag. */
static long route_next_tag(__u32 index, struct route_priority *search)
{
	void *data = (void *)(long)search->ctx->data, *end = (void *)(long)search->ctx->data_end;
	struct vlan_tag *tag;
	__u64 at = sizeof(struct ethhdr) + (__u64)index * sizeof(*tag);

	if (at > ROUTE_TAGS_MAX * ROUTE_TAG_BYTES)
		return 1;
	tag = data + at;
	if ((void *)(tag + 1) > end || tag->control & bpf_htons(ROUTE_VLANS - 1) || !is_vlan(tag->ethertype))
		return 1;
	search->at = at + sizeof(*tag);
	return 0;
}

/*
 * Removes each priority tag (VLAN 0) that is followed by another tag. Priority tags are no tags (IEEE 802.1Q
 * 6.9), and the kernel and the worker remove any number of them. The stages therefore find the tag of a VLAN,
 * or the packet after one priority tag at most.
 */
static __attribute__((noinline)) void route_untag(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct route_priority search = { .ctx = ctx, .at = sizeof(*ethernet) };
	__u16 stations[ETH_ALEN];

	if ((void *)(ethernet + 1) > end || !is_vlan(ethernet->h_proto))
		return;
	__builtin_memcpy(stations, data, sizeof(stations));
	bpf_loop(ROUTE_TAGS_MAX, route_next_tag, &search, 0);
	if (search.at == sizeof(*ethernet) || bpf_xdp_adjust_head(ctx, search.at - sizeof(*ethernet)))
		return;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + sizeof(stations) <= end)
		__builtin_memcpy(data, stations, sizeof(stations));
}

/* Returns the entry of route_vlans for the VLAN of the outer tag. */
TRIVIUM_INLINE __u32 route_vlan(struct ethhdr *ethernet, void *end)
{
	struct route_tagged *frame = (void *)ethernet;

	if (ethernet->h_proto != bpf_htons(ETH_P_8021Q) &&
	    (!(route.present & ROUTE_HAS_SERVICE) || ethernet->h_proto != bpf_htons(ETH_P_8021AD)))
		return 0;
	if ((void *)(frame + 1) > end)
		return 0;
	return route_vlans[bpf_ntohs(frame->tag.control) & (ROUTE_VLANS - 1)];
}

/*
 * Returns the interface that received a tagged frame, if the packet may be routed as it is. Returns
 * ROUTE_NOWHERE otherwise.
 */
static __attribute__((noinline)) __u32 route_arrival(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 left = bpf_xdp_get_buff_len(ctx) - sizeof(struct route_tagged), number;
	struct route_tagged *frame = data;
	struct route_interface *own;
	int reason, v4;
	__u64 from;

	if ((void *)(frame + 1) > end || frame->ethernet.h_proto != bpf_htons(ETH_P_8021Q))
		return ROUTE_NOWHERE;
	/* The entries 0 and ROUTE_VLAN_UP result in numbers that no interface has. */
	number = route_vlan(&frame->ethernet, end) - 1;
	own = bpf_map_lookup_elem(&route_outputs, &number);
	if (!own)
		return ROUTE_NOWHERE;
	/* The number may belong to another interface by now, or to none. */
	from = ROUTE_WORD(own->from);
	if ((ROUTE_WORD(own->where) >> ROUTE_WHERE_PORT & ROUTE_PORT) != route.port ||
	    from >> ROUTE_TAG != (bpf_ntohs(frame->tag.control) & (ROUTE_VLANS - 1)))
		return ROUTE_NOWHERE;
	v4 = frame->tag.ethertype == bpf_htons(ETH_P_IP);
	if (!v4 && frame->tag.ethertype != bpf_htons(ETH_P_IPV6))
		return ROUTE_NOWHERE;
	if (!route_is_for(&frame->ethernet, from & MAC_MASK, v4))
		return ROUTE_NOWHERE;
	reason = v4 ? route_ipv4((void *)(frame + 1), end, left) : route_ipv6((void *)(frame + 1), end, left);
	return reason == NOT_THE_KERNELS ? number : ROUTE_NOWHERE;
}

/*
 * Sets the VLAN of the tag, with priority 0 as the worker does. VLAN 0 removes the tag. The Ethernet addresses
 * are not kept, so the caller must write them. If there is no space for the tag, returns 0 and leaves the frame
 * unchanged.
 */
TRIVIUM_INLINE int route_retag(struct xdp_md *ctx, int tagged, __u32 vlan)
{
	struct route_tagged *frame;
	int more = (vlan ? ROUTE_TAG_BYTES : 0) - (tagged ? ROUTE_TAG_BYTES : 0);

	if (more && bpf_xdp_adjust_head(ctx, -more))
		return 0;
	if (!vlan)
		return 1;
	frame = (void *)(long)ctx->data;
	if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
		return 0;
	/* The EtherType of the packet is already in place. */
	frame->ethernet.h_proto = bpf_htons(ETH_P_8021Q);
	frame->tag.control = bpf_htons(vlan);
	return 1;
}

#endif
