// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ingress guard, a tc program at the ingress of a device. It protects a device with a filter while the XDP
 * program that contains the filter is detached and another program is attached. The guard drops every frame
 * that the device passes to the kernel stack in that time.
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
