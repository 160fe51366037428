//! What the tables want, as plain values: everything below the one row of Open_vSwitch, whole at a committed transaction.
//!
//! Nothing is judged here: a VLAN mode that nobody can do, or a port of several interfaces, is handed on as it stands, so
//! that whoever makes it can refuse it by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::datum::{Atom, Datum, Uuid};
use crate::replica::{Replica, Row};

/// The whole of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// The number of the last change that `ovs-vsctl` waits for.
    pub next_cfg: i64,
    /// `other_config` of the whole.
    pub other_config: BTreeMap<String, String>,
    /// `external_ids` of the whole.
    pub external_ids: BTreeMap<String, String>,
    /// Targets of managers. The server itself serves them.
    pub managers: BTreeSet<String>,
    /// Keys and certificates for TLS.
    pub ssl: Option<Ssl>,
    /// Bridges by name.
    pub bridges: BTreeMap<String, Bridge>,
}

/// Files for TLS with controllers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ssl {
    /// The private key.
    pub private_key: String,
    /// Its certificate.
    pub certificate: String,
    /// The certificate of the controllers' CA.
    pub ca_cert: String,
    /// Whether that is to be taken from the first controller that is met.
    pub bootstrap: bool,
}

/// A bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bridge {
    /// Its row.
    pub uuid: Uuid,
    /// Such as `system` or `netdev`; mostly empty.
    pub datapath_type: String,
    /// `other_config:datapath-id` as it stands.
    pub datapath_id: Option<String>,
    /// What to do without a controller.
    pub fail_mode: FailMode,
    /// Controllers by row.
    pub controllers: BTreeMap<Uuid, Controller>,
    /// Such as `OpenFlow13`; empty: the defaults.
    pub protocols: BTreeSet<String>,
    /// Settings of flow tables by number.
    pub flow_tables: BTreeMap<u8, FlowTable>,
    /// Ports by name.
    pub ports: BTreeMap<String, Port>,
    /// Whether IGMP and MLD are to be read.
    pub mcast_snooping: bool,
    /// What is set on it and concerns none of the above, by column (`mirrors`, `netflow`, `stp_enable`, ...).
    pub besides: BTreeSet<&'static str>,
    /// Its `other_config`.
    pub other_config: BTreeMap<String, String>,
    /// Its `external_ids`.
    pub external_ids: BTreeMap<String, String>,
}

/// What a bridge does while no controller is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailMode {
    /// It learns and forwards by itself.
    #[default]
    Standalone,
    /// It does only what it was told.
    Secure,
}

/// A controller of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Controller {
    /// Such as `tcp:127.0.0.1:6653` or `ptcp:6653`.
    pub target: String,
    /// Whether it is one of many that do not count for the fail mode (`type` = `service`).
    pub service: bool,
    /// Whether it is reached by the bridge itself (`in-band`); `None`: as the bridge has it.
    pub in_band: Option<bool>,
    /// Longest pause between attempts to connect, in milliseconds.
    pub max_backoff_ms: Option<u32>,
    /// Silence after which it is probed, in milliseconds; 0: never.
    pub inactivity_probe_ms: Option<u32>,
    /// Packets a second that are sent to it.
    pub rate_limit: Option<u32>,
    /// Packets that may come at once.
    pub burst_limit: Option<u32>,
    /// Packets that wait for it.
    pub queue_size: Option<u32>,
    /// Whether it gets messages that it has not asked for.
    pub async_messages: bool,
}

/// Settings of a flow table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowTable {
    /// Its name.
    pub name: Option<String>,
    /// Flows that it holds at most.
    pub flow_limit: Option<u32>,
    /// Whether the least important flow makes room when it is full; else a new one is refused.
    pub evict: bool,
    /// Fields by which flows are grouped for that.
    pub groups: BTreeSet<String>,
    /// Fields with tries.
    pub prefixes: BTreeSet<String>,
}

/// A port of a bridge: one interface, or several as a bond.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// Its row.
    pub uuid: Uuid,
    /// Its VLANs.
    pub vlans: VlanMode,
    /// Whether it is kept apart from other protected ports.
    pub protected: bool,
    /// Whether a QoS is set on it.
    pub qos: bool,
    /// Its `other_config`.
    pub other_config: BTreeMap<String, String>,
    /// Its `external_ids`.
    pub external_ids: BTreeMap<String, String>,
    /// Interfaces by name.
    pub interfaces: BTreeMap<String, Interface>,
}

/// What a port does with tags, as the columns stand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VlanMode {
    /// The mode, if it is named.
    pub mode: Option<Mode>,
    /// `tag`: the access or native VLAN; 0: untagged frames' own.
    pub tag: Option<u16>,
    /// `trunks`: VLANs that it carries; empty: all.
    pub trunks: BTreeSet<u16>,
}

impl VlanMode {
    /// The mode, named or not: a tag alone makes an access port.
    pub fn effective(&self) -> Mode {
        match (&self.mode, self.tag) {
            (Some(mode), _) => mode.clone(),
            (None, Some(_)) => Mode::Access,
            (None, None) => Mode::Trunk,
        }
    }
}

/// `vlan_mode` (ovs-vswitchd.conf.db(5), Port table).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// One VLAN, without tags.
    Access,
    /// Several, with tags; what has none is of VLAN 0.
    Trunk,
    /// As a trunk, and what has no tag is of VLAN `tag`, which leaves with one.
    NativeTagged,
    /// As a trunk, and VLAN `tag` leaves without.
    NativeUntagged,
    /// Another, such as `dot1q-tunnel`.
    Other(String),
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its row.
    pub uuid: Uuid,
    /// Such as `internal`; empty means `system`.
    pub kind: String,
    /// What its kind can be told.
    pub options: BTreeMap<String, String>,
    /// The OpenFlow port number that is asked for.
    pub ofport_request: Option<u16>,
    /// The number that it has in the database: its number before we came, or what we have told.
    pub ofport: Option<i64>,
    /// The MTU that is asked for.
    pub mtu_request: Option<i64>,
    /// The Ethernet address that is asked for, as it stands.
    pub mac: Option<String>,
    /// Limits for what it may send into the bridge.
    pub policing: Policing,
    /// Its `other_config`.
    pub other_config: BTreeMap<String, String>,
    /// Its `external_ids`.
    pub external_ids: BTreeMap<String, String>,
}

/// `ingress_policing_*`; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policing {
    /// Kilobits a second.
    pub rate_kbps: u64,
    /// Kilobits at once.
    pub burst_kb: u64,
    /// Thousands of packets a second.
    pub rate_kpkts: u64,
    /// Thousands of packets at once.
    pub burst_kpkts: u64,
}

impl Policing {
    /// Whether anything is limited.
    pub fn is_set(&self) -> bool {
        self.rate_kbps != 0 || self.rate_kpkts != 0
    }
}

impl Desired {
    /// What a replica wants; nothing without a row of Open_vSwitch.
    pub fn read(replica: &Replica) -> Option<Desired> {
        let (_, root) = replica.rows("Open_vSwitch").next()?;
        let root = View { replica, table: "Open_vSwitch", row: root };
        let bridges = root.rows("bridges").filter_map(|uuid| bridge(replica, uuid));
        Some(Desired {
            next_cfg: root.number("next_cfg").unwrap_or_default(),
            other_config: root.map("other_config"),
            external_ids: root.map("external_ids"),
            managers: root
                .rows("manager_options")
                .filter_map(|uuid| View::of(replica, "Manager", uuid)?.text("target"))
                .collect(),
            ssl: root.rows("ssl").next().and_then(|uuid| ssl(&View::of(replica, "SSL", uuid)?)),
            bridges: bridges.collect(),
        })
    }

    /// Whether rules are about to be given back (`other_config:flow-restore-wait`): until then bridges have those alone.
    pub fn waits_for_rules(&self) -> bool {
        self.other_config.get("flow-restore-wait").is_some_and(|text| text == "true")
    }

    /// Every interface with the names of bridge and port.
    pub fn interfaces(&self) -> impl Iterator<Item = (&str, &str, &str, &Interface)> {
        self.bridges.iter().flat_map(|(bridge, wanted)| {
            wanted.ports.iter().flat_map(move |(port, wanted)| {
                let name = move |(name, interface)| {
                    (bridge.as_str(), port.as_str(), String::as_str(name), interface)
                };
                wanted.interfaces.iter().map(name)
            })
        })
    }
}

/// A row with its table, to read columns of.
struct View<'a> {
    replica: &'a Replica,
    table: &'static str,
    row: &'a Row,
}

impl<'a> View<'a> {
    fn of(replica: &'a Replica, table: &'static str, uuid: Uuid) -> Option<View<'a>> {
        Some(View { replica, table, row: replica.row(table, uuid)? })
    }

    fn get(&self, column: &str) -> Option<&'a Datum> {
        self.replica.value(self.table, self.row, column)
    }

    fn text(&self, column: &str) -> Option<String> {
        self.get(column)?.as_text().map(str::to_owned)
    }

    fn number(&self, column: &str) -> Option<i64> {
        self.get(column)?.as_number()
    }

    /// A number where it fits; the schema bounds them.
    fn small<T: TryFrom<i64>>(&self, column: &str) -> Option<T> {
        self.number(column).and_then(|number| T::try_from(number).ok())
    }

    fn is_true(&self, column: &str) -> bool {
        self.get(column).is_some_and(Datum::is_true)
    }

    fn map(&self, column: &str) -> BTreeMap<String, String> {
        self.get(column).map(Datum::texts_by_key).unwrap_or_default()
    }

    fn rows(&self, column: &str) -> impl Iterator<Item = Uuid> + use<'a> {
        self.get(column).into_iter().flat_map(Datum::rows)
    }

    fn texts(&self, column: &str) -> BTreeSet<String> {
        let text = |atom: &Atom| match atom {
            Atom::String(text) => Some(text.clone()),
            _ => None,
        };
        self.get(column).into_iter().flat_map(Datum::elements).filter_map(text).collect()
    }
}

fn ssl(view: &View<'_>) -> Option<Ssl> {
    Some(Ssl {
        private_key: view.text("private_key")?,
        certificate: view.text("certificate")?,
        ca_cert: view.text("ca_cert")?,
        bootstrap: view.is_true("bootstrap_ca_cert"),
    })
}

fn bridge(replica: &Replica, uuid: Uuid) -> Option<(String, Bridge)> {
    let view = View::of(replica, "Bridge", uuid)?;
    let other_config = view.map("other_config");
    let set = |column: &&'static str| view.rows(column).next().is_some() || view.is_true(column);
    let controller = |uuid| Some((uuid, controller(&View::of(replica, "Controller", uuid)?)));
    let table = |(number, row): (&Atom, &Atom)| match (number, row) {
        (Atom::Integer(number), Atom::Uuid(row)) => {
            Some((u8::try_from(*number).ok()?, flow_table(&View::of(replica, "Flow_Table", *row)?)))
        }
        _ => None,
    };
    let fail_mode = match view.text("fail_mode").as_deref() {
        Some("secure") => FailMode::Secure,
        _ => FailMode::Standalone,
    };
    let bridge = Bridge {
        uuid,
        datapath_type: view.text("datapath_type").unwrap_or_default(),
        datapath_id: other_config.get("datapath-id").cloned(),
        fail_mode,
        controllers: view.rows("controller").filter_map(controller).collect(),
        protocols: view.texts("protocols"),
        flow_tables: view.get("flow_tables").into_iter().flat_map(Datum::pairs).filter_map(table).collect(),
        ports: view.rows("ports").filter_map(|uuid| port(replica, uuid)).collect(),
        mcast_snooping: view.is_true("mcast_snooping_enable"),
        besides: ["mirrors", "netflow", "sflow", "ipfix", "stp_enable", "rstp_enable"]
            .into_iter()
            .filter(set)
            .collect(),
        other_config,
        external_ids: view.map("external_ids"),
    };
    Some((view.text("name")?, bridge))
}

fn controller(view: &View<'_>) -> Controller {
    Controller {
        target: view.text("target").unwrap_or_default(),
        service: view.text("type").as_deref() == Some("service"),
        in_band: view.text("connection_mode").map(|mode| mode == "in-band"),
        max_backoff_ms: view.small("max_backoff"),
        inactivity_probe_ms: view.small("inactivity_probe"),
        rate_limit: view.small("controller_rate_limit"),
        burst_limit: view.small("controller_burst_limit"),
        queue_size: view.small("controller_queue_size"),
        async_messages: view.get("enable_async_messages").and_then(Datum::only)
            != Some(&Atom::Boolean(false)),
    }
}

fn flow_table(view: &View<'_>) -> FlowTable {
    FlowTable {
        name: view.text("name"),
        flow_limit: view.small("flow_limit"),
        evict: view.text("overflow_policy").as_deref() == Some("evict"),
        groups: view.texts("groups"),
        prefixes: view.texts("prefixes"),
    }
}

fn port(replica: &Replica, uuid: Uuid) -> Option<(String, Port)> {
    let view = View::of(replica, "Port", uuid)?;
    let mode = view.text("vlan_mode").map(|mode| match mode.as_str() {
        "access" => Mode::Access,
        "trunk" => Mode::Trunk,
        "native-tagged" => Mode::NativeTagged,
        "native-untagged" => Mode::NativeUntagged,
        _ => Mode::Other(mode),
    });
    let vlan = |atom: &Atom| match atom {
        Atom::Integer(vlan) => u16::try_from(*vlan).ok(),
        _ => None,
    };
    let trunks = view.get("trunks").into_iter().flat_map(Datum::elements).filter_map(vlan).collect();
    let port = Port {
        uuid,
        vlans: VlanMode { mode, tag: view.small("tag"), trunks },
        protected: view.is_true("protected"),
        qos: view.rows("qos").next().is_some(),
        other_config: view.map("other_config"),
        external_ids: view.map("external_ids"),
        interfaces: view.rows("interfaces").filter_map(|uuid| interface(replica, uuid)).collect(),
    };
    Some((view.text("name")?, port))
}

fn interface(replica: &Replica, uuid: Uuid) -> Option<(String, Interface)> {
    let view = View::of(replica, "Interface", uuid)?;
    let limit = |column| view.small(column).unwrap_or_default();
    let interface = Interface {
        uuid,
        kind: view.text("type").unwrap_or_default(),
        options: view.map("options"),
        ofport_request: view.small("ofport_request"),
        ofport: view.number("ofport"),
        mtu_request: view.number("mtu_request"),
        mac: view.text("mac"),
        policing: Policing {
            rate_kbps: limit("ingress_policing_rate"),
            burst_kb: limit("ingress_policing_burst"),
            rate_kpkts: limit("ingress_policing_kpkts_rate"),
            burst_kpkts: limit("ingress_policing_kpkts_burst"),
        },
        other_config: view.map("other_config"),
        external_ids: view.map("external_ids"),
    };
    Some((view.text("name")?, interface))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::tests::schema;
    use serde_json::json;

    fn id(number: u8) -> String {
        Uuid(number.into()).to_string()
    }

    #[test]
    fn rows_become_bridges_with_ports_and_interfaces() {
        let mut replica = Replica::new(schema());
        assert_eq!(Desired::read(&replica), None);
        replica
            .update2(&json!({
                "Open_vSwitch": {id(1): {"initial": {"next_cfg": 7, "bridges": ["uuid", id(2)]}}},
                "Bridge": {id(2): {"initial": {
                    "name": "br0", "fail_mode": "secure", "controller": ["uuid", id(5)],
                    "ports": ["set", [["uuid", id(3)], ["uuid", id(9)]]],
                    "other_config": ["map", [["datapath-id", "00000000000000aa"]]],
                }}},
                "Port": {id(3): {"initial": {"name": "p1", "tag": 10, "interfaces": ["uuid", id(4)]}}},
                "Interface": {id(4): {"initial": {"name": "p1", "type": "internal"}}},
                "Controller": {id(5): {"initial": {"target": "tcp:127.0.0.1:6653"}}},
            }))
            .unwrap();
        let desired = Desired::read(&replica).unwrap();
        assert_eq!(desired.next_cfg, 7);
        let bridge = &desired.bridges["br0"];
        assert_eq!(
            (bridge.fail_mode, bridge.datapath_id.as_deref()),
            (FailMode::Secure, Some("00000000000000aa"))
        );
        assert_eq!(bridge.controllers[&Uuid(5)].target, "tcp:127.0.0.1:6653");
        assert!(bridge.controllers[&Uuid(5)].async_messages);
        // The reference to a row that is not there leads nowhere.
        assert_eq!(bridge.ports.keys().collect::<Vec<_>>(), ["p1"]);
        assert_eq!(bridge.ports["p1"].vlans.effective(), Mode::Access);
        let (bridge, port, name, interface) = desired.interfaces().next().unwrap();
        assert_eq!((bridge, port, name, interface.kind.as_str()), ("br0", "p1", "p1", "internal"));
        assert!(!interface.policing.is_set());
    }
}
