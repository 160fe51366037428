// SPDX-License-Identifier: GPL-2.0-only
/* The same with a capture around it. */
#define PORT_SERVICES 1
#include "dump.bpf.c"
