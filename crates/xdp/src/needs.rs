//! BPF helper functions of the kernel that the stages of an XDP program call. This crate checks the
//! helper functions only after the kernel has refused a program. The error then names the missing
//! helper instead of showing the verifier's log.

use libbpf_rs::libbpf_sys as ffi;

use crate::Error;

/// A BPF helper function that a program stage calls, and the first Linux version whose XDP programs may call it.
struct Need {
    stage: &'static str,
    helper: ffi::bpf_func_id,
    name: &'static str,
    since: &'static str,
}

const fn need(
    stage: &'static str,
    helper: ffi::bpf_func_id,
    name: &'static str,
    since: &'static str,
) -> Need {
    Need { stage, helper, name, since }
}

/// Name, as in [`lacking`], of the part of every port's program that redirects frames to AF_XDP sockets.
pub(crate) const SOCKETS: &str = "sockets";
pub(crate) const FILTER: &str = "filter";
pub(crate) const BRIDGE: &str = "bridge";
/// Name, as in [`lacking`], of the stage of cached OpenFlow flows.
pub(crate) const FLOWS: &str = "flows";
pub(crate) const FIB: &str = "fib";
pub(crate) const ROUTE: &str = "route";
pub(crate) const ANSWERS: &str = "routes";
/// Name, as in [`lacking`], of the flow steering stage.
pub(crate) const STEERING: &str = "steering";
pub(crate) const DUMP: &str = "dump";

const NEEDS: [Need; 22] = [
    need(SOCKETS, ffi::BPF_FUNC_redirect_map, "bpf_redirect_map", "4.14"),
    need(FILTER, ffi::BPF_FUNC_xdp_get_buff_len, "bpf_xdp_get_buff_len", "5.18"),
    need(FILTER, ffi::BPF_FUNC_xdp_load_bytes, "bpf_xdp_load_bytes", "5.18"),
    need(FILTER, ffi::BPF_FUNC_loop, "bpf_loop", "5.17"),
    need(FILTER, ffi::BPF_FUNC_ktime_get_coarse_ns, "bpf_ktime_get_coarse_ns", "5.11"),
    need(FILTER, ffi::BPF_FUNC_ringbuf_reserve, "bpf_ringbuf_reserve", "5.8"),
    need(BRIDGE, ffi::BPF_FUNC_xdp_get_buff_len, "bpf_xdp_get_buff_len", "5.18"),
    need(BRIDGE, ffi::BPF_FUNC_xdp_adjust_head, "bpf_xdp_adjust_head", "4.10"),
    need(BRIDGE, ffi::BPF_FUNC_xdp_adjust_meta, "bpf_xdp_adjust_meta", "4.15"),
    need(FLOWS, ffi::BPF_FUNC_xdp_get_buff_len, "bpf_xdp_get_buff_len", "5.18"),
    need(FLOWS, ffi::BPF_FUNC_ktime_get_coarse_ns, "bpf_ktime_get_coarse_ns", "5.11"),
    need(FIB, ffi::BPF_FUNC_xdp_get_buff_len, "bpf_xdp_get_buff_len", "5.18"),
    need(FIB, ffi::BPF_FUNC_fib_lookup, "bpf_fib_lookup", "4.18"),
    need(FIB, ffi::BPF_FUNC_check_mtu, "bpf_check_mtu", "5.12"),
    need(FIB, ffi::BPF_FUNC_xdp_adjust_tail, "bpf_xdp_adjust_tail", "4.18"),
    need(ROUTE, ffi::BPF_FUNC_xdp_get_buff_len, "bpf_xdp_get_buff_len", "5.18"),
    need(ANSWERS, ffi::BPF_FUNC_xdp_adjust_tail, "bpf_xdp_adjust_tail", "4.18"),
    need(STEERING, ffi::BPF_FUNC_xdp_get_buff_len, "bpf_xdp_get_buff_len", "5.18"),
    need(STEERING, ffi::BPF_FUNC_ktime_get_coarse_ns, "bpf_ktime_get_coarse_ns", "5.11"),
    need(STEERING, ffi::BPF_FUNC_xdp_adjust_meta, "bpf_xdp_adjust_meta", "4.15"),
    need(DUMP, ffi::BPF_FUNC_ringbuf_output, "bpf_ringbuf_output", "5.8"),
    need(DUMP, ffi::BPF_FUNC_xdp_load_bytes, "bpf_xdp_load_bytes", "5.18"),
];

/// Returns an error that names a helper function that the program stages `stages` call and the kernel lacks. `has`
/// returns whether the kernel has a helper. Returns `None` if no helper is missing. Also returns `None` if even
/// `bpf_map_lookup_elem` seems to be missing, because the process then lacks the privilege to probe helpers.
pub(crate) fn lacking(stages: &[&str], has: impl Fn(ffi::bpf_func_id) -> bool) -> Option<Error> {
    if !has(ffi::BPF_FUNC_map_lookup_elem) {
        return None;
    }
    let asked = NEEDS.iter().filter(|need| stages.contains(&need.stage));
    asked.into_iter().find(|need| !has(need.helper)).map(|need| Error::Helper {
        stage: need.stage,
        helper: need.name,
        since: need.since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn a_missing_helper_is_named_with_its_stage_and_the_others_go_on() {
        for missing in &NEEDS {
            let has = |helper| helper != missing.helper;
            let error = lacking(&[SOCKETS, missing.stage], has).unwrap().to_string();
            assert!(error.contains(missing.name) && error.contains(missing.since), "{error}");
            let others: Vec<&str> = [SOCKETS, FILTER, BRIDGE, FLOWS, FIB, ROUTE, ANSWERS, STEERING, DUMP]
                .into_iter()
                .filter(|stage| {
                    NEEDS.iter().all(|need| need.stage != *stage || need.helper != missing.helper)
                })
                .collect();
            assert!(lacking(&others, has).is_none(), "{others:?} do not need {}", missing.name);
        }
        assert!(lacking(&[FILTER], |_| true).is_none());
        assert!(lacking(&[FILTER], |_| false).is_none(), "a missing privilege is no missing helper");
    }

    #[test]
    fn this_kernel_has_them_all() {
        // An unprivileged process cannot probe any helper.
        if !sys::has_helper(ffi::BPF_FUNC_map_lookup_elem) {
            return testbed::skip("needs root (BPF)");
        }
        let all = [SOCKETS, FILTER, BRIDGE, FLOWS, FIB, ROUTE, ANSWERS, STEERING, DUMP];
        assert!(lacking(&all, sys::has_helper).is_none());
    }
}
