// SPDX-License-Identifier: GPL-2.0-only
/*
 * The port's program where the filter has rules with cookies. An object of its own: the code of the
 * plain one stays what it is without them, to the instruction.
 */
#define PORT_SERVICES 1
#include "trivium.bpf.c"
