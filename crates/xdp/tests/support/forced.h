/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Header that the tests of helper codes include before the port's program. One of the helpers returns the
 * forced code, whatever its real result would be, and does nothing. The other helpers are the kernel's.
 */
#ifndef FORCED_H
#define FORCED_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

enum forced_helper {
	FORCED_NONE,
	FORCED_FIB_LOOKUP,
	FORCED_FIB_BACK, /* lookup of the reverse path of a source */
	FORCED_CHECK_MTU,
	FORCED_ADJUST_HEAD,
	FORCED_ADJUST_META,
	FORCED_ADJUST_TAIL,
	FORCED_REDIRECT_MAP,
	FORCED_LOAD_BYTES,
	FORCED_STORE_BYTES,
	FORCED_MAKE_COOKIE,
	FORCED_CHECK_COOKIE,
};

const volatile struct {
	__u32 helper;
	__s32 code;
} forced SEC(".rodata.forced") = {};

#define FORCED(which, call) (forced.helper == (which) ? (long)forced.code : (call))

#define bpf_fib_lookup(ctx, params, size, flags)                                             \
	FORCED((flags) & BPF_FIB_LOOKUP_SKIP_NEIGH ? FORCED_FIB_BACK : FORCED_FIB_LOOKUP,    \
	       bpf_fib_lookup(ctx, params, size, flags))
#define bpf_check_mtu(...) FORCED(FORCED_CHECK_MTU, bpf_check_mtu(__VA_ARGS__))
#define bpf_xdp_adjust_head(...) FORCED(FORCED_ADJUST_HEAD, bpf_xdp_adjust_head(__VA_ARGS__))
#define bpf_xdp_adjust_meta(...) FORCED(FORCED_ADJUST_META, bpf_xdp_adjust_meta(__VA_ARGS__))
#define bpf_xdp_adjust_tail(...) FORCED(FORCED_ADJUST_TAIL, bpf_xdp_adjust_tail(__VA_ARGS__))
#define bpf_redirect_map(...) FORCED(FORCED_REDIRECT_MAP, bpf_redirect_map(__VA_ARGS__))
#define bpf_xdp_load_bytes(...) FORCED(FORCED_LOAD_BYTES, bpf_xdp_load_bytes(__VA_ARGS__))
#define bpf_xdp_store_bytes(...) FORCED(FORCED_STORE_BYTES, bpf_xdp_store_bytes(__VA_ARGS__))
#define bpf_tcp_raw_gen_syncookie_ipv4(...)                                                  \
	FORCED(FORCED_MAKE_COOKIE, bpf_tcp_raw_gen_syncookie_ipv4(__VA_ARGS__))
#define bpf_tcp_raw_gen_syncookie_ipv6(...)                                                  \
	FORCED(FORCED_MAKE_COOKIE, bpf_tcp_raw_gen_syncookie_ipv6(__VA_ARGS__))
#define bpf_tcp_raw_check_syncookie_ipv4(...)                                                \
	FORCED(FORCED_CHECK_COOKIE, bpf_tcp_raw_check_syncookie_ipv4(__VA_ARGS__))
#define bpf_tcp_raw_check_syncookie_ipv6(...)                                                \
	FORCED(FORCED_CHECK_COOKIE, bpf_tcp_raw_check_syncookie_ipv6(__VA_ARGS__))

#endif
