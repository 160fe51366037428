//! Diagnostics of services that a filter protects with SYN cookies of the scheme "cookie". In this scheme, the kernel
//! of the service's host checks the cookies that clients return. The check needs certain sysctls in the network
//! namespace that has the service's address. The diagnostics search for this namespace among the namespaces of the
//! ports' devices and of the veth peers that the daemon created.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use model::{CookieScheme, DoctorFinding, Finding, Namespace, PortKind, Prefix};
use port::link;

use super::{sysctl, there};
use crate::device::{inside, place};
use crate::running_state::RunningState;

/// IP addresses and SYN cookie sysctls of one network namespace.
struct Seen {
    namespace: Option<Namespace>,
    addresses: Vec<IpAddr>,
    cookies: Option<String>,
    timestamps: Option<String>,
}

/// Returns the findings about all services that filters protect with SYN cookies.
pub fn examine(running_state: &RunningState) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let wanted = |cookie: &model::SynCookie| cookie.scheme == CookieScheme::Cookie;
    let services: Vec<_> = running_state.filters.services().filter(|(_, _, cookie)| wanted(cookie)).collect();
    if services.is_empty() {
        return findings;
    }
    let seen = namespaces(running_state);
    for (filter, rule, cookie) in services {
        let mut note = |severity, finding: String, fix: String| {
            let finding = format!("rule {}: {finding}", rule.name);
            findings.push(DoctorFinding { object: format!("filter.{filter}"), severity, finding, fix });
        };
        let mut found = false;
        for place in &seen {
            let Some(address) =
                place.addresses.iter().find(|address| covers(&rule.matches.destinations, **address))
            else {
                continue;
            };
            found = true;
            let at = place.namespace.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
            if let Some(value) = place.cookies.as_deref().filter(|value| *value != "2") {
                let what = format!(
                    "the kernel of {address}{at} does not always make cookies (net.ipv4.tcp_syncookies is {value}): it refuses \
                     connections that bring ours"
                );
                let fix = there(place.namespace.as_ref(), "sysctl -w net.ipv4.tcp_syncookies=2");
                note(Finding::Warning, what, format!("{fix}; or scheme = \"retry\""));
            }
            if let Some(value) =
                place.timestamps.as_deref().filter(|value| cookie.wscale.is_some() && *value != "2")
            {
                let what = format!(
                    "timestamps of {address}{at} begin at a random number (net.ipv4.tcp_timestamps is {value}): it misreads the \
                     options that answers carry"
                );
                let fix = there(place.namespace.as_ref(), "sysctl -w net.ipv4.tcp_timestamps=2");
                note(Finding::Warning, what, format!("{fix}; or leave `wscale` out"));
            }
        }
        if !found {
            let what = "whether its service makes cookies always cannot be seen from here".to_owned();
            let fix = "net.ipv4.tcp_syncookies = 2 where it is, which must be on this machine; or scheme = \"retry\"";
            note(Finding::Advice, what, fix.to_owned());
        }
    }
    findings
}

fn covers(prefixes: &[Prefix], address: IpAddr) -> bool {
    prefixes.iter().any(|prefix| match (prefix.address(), address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            let bits = first.to_bits() ^ address.to_bits();
            bits.leading_zeros() >= u32::from(prefix.length())
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            let bits = first.to_bits() ^ address.to_bits();
            bits.leading_zeros() >= u32::from(prefix.length())
        }
        _ => false,
    })
}

/// Returns the IP addresses and the SYN cookie sysctls of each namespace that contains a port's device or a
/// veth peer.
fn namespaces(running_state: &RunningState) -> Vec<Seen> {
    let mut all: BTreeMap<PathBuf, Option<Namespace>> = BTreeMap::new();
    for running in running_state.ports.values() {
        if let Some(device) = &running.device {
            all.insert(place(device.namespace.as_ref()), device.namespace.clone());
        }
        if let PortKind::Veth(veth) = &running.wanted.port.kind {
            all.insert(place(veth.peer.namespace.as_ref()), veth.peer.namespace.clone());
        }
    }
    let look = |namespace: Option<Namespace>| {
        let seen = inside("services", namespace.as_ref(), || {
            let v4 = link::addresses_v4()
                .unwrap_or_default()
                .into_iter()
                .map(|(_, address)| IpAddr::from(address));
            let addresses = v4.chain(addresses_v6().into_iter().map(IpAddr::from)).collect();
            Ok((addresses, sysctl("net/ipv4/tcp_syncookies"), sysctl("net/ipv4/tcp_timestamps")))
        });
        // A namespace that is gone has no services.
        seen.ok().map(|(addresses, cookies, timestamps)| Seen { namespace, addresses, cookies, timestamps })
    };
    all.into_values().filter_map(look).collect()
}

/// Returns the IPv6 addresses of the calling thread's namespace.
pub fn addresses_v6() -> Vec<Ipv6Addr> {
    let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let first = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    text.lines().filter_map(first).map(Ipv6Addr::from_bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_prefix() {
        let prefixes: Vec<Prefix> =
            ["10.0.0.0/24", "192.0.2.1", "2001:db8::/32"].map(|text| text.parse().unwrap()).into();
        for (address, inside) in [
            ("10.0.0.255", true),
            ("10.0.1.0", false),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("2001:db8:1::1", true),
            ("2001:db9::", false),
        ] {
            assert_eq!(covers(&prefixes, address.parse().unwrap()), inside, "{address}");
        }
        assert!(covers(&["0.0.0.0/0".parse().unwrap()], "1.2.3.4".parse().unwrap()));
    }
}
