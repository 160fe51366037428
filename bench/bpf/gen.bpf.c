// SPDX-License-Identifier: Apache-2.0
// Traffic source of the bench. The program runs under BPF_PROG_TEST_RUN with live frames. Each run turns a
// recycled page into one UDP frame and redirects the frame to the generator's device. The default length of a
// frame is 60 bytes without its FCS.
//
// A recycled page has the contents that its last receiver left. Therefore, each run writes all headers. The
// destination MAC address contains the host number, and the UDP source port contains the flow number. All
// frames have equal IPv4 headers, so the template contains the checksum. With targets, the IPv4 destination
// changes as well. Then, the destination of the template is 0.0.0.0, and the program updates the checksum.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TEMPLATE_WORDS 7 /* 56 bytes: Ethernet, IPv4, UDP and the first payload bytes */

struct settings {
	__u64 template[TEMPLATE_WORDS];
	__u32 ifindex;
	__u32 host_mask; /* hosts - 1; the number of hosts is a power of two */
	__u32 flow_mask; /* flows - 1 */
	__u32 random;    /* 1: xorshift order; 0: round robin */
	__u32 burst;     /* number of frames in a burst */
	__u32 gap;       /* nanoseconds from one burst to the next; 0: no pause */
	__u32 targets;     /* number of IPv4 destinations, a power of two; 0: the template's destination */
	__u32 apart;     /* 1: host and flow are drawn separately, so that all pairs occur */
};

const volatile struct settings settings = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} offered SEC(".maps");

/* IPv4 destinations in host byte order. The generator's process maps and fills the array. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 20);
	__type(key, __u32);
	__type(value, __u64);
} targets SEC(".maps");

static __u32 state = 1; /* one generating core, so nobody else writes it */

static __u32 next_number(void)
{
	__u32 s = state;

	if (!settings.random) {
		state = s + 1;
		return s;
	}
	s ^= s << 13;
	s ^= s >> 17;
	s ^= s << 5;
	state = s;
	return s;
}

static __u64 due; /* of the next burst, CLOCK_MONOTONIC */
static __u32 sent; /* of this burst */

static long wait_step(__u32 step, __u64 *until)
{
	return bpf_ktime_get_ns() >= *until;
}

/* Waits before the first frame of a burst. Who comes late does not make up for more than one. */
static void keep_pace(void)
{
	__u64 now, until;

	if (sent++ % settings.burst)
		return;
	now = bpf_ktime_get_ns();
	until = due;
	due = (until + settings.gap > now ? until : now) + settings.gap;
	if (until > now)
		bpf_loop(1 << 20, wait_step, &until, 0);
}

/* Another destination, and the checksum that it makes (RFC 1624, eqn. 3). */
static __attribute__((always_inline)) void aim(void *data, __u32 number)
{
	__u32 sum = (__u16)~bpf_ntohs(*(__be16 *)(data + 24)), at = number & (settings.targets - 1);
	__u64 *target = bpf_map_lookup_elem(&targets, &at);

	if (!target)
		return;
	sum += (__u16)*target + (__u16)(*target >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*(__be16 *)(data + 24) = bpf_htons(~sum);
	*(__be16 *)(data + 30) = bpf_htons(*target >> 16);
	*(__be16 *)(data + 32) = bpf_htons(*target);
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 *words = data;
	__u32 zero = 0, number;
	__u64 *count;

	if (data + 8 * TEMPLATE_WORDS > end)
		return XDP_ABORTED;
	if (settings.gap)
		keep_pace();
	for (int i = 0; i < TEMPLATE_WORDS; i++)
		words[i] = settings.template[i];
	number = next_number();
	*(__be16 *)(data + 4) = bpf_htons(number & settings.host_mask);
	*(__be16 *)(data + 34) = bpf_htons(1024 + ((settings.apart ? number >> 16 : number) & settings.flow_mask));
	if (settings.targets)
		aim(data, number);
	count = bpf_map_lookup_elem(&offered, &zero);
	if (count)
		(*count)++;
	return bpf_redirect(settings.ifindex, 0);
}

char _license[] SEC("license") = "GPL";
