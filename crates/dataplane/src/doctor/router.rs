//! Diagnostics of virtual routers: kernel settings in the router's namespace that have no effect on packets routed by
//! workers, or that prevent routing.

use model::{DoctorFinding, Finding, RouterName};
use port::netfilter;

use super::services::addresses_v6;
use super::{sysctl, there};
use crate::device::inside;
use crate::running_state::RunningState;

/// State of a router's network namespace that the diagnostics examine: netfilter chains and
/// sysctls.
struct Seen {
    /// Netfilter chains of the namespace that filter packets forwarded by the kernel.
    chains: Vec<String>,
    ipv4_is_off: bool,
    /// Whether IPv6 forwarding is disabled although a device has an IPv6 address whose scope is larger than
    /// link-local.
    ipv6_is_off: bool,
}

/// Returns the findings about kernel settings in the network namespaces of all running routers.
pub fn examine(running_state: &RunningState) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for (name, router) in &running_state.config.routers {
        let object = format!("router.{name}");
        let namespace = router.settings.namespace.as_ref();
        // A missing namespace is reported by `waiting`.
        let Ok(seen) = inside(&object, namespace, || Ok(look())) else { continue };
        let mut warn = |finding: String, fix: String| {
            let object = object.clone();
            findings.push(DoctorFinding { object, severity: Finding::Warning, finding, fix });
        };
        if !seen.chains.is_empty() {
            let what = format!(
                "netfilter has rules for forwarded packets ({}), and packets that the router forwards bypass them",
                seen.chains.join("; ")
            );
            let fix = "put what they are to do into `[filter.NAME]` and name it at the router's ports, or leave these ports to the kernel";
            warn(what, fix.to_owned());
        }
        let families = [
            ("IPv4", seen.ipv4_is_off, "net.ipv4.ip_forward"),
            ("IPv6", seen.ipv6_is_off, "net.ipv6.conf.all.forwarding"),
        ];
        for (family, _, setting) in families.into_iter().filter(|(_, is_off, _)| *is_off) {
            let what = format!("{setting} is 0: the router forwards no {family} packet");
            warn(what, there(namespace, &format!("sysctl -w {setting}=1")));
        }
    }
    findings
}

/// Returns findings about the routers whose network namespace does not exist yet.
pub fn waiting(running_state: &RunningState) -> Vec<DoctorFinding> {
    let finding = |(name, why): (&RouterName, &str)| DoctorFinding {
        object: format!("router.{name}"),
        severity: Finding::Error,
        finding: format!("{why}: the router and its ports wait for it"),
        fix: "make the namespace (`ip netns add`), or correct its name in the configuration".to_owned(),
    };
    running_state.routers.waiting().map(finding).collect()
}

/// Returns findings about the routers with more policy routing rules than the workers support, for each
/// address family.
pub fn excess_rules(running_state: &RunningState) -> Vec<DoctorFinding> {
    let finding = |(name, family, said): (&RouterName, &str, String)| DoctorFinding {
        object: format!("router.{name}"),
        severity: Finding::Warning,
        finding: format!("{family}: {said}"),
        fix: "remove rules (`ip rule`), or put what they tell apart into fewer".to_owned(),
    };
    running_state.routers.excess_rules().into_iter().map(finding).collect()
}

/// Returns a finding for each router whose hooks (XDP programs) do not limit the rate of control packets to the kernel,
/// because the kernel has refused the BPF maps for the limits.
pub fn unlimited(running_state: &RunningState) -> Vec<DoctorFinding> {
    let finding = |name: &RouterName| {
        DoctorFinding {
        object: format!("router.{name}"),
        severity: Finding::Warning,
        finding: "the hooks of its ports pass ARP, routing protocols and other control traffic to the kernel without the limits of \
                  `punts` and `punt_limits`, because the kernel has refused the tables of these limits"
            .to_owned(),
        fix: "see the daemon's log for the kernel's error, mend it (memory, privileges), and restart the daemon".to_owned(),
    }
    };
    running_state.routers.without_hook_limits().map(finding).collect()
}

/// Reads the netfilter chains and the forwarding sysctls of the calling thread's network namespace.
fn look() -> Seen {
    let is_off = |path: &str| sysctl(path).as_deref() == Some("0");
    let is_wide = |address: &std::net::Ipv6Addr| !address.is_loopback() && !address.is_unicast_link_local();
    Seen {
        chains: netfilter::chains().unwrap_or_default(),
        ipv4_is_off: is_off("net/ipv4/ip_forward"),
        ipv6_is_off: is_off("net/ipv6/conf/all/forwarding") && addresses_v6().iter().any(is_wide),
    }
}
