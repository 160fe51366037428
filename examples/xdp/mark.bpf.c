// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tc program that gives socket buffers the mark and the flow hash that a port's hook has put in
 * front of their frames (a steering with `metadata = true`, docs/xdp.md). On the ingress of the
 * port's device; everything goes on as before.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

/* As in bpf/include/steer_layout.h. */
struct steer_meta {
	__u32 hash;
	__u32 mark;
	__u32 number; /* of the bridge's order; of no use here */
	__u32 check;
};

SEC("tc")
int mark_from_hook(struct __sk_buff *skb)
{
	struct steer_meta *meta = (void *)(long)skb->data_meta;

	/* Without metadata both pointers are the same. */
	if ((void *)(meta + 1) > (void *)(long)skb->data)
		return TC_ACT_UNSPEC;
	if (meta->mark)
		skb->mark = meta->mark;
	bpf_set_hash(skb, meta->hash);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "GPL";
