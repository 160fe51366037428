// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ingress guard. A device with a filter has it in tc ingress while the XDP program with the filter is replaced
 * by detaching it. Every frame that the device passes to the kernel stack meanwhile is dropped.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int trivium_guard(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL";
