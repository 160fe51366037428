//! Status of the switch that the client writes to the database. Only values that differ from the database are written,
//! in one transaction.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::datum::{Atom, Datum, Uuid};
use crate::replica::Replica;

/// Status of the switch and its objects that the client writes to the database. The values of fields that are `None`,
/// and of objects that are missing here, stay unchanged in the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchStatus {
    /// Column `cur_cfg` of the table Open_vSwitch: value of `next_cfg` in the last configuration that the switch has
    /// applied.
    pub cur_cfg: Option<i64>,
    /// Version of the switch daemon, for the column `ovs_version`.
    pub version: Option<String>,
    /// Names of the interface types that the switch supports.
    pub iface_types: Vec<String>,
    /// Names of the datapath types that the switch supports.
    pub datapath_types: Vec<String>,
    /// Status of each bridge, by the UUID of the bridge's row.
    pub bridges: BTreeMap<Uuid, BridgeStatus>,
    /// Status of each interface, by the UUID of the interface's row.
    pub interfaces: BTreeMap<Uuid, InterfaceStatus>,
    /// Status of each controller, by the UUID of the controller's row.
    pub controllers: BTreeMap<Uuid, ControllerStatus>,
}

/// Status of a bridge that the client writes to the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BridgeStatus {
    /// Datapath ID of the bridge as sixteen hexadecimal digits.
    pub datapath_id: Option<String>,
}

/// Complete status of an interface that the client writes to the database. Fields that are `None` are cleared in the
/// database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceStatus {
    /// OpenFlow port number of the interface, or -1 if the interface could not be created.
    pub ofport: Option<i64>,
    /// Reason why the interface could not be created or configured. `None` if there is no error.
    pub error: Option<String>,
    /// Whether the interface is administratively up.
    pub admin_up: Option<bool>,
    /// Whether the interface has a link.
    pub link_up: Option<bool>,
    /// Speed of the link in bits per second.
    pub link_speed: Option<i64>,
    /// MTU of the interface in bytes.
    pub mtu: Option<i64>,
    /// MAC address that the interface uses, as text.
    pub mac_in_use: Option<String>,
    /// Index of the interface's network device in the kernel (ifindex).
    pub ifindex: Option<i64>,
    /// Packet and byte counters of the interface, by the name of the counter.
    pub statistics: BTreeMap<String, i64>,
    /// Additional status of the interface, by key, such as `driver_name`.
    pub status: BTreeMap<String, String>,
}

/// Status of a controller connection that the client writes to the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControllerStatus {
    /// Whether the controller is connected.
    pub is_connected: bool,
    /// Role of the controller: `master`, `slave` or `other`. `None` if the controller is not connected.
    pub role: Option<String>,
    /// Additional status of the connection, by key, such as `state` and `sec_since_connect`.
    pub status: BTreeMap<String, String>,
}

fn state(up: Option<bool>) -> Datum {
    Datum::text(up.map(|up| if up { "up" } else { "down" }))
}

fn texts(map: &BTreeMap<String, String>) -> Datum {
    let pair = |(key, value): (&String, &String)| (Atom::String(key.clone()), Atom::String(value.clone()));
    Datum::Map(map.iter().map(pair).collect())
}

impl SwitchStatus {
    /// Returns the operations of a transaction that changes the database to this status. `replica` is the present state
    /// of the database. Returns no operations if the database already contains the status.
    pub(crate) fn operations(&self, replica: &Replica) -> Vec<Value> {
        let mut operations = Vec::new();
        let mut write = |table: &str, row: Uuid, columns: Vec<(&str, Datum)>| {
            let Some(present) = replica.row(table, row) else { return };
            let differs = |(column, wanted): &(&str, Datum)| {
                // Columns that the schema lacks are omitted.
                replica.value(table, present, column).is_some_and(|present| present != wanted)
            };
            let changed: Map<String, Value> = columns
                .into_iter()
                .filter(differs)
                .map(|(column, wanted)| (column.to_owned(), wanted.json()))
                .collect();
            if !changed.is_empty() {
                let row = json!([["_uuid", "==", ["uuid", row.to_string()]]]);
                operations.push(json!({"op": "update", "table": table, "where": row, "row": changed}));
            }
        };
        if let Some((root, _)) = replica.rows("Open_vSwitch").next() {
            write("Open_vSwitch", root, self.whole(&replica.schema().version));
        }
        for (row, bridge) in &self.bridges {
            let id = bridge.datapath_id.as_deref();
            write("Bridge", *row, vec![("datapath_id", Datum::text(id))]);
        }
        for (row, interface) in &self.interfaces {
            write("Interface", *row, interface.columns());
        }
        for (row, controller) in &self.controllers {
            let connected = Datum::Set([Atom::Boolean(controller.is_connected)].into());
            let role = Datum::text(controller.role.as_deref());
            let columns =
                vec![("is_connected", connected), ("role", role), ("status", texts(&controller.status))];
            write("Controller", *row, columns);
        }
        operations
    }

    fn whole(&self, schema_version: &str) -> Vec<(&'static str, Datum)> {
        let mut columns = vec![("db_version", Datum::text(Some(schema_version)))];
        columns.extend(self.version.as_deref().map(|version| ("ovs_version", Datum::text(Some(version)))));
        columns.extend(self.cur_cfg.map(|number| ("cur_cfg", Datum::number(Some(number)))));
        for (column, types) in [("iface_types", &self.iface_types), ("datapath_types", &self.datapath_types)]
        {
            if !types.is_empty() {
                columns.push((column, Datum::texts(types.iter().map(String::as_str))));
            }
        }
        columns
    }
}

impl InterfaceStatus {
    fn columns(&self) -> Vec<(&'static str, Datum)> {
        let number = |(key, value): (&String, &i64)| (Atom::String(key.clone()), Atom::Integer(*value));
        vec![
            ("ofport", Datum::number(self.ofport)),
            ("error", Datum::text(self.error.as_deref())),
            ("admin_state", state(self.admin_up)),
            ("link_state", state(self.link_up)),
            ("link_speed", Datum::number(self.link_speed)),
            ("mtu", Datum::number(self.mtu)),
            ("mac_in_use", Datum::text(self.mac_in_use.as_deref())),
            ("ifindex", Datum::number(self.ifindex)),
            ("statistics", Datum::Map(self.statistics.iter().map(number).collect())),
            ("status", texts(&self.status)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::tests::schema;

    #[test]
    fn only_what_differs_is_written() {
        let row = Uuid(4).to_string();
        let mut replica = Replica::new(schema());
        replica
            .update2(&json!({"Interface": {row.as_str(): {"initial": {"name": "p1", "ofport": 1}}}}))
            .unwrap();
        let interface = InterfaceStatus { ofport: Some(1), mtu: Some(1500), ..InterfaceStatus::default() };
        let mut told = SwitchStatus { interfaces: [(Uuid(4), interface)].into(), ..SwitchStatus::default() };
        // The small schema has no column `mtu`, and missing rows are ignored.
        told.interfaces.insert(Uuid(99), InterfaceStatus { ofport: Some(3), ..InterfaceStatus::default() });
        assert_eq!(told.operations(&replica), Vec::<Value>::new());

        let interface = told.interfaces.get_mut(&Uuid(4)).unwrap();
        interface.ofport = Some(-1);
        interface.error = Some("no such device".to_owned());
        let expected = json!([{
            "op": "update", "table": "Interface", "where": [["_uuid", "==", ["uuid", row]]],
            "row": {"ofport": -1, "error": "no such device"},
        }]);
        assert_eq!(Value::from(told.operations(&replica)), expected);
    }

    #[test]
    fn the_whole_is_told_once_there_is_a_row_for_it() {
        let told = SwitchStatus { cur_cfg: Some(3), version: Some("0.1".into()), ..SwitchStatus::default() };
        let mut replica = Replica::new(schema());
        assert!(told.operations(&replica).is_empty());
        let row = Uuid(1).to_string();
        replica.update2(&json!({"Open_vSwitch": {row: {"initial": {"next_cfg": 3}}}})).unwrap();
        let operations = told.operations(&replica);
        assert_eq!(operations[0]["row"], json!({"cur_cfg": 3, "ovs_version": "0.1"}));
    }
}
