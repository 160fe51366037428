/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stage of a bridged port. A frame from a known station to a known station on another port is redirected
 * to the device of that port. All other frames go to the worker, which learns, floods and decides. User space
 * writes the stations that it has learned to the table.
 *
 * Order: every frame for the worker is numbered per queue, and the bucket of its flow stores the number. The
 * hook forwards a later frame of the flow only when the worker has reported that all frames up to that number
 * have left. No frame therefore overtakes an earlier one on the other path. Without a socket no frame can be
 * pending.
 *
 * Consistency: a frame whose source is known on another port removes that station from the table at once.
 * Frames of the station then go to the worker until user space inserts the station again. User space removes
 * a station by writing 0 to the key. The hook reads the place of a slot between two reads of the key.
 */
#ifndef TRIVIUM_STAGE_BRIDGE_H
#define TRIVIUM_STAGE_BRIDGE_H

#include "bridge_layout.h"
#include "partial_checksum.h"
#include "trivium_headers.h"

const volatile struct bridge_conf bridge SEC(".rodata.bridge") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bridge_line);
} bridge_table SEC(".maps");

/* Order state, one entry per queue. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bridge_order);
} bridge_orders SEC(".maps");

/* Buckets of flows, BRIDGE_BUCKET_LINES entries per queue. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bridge_flows);
} bridge_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, BRIDGE_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} bridge_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BRIDGE_PORTS);
	__type(key, __u32);
	__type(value, struct bridge_count);
} bridge_counts SEC(".maps");

#define TAG_BYTES 4

TRIVIUM_INLINE struct bridge_station *bridge_find(__u64 key)
{
	__u32 at = key * bridge.factor >> (bridge.shift & 63);

#pragma unroll
	for (int choice = 0; choice < 2; choice++) {
		struct bridge_line *line;

		at ^= choice;
		line = bpf_map_lookup_elem(&bridge_table, &at);
		if (!line)
			return 0;
#pragma unroll
		for (int slot = 0; slot < BRIDGE_STATIONS; slot++)
			if (*(volatile __u64 *)&line->at[slot].key == key)
				return &line->at[slot];
	}
	return 0;
}

/* Reads the place of a station. Returns 0 when the station was removed meanwhile. */
TRIVIUM_INLINE int bridge_where(struct bridge_station *station, __u64 key, __u32 *where)
{
	*where = *(volatile __u32 *)&station->where;
	barrier_var(*where);
	return *(volatile __u64 *)&station->key == key;
}

TRIVIUM_INLINE __u32 *bridge_bucket(__u32 queue, __u64 from, __u64 to)
{
	/* A sender that does not know the factor cannot choose a bucket. */
	__u64 hash = (from * bridge.factor + to) * bridge.factor;
	__u32 bucket = hash >> 52;
	__u32 line = queue * BRIDGE_BUCKET_LINES + bucket / BRIDGE_BUCKETS_OF_LINE;
	struct bridge_flows *flows = bpf_map_lookup_elem(&bridge_buckets, &line);

	return flows ? &flows->last[bucket % BRIDGE_BUCKETS_OF_LINE] : 0;
}

/* Returns whether all frames of the flow that went to the worker have left, or can never leave. */
TRIVIUM_INLINE int bridge_settled(const struct bridge_order *order, __u32 last, __u32 queue)
{
	__u32 done = *(volatile __u64 *)&order->done;

	if ((__s32)(done - last) >= 0)
		return 1;
	return !bpf_map_lookup_elem(&xsks, &queue);
}

/*
 * Returns whether all frames go to the worker, because frames are observed there (capture or trace). If the
 * daemon was killed, the flag of its observers may still be set, but the queue has no worker.
 */
TRIVIUM_INLINE int bridge_bypassed(const struct bridge_order *order, __u32 queue)
{
	return order->bypass > 1 || (order->bypass && bpf_map_lookup_elem(&xsks, &queue));
}

TRIVIUM_INLINE void bridge_counted(__u32 port, __u32 length, int received)
{
	struct bridge_count *counted = bpf_map_lookup_elem(&bridge_counts, &port);

	if (!counted)
		return;
	if (received) {
		counted->rx_packets += 1;
		counted->rx_bytes += length;
	} else {
		counted->tx_packets += 1;
		counted->tx_bytes += length;
	}
}

/* Removes the VLAN tag, or adds a VLAN tag. The Ethernet addresses stay at the beginning of the frame. */
TRIVIUM_INLINE int bridge_retag(struct xdp_md *ctx, int tag, __u16 vid)
{
	__u8 addresses[12];
	void *data = (void *)(long)ctx->data;
	struct vlan_tag *header;

	if (data + sizeof(struct ethhdr) + TAG_BYTES > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(addresses, data, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, tag ? -TAG_BYTES : TAG_BYTES))
		return 0;
	data = (void *)(long)ctx->data;
	if (data + sizeof(addresses) + TAG_BYTES > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(data, addresses, sizeof(addresses));
	if (tag) {
		header = data + sizeof(addresses);
		header->control = bpf_htons(ETH_P_8021Q);
		header->ethertype = bpf_htons(vid);
	}
	return 1;
}

/* Results of the stage other than a verdict: the frame goes to the worker, without or with its number. */
#define BRIDGE_UP (-1)
#define BRIDGE_NUMBERED (-2)
/* The frame goes to the worker only because earlier frames of its flow are pending. */
#define BRIDGE_WAITS (-3)

/*
 * Returns the place of the destination if both stations are known and the frame may be forwarded. Returns 0
 * if the frame must go to the worker. `bare` is the length of the frame without a tag.
 */
TRIVIUM_INLINE __u32 bridge_way(const struct bridge_order *order, __u64 from, __u64 to, __u32 bare)
{
	struct bridge_station *source, *destination;
	__u32 from_where, to_where, now;

	source = bridge_find(from);
	if (!source || !bridge_where(source, from, &from_where))
		return 0;
	if ((from_where & BRIDGE_PORT) != bridge.port) {
		/* The station has moved, and the worker will learn its new port. */
		if (bridge.learning && !(from_where & BRIDGE_STATIC))
			__sync_val_compare_and_swap(&source->key, from, 0);
		return 0;
	}
	destination = bridge_find(to);
	if (!destination || !bridge_where(destination, to, &to_where))
		return 0;
	if (!(to_where & BRIDGE_REACHED) || (to_where & BRIDGE_PORT) == bridge.port)
		return 0;
	if (bridge.protect && to_where & BRIDGE_PROTECTED)
		return 0;
	if (bare > (to_where >> BRIDGE_LENGTH_HIGH << 2 | (to_where >> BRIDGE_LENGTH_LOW & 3)))
		return 0;
	now = order->now;
	if (source->used != now)
		source->used = now;
	return to_where;
}

/*
 * Sends a frame to the place that bridge_way() returned, tagged as required there. Increments the counter
 * `sent`.
 */
TRIVIUM_INLINE int bridge_send(struct xdp_md *ctx, __u32 to_where, int tagged, __u16 vid, __u32 length,
			       enum trivium_counter sent)
{
	int leaves_tagged = !!(to_where & BRIDGE_TAGGED), verdict;

	bridge_counted(bridge.port, length, 1);
	if (leaves_tagged != tagged) {
		if (!bridge_retag(ctx, leaves_tagged, vid)) {
			count(TRIVIUM_COUNT_BRIDGE_LOST);
			return XDP_DROP;
		}
		length += leaves_tagged ? TAG_BYTES : -TAG_BYTES;
	}
	/* The redirect fails when the device was deleted meanwhile. */
	verdict = bpf_redirect_map(&bridge_devices, to_where & BRIDGE_PORT, XDP_DROP);
	if (verdict == XDP_REDIRECT) {
		bridge_counted(to_where & BRIDGE_PORT, length, 0);
		count(sent);
	} else {
		count(TRIVIUM_COUNT_BRIDGE_LOST);
	}
	return verdict;
}

/* Returns whether the hook forwards frames with this tag. */
TRIVIUM_INLINE int bridge_takes_tag(__u16 vid)
{
	return bridge.tagged != BRIDGE_TAGS_NONE && vid &&
	       !(bridge.tagged == BRIDGE_TAGS_BUT_UNTAGGED && vid == bridge.untagged);
}

TRIVIUM_INLINE int bridge_answer(struct xdp_md *ctx, struct bridge_order *order, __u32 **bucket,
				 int up)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct vlan_tag *tag = data + 12;
	__u32 length = bpf_xdp_get_buff_len(ctx), to_where, queue = ctx->rx_queue_index;
	__u64 from, to;
	__u16 vid = bridge.untagged;
	__be16 ethertype;
	void *payload = ethernet + 1;
	int tagged;

	/* Eight bytes are read at each address. */
	if (data + sizeof(*ethernet) + TAG_BYTES > end)
		return BRIDGE_UP;
	ethertype = ethernet->h_proto;
	tagged = ethertype == bpf_htons(ETH_P_8021Q);
	if (ethertype == bpf_htons(ETH_P_8021AD))
		return BRIDGE_UP;
	if (tagged) {
		/* `tag` begins at the tag's EtherType, so its second half is the TCI. */
		vid = bpf_ntohs(tag->ethertype) & 0xfff;
		if (!bridge_takes_tag(vid))
			return BRIDGE_UP;
		payload = data + sizeof(*ethernet) + TAG_BYTES;
		ethertype = *(__be16 *)(data + 16);
	} else if (vid == BRIDGE_NO_VLAN) {
		return BRIDGE_UP;
	}
	to = (*(__u64 *)ethernet->h_dest & MAC_MASK) | (__u64)vid << 48;
	from = (*(__u64 *)ethernet->h_source & MAC_MASK) | (__u64)vid << 48;
	*bucket = bridge_bucket(queue, from, to);
	if (!*bucket || ethernet->h_dest[0] & 1 || end - data != length || up || bridge_bypassed(order, queue))
		return BRIDGE_UP;
	to_where = bridge_way(order, from, to, length - (tagged ? TAG_BYTES : 0));
	if (!to_where)
		return BRIDGE_UP;
	/* With a socket, the worker completes the checksum. */
	if (bridge.partial && bpf_map_lookup_elem(&xsks, &queue) &&
	    is_partial(ctx, payload, end, ethertype, &order->partial))
		return BRIDGE_UP;
	if (!bridge_settled(order, **bucket, queue)) {
		if (!order->hold)
			return BRIDGE_WAITS;
		count(TRIVIUM_COUNT_BRIDGE_HELD);
		return XDP_DROP;
	}
	return bridge_send(ctx, to_where, tagged, vid, length, TRIVIUM_COUNT_BRIDGED);
}

/*
 * Numbers a frame for the worker by a mark right in front of it. Returns 0 if there is no space for a mark. The
 * frame then has no mark. The mark replaces metadata of a custom program.
 */
TRIVIUM_INLINE int bridge_mark(struct xdp_md *ctx, struct bridge_order *order, __u32 *bucket)
{
	__u32 number = order->sent + 1;
	struct bridge_mark *mark;

	order->sent = number;
	if (bucket)
		*bucket = number;
	if (bpf_xdp_adjust_meta(ctx, metadata_bytes(ctx) - (int)sizeof(*mark)))
		return 0;
	mark = (void *)(long)ctx->data_meta;
	if ((void *)(mark + 1) > (void *)(long)ctx->data)
		return 0;
	mark->number = number;
	mark->check = number ^ BRIDGE_MARK;
	return 1;
}

/*
 * Numbers a frame for the worker. `why` is BRIDGE_WAITS if the frame goes to the worker only for its order.
 */
TRIVIUM_INLINE int bridge_up(struct xdp_md *ctx, struct bridge_order *order, __u32 *bucket, int why)
{
	if (!bridge_mark(ctx, order, bucket))
		return BRIDGE_UP;
	/* The departure of a frame without a number is not reported, so holding its flow would not help. */
	if (why == BRIDGE_WAITS)
		order->waiting += 1;
	return BRIDGE_NUMBERED;
}

/* Runs the bridge stage. With `up` the frame goes to the worker in any case. */
TRIVIUM_INLINE int stage_bridge(struct xdp_md *ctx, int up)
{
	__u32 queue = ctx->rx_queue_index, *bucket = 0;
	struct bridge_order *order = bpf_map_lookup_elem(&bridge_orders, &queue);
	int verdict;

	/* The queue has no order state, so no worker serves it. Steer applies when_down. */
	if (!order)
		return BRIDGE_UP;
	verdict = bridge_answer(ctx, order, &bucket, up);
	return verdict >= 0 ? verdict : bridge_up(ctx, order, bucket, verdict);
}

#endif
