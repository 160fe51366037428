/* SPDX-License-Identifier: GPL-2.0-only */
/* Constants and maps of a port's program. */
#ifndef TRIVIUM_MAPS_H
#define TRIVIUM_MAPS_H

#include <linux/bpf.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>

#include "trivium_layout.h"

#define TRIVIUM_INLINE static __attribute__((always_inline)) inline

/* The constants have a section of their own, so user space finds them at offset 0 of the map .rodata.conf. */
const volatile struct trivium_conf conf SEC(".rodata.conf") = {
	.counters = TRIVIUM_COUNTERS,
};

/* AF_XDP sockets, one per receive queue. User space sets max_entries to the number of queues of the port. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* Addresses that the kernel owns. Only the program of a routed port reads them. The value is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TRIVIUM_LOCAL_CAPACITY);
	__type(key, __be32);
	__type(value, __u32);
} local4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TRIVIUM_LOCAL_CAPACITY);
	__type(key, struct in6_addr);
	__type(value, __u32);
} local6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TRIVIUM_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Notes of a capture about a frame. The program without a capture has none. */
#if PORT_DUMP
#include "dump_maps.h"
#else
#define note_way(way)
#define note_rule(slot)
#endif

TRIVIUM_INLINE void count(enum trivium_counter which)
{
	__u32 key = which;
	__u64 *packets = bpf_map_lookup_elem(&counters, &key);

	note_way(which);
	if (packets)
		*packets += 1;
}

#endif
