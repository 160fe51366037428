//! Reads `[router.NAME]` with its interfaces.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use packet::PuntClass;

use crate::cause::Cause;
use crate::load::fields::{Fields, Findings, named_in, table_of};
use crate::load::tree::Value;
use crate::load::users::read_users;
use crate::load::vlans;
use crate::{Miss, OuterTag, PuntLimits, QinQ, Router, RouterPort, RouterSettings, Rpf};

/// Reads a router. Returns `None` if the namespace is invalid, because the devices of the router are then not known.
pub(crate) fn read_router(mut fields: Fields<'_>, findings: &mut Findings) -> Option<Router> {
    let settings = read_settings(&mut fields, findings);
    let entry = fields.get("port", findings);
    let ports = entry.map(|entry| named_in(&fields.path("port"), "port", &entry.node, findings, read_port));
    fields.finish(findings);
    Some(Router { settings: settings?, ports: ports.unwrap_or_default() })
}

fn read_settings(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<RouterSettings> {
    let default = RouterSettings::default();
    let namespace = fields.namespace(findings);
    let bad =
        |text, _| Cause::BadText { text, what: "an address with a port", example: "\"127.0.0.1:2620\"" };
    let fpm: Option<SocketAddr> = fields.parsed("fpm", bad, findings);
    let fpm_remote = fields.flag("fpm_remote", findings).unwrap_or_default();
    if let Some(address) = fpm.filter(|address| !address.ip().is_loopback() && !fpm_remote) {
        let cause = Cause::FpmRemote { address: address.to_string() };
        findings.add(fields.place_of("fpm"), fields.path("fpm"), cause);
    }
    let fpm_users = read_users(fields, "fpm_users", findings);
    let mut number = |key, most: u32, unit| fields.number(key, (1, most.into()), unit, findings);
    let routes = number("routes", RouterSettings::ROUTES_MAX, " routes");
    let neighbours = number("neighbours", RouterSettings::NEIGHBOURS_MAX, " neighbours");
    let punts = number("punts", RouterSettings::PUNTS_MAX, " packets per second");
    let fpm_settle = number("fpm_settle", RouterSettings::FPM_SETTLE_MAX, " seconds");
    let hook = fields.flag("hook", findings);
    let punt_limits = read_punt_limits(fields, findings);
    Some(RouterSettings {
        namespace: namespace?,
        routes: routes.unwrap_or(default.routes),
        neighbours: neighbours.unwrap_or(default.neighbours),
        punts: punts.unwrap_or(default.punts),
        punt_limits,
        fpm,
        fpm_remote,
        fpm_users: fpm_users.unwrap_or(default.fpm_users),
        fpm_settle: fpm_settle.unwrap_or(default.fpm_settle),
        hook: hook.unwrap_or(default.hook),
    })
}

fn read_punt_limits(fields: &mut Fields<'_>, findings: &mut Findings) -> PuntLimits {
    let mut limits = PuntLimits::default();
    let Some(entry) = fields.get("punt_limits", findings) else { return limits };
    let Some(mut table) = table_of(&fields.path("punt_limits"), &entry.node, findings) else { return limits };
    for class in PuntClass::ALL {
        let bounds = (1, RouterSettings::PUNTS_MAX.into());
        if let Some(limit) = table.number(class.name(), bounds, " packets per second", findings) {
            limits.0.insert(class, limit);
        }
    }
    table.finish(findings);
    limits
}

/// Reads the settings of a router from an API request, in which interfaces are separate objects.
pub(crate) fn read_settings_alone(mut fields: Fields<'_>, findings: &mut Findings) -> Option<RouterSettings> {
    let settings = read_settings(&mut fields, findings);
    fields.finish(findings);
    settings
}

pub(crate) fn read_port(mut fields: Fields<'_>, findings: &mut Findings) -> RouterPort {
    let words = [Miss::Unreachable, Miss::Punt];
    let miss = fields.word("miss", &["unreachable", "punt"], &words, findings).unwrap_or_default();
    let vlans = vlans::read_set(&mut fields, "vlans", "vlans = [10, 20]", findings).unwrap_or_default();
    let qinq = read_qinq(&mut fields, findings);
    let words = [OuterTag::Service, OuterTag::Customer];
    let qinq_outer = fields.word("qinq_outer", &["802.1ad", "802.1q"], &words, findings).unwrap_or_default();
    let words = [Rpf::Off, Rpf::Strict, Rpf::Loose];
    let rpf = fields.word("rpf", &["off", "strict", "loose"], &words, findings).unwrap_or_default();
    let vrrp = fields.flag("vrrp", findings).unwrap_or_default();
    let dhcp_relay = read_servers(&mut fields, findings);
    let dhcp_relay_agents = fields.flag("dhcp_relay_agents", findings).unwrap_or(true);
    fields.finish(findings);
    RouterPort { miss, vlans, qinq, qinq_outer, rpf, vrrp, dhcp_relay, dhcp_relay_agents }
}

fn read_servers(fields: &mut Fields<'_>, findings: &mut Findings) -> Vec<IpAddr> {
    let mut servers: Vec<IpAddr> = Vec::new();
    let items = fields.items("dhcp_relay", findings).unwrap_or_default();
    fields.limit("dhcp_relay", "servers", items.len(), RouterPort::DHCP_SERVERS_MAX, findings);
    for (object, item) in items.into_iter().take(RouterPort::DHCP_SERVERS_MAX) {
        let Value::Text(text) = &item.value else {
            let cause = Cause::WrongType { expected: "a text in quotes", found: item.value.found() };
            findings.add(item.place, object, cause);
            continue;
        };
        let is_host = |address: &IpAddr| {
            let nobody = address.is_unspecified() || address.is_loopback() || address.is_multicast();
            !nobody
                && match address {
                    IpAddr::V4(address) => !address.is_broadcast(),
                    IpAddr::V6(address) => {
                        !address.is_unicast_link_local() && address.to_ipv4_mapped().is_none()
                    }
                }
        };
        let cause = match text.parse::<IpAddr>().ok().filter(is_host) {
            None => {
                let (what, example) = ("the address of a DHCP server", "\"10.0.0.53\"");
                Cause::BadText { text: text.clone(), what, example }
            }
            Some(server) if servers.contains(&server) => {
                Cause::Repeated { what: "server", value: text.clone() }
            }
            Some(server) => {
                servers.push(server);
                continue;
            }
        };
        findings.add(item.place, object, cause);
    }
    servers
}

/// Reads pairs of VLANs, each written as "OUTER.INNER".
fn read_qinq(fields: &mut Fields<'_>, findings: &mut Findings) -> BTreeSet<QinQ> {
    let mut pairs = BTreeSet::new();
    let items = fields.items("qinq", findings).unwrap_or_default();
    fields.limit("qinq", "pairs of VLANs", items.len(), RouterPort::VLANS_MAX, findings);
    for (object, item) in items.into_iter().take(RouterPort::VLANS_MAX) {
        let cause = match &item.value {
            Value::Text(text) => match text.parse::<QinQ>() {
                Ok(pair) if pairs.insert(pair) => continue,
                Ok(pair) => Cause::Repeated { what: "pair of VLANs", value: pair.to_string() },
                Err(()) => {
                    let what = "an outer and an inner VLAN, 1 to 4094 each";
                    Cause::BadText { text: text.clone(), what, example: "\"100.20\"" }
                }
            },
            other => Cause::WrongType { expected: "a text in quotes", found: other.found() },
        };
        findings.add(item.place, object, cause);
    }
    pairs
}
