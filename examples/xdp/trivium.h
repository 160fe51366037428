/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * For a program of one's own in front of a Trivium port (`trivium xdp load FILE.o --port P`). It
 * meets each frame first, and what it returns is final, unless it goes on with the port's program:
 *
 *	trivium_continue(ctx);
 *	return XDP_ABORTED;
 *
 * The call does not return: the port's program gives the verdict. Only where there is none (it is
 * run without Trivium, or after 33 tail calls) the next line says what becomes of the frame.
 *
 * A tail call wants both programs to be alike: SEC("xdp.frags") on ports that take frames in
 * several buffers, which is all but the few whose driver cannot, and SEC("xdp") there.
 */
#ifndef TRIVIUM_H
#define TRIVIUM_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Trivium puts the port's program into its slot, and replaces that when the port changes. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} trivium_next SEC(".maps");

static __always_inline void trivium_continue(struct xdp_md *ctx)
{
	bpf_tail_call_static(ctx, &trivium_next, 0);
}

#endif
