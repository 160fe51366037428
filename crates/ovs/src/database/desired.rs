//! Conversion of the database's tables into configuration objects. For each part of the tables that cannot be
//! configured, the result contains the reason.
//!
//! In Open vSwitch, untagged frames belong to VLAN 0. Trivium has no VLAN 0, and uses VLAN 4094 ([`UNTAGGED`]) for
//! untagged frames. Therefore the tables must not contain VLAN 4094. Frames that arrive with the tag 4094 are dropped,
//! also on a trunk of all VLANs, so that they do not mix with untagged frames.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    AfXdp, Bridge, BridgeName, BridgeSettings, Config, DeviceName, Filter, FilterAction, FilterMatch,
    FilterName, FilterRule, Member, Mtu, Patch, Peer, Port, PortKind, PortName, Queues, RateLimit, RateUnit,
    Tap, UNTAGGED, Veth, VlanMode, VlanSet, XdpMode, XdpOptions, ZeroCopy,
};
use ovsdb::{Desired, Interface, Mode, Policing, Uuid};
use packet::{MacAddr, VlanId};

use super::numbers::{LOCAL, Numbers};
use super::openflow;

/// Interface types of Open vSwitch (column `type` of the table Interface) that are supported.
pub const TYPES: [&str; 6] = ["afxdp", "internal", "patch", "system", "tap", "veth"];

/// Interfaces and bridges of the OVSDB tables that are left out of the configuration, each with the reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Reason for each interface that is left out, by the UUID of its database row.
    pub interfaces: BTreeMap<Uuid, String>,
    /// Reason for each bridge that is left out with all of its ports, by the UUID of its database row.
    pub bridges: BTreeMap<Uuid, String>,
}

impl LeftOut {
    /// Returns whether no interface and no bridge is left out.
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty() && self.bridges.is_empty()
    }

    /// Adds more interfaces and bridges to leave out.
    pub fn extend(&mut self, more: LeftOut) {
        self.interfaces.extend(more.interfaces);
        self.bridges.extend(more.bridges);
    }
}

/// Configuration derived from the OVSDB tables, with the parts of the tables that cannot be configured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredConfig {
    /// Ports, bridges and filters that the OVSDB tables request.
    pub config: Config,
    /// Reason for each interface that cannot be configured, by the UUID of its database row.
    pub refused: BTreeMap<Uuid, String>,
    /// Requested settings that are not supported, for each interface that runs without them, by the UUID of its
    /// database row.
    pub lacks: BTreeMap<Uuid, String>,
    /// Remarks on bridge settings in the OVSDB tables that have no effect. The key is `bridge NAME`.
    remarks: BTreeMap<String, String>,
    /// UUID of the database row of the interface from which each port is derived, by port name.
    pub rows: BTreeMap<PortName, Uuid>,
    /// UUID of the database row of each bridge in the configuration, by bridge name.
    bridge_rows: BTreeMap<BridgeName, Uuid>,
    /// Names of the interfaces in the OVSDB tables, by the UUID of the database row.
    names: BTreeMap<Uuid, String>,
    /// Datapath id of each bridge as sixteen hexadecimal digits, by the UUID of the bridge's database row.
    pub ids: BTreeMap<Uuid, String>,
    /// Names of the network devices in the OVSDB tables that do not exist on the machine.
    pub missing: BTreeSet<String>,
}

impl DesiredConfig {
    /// Returns each interface and bridge that does not run as the OVSDB tables request: its name and the reason.
    pub fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        let interfaces = self.refused.iter().chain(&self.lacks);
        let interfaces =
            interfaces.filter_map(|(row, why)| Some((self.names.get(row)?.as_str(), why.as_str())));
        interfaces.chain(self.remarks.iter().map(|(name, why)| (name.as_str(), why.as_str())))
    }

    /// Removes from the bridges the controllers whose Unix sockets are not in the run directory, and adds a remark
    /// about each of them. As in Open vSwitch, a client of the database must not make the daemon connect to other
    /// sockets of the machine or replace such sockets. The name of a listening socket must begin with the name of its
    /// bridge and a dot, and must not belong to the daemon.
    ///
    /// `running` are the settings with which the daemon runs. `merged` is the configuration whose settings may wait for
    /// a restart.
    pub fn restrict_sockets(&mut self, running: &Config, merged: &Config) {
        for (name, bridge) in &mut self.config.bridges {
            let Some(openflow) = &mut bridge.settings.openflow else { continue };
            let mut refused = Vec::new();
            openflow.controllers.retain(|controller| {
                let why = openflow::refused_socket(&controller.target, name, running, merged);
                refused.extend(why.as_ref().cloned());
                why.is_none()
            });
            if !refused.is_empty() {
                let remark = self.remarks.entry(format!("bridge {name}")).or_default();
                let before = if remark.is_empty() { "" } else { "; " };
                remark.push_str(&format!("{before}{}", refused.join("; ")));
            }
        }
    }

    /// Returns the UUID of the database row of a bridge that the running configuration does not contain. If several
    /// such bridges exist, returns the UUID for the last bridge in the order of names.
    pub fn newest_bridge(&self, running: &Config) -> Option<Uuid> {
        let newest = self.bridge_rows.iter().rev().find(|(bridge, _)| !running.bridges.contains_key(*bridge));
        newest.map(|(_, row)| *row)
    }

    /// Returns the interfaces and bridges of the OVSDB tables that caused the given problems. Each problem is the path
    /// of a configuration object and the text of the problem. Problems of objects that do not come from the tables are
    /// ignored.
    pub fn blame(&self, problems: &[(String, String)]) -> LeftOut {
        let mut blamed = LeftOut::default();
        for (object, why) in problems {
            let is_part = |name: &str| {
                object.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let bridge_of = |port: &PortName| {
                let bridge = self.config.bridge_of(port.as_str()).map(|(bridge, _)| bridge);
                bridge.map_or_else(String::new, |bridge| format!("bridge.{bridge}"))
            };
            let named = |port: &PortName| {
                is_part(&format!("port.{port}"))
                    || is_part(&format!("filter.{}", policing_name(port.as_str())))
                    || is_part(&format!("{}.port.{port}", bridge_of(port)))
            };
            // Names may contain dots, so the longest match wins: `port.eth1.5` is the port `eth1.5` if it
            // exists.
            let longest = self.rows.keys().filter(|port| named(port)).max_by_key(|port| port.as_str().len());
            if let Some(row) = longest.and_then(|port| self.rows.get(port)) {
                blamed.interfaces.insert(*row, why.clone());
                continue;
            }
            // Static entries do not come from the tables. A problem of a static entry does not remove a
            // bridge.
            let whole = |bridge: &&BridgeName| {
                is_part(&format!("bridge.{bridge}")) && !is_part(&format!("bridge.{bridge}.static"))
            };
            let longest = self.bridge_rows.keys().filter(whole).max_by_key(|bridge| bridge.as_str().len());
            if let Some(row) = longest.and_then(|bridge| self.bridge_rows.get(bridge)) {
                blamed.bridges.insert(*row, why.clone());
            }
        }
        blamed
    }
}

/// Converts the OVSDB tables into configuration objects, without the parts in `left_out`. `ring_size` is the number of
/// entries of each AF_XDP ring. The function checks whether network devices exist, and may block.
pub fn read(desired: &Desired, ring_size: u32, left_out: &LeftOut) -> DesiredConfig {
    let is_there = |device: &str| port::link::find(device).is_ok();
    read_with(desired, ring_size, left_out, &is_there)
}

fn read_with(
    desired: &Desired,
    ring_size: u32,
    left_out: &LeftOut,
    is_there: &dyn Fn(&str) -> bool,
) -> DesiredConfig {
    let mut wanted = DesiredConfig::default();
    for (name, bridge) in &desired.bridges {
        let mac = bridge
            .other_config
            .get("hwaddr")
            .and_then(|text| text.parse().ok())
            .unwrap_or(own_mac(bridge.uuid));
        wanted.ids.insert(bridge.uuid, datapath_id(bridge, mac));
        let mut remarks: Vec<String> =
            bridge.besides.iter().map(|column| format!("`{column}` is not there yet")).collect();
        remarks.extend(openflow::remarks(desired, bridge));
        let left = left_out.bridges.get(&bridge.uuid);
        remarks.extend(left.cloned());
        if !remarks.is_empty() {
            wanted.remarks.insert(format!("bridge {name}"), remarks.join("; "));
        }
        let made = name.parse::<BridgeName>().map_err(|error| format!("bridge {name}: {error}"));
        let made = left.map_or(made, |why| Err(why.clone()));
        let settings = settings(desired, bridge, mac);
        let mut made = made.map(|name| (name, Bridge { settings, ..Bridge::default() }));
        for (port_name, port) in &bridge.ports {
            for (own, interface) in &port.interfaces {
                let row = interface.uuid;
                wanted.names.insert(row, own.clone());
                let local = (own == name).then_some(mac);
                let one = match (&mut made, left_out.interfaces.get(&row)) {
                    (_, Some(why)) => Err(Refused::Other(why.clone())),
                    (Err(why), None) => Err(Refused::Other(why.clone())),
                    (Ok(_), None) if port.interfaces.len() > 1 => {
                        let count = port.interfaces.len();
                        Err(Refused::Other(format!(
                            "port {port_name} has {count} interfaces: bonds are not there yet"
                        )))
                    }
                    (Ok((_, made)), None) => {
                        one_port(own, interface, port, local, ring_size, is_there).map(|one| (made, one))
                    }
                };
                match one {
                    Ok((made, one)) => {
                        if let Some(lack) = one.lack {
                            wanted.lacks.insert(row, lack);
                        }
                        wanted.rows.insert(one.name.clone(), row);
                        wanted.config.filters.extend(one.filter);
                        made.ports.insert(one.name.clone(), one.member);
                        wanted.config.ports.insert(one.name, one.port);
                    }
                    Err(refused) => {
                        if let Refused::Missing(device) = &refused {
                            wanted.missing.insert(device.clone());
                        }
                        wanted.refused.insert(row, refused.to_string());
                    }
                }
            }
        }
        if let Ok((name, made)) = made {
            wanted.bridge_rows.insert(name.clone(), bridge.uuid);
            wanted.config.bridges.insert(name, made);
        }
    }
    wanted
}

impl DesiredConfig {
    /// Sets the OpenFlow port numbers of the ports that belong to bridges with OpenFlow rules.
    pub fn number(&mut self, numbers: &Numbers) {
        for bridge in self.config.bridges.values_mut().filter(|bridge| bridge.settings.openflow.is_some()) {
            for (port, member) in &mut bridge.ports {
                let number = self.rows.get(port).and_then(|row| numbers.of(*row));
                member.number = number.filter(|number| *number != LOCAL);
            }
        }
    }
}

/// Reason why an interface cannot be configured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Refused {
    #[error("there is no device {0}; it is taken as soon as there is")]
    Missing(String),
    #[error("{0}")]
    Other(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Other(why)
    }
}

/// Configuration objects that are derived from one row of the table Interface: a port, its bridge membership, and its
/// filter.
struct One {
    name: PortName,
    port: Port,
    member: Member,
    filter: Option<(FilterName, Filter)>,
    lack: Option<String>,
}

fn one_port(
    name: &str,
    interface: &Interface,
    port: &ovsdb::Port,
    local: Option<MacAddr>,
    ring_size: u32,
    is_there: &dyn Fn(&str) -> bool,
) -> Result<One, Refused> {
    let vlans = vlans(&port.vlans)?;
    let mtu = interface.mtu_request.map(|bytes| {
        let mtu = u16::try_from(bytes).ok().and_then(Mtu::new);
        mtu.ok_or_else(|| format!("mtu_request={bytes}: ports carry {} to {}", Mtu::MIN, Mtu::MAX))
    });
    let kind = kind(name, interface, local, ring_size)?;
    if let PortKind::AfXdp(af_xdp) = &kind
        && !is_there(af_xdp.device.as_str())
    {
        return Err(Refused::Missing(af_xdp.device.to_string()));
    }
    let mut filter = None;
    if interface.policing.is_set() {
        let made: FilterName =
            policing_name(name).parse().map_err(|error| format!("ingress_policing_rate: {error}"))?;
        filter = Some((made, policing(interface.policing)?));
    }
    let made = filter.as_ref().map(|(name, _)| name.clone());
    Ok(One {
        name: name.parse().map_err(|error| format!("{name}: {error}"))?,
        port: Port {
            mtu: mtu.transpose()?,
            workers: Vec::new(),
            software_rss: false,
            admin: true,
            filter: made,
            kind,
        },
        member: Member {
            native_untagged_only: matches!(vlans, VlanMode::Trunk { native: Some(UNTAGGED), .. }),
            vlans,
            protected: port.protected,
            ..Member::default()
        },
        filter,
        lack: port.qos.then(|| "qos is not there yet".to_owned()),
    })
}

fn kind(
    name: &str,
    interface: &Interface,
    local: Option<MacAddr>,
    ring_size: u32,
) -> Result<PortKind, String> {
    if interface.kind == "patch" {
        let peer =
            interface.options.get("peer").ok_or("type patch needs options:peer, the other end's name")?;
        let peer = peer.parse().map_err(|error| format!("options:peer={peer}: {error}"))?;
        return Ok(PortKind::Patch(Patch { peer }));
    }
    let device: DeviceName = name.parse().map_err(|error| format!("device {name}: {error}"))?;
    let mac =
        interface.mac.as_deref().map(|text| text.parse().map_err(|error| format!("mac={text}: {error}")));
    let mac: Option<MacAddr> = mac.transpose()?;
    let tap = || Tap {
        device: device.clone(),
        namespace: None,
        address: Vec::new(),
        mac: mac.or(local),
        queues: 1,
    };
    match interface.kind.as_str() {
        "internal" => Ok(PortKind::Internal(tap())),
        "tap" => Ok(PortKind::Tap(tap())),
        "" | "system" | "afxdp" => {
            Ok(PortKind::AfXdp(AfXdp { device, namespace: None, xdp: xdp_options(interface, ring_size)? }))
        }
        "veth" => {
            let peer =
                interface.options.get("peer").ok_or("type veth needs options:peer, the other end's name")?;
            let namespace = interface.options.get("netns").map(|text| text.parse());
            let peer = Peer {
                name: peer.parse().map_err(|error| format!("options:peer={peer}: {error}"))?,
                namespace: namespace.transpose().map_err(|error| format!("options:netns: {error}"))?,
                address: Vec::new(),
                mac: None,
                mtu: None,
            };
            Ok(PortKind::Veth(Veth {
                device,
                namespace: None,
                peer,
                xdp: xdp_options(interface, ring_size)?,
            }))
        }
        other => Err(format!("type {other} is not there yet; use one of {}", TYPES.join(", "))),
    }
}

/// Returns the XDP options of an interface from `options:xdp-mode` and `options:n_rxq`. Both have the same
/// meaning as for Open vSwitch's interface type `afxdp`.
fn xdp_options(interface: &Interface, ring_size: u32) -> Result<XdpOptions, String> {
    let mut xdp = XdpOptions { ring_size, ..XdpOptions::default() };
    (xdp.mode, xdp.zero_copy) = match interface.options.get("xdp-mode").map(String::as_str) {
        None | Some("best-effort") => (xdp.mode, xdp.zero_copy),
        Some("native-with-zerocopy") => (XdpMode::Native, ZeroCopy::Require),
        Some("native") => (XdpMode::Native, ZeroCopy::Off),
        Some("generic") => (XdpMode::Generic, ZeroCopy::Off),
        Some(other) => {
            return Err(format!(
                "options:xdp-mode={other}: use best-effort, native-with-zerocopy, native or generic"
            ));
        }
    };
    if let Some(text) = interface.options.get("n_rxq") {
        let count = text.parse().ok().filter(|count| (1..=256).contains(count));
        xdp.queues =
            Queues::First(count.ok_or_else(|| format!("options:n_rxq={text}: use a number from 1 to 256"))?);
    }
    Ok(xdp)
}

/// Converts the VLAN settings of a row of the table Port into the VLAN mode of a bridge port.
fn vlans(wanted: &ovsdb::VlanMode) -> Result<VlanMode, String> {
    let vlan = |number: u16| match VlanId::new(number) {
        _ if number == 0 => Ok(UNTAGGED),
        Some(vlan) if vlan != UNTAGGED => Ok(vlan),
        _ => Err(format!("VLAN {number} cannot be had: 4094 stands for untagged frames here; use 1 to 4093")),
    };
    let mut allowed = VlanSet::new();
    // If a port has a native VLAN, VLAN 0 cannot be carried on it, and is left out of the trunk VLANs.
    let has_native = matches!(wanted.effective(), Mode::NativeTagged | Mode::NativeUntagged);
    let beside_native = has_native && wanted.tag.unwrap_or_default() != 0;
    for number in wanted.trunks.iter().filter(|number| !(beside_native && **number == 0)) {
        let vlan = vlan(*number)?;
        allowed.insert(vlan, vlan);
    }
    let everything = wanted.trunks.is_empty();
    let native = match wanted.effective() {
        Mode::Access => return Ok(VlanMode::Access(vlan(wanted.tag.unwrap_or_default())?)),
        Mode::Other(other) => return Err(format!("vlan_mode={other} is not there yet")),
        Mode::Trunk => {
            if everything {
                allowed = VlanSet::all();
            }
            let native = allowed.contains(UNTAGGED).then_some(UNTAGGED);
            return Ok(VlanMode::Trunk { allowed, native, native_tagged: false });
        }
        Mode::NativeTagged | Mode::NativeUntagged => vlan(wanted.tag.unwrap_or_default())?,
    };
    if everything {
        // VLAN 4094 is left out, because otherwise untagged frames from other ports would leave this port with the tag
        // 4094.
        VlanId::new(UNTAGGED.get() - 1).into_iter().for_each(|last| allowed.insert(VlanId::MIN, last));
    }
    allowed.insert(native, native);
    let native_tagged = wanted.effective() == Mode::NativeTagged && native != UNTAGGED;
    Ok(VlanMode::Trunk { allowed, native: Some(native), native_tagged })
}

fn policing_name(interface: &str) -> String {
    format!("policing.{interface}")
}

/// Converts the ingress policing settings of an interface into rate limit rules for the filter of the interface's XDP
/// program. Burst sizes that are not set have the defaults of `ovs-vswitchd`.
fn policing(wanted: Policing) -> Result<Filter, String> {
    const MOST: u64 = 1_000_000_000_000;
    let limit = |name: &str, unit, rate: Option<u64>, burst: Option<u64>| {
        let both = rate.zip(burst).filter(|(rate, burst)| *rate <= MOST && *burst <= MOST);
        let (rate, burst) =
            both.ok_or_else(|| format!("ingress policing of {name}: the rate is too high"))?;
        Ok::<_, String>(FilterRule {
            name: name.parse().map_err(|error| format!("{name}: {error}"))?,
            priority: 0,
            action: FilterAction::Limit(RateLimit { rate, unit, per: 1, burst, per_source: None }),
            dry_run: false,
            expires: None,
            matches: FilterMatch::default(),
        })
    };
    let or = |value: u64, usual: u64| if value == 0 { usual } else { value };
    let mut rules = Vec::new();
    if wanted.rate_kbps != 0 {
        let bytes = |kilobits: u64| kilobits.checked_mul(125);
        rules.push(limit(
            "bits",
            RateUnit::Bytes,
            bytes(wanted.rate_kbps),
            bytes(or(wanted.burst_kb, 8000)),
        )?);
    }
    if wanted.rate_kpkts != 0 {
        let packets = |thousands: u64| thousands.checked_mul(1000);
        let burst = packets(or(wanted.burst_kpkts, 16));
        rules.push(limit("packets", RateUnit::Packets, packets(wanted.rate_kpkts), burst)?);
    }
    Ok(Filter { rules, ..Filter::default() })
}

fn settings(desired: &Desired, bridge: &ovsdb::Bridge, mac: MacAddr) -> BridgeSettings {
    let number = |key: &str, least: u32, most: u32, usual: u32| {
        let number = bridge.other_config.get(key).and_then(|text| text.parse().ok());
        number.map_or(usual, |number: u32| number.clamp(least, most))
    };
    let hook = bridge.other_config.get("hook").is_none_or(|text| text != "false");
    // Bounds and defaults of ovs-vswitchd.conf.db(5).
    BridgeSettings {
        ageing: number("mac-aging-time", 15, 3600, 300),
        mac_limit: number("mac-table-size", 10, 1_000_000, 8192),
        snooping: bridge.mcast_snooping,
        hook,
        openflow: openflow::settings(
            desired,
            bridge,
            u64::from_str_radix(&datapath_id(bridge, mac), 16).ok(),
        ),
    }
}

/// Returns a locally administered MAC address for the interface of a bridge itself. The address is derived from the
/// UUID of the bridge's database row. Therefore it does not change with a restart.
fn own_mac(row: Uuid) -> MacAddr {
    let bytes = row.0.to_be_bytes();
    MacAddr([0x02, bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]])
}

/// Returns the datapath id of a bridge: `other_config:datapath-id` if it is valid, and otherwise the bridge's MAC
/// address with leading zeros.
fn datapath_id(bridge: &ovsdb::Bridge, mac: MacAddr) -> String {
    let digits = |text: &String| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let sound = digits.len() <= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|id| sound && *id != 0)
    };
    let id = bridge.datapath_id.as_ref().and_then(digits).unwrap_or(mac.as_u64());
    format!("{id:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(row: u128, kind: &str) -> Interface {
        Interface { uuid: Uuid(row), kind: kind.to_owned(), ..Interface::default() }
    }

    fn desired(interfaces: Vec<(&str, Interface)>) -> Desired {
        let mut bridge = ovsdb::Bridge { uuid: Uuid(0xabcd), ..ovsdb::Bridge::default() };
        for (name, interface) in interfaces {
            let port =
                ovsdb::Port { interfaces: [(name.to_owned(), interface)].into(), ..ovsdb::Port::default() };
            bridge.ports.insert(name.to_owned(), port);
        }
        Desired { bridges: [("br0".to_owned(), bridge)].into(), ..Desired::default() }
    }

    fn wanted(desired: &Desired) -> DesiredConfig {
        read_with(desired, 512, &LeftOut::default(), &|device| device != "gone")
    }

    #[test]
    fn what_can_be_had_is_made_and_the_rest_is_refused_by_name() {
        let policed = Policing { rate_kbps: 800, ..Policing::default() };
        let desired = desired(vec![
            ("br0", interface(1, "internal")),
            ("eth1", Interface { mtu_request: Some(1400), policing: policed, ..interface(2, "") }),
            ("gone", interface(3, "system")),
            ("vx", interface(4, "vxlan")),
            ("a name", interface(5, "internal")),
            ("big", Interface { mtu_request: Some(70_000), ..interface(6, "tap") }),
            ("t0", Interface { policing: policed, ..interface(7, "tap") }),
        ]);
        let wanted = wanted(&desired);
        assert_eq!(wanted.rows.keys().map(PortName::as_str).collect::<Vec<_>>(), ["br0", "eth1", "t0"]);
        let why = |row: u128| wanted.refused[&Uuid(row)].as_str();
        assert!(why(3).contains("no device gone") && why(4).contains("vxlan") && why(5).contains("a name"));
        assert!(why(6).contains("70000"));
        assert_eq!(wanted.missing.iter().collect::<Vec<_>>(), ["gone"]);
        assert_eq!(wanted.ids[&Uuid(0xabcd)], "000002000000abcd");
        // The configuration is valid.
        assert!(model::validate(&wanted.config, None).is_empty());
        assert_eq!(wanted.config.filters["policing.t0"], wanted.config.filters["policing.eth1"]);
        assert!(wanted.lacks.is_empty());
        let filter = &wanted.config.filters["policing.eth1"];
        let FilterAction::Limit(limit) = &filter.rules[0].action else { panic!("{filter:?}") };
        assert_eq!((limit.rate, limit.burst), (100_000, 1_000_000));
        let PortKind::Internal(tap) = &wanted.config.ports["br0"].kind else { panic!() };
        assert_eq!(tap.mac.unwrap().to_string(), "02:00:00:00:ab:cd");
    }

    #[test]
    fn too_many_bridges_are_blamed_on_the_last_bridge_that_does_not_run() {
        let mut both = desired(vec![("eth1", interface(2, ""))]);
        let mut other = desired(vec![("eth2", interface(3, ""))]).bridges.remove("br0").unwrap();
        other.uuid = Uuid(99);
        both.bridges.insert("br1".to_owned(), other);
        let wanted = wanted(&both);
        let mut running = Config::default();
        assert_eq!(wanted.newest_bridge(&running), Some(Uuid(99)));
        running.bridges = wanted.config.bridges.clone();
        running.bridges.remove("br0");
        assert_eq!(wanted.newest_bridge(&running), Some(both.bridges["br0"].uuid));
        running.bridges = wanted.config.bridges.clone();
        assert_eq!(wanted.newest_bridge(&running), None);
    }

    #[test]
    fn controllers_use_sockets_of_the_run_directory_only() {
        let mut one = desired(vec![("eth1", interface(2, ""))]);
        let targets = [
            "unix:/run/ovs/controller",
            "punix:/run/ovs/br0.controller",
            "tcp:10.0.0.1",
            "unix:/run/docker.sock",
            "unix:/run/ovs/../docker.sock",
            "unix:controller",
            "punix:/etc/br0.controller",
            "punix:/run/ovs/db.sock",
            "punix:/run/ovs/br0.d/x",
            "punix:/run/ovs/br0.sock",
            "punix:/run/ovs/br0.next",
            "punix:/run/ovs/br0.db",
            "punix:/run/ovs/br0.1.mgmt",
        ];
        let bridge = one.bridges.get_mut("br0").unwrap();
        for (at, target) in (0_u128..).zip(targets) {
            let row = ovsdb::Controller { target: target.to_owned(), ..ovsdb::Controller::default() };
            bridge.controllers.insert(Uuid(1000 + at), row);
        }
        let mut wanted = wanted(&one);
        // The new path of the API's socket waits for a restart.
        let settings = |api: &str| {
            let text = format!("[daemon]\napi='{api}'\n[ovsdb]\ndatabase='unix:/run/ovs/br0.db'\n");
            model::load(&text, "t").unwrap()
        };
        wanted.restrict_sockets(&settings("/run/ovs/br0.sock"), &settings("/run/ovs/br0.next"));
        let openflow = wanted.config.bridges["br0"].settings.openflow.as_ref().unwrap();
        let left: Vec<_> = openflow.controllers.iter().map(|controller| controller.target.as_str()).collect();
        assert_eq!(left, targets[..3]);
        let remark = &wanted.remarks["bridge br0"];
        assert!(targets[3..].iter().all(|target| remark.contains(target)), "{remark}");
        assert!(remark.contains("the run directory /run/ovs"), "{remark}");
        assert!(remark.contains("belongs to `ovsdb.database`"), "{remark}");
    }

    #[test]
    fn an_error_is_blamed_on_its_interface() {
        let desired = desired(vec![("eth1", interface(2, "")), ("eth1.5", interface(3, ""))]);
        let wanted = wanted(&desired);
        let blame = |object: &str| {
            let blamed = wanted.blame(&[(object.to_owned(), "why".to_owned())]);
            blamed.interfaces.keys().chain(blamed.bridges.keys()).map(|row| row.0).collect::<Vec<_>>()
        };
        assert_eq!(blame("port.eth1.5"), [3]);
        assert_eq!(blame("port.eth1.mtu"), [2]);
        assert_eq!(blame("filter.policing.eth1.rule[0]"), [2]);
        assert_eq!(blame("port.eth1"), [2]);
        assert_eq!(blame("bridge.br0.port.eth1"), [2]);
        assert_eq!(blame("bridge.br0"), [0xabcd]);
        assert_eq!(blame("bridge.br0.openflow"), [0xabcd]);
        assert_eq!(blame("bridge.br0.static"), Vec::<u128>::new());
        assert_eq!(blame("bridge.br01"), Vec::<u128>::new());
        assert_eq!(blame("memory.frames"), Vec::<u128>::new());
    }

    #[test]
    fn a_bridge_that_is_left_out_takes_no_other_with_it() {
        let mut both = desired(vec![("br0", interface(1, "internal")), ("eth1", interface(2, ""))]);
        let mut other = desired(vec![("eth2", interface(3, ""))]).bridges.remove("br0").unwrap();
        other.uuid = Uuid(0xcdef);
        both.bridges.insert("br1".to_owned(), other);
        let before = wanted(&both);
        let blamed = before.blame(&[("bridge.br0".to_owned(), "belongs to file".to_owned())]);
        let after = read_with(&both, 512, &blamed, &|_| true);
        let bridges = |wanted: &DesiredConfig| {
            wanted.config.bridges.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            (bridges(&before), bridges(&after)),
            (vec!["br0".into(), "br1".into()], vec!["br1".into()])
        );
        assert_eq!(after.refused.keys().map(|row| row.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(after.rows.keys().map(PortName::as_str).collect::<Vec<_>>(), ["eth2"]);
        assert!(after.problems().any(|(name, why)| name == "bridge br0" && why == "belongs to file"));
    }

    fn mode(mode: Option<Mode>, tag: Option<u16>, trunks: &[u16]) -> Result<VlanMode, String> {
        vlans(&ovsdb::VlanMode { mode, tag, trunks: trunks.iter().copied().collect() })
    }

    #[test]
    fn vlans_are_what_they_mean() {
        let id = |number| VlanId::new(number).unwrap();
        let trunk = |allowed: &[u16], native: Option<VlanId>, native_tagged| VlanMode::Trunk {
            allowed: allowed.iter().map(|number| id(*number)).collect(),
            native,
            native_tagged,
        };
        assert_eq!(mode(None, Some(10), &[]).unwrap(), VlanMode::Access(id(10)));
        assert_eq!(mode(Some(Mode::Access), None, &[]).unwrap(), VlanMode::Access(UNTAGGED));
        let all = VlanMode::Trunk { allowed: VlanSet::all(), native: Some(UNTAGGED), native_tagged: false };
        assert_eq!(mode(None, None, &[]).unwrap(), all);
        assert_eq!(mode(None, None, &[5, 6]).unwrap(), trunk(&[5, 6], None, false));
        assert_eq!(mode(None, None, &[0, 5]).unwrap(), trunk(&[5, 4094], Some(UNTAGGED), false));
        assert_eq!(mode(Some(Mode::NativeTagged), Some(7), &[5]).unwrap(), trunk(&[5, 7], Some(id(7)), true));
        let native = mode(Some(Mode::NativeTagged), Some(7), &[0, 5]).unwrap();
        assert_eq!(native, trunk(&[5, 7], Some(id(7)), true), "what has no tag is of VLAN 7 there");
        let native = mode(Some(Mode::NativeUntagged), Some(7), &[]).unwrap();
        assert!(!native.carries(UNTAGGED) && native.carries(id(4093)) && native.untagged() == Some(id(7)));
        for wrong in [4094, 4095] {
            assert!(mode(None, Some(wrong), &[]).is_err() && mode(None, None, &[wrong]).is_err());
        }
        assert!(
            mode(Some(Mode::Other("dot1q-tunnel".into())), Some(5), &[])
                .unwrap_err()
                .contains("dot1q-tunnel")
        );
    }

    #[test]
    fn identifiers_are_those_that_are_asked_for() {
        let id = |text: &str| {
            let bridge = ovsdb::Bridge { datapath_id: Some(text.to_owned()), ..ovsdb::Bridge::default() };
            datapath_id(&bridge, MacAddr([2, 0, 0, 0, 0, 1]))
        };
        assert_eq!(id("00000000000000aa"), "00000000000000aa");
        assert_eq!(id("0xab"), "00000000000000ab");
        for odd in ["0", "+1", "zz", "11111111111111111"] {
            assert_eq!(id(odd), "0000020000000001", "{odd}");
        }
    }
}
