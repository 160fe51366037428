// SPDX-License-Identifier: GPL-2.0-only
/* The port's program with SYN cookies and a capture around it. */
#define PORT_SERVICES 1
#include "dump.bpf.c"
