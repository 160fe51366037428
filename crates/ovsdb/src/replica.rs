//! Replica (local copy) of the server's tables. The replica contains the rows of each table by UUID. Update messages of
//! the three monitor methods keep the rows up to date (RFC 7047 section 4.1.6, ovsdb-server(7) 4.1.14 and 4.1.16).
//!
//! An update is applied completely or not at all. The rows are changed in a copy of the table, which replaces
//! the table when the update has succeeded.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::datum::{Datum, DatumError, Uuid};
use crate::schema::Schema;

/// Columns of the database that the client monitors, by table. The schema of an older server may lack some of these
/// columns.
pub(crate) const COLUMNS: &[(&str, &[&str])] = &[
    (
        "Open_vSwitch",
        &[
            "bridges",
            "manager_options",
            "ssl",
            "other_config",
            "external_ids",
            "next_cfg",
            "cur_cfg",
            "ovs_version",
            "db_version",
            "iface_types",
            "datapath_types",
        ],
    ),
    (
        "Bridge",
        &[
            "name",
            "datapath_type",
            "datapath_id",
            "fail_mode",
            "controller",
            "protocols",
            "flow_tables",
            "ports",
            "mirrors",
            "netflow",
            "sflow",
            "ipfix",
            "stp_enable",
            "rstp_enable",
            "mcast_snooping_enable",
            "other_config",
            "external_ids",
        ],
    ),
    (
        "Port",
        &[
            "name",
            "interfaces",
            "tag",
            "trunks",
            "vlan_mode",
            "qos",
            "protected",
            "fake_bridge",
            "other_config",
            "external_ids",
        ],
    ),
    (
        "Interface",
        &[
            "name",
            "type",
            "options",
            "ofport",
            "ofport_request",
            "mtu_request",
            "mac",
            "ingress_policing_rate",
            "ingress_policing_burst",
            "ingress_policing_kpkts_rate",
            "ingress_policing_kpkts_burst",
            "other_config",
            "external_ids",
            "error",
            "admin_state",
            "link_state",
            "link_speed",
            "mtu",
            "mac_in_use",
            "ifindex",
            "statistics",
            "status",
        ],
    ),
    (
        "Controller",
        &[
            "type",
            "target",
            "connection_mode",
            "max_backoff",
            "inactivity_probe",
            "controller_rate_limit",
            "controller_burst_limit",
            "controller_queue_size",
            "enable_async_messages",
            "other_config",
            "is_connected",
            "role",
            "status",
        ],
    ),
    ("Manager", &["target"]),
    ("Flow_Table", &["name", "flow_limit", "overflow_policy", "groups", "prefixes"]),
    ("Mirror", &["name"]),
    ("QoS", &["type", "queues"]),
    ("Queue", &["dscp"]),
    ("SSL", &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"]),
];

/// Tables and columns that the client requires. The client does not use a server whose schema lacks one of these
/// columns.
pub(crate) const NEEDED: &[(&str, &str)] = &[
    ("Open_vSwitch", "bridges"),
    ("Open_vSwitch", "next_cfg"),
    ("Open_vSwitch", "cur_cfg"),
    ("Bridge", "name"),
    ("Bridge", "ports"),
    ("Port", "name"),
    ("Port", "interfaces"),
    ("Interface", "name"),
    ("Interface", "type"),
];

/// Values of the columns of a database row, by column name. A missing column has its default value.
pub type Row = BTreeMap<String, Datum>;
/// Rows of a database table, by UUID.
pub type Table = BTreeMap<Uuid, Row>;

/// Reason why an update of the tables that the server sent cannot be applied to the replica.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpdateError {
    /// The structure of the update is invalid. The value names the invalid part.
    #[error("an update has no sound {0}")]
    Shape(String),
    /// The update contains an invalid column value.
    #[error("a column's value in an update is not sound")]
    Datum(#[from] DatumError),
    /// The update changes a row that the replica does not contain.
    #[error("an update changes the row {row} of {table}, which is not there")]
    Unknown {
        /// Name of the table that should contain the row.
        table: String,
        /// UUID of the row that the replica does not contain.
        row: Uuid,
    },
}

/// Local copy of the monitored tables of an OVSDB server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replica {
    schema: Arc<Schema>,
    tables: BTreeMap<String, Table>,
}

impl Replica {
    /// Creates an empty replica of a database that has the schema `schema`.
    pub fn new(schema: Arc<Schema>) -> Self {
        Replica { schema, tables: BTreeMap::new() }
    }

    /// Returns the schema of the database.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the schema of the database as a shared pointer, from which another replica can be created.
    pub(crate) fn shared_schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    /// Returns the tables and columns to monitor, in the JSON form of a monitor request: the columns of [`COLUMNS`]
    /// that the schema of the server contains. Missing tables are omitted.
    pub(crate) fn monitored(&self) -> Value {
        let mut tables = Map::new();
        for (table, columns) in COLUMNS {
            let has = |column: &&&str| self.schema.column(table, column).is_some();
            let columns: Vec<&str> = columns.iter().filter(has).copied().collect();
            if self.schema.tables.contains_key(*table) {
                tables.insert((*table).to_owned(), json!([{"columns": columns}]));
            }
        }
        Value::Object(tables)
    }

    /// Returns all rows of a table with their UUIDs. Returns no rows if the replica does not contain the
    /// table.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten().map(|(uuid, row)| (*uuid, row))
    }

    /// Returns the row of a table with the UUID `row`. Returns `None` if the row does not exist.
    pub fn row(&self, table: &str, row: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&row)
    }

    /// Returns the value of a column in a row. If the row does not contain the column, returns the column's
    /// default value. Returns `None` if the schema has no such column.
    pub fn value<'a>(&'a self, table: &str, row: &'a Row, column: &str) -> Option<&'a Datum> {
        row.get(column).or_else(|| Some(&self.schema.column(table, column)?.default))
    }

    /// Applies the `<table-updates>` that the method `monitor` delivers. The updates contain the
    /// old values and the complete new row of each changed row.
    ///
    /// # Errors
    ///
    /// Returns an error if the updates are invalid. The replica is then unchanged.
    pub fn update(&mut self, updates: &Value) -> Result<(), UpdateError> {
        self.each(updates, |schema, table, uuid, change| {
            let Some(new) = change.get("new").filter(|new| !new.is_null()) else {
                table.1.remove(&uuid);
                return Ok(());
            };
            let row = read_row(schema, table.0, new)?;
            // `old` contains the changed columns, and `new` contains all monitored columns.
            table.1.entry(uuid).or_default().extend(row);
            Ok(())
        })
    }

    /// Applies the `<table-updates2>` that the methods `monitor_cond` and `monitor_cond_since`
    /// deliver. The updates contain the complete row for a new row, and only the differences for a
    /// changed row.
    ///
    /// # Errors
    ///
    /// Returns an error if the updates are invalid, or change a row that the replica does not contain. The
    /// replica is then unchanged.
    pub fn update2(&mut self, updates: &Value) -> Result<(), UpdateError> {
        self.each(updates, |schema, table, uuid, change| {
            if let Some(new) = change.get("initial").or_else(|| change.get("insert")) {
                table.1.insert(uuid, read_row(schema, table.0, new)?);
            } else if let Some(difference) = change.get("modify") {
                let unknown = || UpdateError::Unknown { table: table.0.to_owned(), row: uuid };
                let row = table.1.get_mut(&uuid).ok_or_else(unknown)?;
                for (name, difference) in read_row(schema, table.0, difference)? {
                    let Some(column) = schema.column(table.0, &name) else { continue };
                    let value = row.entry(name).or_insert_with(|| column.default.clone());
                    match column.several {
                        true => value.change(&difference),
                        false => *value = difference,
                    }
                }
            } else if change.contains_key("delete") {
                table.1.remove(&uuid);
            } else {
                return Err(UpdateError::Shape(format!("change of the row {uuid} of {}", table.0)));
            }
            Ok(())
        })
    }

    /// Calls `one` for each row of an update message, with a copy of the table that contains the row. If all calls
    /// succeed, the copies replace the tables.
    fn each(
        &mut self,
        updates: &Value,
        one: impl Fn(&Schema, (&str, &mut Table), Uuid, &Map<String, Value>) -> Result<(), UpdateError>,
    ) -> Result<(), UpdateError> {
        let mut changed: BTreeMap<String, Table> = BTreeMap::new();
        for (name, rows) in object_in(updates, "tables")? {
            // Tables that were not requested are ignored.
            if !COLUMNS.iter().any(|(known, _)| known == name) {
                continue;
            }
            let mut table = self.tables.get(name).cloned().unwrap_or_default();
            for (uuid, change) in object_in(rows, name)? {
                one(&self.schema, (name, &mut table), uuid.parse()?, object_in(change, name)?)?;
            }
            changed.insert(name.clone(), table);
        }
        self.tables.extend(changed);
        Ok(())
    }
}

fn object_in<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, UpdateError> {
    value.as_object().ok_or_else(|| UpdateError::Shape(what.to_owned()))
}

fn read_row(schema: &Schema, table: &str, value: &Value) -> Result<Row, UpdateError> {
    let columns = value.as_object().ok_or_else(|| UpdateError::Shape(format!("row of {table}")))?;
    let known = columns.iter().filter(|(column, _)| schema.column(table, column).is_some());
    known.map(|(column, value)| Ok((column.clone(), Datum::read(value)?))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a small part of the Open_vSwitch schema.
    pub(crate) fn schema() -> Arc<Schema> {
        let set = |key: &str| json!({"type": {"key": key, "min": 0, "max": "unlimited"}});
        let maybe = |key: &str| json!({"type": {"key": key, "min": 0, "max": 1}});
        let map = json!({"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}});
        let text = json!({"type": "string"});
        let number = json!({"type": "integer"});
        let schema = json!({"version": "8.3.1", "tables": {
            "Open_vSwitch": {"columns": {"bridges": set("uuid"), "next_cfg": number, "cur_cfg": number, "ovs_version": maybe("string"), "other_config": map}},
            "Bridge": {"columns": {"name": text, "ports": set("uuid"), "controller": set("uuid"), "fail_mode": maybe("string"), "datapath_id": maybe("string"), "other_config": map,
                "flow_tables": {"type": {"key": "integer", "value": "uuid", "min": 0, "max": "unlimited"}}}},
            "Port": {"columns": {"name": text, "interfaces": set("uuid"), "tag": maybe("integer"), "trunks": set("integer"), "vlan_mode": maybe("string")}},
            "Interface": {"columns": {"name": text, "type": text, "options": map, "ofport": maybe("integer"), "error": maybe("string"),
                "statistics": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}}}},
            "Controller": {"columns": {"target": text, "is_connected": {"type": "boolean"}}},
        }});
        Arc::new(Schema::read(&schema).unwrap())
    }

    const ROW: &str = "00000000-0000-0000-0000-000000000001";

    fn replica(port: Value) -> Replica {
        let mut replica = Replica::new(schema());
        replica.update2(&json!({"Port": {ROW: {"initial": port}}})).unwrap();
        replica
    }

    fn port(replica: &Replica, column: &str) -> Datum {
        let row = replica.row("Port", Uuid(1)).unwrap();
        replica.value("Port", row, column).unwrap().clone()
    }

    #[test]
    fn what_an_insert_leaves_out_has_its_default() {
        let replica = replica(json!({"name": "p1"}));
        assert_eq!(port(&replica, "tag"), Datum::default());
        assert_eq!(port(&replica, "name").as_text(), Some("p1"));
        let row = replica.row("Port", Uuid(1)).unwrap();
        assert!(replica.value("Port", row, "cvlans").is_none(), "the schema does not have it");
    }

    #[test]
    fn single_values_are_replaced_and_sets_are_changed() {
        let mut replica = replica(json!({"name": "p1", "tag": 5, "trunks": ["set", [1, 2]]}));
        replica.update2(&json!({"Port": {ROW: {"modify": {"tag": 6, "trunks": ["set", [2, 3]]}}}})).unwrap();
        assert_eq!(port(&replica, "tag").as_number(), Some(6));
        assert_eq!(port(&replica, "trunks"), Datum::read(&json!(["set", [1, 3]])).unwrap());
        replica.update2(&json!({"Port": {ROW: {"modify": {"tag": ["set", []]}}}})).unwrap();
        assert_eq!(port(&replica, "tag"), Datum::default());
        replica.update2(&json!({"Port": {ROW: {"delete": null}}})).unwrap();
        assert!(replica.row("Port", Uuid(1)).is_none());
    }

    #[test]
    fn the_old_method_brings_whole_rows() {
        let mut replica = replica(json!({"name": "p1", "tag": 5}));
        let update = json!({"Port": {ROW: {"old": {"tag": 5}, "new": {"name": "p1", "tag": 7}}}});
        replica.update(&update).unwrap();
        assert_eq!(port(&replica, "tag").as_number(), Some(7));
        replica.update(&json!({"Port": {ROW: {"old": {"name": "p1"}}}})).unwrap();
        assert!(replica.row("Port", Uuid(1)).is_none());
    }

    #[test]
    fn an_update_that_is_wrong_somewhere_changes_nothing() {
        let before = replica(json!({"name": "p1", "tag": 5}));
        let other = "00000000-0000-0000-0000-000000000002";
        for update in [
            json!([]),
            json!({"Bridge": {"x": {"initial": {}}}, "Port": {ROW: {"modify": {"tag": 6}}}}),
            json!({"Bridge": {ROW: {"initial": {"name": "b"}}}, "Port": {other: {"modify": {"tag": 6}}}}),
            json!({"Bridge": {ROW: {"initial": {"name": "b"}}}, "Port": {ROW: {"modify": {"tag": {}}}}}),
            json!({"Bridge": {ROW: {"initial": {"name": "b"}}}, "Port": {ROW: {"paint": {}}}}),
            json!({"Bridge": {ROW: {"initial": {"name": "b"}}}, "Port": 7}),
        ] {
            let mut replica = before.clone();
            assert!(replica.update2(&update).is_err(), "{update}");
            assert_eq!(replica, before, "{update}");
        }
    }
}
