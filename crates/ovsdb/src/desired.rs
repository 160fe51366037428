//! Desired configuration of the switch, read from the tables of the Open_vSwitch database. It contains all rows to
//! which the row of the table Open_vSwitch refers, and is consistent after each transaction.
//!
//! The values are not checked. For example, an unsupported VLAN mode or a port with several interfaces is passed on
//! unchanged. The user of the crate can then refuse the setting and name it in the error.

use std::collections::{BTreeMap, BTreeSet};

use crate::datum::{Atom, Datum, Uuid};
use crate::replica::{Replica, Row};

/// Complete desired configuration of the switch, as read from the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// Column `next_cfg` of the table Open_vSwitch: sequence number of the last configuration change. `ovs-vsctl` waits
    /// until the column `cur_cfg` reaches this number.
    pub next_cfg: i64,
    /// Column `other_config` of the table Open_vSwitch.
    pub other_config: BTreeMap<String, String>,
    /// Column `external_ids` of the table Open_vSwitch.
    pub external_ids: BTreeMap<String, String>,
    /// Connection targets of OVSDB managers, such as `ptcp:6640`. The OVSDB server itself maintains these
    /// connections.
    pub managers: BTreeSet<String>,
    /// Keys and certificates for TLS connections. `None` if TLS is not configured.
    pub ssl: Option<Ssl>,
    /// Desired configuration of each bridge, by the bridge's name.
    pub bridges: BTreeMap<String, Bridge>,
}

/// Files for TLS connections between bridges and OpenFlow controllers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ssl {
    /// Path of the private key for TLS connections.
    pub private_key: String,
    /// Path of the certificate for the private key.
    pub certificate: String,
    /// Path of the CA certificate with which the certificates of controllers are verified.
    pub ca_cert: String,
    /// Whether the CA certificate is obtained from the first connection to a controller (bootstrap).
    pub bootstrap: bool,
}

/// Desired configuration of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bridge {
    /// UUID of the bridge's row in the database.
    pub uuid: Uuid,
    /// Datapath type of the bridge, such as `system` or `netdev`. Usually empty.
    pub datapath_type: String,
    /// Value of `other_config:datapath-id` as text, which is not parsed. `None` if it is not set.
    pub datapath_id: Option<String>,
    /// Behaviour of the bridge while no controller is connected.
    pub fail_mode: FailMode,
    /// Desired configuration of each controller, by the UUID of the controller's row.
    pub controllers: BTreeMap<Uuid, Controller>,
    /// OpenFlow versions that the bridge may use, such as `OpenFlow13`. Empty for the default versions.
    pub protocols: BTreeSet<String>,
    /// Settings of the bridge's flow tables, by table number.
    pub flow_tables: BTreeMap<u8, FlowTable>,
    /// Desired configuration of each port, by the port's name.
    pub ports: BTreeMap<String, Port>,
    /// Whether IGMP and MLD snooping is enabled on the bridge.
    pub mcast_snooping: bool,
    /// Names of other columns of the bridge that are set but not supported (`mirrors`, `netflow`, `stp_enable` and
    /// others). Their values are not read.
    pub besides: BTreeSet<&'static str>,
    /// Column `other_config` of the bridge.
    pub other_config: BTreeMap<String, String>,
    /// Column `external_ids` of the bridge.
    pub external_ids: BTreeMap<String, String>,
}

/// Behaviour of a bridge while no controller is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailMode {
    /// While no controller is connected, the bridge forwards as a learning switch.
    #[default]
    Standalone,
    /// While no controller is connected, the bridge forwards only according to the flow entries that its tables
    /// contain.
    Secure,
}

/// Desired configuration of a bridge's connection to a controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Controller {
    /// Connection method and address, such as `tcp:127.0.0.1:6653` or `ptcp:6653`.
    pub target: String,
    /// Whether the connection is a service connection (`type` = `service`). Such a connection does not influence the
    /// fail mode.
    pub service: bool,
    /// Whether the controller is reached through the bridge itself (`in-band`). `None` for the default of the
    /// bridge.
    pub in_band: Option<bool>,
    /// Maximum pause between attempts to connect, in milliseconds. `None` for the default.
    pub max_backoff_ms: Option<u32>,
    /// Time without a received message after which the controller is probed, in milliseconds. 0 disables
    /// probes. `None` for the default.
    pub inactivity_probe_ms: Option<u32>,
    /// Maximum rate of packet-in messages to the controller, in packets per second. `None` if the rate is not
    /// limited.
    pub rate_limit: Option<u32>,
    /// Maximum burst of packet-in messages to the controller, in packets. `None` for the default.
    pub burst_limit: Option<u32>,
    /// Maximum length of the queue of packet-in messages to the controller, in packets. `None` for the
    /// default.
    pub queue_size: Option<u32>,
    /// Whether the bridge sends asynchronous messages, such as packet-in, to the controller.
    pub async_messages: bool,
}

/// Desired settings of an OpenFlow table of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowTable {
    /// Name of the flow table. `None` if the table has no name.
    pub name: Option<String>,
    /// Maximum number of flow entries in the table. `None` if the number is not limited.
    pub flow_limit: Option<u32>,
    /// Whether the least important flow entry is evicted when a flow entry is added to a full table. If not,
    /// the new entry is refused.
    pub evict: bool,
    /// Packet fields that define the eviction groups of the table. Flow entries with equal values in these fields form
    /// a group.
    pub groups: BTreeSet<String>,
    /// Packet fields whose address prefixes the flow table lookup tracks, so that cached flows match only the necessary
    /// address bits.
    pub prefixes: BTreeSet<String>,
}

/// Desired configuration of a bridge's port. A port has one interface, or several interfaces that form a
/// bond.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// UUID of the port's row in the database.
    pub uuid: Uuid,
    /// VLAN settings of the port.
    pub vlans: VlanMode,
    /// Whether the port is protected: it exchanges no packets with other protected ports.
    pub protected: bool,
    /// Whether the port has a QoS configuration. The QoS settings are not read.
    pub qos: bool,
    /// Column `other_config` of the port.
    pub other_config: BTreeMap<String, String>,
    /// Column `external_ids` of the port.
    pub external_ids: BTreeMap<String, String>,
    /// Desired configuration of each interface of the port, by the interface's name.
    pub interfaces: BTreeMap<String, Interface>,
}

/// VLAN settings of a port: the columns `vlan_mode`, `tag` and `trunks`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VlanMode {
    /// Value of the column `vlan_mode`. `None` if the column is not set.
    pub mode: Option<Mode>,
    /// Column `tag`: the access VLAN or native VLAN. The value 0 means that untagged frames belong to no VLAN. `None`
    /// if the column is not set.
    pub tag: Option<u16>,
    /// Column `trunks`: VLANs that the port carries. Empty if the port carries all VLANs.
    pub trunks: BTreeSet<u16>,
}

impl VlanMode {
    /// Returns the effective VLAN mode of the port. If no mode is set, a port with a tag is an access port,
    /// and a port without a tag is a trunk.
    pub fn effective(&self) -> Mode {
        match (&self.mode, self.tag) {
            (Some(mode), _) => mode.clone(),
            (None, Some(_)) => Mode::Access,
            (None, None) => Mode::Trunk,
        }
    }
}

/// VLAN mode of a port: column `vlan_mode` (ovs-vswitchd.conf.db(5), Port table).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Access port. The port carries one VLAN, without tags.
    Access,
    /// Trunk port. The port carries several VLANs, with tags. Untagged frames belong to VLAN 0.
    Trunk,
    /// Trunk port on which untagged frames belong to the VLAN `tag`. Frames of this VLAN are sent with a tag.
    NativeTagged,
    /// Trunk port on which untagged frames belong to the VLAN `tag`. Frames of this VLAN are sent without a tag.
    NativeUntagged,
    /// Another VLAN mode, such as `dot1q-tunnel`.
    Other(String),
}

/// Desired configuration of an interface of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// UUID of the interface's row in the database.
    pub uuid: Uuid,
    /// Type of the interface, such as `internal`. Empty for the type `system`.
    pub kind: String,
    /// Options that are specific to the type of the interface.
    pub options: BTreeMap<String, String>,
    /// OpenFlow port number that is requested for the interface. `None` if none is requested.
    pub ofport_request: Option<u16>,
    /// OpenFlow port number in the database, which this daemon or a previous one has written. `None` if the interface
    /// has no number yet.
    pub ofport: Option<i64>,
    /// Requested MTU of the interface in bytes. `None` if none is requested.
    pub mtu_request: Option<i64>,
    /// Requested MAC address of the interface as text, which is not parsed. `None` if none is requested.
    pub mac: Option<String>,
    /// Rate limits of the traffic that is received on the interface (ingress policing).
    pub policing: Policing,
    /// Column `other_config` of the interface.
    pub other_config: BTreeMap<String, String>,
    /// Column `external_ids` of the interface.
    pub external_ids: BTreeMap<String, String>,
}

/// Ingress policing of an interface: columns `ingress_policing_*`. A value of 0 means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policing {
    /// Maximum rate of received traffic in kilobits per second.
    pub rate_kbps: u64,
    /// Maximum burst of received traffic in kilobits.
    pub burst_kb: u64,
    /// Maximum rate of received traffic in thousands of packets per second.
    pub rate_kpkts: u64,
    /// Maximum burst of received traffic in thousands of packets.
    pub burst_kpkts: u64,
}

impl Policing {
    /// Returns whether ingress policing is configured, as a limit in bits or in packets.
    pub fn is_set(&self) -> bool {
        self.rate_kbps != 0 || self.rate_kpkts != 0
    }
}

impl Desired {
    /// Reads the desired configuration from a replica of the database. Returns `None` if the table
    /// Open_vSwitch has no row.
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

    /// Returns whether `other_config:flow-restore-wait` is true, because an external script is restoring the flow
    /// entries. Until the script removes the setting, bridges forward only according to the restored entries.
    pub fn waits_for_rules(&self) -> bool {
        self.other_config.get("flow-restore-wait").is_some_and(|text| text == "true")
    }

    /// Returns all interfaces of all bridges, each as bridge name, port name, interface name and interface.
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

/// A row of a table in a replica, with methods that read the row's columns.
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

    /// Returns the integer in a column as the smaller type `T`. Returns `None` if the column has no
    /// integer, or if the integer does not fit into `T`. The database schema rules out integers
    /// that do not fit.
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
        // A reference to a missing row is ignored.
        assert_eq!(bridge.ports.keys().collect::<Vec<_>>(), ["p1"]);
        assert_eq!(bridge.ports["p1"].vlans.effective(), Mode::Access);
        let (bridge, port, name, interface) = desired.interfaces().next().unwrap();
        assert_eq!((bridge, port, name, interface.kind.as_str()), ("br0", "p1", "p1", "internal"));
        assert!(!interface.policing.is_set());
    }
}
