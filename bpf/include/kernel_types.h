/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Members of kernel structures that tracing programs read. libbpf relocates the offsets for the kernel that
 * loads the program. Other members are not declared here.
 */
#ifndef KERNEL_TYPES_H
#define KERNEL_TYPES_H

#include <linux/types.h>

#define KERNELS __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} KERNELS;

struct net {
	struct ns_common ns;
} KERNELS;

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNELS;

#endif
