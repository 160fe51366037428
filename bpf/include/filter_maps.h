/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Constants and maps of the filter. User space creates the maps in the size that the rules need and passes
 * them to the program. The sizes here are those of an empty filter. The first group of maps belongs to one
 * rule set and is written once. The second group outlives a rule set.
 */
#ifndef FILTER_MAPS_H
#define FILTER_MAPS_H

#include "filter_layout.h"
#include "trivium_maps.h"

const volatile struct filter_conf filter SEC(".rodata.filter") = {};

struct filter_line16 {
	__u16 at[FILTER_LINE / 2];
};

struct filter_line32 {
	__u32 at[FILTER_LINE / 4];
};

/* Tables from a value to its class, one field after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_line16);
} filter_classes SEC(".maps");

/*
 * Address tries with strides of 16 and then 8 bits. An entry is a node if its top bit is set, else a class.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_line32);
} filter_tries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} filter_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_rule);
} filter_rules SEC(".maps");

/* Classes by probe and bytes. Bytes without an entry have class 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_probe_key);
	__type(value, __u32);
} filter_probes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FILTER_RULES_MAX);
	__type(key, __u32);
	__type(value, struct filter_count);
} filter_counts SEC(".maps");

/*
 * Token buckets of rules. A bucket is the time until which its tokens are spent (ITU-T I.371, virtual
 * scheduling).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FILTER_RULES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} filter_buckets SEC(".maps");

/* Buckets of sources. When the map is full, the least recently seen source is evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_source);
	__type(value, __u64);
} filter_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} filter_samples SEC(".maps");

/* Number of samples that did not fit into the ring. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} filter_missed SEC(".maps");

#endif
