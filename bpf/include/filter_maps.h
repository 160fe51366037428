/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The filter's constants and maps. User space makes the maps in the size that the rules need and
 * hands them to the program; the sizes here are those of an empty filter. The first group belongs
 * to one set of rules and is never written again; the second outlives it.
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

/* Address tries: 16 bits, then 8 at a time. An entry is a class, or a node if its top bit is set. */
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

/* From the bytes at a probe to their class; what is not here is class 0. */
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

/* A bucket is the time until which its tokens are spent (ITU-T I.371, virtual scheduling). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FILTER_RULES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} filter_buckets SEC(".maps");

/* Buckets of sources. When it is full the source unseen for longest loses its own. */
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

/* Samples that the ring had no room for. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} filter_missed SEC(".maps");

/* What is remembered of the clients of services. When it is full the one unseen for longest goes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_client);
	__type(value, __u64);
} filter_clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FILTER_SERVICES_MAX);
	__type(key, __u32);
	__type(value, struct filter_service);
} filter_services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FILTER_SERVICES_MAX);
	__type(key, __u32);
	__type(value, struct filter_answer);
} filter_answers SEC(".maps");

#endif
