// SPDX-License-Identifier: GPL-2.0-only
/*
 * The placeholder program. A port's hook runs it between the attachment of the hook and the load of the
 * port's own program. Every frame gets the verdict `when_down`. All ports with the same constants share one
 * program, which has no maps. Its frames are therefore not counted.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "trivium_layout.h"

/* The constants of the port, in the section where user space finds those of a port's own program. */
const volatile struct trivium_conf conf SEC(".rodata.conf") = {
	.counters = TRIVIUM_COUNTERS,
};

/* Build that accepts multi-buffer frames. */
SEC("xdp.frags")
int trivium_wait(struct xdp_md *ctx __attribute__((unused)))
{
	return conf.when_down;
}

/* Build for drivers that refuse multi-buffer programs. */
SEC("xdp")
int trivium_waitlin(struct xdp_md *ctx __attribute__((unused)))
{
	return conf.when_down;
}

char _license[] SEC("license") = "GPL";
