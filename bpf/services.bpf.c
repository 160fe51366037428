// SPDX-License-Identifier: GPL-2.0-only
/*
 * The port's program for filters that have rules with SYN cookies. It is an object of its own, so that the
 * instructions of the plain program do not change.
 */
#define PORT_SERVICES 1
#include "trivium.bpf.c"
