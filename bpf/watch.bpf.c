// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts frames that the kernel loses after a program's verdict. The hook has counted a lost frame as steered
 * or redirected, and only the kernel's tracepoints report the loss. The programs are loaded while losses are
 * observed. Each is loaded separately, so that a tracepoint that a kernel lacks affects only its own count.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "kernel_types.h"
#include "watch_layout.h"

/* BPF_PROG declares all arguments, whether they are used or not. */
#pragma clang diagnostic ignored "-Wunused-parameter"

const volatile struct watch_conf watch SEC(".rodata.watch") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, WATCH_CAPACITY);
	__type(key, struct watch_key);
	__type(value, __u64);
} watch_losses SEC(".maps");

/* Single losses. Written only where they are requested. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} watch_ring SEC(".maps");

/* Number of losses that did not fit into the ring. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} watch_missed SEC(".maps");

static __attribute__((always_inline)) inline void tell(const struct watch_key *key, __u64 frames)
{
	struct watch_told *told = bpf_ringbuf_reserve(&watch_ring, sizeof(*told), 0);
	__u32 slot = 0;

	if (!told) {
		__u64 *missed = bpf_map_lookup_elem(&watch_missed, &slot);

		if (missed)
			*missed += 1;
		return;
	}
	told->at = bpf_ktime_get_ns();
	told->key = *key;
	told->frames = frames;
	told->reserved = 0;
	bpf_ringbuf_submit(told, 0);
}

static __attribute__((always_inline)) inline void add(struct watch_key *key, __u64 frames)
{
	__u64 *counted = bpf_map_lookup_elem(&watch_losses, key);

	if (watch.each)
		tell(key, frames);
	if (!counted) {
		__u64 none = 0;

		/* Another CPU may create the element first. Both CPUs then add to it. */
		bpf_map_update_elem(&watch_losses, key, &none, BPF_NOEXIST);
		counted = bpf_map_lookup_elem(&watch_losses, key);
	}
	if (!counted) {
		struct watch_key others = { .event = key->event };

		counted = bpf_map_lookup_elem(&watch_losses, &others);
	}
	if (counted)
		*counted += frames;
}

static __attribute__((always_inline)) inline void lost(const struct net_device *device,
						       enum watch_event event, __u32 code,
						       __u64 frames)
{
	struct watch_key key = {
		.netns = device->nd_net.net->ns.inum,
		.ifindex = device->ifindex,
		.event = event,
		.code = code,
	};

	add(&key, frames);
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(watch_exception, const struct net_device *device, const void *program, __u32 verdict)
{
	lost(device, WATCH_EXCEPTION, verdict, 1);
	return 0;
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(watch_redirect, const struct net_device *device, const void *program,
	     const void *target, int error)
{
	lost(device, WATCH_REDIRECT, -error, 1);
	return 0;
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(watch_device, const struct net_device *from, const struct net_device *to, int sent,
	     int drops, int error)
{
	if (drops > 0)
		lost(from, WATCH_DEVICE, error < 0 ? -error : 0, drops);
	return 0;
}

SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(watch_transmit, const struct net_device *device, int sent, int drops, int error)
{
	if (drops > 0)
		lost(device, WATCH_TRANSMIT, error < 0 ? -error : 0, drops);
	return 0;
}

/* The tracepoint does not contain the receiving device, but the map identifies the steering. */
SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(watch_cpu, int map, unsigned int processed, unsigned int drops, int cpu)
{
	struct watch_key key = { .ifindex = map, .event = WATCH_CPU, .code = cpu };

	if (drops > 0)
		add(&key, drops);
	return 0;
}

char _license[] SEC("license") = "GPL";
