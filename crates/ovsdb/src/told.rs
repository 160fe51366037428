//! What is written back: each value where the database has another, all in one transaction.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::datum::{Atom, Datum, Uuid};
use crate::replica::Replica;

/// What is told of everything. What is `None` or not here is left as it is in the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// The `next_cfg` of the last change that runs.
    pub cur_cfg: Option<i64>,
    /// Our version.
    pub version: Option<String>,
    /// Types of interfaces that can be had.
    pub iface_types: Vec<String>,
    /// Types of datapaths that can be had.
    pub datapath_types: Vec<String>,
    /// Bridges by row.
    pub bridges: BTreeMap<Uuid, BridgeTold>,
    /// Interfaces by row.
    pub interfaces: BTreeMap<Uuid, InterfaceTold>,
    /// Controllers by row.
    pub controllers: BTreeMap<Uuid, ControllerTold>,
}

/// What is told of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BridgeTold {
    /// Sixteen hexadecimal digits.
    pub datapath_id: Option<String>,
}

/// What is told of an interface, whole: what is absent here is absent there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceTold {
    /// Its OpenFlow port number; -1: it could not be had.
    pub ofport: Option<i64>,
    /// What is wrong with it.
    pub error: Option<String>,
    /// Whether it is up as far as its settings go.
    pub admin_up: Option<bool>,
    /// Whether its link is up.
    pub link_up: Option<bool>,
    /// Bits a second.
    pub link_speed: Option<i64>,
    /// Bytes of the largest packet.
    pub mtu: Option<i64>,
    /// Its Ethernet address.
    pub mac_in_use: Option<String>,
    /// Its device's number.
    pub ifindex: Option<i64>,
    /// Packets and bytes by name.
    pub statistics: BTreeMap<String, i64>,
    /// Driver and the like by name.
    pub status: BTreeMap<String, String>,
}

/// What is told of a controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControllerTold {
    /// Whether it is connected.
    pub is_connected: bool,
    /// `master`, `slave` or `other`.
    pub role: Option<String>,
    /// `state`, `sec_since_connect` and the like.
    pub status: BTreeMap<String, String>,
}

fn state(up: Option<bool>) -> Datum {
    Datum::text(up.map(|up| if up { "up" } else { "down" }))
}

fn texts(map: &BTreeMap<String, String>) -> Datum {
    let pair = |(key, value): (&String, &String)| (Atom::String(key.clone()), Atom::String(value.clone()));
    Datum::Map(map.iter().map(pair).collect())
}

impl Told {
    /// The operations of a transaction after which `replica`'s database says what is told here; none where it does already.
    pub(crate) fn operations(&self, replica: &Replica) -> Vec<Value> {
        let mut operations = Vec::new();
        let mut write = |table: &str, row: Uuid, columns: Vec<(&str, Datum)>| {
            let Some(present) = replica.row(table, row) else { return };
            let differs = |(column, wanted): &(&str, Datum)| {
                // A column that the schema lacks cannot be told.
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

impl InterfaceTold {
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
        let interface = InterfaceTold { ofport: Some(1), mtu: Some(1500), ..InterfaceTold::default() };
        let mut told = Told { interfaces: [(Uuid(4), interface)].into(), ..Told::default() };
        // The small schema has no column `mtu`, and a row that is gone is left alone.
        told.interfaces.insert(Uuid(99), InterfaceTold { ofport: Some(3), ..InterfaceTold::default() });
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
        let told = Told { cur_cfg: Some(3), version: Some("0.1".into()), ..Told::default() };
        let mut replica = Replica::new(schema());
        assert!(told.operations(&replica).is_empty());
        let row = Uuid(1).to_string();
        replica.update2(&json!({"Open_vSwitch": {row: {"initial": {"next_cfg": 3}}}})).unwrap();
        let operations = told.operations(&replica);
        assert_eq!(operations[0]["row"], json!({"cur_cfg": 3, "ovs_version": "0.1"}));
    }
}
