//! Values of database columns (RFC 7047 section 5.1). A value is a set or a map of atoms. The server sends changes of a
//! value as differences, which this module applies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::rpc::shortened;

/// UUID that identifies a row of a database table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Uuid(pub u128);

impl FromStr for Uuid {
    type Err = DatumError;

    /// Parses a UUID of the form `550e8400-e29b-41d4-a716-446655440000`.
    fn from_str(text: &str) -> Result<Self, DatumError> {
        let bad = || DatumError::Uuid(shortened(text));
        let hyphens = [8, 13, 18, 23];
        let sound = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match hyphens.contains(&at) {
                true => byte == b'-',
                false => byte.is_ascii_hexdigit(),
            });
        if !sound {
            return Err(bad());
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Uuid).map_err(|_| bad())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// Reason why a JSON value cannot be parsed as the value of a database column.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatumError {
    /// A text that should be a UUID is malformed. The value of this variant is the text.
    #[error("`{0}` is no UUID")]
    Uuid(String),
    /// The JSON value is not an atom, set or map. The value of this variant is the beginning of the JSON text.
    #[error("`{0}` is neither atom, set nor map")]
    Shape(String),
}

/// An atom: a single value in a database column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Atom {
    /// An atom that is a 64-bit integer.
    Integer(i64),
    /// An atom that is a floating-point number, as its IEEE 754 bits. The client only compares the number and passes it
    /// on.
    Real(u64),
    /// A Boolean atom.
    Boolean(bool),
    /// An atom that is a string.
    String(String),
    /// An atom that refers to a database row, by the UUID of the row.
    Uuid(Uuid),
}

impl Atom {
    fn read(value: &Value) -> Result<Atom, DatumError> {
        let shape = || DatumError::Shape(shortened(&value.to_string()));
        match value {
            Value::Bool(value) => Ok(Atom::Boolean(*value)),
            Value::String(text) => Ok(Atom::String(text.clone())),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Ok(Atom::Integer(number)),
                (None, Some(number)) => Ok(Atom::Real(number.to_bits())),
                (None, None) => Err(shape()),
            },
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(tag), Value::String(uuid)] if tag == "uuid" => Ok(Atom::Uuid(uuid.parse()?)),
                _ => Err(shape()),
            },
            _ => Err(shape()),
        }
    }

    fn json(&self) -> Value {
        match self {
            Atom::Integer(number) => json!(number),
            Atom::Real(bits) => json!(f64::from_bits(*bits)),
            Atom::Boolean(value) => json!(value),
            Atom::String(text) => json!(text),
            Atom::Uuid(uuid) => json!(["uuid", uuid.to_string()]),
        }
    }
}

/// Value of a database column in one row. A single value is represented as a set with one element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datum {
    /// An unordered set of any number of atoms.
    Set(BTreeSet<Atom>),
    /// A map from keys to values, which are atoms.
    Map(BTreeMap<Atom, Atom>),
}

impl Default for Datum {
    fn default() -> Self {
        Datum::Set(BTreeSet::new())
    }
}

impl Datum {
    /// Parses the value of a database column from the JSON value that the server sends.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON value is not the value of a database column.
    pub fn read(value: &Value) -> Result<Datum, DatumError> {
        let shape = || DatumError::Shape(shortened(&value.to_string()));
        let Some([Value::String(tag), Value::Array(all)]) = value.as_array().map(Vec::as_slice) else {
            return Ok(Datum::Set(BTreeSet::from([Atom::read(value)?])));
        };
        match tag.as_str() {
            "set" => Ok(Datum::Set(all.iter().map(Atom::read).collect::<Result<_, _>>()?)),
            "map" => {
                let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((Atom::read(key)?, Atom::read(value)?)),
                    _ => Err(shape()),
                };
                Ok(Datum::Map(all.iter().map(pair).collect::<Result<_, _>>()?))
            }
            _ => Err(shape()),
        }
    }

    /// Returns the value of the column as JSON, in the form that the OVSDB server accepts.
    pub fn json(&self) -> Value {
        match self {
            Datum::Set(set) => match set.iter().next().filter(|_| set.len() == 1) {
                Some(only) => only.json(),
                None => json!(["set", set.iter().map(Atom::json).collect::<Vec<_>>()]),
            },
            Datum::Map(map) => {
                let pairs: Vec<Value> =
                    map.iter().map(|(key, value)| json!([key.json(), value.json()])).collect();
                json!(["map", pairs])
            }
        }
    }

    /// Applies a difference (ovsdb-server(7) 4.1.14) to the value. The difference of two sets contains the elements
    /// that only one of the sets has. The difference of two maps also contains the keys whose value has changed, with
    /// their new values.
    pub fn change(&mut self, difference: &Datum) {
        match (self, difference) {
            (Datum::Set(set), Datum::Set(difference)) => {
                for atom in difference {
                    if !set.remove(atom) {
                        set.insert(atom.clone());
                    }
                }
            }
            (Datum::Map(map), Datum::Map(difference)) => {
                for (key, value) in difference {
                    if map.get(key) == Some(value) {
                        map.remove(key);
                    } else {
                        map.insert(key.clone(), value.clone());
                    }
                }
            }
            // An empty map may be sent as an empty set. Any other difference of another kind replaces the
            // value.
            (Datum::Map(_), Datum::Set(difference)) if difference.is_empty() => {}
            (own, difference) => *own = difference.clone(),
        }
    }

    /// Returns the value of an optional string column: a set with one string, or an empty set.
    pub fn text(value: Option<impl Into<String>>) -> Datum {
        Datum::Set(value.into_iter().map(|text| Atom::String(text.into())).collect())
    }

    /// Returns the value of an optional integer column: a set with one integer, or an empty set.
    pub fn number(value: Option<i64>) -> Datum {
        Datum::Set(value.into_iter().map(Atom::Integer).collect())
    }

    /// Returns the value of a set column with these strings.
    pub fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> Datum {
        Datum::Set(values.into_iter().map(|text| Atom::String(text.to_owned())).collect())
    }

    /// Returns the only element of a set. Returns `None` for a map, and for a set that does not have exactly one
    /// element.
    pub fn only(&self) -> Option<&Atom> {
        match self {
            Datum::Set(set) if set.len() == 1 => set.iter().next(),
            _ => None,
        }
    }

    /// Returns the only element of a set if it is a string. Returns `None` otherwise.
    pub fn as_text(&self) -> Option<&str> {
        match self.only() {
            Some(Atom::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the only element of a set if it is an integer. Returns `None` otherwise.
    pub fn as_number(&self) -> Option<i64> {
        match self.only() {
            Some(Atom::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns whether the value is a set whose only element is the Boolean true.
    pub fn is_true(&self) -> bool {
        self.only() == Some(&Atom::Boolean(true))
    }

    /// Returns all elements of a set. Returns no elements for a map.
    pub fn elements(&self) -> impl Iterator<Item = &Atom> {
        let set = match self {
            Datum::Set(set) => Some(set),
            Datum::Map(_) => None,
        };
        set.into_iter().flatten()
    }

    /// Returns all elements of a set that are references to rows.
    pub fn rows(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.elements().filter_map(|atom| match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        })
    }

    /// Returns all keys of a map with their values. Returns no pairs for a set.
    pub fn pairs(&self) -> impl Iterator<Item = (&Atom, &Atom)> {
        let map = match self {
            Datum::Map(map) => Some(map),
            Datum::Set(_) => None,
        };
        map.into_iter().flatten()
    }

    /// Returns the pairs of a map whose key and value are both strings. Other pairs are omitted.
    pub fn texts_by_key(&self) -> BTreeMap<String, String> {
        let both = |pair: (&Atom, &Atom)| match pair {
            (Atom::String(key), Atom::String(value)) => Some((key.clone(), value.clone())),
            _ => None,
        };
        self.pairs().filter_map(both).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn atom() -> impl Strategy<Value = Atom> {
        prop_oneof![
            any::<i64>().prop_map(Atom::Integer),
            any::<bool>().prop_map(Atom::Boolean),
            "[a-c]{0,2}".prop_map(Atom::String),
            any::<u128>().prop_map(|uuid| Atom::Uuid(Uuid(uuid))),
        ]
    }

    fn set() -> impl Strategy<Value = BTreeSet<Atom>> {
        prop::collection::btree_set(atom(), 0..6)
    }

    fn map() -> impl Strategy<Value = BTreeMap<Atom, Atom>> {
        prop::collection::btree_map("[a-d]".prop_map(Atom::String), "[x-z]".prop_map(Atom::String), 0..5)
    }

    proptest! {
        #[test]
        fn a_value_is_read_as_it_was_written(set in set(), map in map()) {
            for datum in [Datum::Set(set), Datum::Map(map)] {
                prop_assert_eq!(Datum::read(&datum.json()).unwrap(), datum);
            }
        }

        #[test]
        fn a_set_and_what_differs_are_the_other_set(one in set(), other in set()) {
            let difference = one.symmetric_difference(&other).cloned().collect();
            let mut changed = Datum::Set(one);
            changed.change(&Datum::Set(difference));
            prop_assert_eq!(changed, Datum::Set(other));
        }

        #[test]
        fn a_map_and_what_differs_are_the_other_map(one in map(), other in map()) {
            let gone = one.iter().filter(|(key, _)| !other.contains_key(*key));
            let new = other.iter().filter(|(key, value)| one.get(*key) != Some(value));
            let difference = gone.chain(new).map(|(key, value)| (key.clone(), value.clone())).collect();
            let mut changed = Datum::Map(one);
            changed.change(&Datum::Map(difference));
            prop_assert_eq!(changed, Datum::Map(other));
        }

        #[test]
        fn a_uuid_is_read_as_it_was_written(number in any::<u128>()) {
            prop_assert_eq!(Uuid(number).to_string().parse::<Uuid>().unwrap(), Uuid(number));
        }
    }

    #[test]
    fn what_is_no_value_is_told() {
        for text in [
            r#"["set",[["set",[]]]]"#,
            r#"["map",[["a"]]]"#,
            "{}",
            "null",
            r#"["uuid","x"]"#,
            r#"["bag",[]]"#,
        ] {
            assert!(Datum::read(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
        }
    }
}
