//! Schema of the database: tables, columns, and the default values of columns. The replica does not need other parts of
//! the schema, and this module does not read them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::datum::{Atom, Datum, Uuid};

/// Properties of a column in the database schema that the replica needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Default value of the column in rows for which the server sends no value of the column.
    pub default: Datum,
    /// Whether the column can have several elements. An update then contains the difference between the old and the new
    /// value, and not the new value.
    pub several: bool,
}

/// The parts of a database schema that the client needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schema {
    /// Version of the schema, such as `8.3.1`.
    pub version: String,
    /// Columns of each table: the outer key is the table's name, the inner key is the column's name.
    pub tables: BTreeMap<String, BTreeMap<String, Column>>,
}

/// Reason why the schema that the server sent cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemaError {
    /// A required part of the schema is missing or invalid. The value is the name of the part.
    #[error("the schema has no sound `{0}`")]
    Lacks(String),
}

impl Schema {
    /// Parses a schema from the server's reply to `get_schema`.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is not a schema.
    pub fn read(value: &Value) -> Result<Schema, SchemaError> {
        let lacks = |what: &str| SchemaError::Lacks(what.to_owned());
        let version = value.get("version").and_then(Value::as_str).ok_or_else(|| lacks("version"))?;
        let tables = value.get("tables").and_then(Value::as_object).ok_or_else(|| lacks("tables"))?;
        let mut schema = Schema { version: version.to_owned(), ..Schema::default() };
        for (name, table) in tables {
            let columns = table.get("columns").and_then(Value::as_object).ok_or_else(|| lacks(name))?;
            let column = |(column, value): (&String, &Value)| {
                let read = value.get("type").and_then(read_type);
                let read = read.ok_or_else(|| SchemaError::Lacks(format!("{name}.{column}")))?;
                Ok((column.clone(), read))
            };
            schema.tables.insert(name.clone(), columns.iter().map(column).collect::<Result<_, _>>()?);
        }
        Ok(schema)
    }

    /// Returns the properties of a column of a table. Returns `None` if the schema does not contain the
    /// column.
    pub fn column(&self, table: &str, column: &str) -> Option<&Column> {
        self.tables.get(table)?.get(column)
    }
}

/// Parses the type of a column (`<type>` of RFC 7047 section 3.2). Returns `None` if the JSON value is not a type.
fn read_type(value: &Value) -> Option<Column> {
    if let Some(atom) = value.as_str() {
        return Some(Column { default: Datum::Set(BTreeSet::from([default_atom(atom)?])), several: false });
    }
    let object = value.as_object()?;
    let key = object.get("key")?;
    let atom = key.as_str().or_else(|| key.get("type")?.as_str())?;
    let atom = default_atom(atom)?;
    let least = object.get("min").map_or(Some(1), Value::as_u64)?;
    let several = match object.get("max") {
        None => false,
        Some(Value::String(text)) if text == "unlimited" => true,
        Some(most) => most.as_u64()? > 1,
    };
    let default = match (object.contains_key("value"), least) {
        (true, _) => Datum::Map(BTreeMap::new()),
        (false, 0) => Datum::default(),
        // For a set that must not be empty, the server omits the default value of the type.
        (false, _) => Datum::Set(BTreeSet::from([atom])),
    };
    Some(Column { default, several })
}

fn default_atom(kind: &str) -> Option<Atom> {
    Some(match kind {
        "integer" => Atom::Integer(0),
        "real" => Atom::Real(0),
        "boolean" => Atom::Boolean(false),
        "string" => Atom::String(String::new()),
        "uuid" => Atom::Uuid(Uuid(0)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_understood() {
        let schema = serde_json::json!({"version": "1.2.3", "name": "x", "tables": {"T": {"columns": {
            "n": {"type": "integer"},
            "o": {"type": {"key": "string", "min": 0, "max": 1}},
            "s": {"type": {"key": {"type": "uuid", "refTable": "U"}, "min": 0, "max": "unlimited"}},
            "m": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
            "e": {"type": {"key": {"type": "boolean"}}},
            "p": {"type": {"key": "string", "min": 0, "max": 3}},
        }}}});
        let schema = Schema::read(&schema).unwrap();
        let column = |name| schema.column("T", name).unwrap();
        assert_eq!(*column("n"), Column { default: Datum::number(Some(0)), several: false });
        assert_eq!(*column("o"), Column { default: Datum::default(), several: false });
        assert_eq!(*column("s"), Column { default: Datum::default(), several: true });
        assert_eq!(*column("m"), Column { default: Datum::Map(BTreeMap::new()), several: true });
        assert_eq!(column("e").default.only(), Some(&Atom::Boolean(false)));
        assert!(column("p").several);
        assert!(schema.column("T", "x").is_none() && schema.column("U", "n").is_none());
    }

    #[test]
    fn what_is_no_schema_is_told() {
        for text in [
            "[]",
            r#"{"version":"1"}"#,
            r#"{"version":"1","tables":{"T":{}}}"#,
            r#"{"version":"1","tables":{"T":{"columns":{"c":{"type":"colour"}}}}}"#,
            r#"{"version":"1","tables":{"T":{"columns":{"c":{"type":{"key":"string","max":"many"}}}}}}"#,
        ] {
            assert!(Schema::read(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
        }
    }
}
