/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits of control traffic that the hook of a virtual router's port passes to the kernel. Workers apply equal
 * limits to their punts (crates/router/src/punt_policer.rs): a rate for each class of protocols, of which each
 * interface and each source has a share. Known peers and neighbours have classes of their own.
 *
 * Frames of no class pass: they are the traffic of the host's own services. Packets whose transport header the
 * hook cannot read may belong to any class. They have the class PUNT_OWN, as in the workers.
 */
#ifndef TRIVIUM_STAGE_PUNT_H
#define TRIVIUM_STAGE_PUNT_H

#include "punt_layout.h"
#include "route_answer.h"

/* Limits of the router, which all its ports share. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct punt_state);
} punt_state SEC(".maps");

/* The value is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PUNT_PEERS);
	__type(key, struct punt_peer);
	__type(value, __u32);
} punt_peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PUNT_CLASSES);
	__type(key, __u32);
	__type(value, struct punt_count);
} punt_counts SEC(".maps");

/* A frame that is limited. The stack has no space for it. */
struct punt_frame {
	struct steer_frame seen;
	struct punt_peer peer;
	__u64 mac;          /* sender's Ethernet address, first octet lowest */
	__u64 high, low;    /* IP address of the sender as an IPv6 address, or 0 */
	__u32 is_neighbour; /* whether a neighbour of the link may have sent the frame */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct punt_frame);
} punt_frames SEC(".maps");

/* Numbers that the UAPI headers lack (IANA). */
#define IPPROTO_OSPF 89
#define IPPROTO_VRRP 112

#define PUNT_TCP_BGP bpf_htons(179)
#define PUNT_GTSM 255

TRIVIUM_INLINE int punt_is_ipv4(const struct steer_frame *seen)
{
	return (seen->key.kind & ~STEER_PORTS) == STEER_IPV4;
}

TRIVIUM_INLINE int punt_is_ipv6(const struct steer_frame *seen)
{
	return (seen->key.kind & ~STEER_PORTS) == STEER_IPV6;
}

/* Returns the first bytes of the message after the IP header, or 0 if the packet has fewer. */
TRIVIUM_INLINE __u8 *punt_message(struct xdp_md *ctx, const struct steer_frame *seen, __u32 length)
{
	__u32 left = seen->end > seen->at ? seen->end - seen->at : 0;

	return left < length ? 0 : steer_bytes(ctx, seen, length);
}

/* Returns the class of UDP packets to a port. */
TRIVIUM_INLINE __u32 punt_udp(__be16 port)
{
	switch (bpf_ntohs(port)) {
	case 67:
	case 68:
	case 546:
	case 547:
		return PUNT_DHCP;
	case 520:
		return PUNT_RIP;
	case 521:
		return PUNT_RIPNG;
	case 3784:
	case 3785:
	case 4784:
	case 6784:
		return PUNT_BFD;
	default:
		return PUNT_CLASSES;
	}
}

/* Returns the class of an ICMPv6 message. */
TRIVIUM_INLINE __u32 punt_icmpv6(__u8 type)
{
	switch (type) {
	case 133:
	case 134:
		return PUNT_RA;
	case 135:
	case 136:
	case 137:
		return PUNT_ND;
	case 130:
	case 131:
	case 132:
	case 143:
		return PUNT_MLD;
	default:
		return PUNT_CLASSES;
	}
}

/*
 * Reads the frame, and returns the class of its protocol, or PUNT_CLASSES. The result equals that of
 * PuntClass::of_protocol (crates/packet/src/punt_class.rs), except for frames that the kernel drops as malformed.
 *
 * Returns PUNT_OWN for packets that may belong to a class although their transport header cannot be read: the
 * kernel follows more extension headers than steer_read(), reads headers after the first buffer, and
 * reassembles first fragments that end inside their TCP header.
 */
__attribute__((noinline)) int punt_protocol(struct xdp_md *ctx, struct punt_frame *frame)
{
	struct steer_frame *seen;
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	__u8 *bytes, protocol;

	if (!frame || (void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return PUNT_CLASSES;
	__builtin_memset(frame, 0, sizeof(*frame));
	seen = &frame->seen;
	frame->mac = *(__u64 *)ethernet->h_source & MAC_MASK;
	steer_read(ctx, seen);
	if (!punt_is_ipv4(seen) && !punt_is_ipv6(seen)) {
		if (seen->ethertype == bpf_htons(ETH_P_ARP)) {
			bytes = seen->operation ? steer_bytes(ctx, seen, 28) : 0;
			if (bytes) {
				frame->low = 0xffff00000000ULL | bpf_ntohl(*(__be32 *)(bytes + 14));
				frame->is_neighbour = 1;
			}
			return PUNT_ARP;
		}
		if (seen->ethertype == bpf_htons(ETH_P_SLOW))
			return PUNT_LACP;
		if (seen->ethertype == bpf_htons(ETH_P_LLDP))
			return PUNT_LLDP;
		if (seen->ethertype != bpf_htons(STEER_LLC))
			return PUNT_CLASSES;
		bytes = steer_bytes(ctx, seen, 3);
		if (!bytes)
			return PUNT_OWN;
		return bytes[0] == 0xfe && bytes[1] == 0xfe && bytes[2] == 3 ? PUNT_ISIS :
											PUNT_CLASSES;
	}
	if (punt_is_ipv4(seen)) {
		frame->low = 0xffff00000000ULL | bpf_ntohl(*(__be32 *)seen->key.source);
	} else {
		frame->high = bpf_be64_to_cpu(*(__be64 *)seen->key.source);
		frame->low = bpf_be64_to_cpu(*(__be64 *)(seen->key.source + 8));
	}
	protocol = seen->key.protocol;
	if (protocol == IPPROTO_OSPF)
		return PUNT_OSPF;
	if (protocol == IPPROTO_VRRP)
		return PUNT_VRRP;
	if (protocol == IPPROTO_IGMP && punt_is_ipv4(seen))
		return PUNT_IGMP;
	if (seen->fragment & STEER_LATER_FRAGMENT)
		return PUNT_CLASSES;
	/* The kernel does not follow an AH header without a security association, nor a truncated header. */
	if (punt_is_ipv6(seen) &&
	    (protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_ROUTING ||
	     protocol == IPPROTO_FRAGMENT))
		return seen->at + 8 > seen->end ? PUNT_CLASSES : PUNT_OWN;
	if (protocol == IPPROTO_ICMPV6 && punt_is_ipv6(seen)) {
		bytes = punt_message(ctx, seen, 4);
		return bytes ? punt_icmpv6(bytes[0]) : PUNT_OWN;
	}
	if (!(seen->key.kind & STEER_PORTS))
		return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ? PUNT_OWN : PUNT_CLASSES;
	if (protocol == IPPROTO_TCP)
		return seen->key.source_port == PUNT_TCP_BGP || seen->key.destination_port == PUNT_TCP_BGP ?
			       PUNT_BGP :
			       PUNT_CLASSES;
	return protocol == IPPROTO_UDP ? punt_udp(seen->key.destination_port) : PUNT_CLASSES;
}

/* Returns whether the destination is a group of the link: 224.0.0.0/24, or an IPv6 group of link-local scope. */
TRIVIUM_INLINE int punt_is_group_of_link(const struct steer_frame *seen)
{
	const __u8 *to = seen->key.destination;

	if (punt_is_ipv4(seen))
		return to[0] == 224 && !to[1] && !to[2];
	return to[0] == 0xff && (to[1] & 0x0f) == 2;
}

/*
 * Returns the class of the known peer that the frame is from, or PUNT_CLASSES. A peer on the link is believed only
 * with a hop count that proves that no router has forwarded the packet (RFC 5082), or with hop count 1, which the
 * caller examines further.
 */
static __attribute__((noinline)) enum punt_class punt_peer_class(struct punt_frame *frame,
								     enum punt_class class)
{
	struct steer_frame *seen;
	struct punt_peer *peer;

	if (!frame)
		return PUNT_CLASSES;
	seen = &frame->seen;
	peer = &frame->peer;
	__builtin_memcpy(peer->far, seen->key.source, 16);
	switch (class) {
	case PUNT_BGP:
		peer->kind = PUNT_SESSION;
		peer->here_port = seen->key.destination_port;
		peer->far_port = seen->key.source_port;
		__builtin_memcpy(peer->here, seen->key.destination, 16);
		break;
	case PUNT_OSPF:
		if (!punt_is_group_of_link(seen) && seen->hops != 1 && seen->hops != PUNT_GTSM)
			return PUNT_CLASSES;
		peer->kind = PUNT_PEER;
		peer->interface = route.interface;
		break;
	case PUNT_BFD:
		if (seen->key.destination_port == bpf_htons(4784)) {
			peer->kind = PUNT_PEER_MULTIHOP;
		} else if (seen->hops == PUNT_GTSM) {
			peer->kind = PUNT_PEER;
			peer->interface = route.interface;
		} else {
			return PUNT_CLASSES;
		}
		break;
	case PUNT_DHCP:
		/* A server sends from these ports to a relay (RFC 2131, section 4.1; RFC 8415, section 7.2). */
		if (seen->key.source_port != bpf_htons(67) && seen->key.source_port != bpf_htons(547))
			return PUNT_CLASSES;
		peer->kind = PUNT_PEER_MULTIHOP;
		break;
	default:
		return PUNT_CLASSES;
	}
	class = peer->kind;
	if (punt_is_ipv6(seen))
		peer->kind |= PUNT_IPV6;
	return bpf_map_lookup_elem(&punt_peers, peer) ? class : PUNT_CLASSES;
}

/*
 * Returns whether the packet of a peer on the link may come from a router further away: a packet to one address
 * with hop count 1, which the last of several routers has forwarded.
 */
TRIVIUM_INLINE int punt_may_be_forwarded(const struct punt_frame *frame, __u32 protocol)
{
	return protocol == PUNT_OSPF && !punt_is_group_of_link(&frame->seen) && frame->seen.hops != PUNT_GTSM;
}

enum punt_neighbour { PUNT_UNKNOWN, PUNT_ASKED, PUNT_KNOWN };

/* Returns what the router knows about the neighbour that the frame claims to be from. */
static __attribute__((noinline)) int punt_neighbour(struct xdp_md *ctx, struct punt_frame *frame)
{
	__u32 number = route_on_link(ctx->ingress_ifindex, frame->high, frame->low);
	struct route_neighbour *known = bpf_map_lookup_elem(&route_nexthops, &number);
	__u64 to;

	if (!number || !known)
		return PUNT_UNKNOWN;
	to = ROUTE_WORD(known->to);
	if (!(to & ROUTE_RESOLVED))
		return PUNT_ASKED;
	return (to & MAC_MASK) == frame->mac ? PUNT_KNOWN : PUNT_UNKNOWN;
}

/* Returns the slot of a source's share. Senders do not know the secret numbers. */
TRIVIUM_INLINE __u32 punt_slot(const struct punt_state *state, __u64 kind, __u64 high, __u64 low)
{
	__u64 mixed = steer_fold(low ^ state->secrets[0], kind ^ state->secrets[1]);

	return steer_fold(mixed ^ state->secrets[2], high ^ state->secrets[3]) & (PUNT_SHARES - 1);
}

/*
 * Takes one packet of `interval` nanoseconds from a bucket or share, if less than `ahead` nanoseconds of it
 * have been used in advance. Returns whether the packet was taken.
 */
__attribute__((noinline)) int punt_take(__u64 *bucket, __u64 interval, __u64 ahead, __u64 now)
{
	if (!bucket)
		return 0;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 spent = *(volatile __u64 *)bucket;
		__u64 from = spent > now ? spent : now;

		if (from - now > ahead)
			return 0;
		if (__sync_val_compare_and_swap(bucket, spent, from + interval) == spent)
			return 1;
	}
	/* After this many failed attempts, the bucket counts as empty. */
	return 0;
}

/* A share may be used in advance for a tenth of a second, and for at least three packets. */
TRIVIUM_INLINE __u64 punt_ahead(__u64 interval)
{
	return interval * 3 > 100000000 ? interval * 3 : 100000000;
}

/*
 * Takes a token of known neighbours for a sender that claims an address which the kernel is resolving. Any
 * station can claim the address. The claim therefore has no share of its interface or source, and may not use
 * the reserve. Returns whether there was a token.
 */
TRIVIUM_INLINE int punt_take_asked(struct punt_state *state)
{
	const struct punt_rate *rate = &state->rates[PUNT_NEIGHBOUR];
	__u64 interval = ROUTE_WORD(rate->interval);

	return interval && punt_take(&state->buckets[PUNT_NEIGHBOUR], interval, ROUTE_WORD(rate->open),
				     bpf_ktime_get_ns());
}

/* Returns whether a packet may pass, and takes its tokens. */
static __attribute__((noinline)) int punt_take_all(struct punt_state *state, __u32 class, __u32 slot)
{
	__u64 now = bpf_ktime_get_ns(), interval, of_interface, of_source, ahead;
	__u64 *interface, *source;
	int known = class <= PUNT_NEIGHBOUR;

	if (!state || class >= PUNT_CLASSES)
		return 1;
	interval = ROUTE_WORD(state->rates[class].interval);
	if (!interval)
		return 0;
	of_interface = interval * (known ? 2 : 8);
	of_source = interval * (known ? 8 : 32);
	interface = &state->interfaces[class][route.interface & (PUNT_SHARES - 1)];
	source = &state->sources[class][slot & (PUNT_SHARES - 1)];
	ahead = ROUTE_WORD(state->rates[class].open);
	/* A source whose interface has used its share takes nothing from its own. */
	if ((__s64)(*(volatile __u64 *)interface - now) <= (__s64)punt_ahead(of_interface) &&
	    punt_take(source, of_source, punt_ahead(of_source), now) &&
	    punt_take(interface, of_interface, punt_ahead(of_interface), now))
		ahead = ROUTE_WORD(state->rates[class].burst);
	return punt_take(&state->buckets[class], interval, ahead, now);
}

/* Returns whether the limits let a frame pass to the kernel, and counts the frame. */
__attribute__((noinline)) int punt_admits(struct xdp_md *ctx)
{
	__u32 zero = 0, class, protocol;
	struct punt_state *state = bpf_map_lookup_elem(&punt_state, &zero);
	struct punt_frame *frame = bpf_map_lookup_elem(&punt_frames, &zero);
	int admitted = 0, known = PUNT_UNKNOWN;
	struct punt_count *counted;
	__u64 kind, high, low;

	if (!state || !frame)
		return 1;
	protocol = punt_protocol(ctx, frame);
	if (protocol >= PUNT_CLASSES)
		return 1;
	class = punt_peer_class(frame, protocol);
	if (class < PUNT_CLASSES && (protocol == PUNT_DHCP || punt_may_be_forwarded(frame, protocol))) {
		int is_neighbour = route.answers && punt_neighbour(ctx, frame) == PUNT_KNOWN;

		/*
		 * The Ethernet address proves that an OSPF packet is from the neighbour itself. A DHCP server on the
		 * link is a known neighbour, whose address is harder to forge than that of a server further away.
		 */
		if (is_neighbour == (protocol == PUNT_DHCP))
			class = PUNT_CLASSES;
	}
	high = frame->high;
	low = frame->low;
	kind = protocol << 16 | route.interface;
	if (class < PUNT_CLASSES) {
		/* Packets to a group and packets to the host are separate, as one of them is easier to forge. */
		kind |= punt_is_group_of_link(&frame->seen) ? 3ULL << 32 : 2ULL << 32;
		low ^= (__u64)frame->peer.far_port << 48 | (__u64)frame->peer.here_port << 32;
	} else {
		class = protocol;
		if (route.answers && (protocol == PUNT_ND || protocol == PUNT_DHCP || frame->is_neighbour))
			known = punt_neighbour(ctx, frame);
		/*
		 * A claim without a token of known neighbours is judged by the class and shares of its protocol. A
		 * flood of claims on one interface then leaves the shares of the others free. Only ARP and
		 * neighbour discovery resolve addresses.
		 */
		if (known == PUNT_ASKED && protocol != PUNT_DHCP)
			admitted = punt_take_asked(state);
		if (known == PUNT_KNOWN || admitted) {
			class = PUNT_NEIGHBOUR;
			high ^= frame->mac;
		} else if (protocol == PUNT_ND || protocol == PUNT_RA || protocol == PUNT_DHCP || !(high | low) ||
			   protocol == PUNT_ARP) {
			/* Source addresses of such packets are not assigned yet, or are chosen freely by the sender. */
			high = 1;
			low = frame->mac;
			kind = 1ULL << 32 | route.interface;
		} else {
			kind = route.interface;
		}
	}
	if (!admitted)
		admitted = punt_take_all(state, class, punt_slot(state, kind, high, low));
	counted = bpf_map_lookup_elem(&punt_counts, &class);
	if (counted && admitted)
		counted->passed += 1;
	else if (counted)
		counted->dropped += 1;
	return admitted;
}

/*
 * Returns whether the frame is dropped. `reason` is the counter of the reason why the frame belongs to the kernel.
 * Frames in transit, frames to other stations and frames of VLANs that are not interfaces of the router are not
 * limited.
 */
TRIVIUM_INLINE int punt_drops(struct xdp_md *ctx, int reason)
{
	if (!(route.present & ROUTE_LIMITED))
		return 0;
	if (reason != TRIVIUM_COUNT_PASSED_CONTROL && reason != TRIVIUM_COUNT_PASSED_GROUP &&
	    reason != TRIVIUM_COUNT_PASSED_LOCAL4 && reason != TRIVIUM_COUNT_PASSED_LOCAL6)
		return 0;
	return !punt_admits(ctx);
}

#endif
