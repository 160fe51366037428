//! Reads `[bridge.NAME]` with its members and static entries.

mod openflow;

use openflow::read_openflow;
use packet::VlanId;

use crate::load::fields::{Fields, Findings, named_in, table_of};
use crate::load::vlans;
use crate::{Bridge, BridgeSettings, Cause, Member, MulticastRouter, PortName, StaticKey, Storm, VlanMode};

/// Range of valid OpenFlow port numbers. OpenFlow 1.0 reserves the numbers from 0xff00.
const NUMBER_BOUNDS: (i64, i64) = (1, 0xfeff);
const TABLE_BOUNDS: (i64, i64) = (1, 1 << 22);

pub(crate) fn read_bridge(mut fields: Fields<'_>, findings: &mut Findings) -> Bridge {
    let settings = read_settings(&mut fields, findings);
    let mut bridge = Bridge { settings, ..Bridge::default() };
    if let Some(entry) = fields.get("port", findings) {
        bridge.ports = named_in(&fields.path("port"), "port", &entry.node, findings, read_member);
    }
    read_statics(&mut fields, &mut bridge, findings);
    fields.finish(findings);
    bridge
}

fn read_settings(fields: &mut Fields<'_>, findings: &mut Findings) -> BridgeSettings {
    let default = BridgeSettings::default();
    BridgeSettings {
        ageing: fields.number("ageing", (10, 1_000_000), " seconds", findings).unwrap_or(default.ageing),
        mac_limit: fields
            .number("mac_limit", TABLE_BOUNDS, " addresses", findings)
            .unwrap_or(default.mac_limit),
        snooping: fields.flag("snooping", findings).unwrap_or(default.snooping),
        hook: fields.flag("hook", findings).unwrap_or(default.hook),
        openflow: read_openflow(fields, findings),
    }
}

/// Reads the settings of a bridge from an API request. The request contains no members and no static entries, because
/// these are separate objects in the API.
pub(crate) fn read_settings_alone(mut fields: Fields<'_>, findings: &mut Findings) -> BridgeSettings {
    let settings = read_settings(&mut fields, findings);
    fields.finish(findings);
    settings
}

pub(crate) fn read_member(mut fields: Fields<'_>, findings: &mut Findings) -> Member {
    let default = Member::default();
    let member = Member {
        vlans: read_vlans(&mut fields, findings),
        native_untagged_only: read_native_untagged_only(&mut fields, findings),
        protected: fields.flag("protected", findings).unwrap_or(default.protected),
        multicast_router: fields.word(
            "multicast_router",
            &["auto", "off"],
            &[MulticastRouter::Auto, MulticastRouter::Off],
            findings,
        ),
        learning: fields.flag("learning", findings).unwrap_or(default.learning),
        flood: fields.flag("flood", findings).unwrap_or(default.flood),
        mac_limit: fields.number("mac_limit", TABLE_BOUNDS, " addresses", findings),
        storm: read_storm(&mut fields, findings).unwrap_or_default(),
        number: fields.number("number", NUMBER_BOUNDS, "", findings),
    };
    fields.finish(findings);
    member
}

fn read_vlans(fields: &mut Fields<'_>, findings: &mut Findings) -> VlanMode {
    let access = fields.vlan("access", findings);
    let native = fields.vlan("native", findings);
    let native_tagged = fields.flag("native_tagged", findings).unwrap_or(false);
    let allowed = vlans::read_set(fields, "trunk", "trunk = [10, \"20-29\"]", findings);
    if fields.has("access") && fields.has("trunk") {
        let cause = Cause::Exclusive { first: "access", second: "trunk" };
        findings.add(fields.place_of("trunk"), fields.object.clone(), cause);
    }
    for (key, needs) in [("native", "trunk"), ("native_tagged", "native")] {
        if fields.has(key) && !fields.has(needs) {
            findings.add(fields.place_of(key), fields.object.clone(), Cause::NeedsOther { key, needs });
        }
    }
    match allowed {
        Some(mut allowed) => {
            if let Some(native) = native {
                allowed.insert(native, native);
            }
            VlanMode::Trunk { allowed, native, native_tagged }
        }
        None => access.map_or_else(VlanMode::default, VlanMode::Access),
    }
}

fn read_native_untagged_only(fields: &mut Fields<'_>, findings: &mut Findings) -> bool {
    const KEY: &str = "native_untagged_only";
    let only = fields.flag(KEY, findings).unwrap_or(false);
    if fields.has(KEY) && !fields.has("native") {
        findings.add(
            fields.place_of(KEY),
            fields.object.clone(),
            Cause::NeedsOther { key: KEY, needs: "native" },
        );
    }
    if only && fields.has("native_tagged") && fields.flag("native_tagged", findings) == Some(true) {
        let cause = Cause::Exclusive { first: "native_tagged", second: KEY };
        findings.add(fields.place_of(KEY), fields.object.clone(), cause);
    }
    only
}

fn read_storm(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Storm> {
    let entry = fields.get("storm", findings)?;
    let mut storm = table_of(&fields.path("storm"), &entry.node, findings)?;
    let mut rate = |key| storm.number(key, (0, 4_000_000_000), " packets per second", findings);
    let limits =
        Storm { broadcast: rate("broadcast"), multicast: rate("multicast"), unknown: rate("unknown") };
    storm.finish(findings);
    Some(limits)
}

fn read_statics(fields: &mut Fields<'_>, bridge: &mut Bridge, findings: &mut Findings) {
    let object = fields.object.clone();
    for (place_name, item) in fields.items("static", findings).unwrap_or_default() {
        let Some(mut entry) = table_of(&place_name, item, findings) else { continue };
        let place = entry.place;
        let mac = entry.station("mac", findings);
        let port = read_port_name(&mut entry, findings);
        let vlan = match entry.has("vlan") {
            true => entry.vlan("vlan", findings),
            false => {
                entry.get("vlan", findings);
                port.as_ref().and_then(|port| untagged_vlan(bridge, port, &entry, findings))
            }
        };
        if !entry.has("mac") {
            entry.missing("mac", "mac = \"02:00:00:00:00:01\"", findings);
        }
        entry.finish(findings);
        let (Some(mac), Some(vlan), Some(port)) = (mac, vlan, port) else { continue };
        let key = StaticKey { vlan, mac };
        if bridge.statics.contains_key(&key) {
            findings.add(place, place_name, Cause::Repeated { what: "static entry", value: key.to_string() });
            continue;
        }
        if let Some(place) = place {
            findings.places.insert(format!("{object}.static.{key}"), place);
        }
        bridge.statics.insert(key, port);
    }
}

fn untagged_vlan(
    bridge: &Bridge,
    port: &PortName,
    entry: &Fields<'_>,
    findings: &mut Findings,
) -> Option<VlanId> {
    let cause = match bridge.ports.get(port) {
        Some(member) => match member.vlans.untagged() {
            Some(vlan) => return Some(vlan),
            None => Cause::NoVlan { port: port.to_string() },
        },
        None => Cause::NotAMember { port: port.to_string() },
    };
    findings.add(entry.place, entry.object.clone(), cause);
    None
}

fn read_port_name(entry: &mut Fields<'_>, findings: &mut Findings) -> Option<PortName> {
    if !entry.has("port") {
        entry.missing("port", "port = \"web1\"", findings);
    }
    entry.parsed("port", |text, source| Cause::BadName { text, what: "port", source }, findings)
}

/// Reads the port of a static MAC table entry from an API request. The path of the request contains the bridge, the
/// VLAN and the MAC address.
pub(crate) fn read_static_alone(mut fields: Fields<'_>, findings: &mut Findings) -> Option<PortName> {
    let port = read_port_name(&mut fields, findings);
    fields.finish(findings);
    port
}
