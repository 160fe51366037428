//! Reads the fields of one table with their types and bounds, and reports unknown keys at the end.
//!
//! Every reader function returns `None` both if the key is absent and if its value is wrong. A wrong value adds a
//! problem. Reading then continues and finds more problems.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;

use packet::{MacAddr, VlanId};

use super::tree::{Entry, Node, Place, Table, Value};
use crate::spelling::nearest;
use crate::{Cause, DeviceName, InterfaceAddress, Mtu, NameError, Namespace, PortName, Problem};

/// Maximum number of reported problems. A text with more problems is probably not a configuration.
pub(crate) const PROBLEM_LIMIT: usize = 1000;
/// Bounds of the number of entries in a ring.
pub(crate) const RING_BOUNDS: (i64, i64) = (64, 32_768);
/// Maximum number of IP addresses of an interface.
const ADDRESS_LIMIT: usize = 256;

/// Results of reading a configuration so far: the problems with their positions, and the position of each
/// object.
#[derive(Default)]
pub(crate) struct Findings {
    pub problems: Vec<(Place, Problem)>,
    pub places: BTreeMap<String, usize>,
    /// Old spellings of keys for which a warning was already added. The flag is true for a key of
    /// the top level.
    pub old_keys: BTreeSet<(bool, &'static str)>,
}

impl Findings {
    /// Returns whether more problems were found than are reported.
    pub fn full(&self) -> bool {
        self.problems.len() > PROBLEM_LIMIT
    }

    pub fn add(&mut self, place: Place, object: impl Into<String>, cause: Cause) {
        // One problem more than the limit is kept, so that the excess can be reported.
        if !self.full() {
            self.problems.push((place, Problem::new(object, cause)));
        }
    }
}

pub(crate) struct Fields<'n> {
    pub object: String,
    pub place: Place,
    table: &'n Table,
    known: Vec<&'static str>,
    /// Keys of the table that are written in an old spelling, as pairs of the old and the new
    /// spelling.
    renamed: Vec<(&'static str, &'static str)>,
}

/// Returns the table that a node contains. Adds a problem and returns `None` if the node is not a table.
pub(crate) fn table_of<'n>(object: &str, node: &'n Node, findings: &mut Findings) -> Option<Fields<'n>> {
    match &node.value {
        Value::Table(table) => Some(Fields::new(object.to_owned(), node.place, table)),
        other => {
            findings.add(node.place, object, Cause::WrongType { expected: "a table", found: other.found() });
            None
        }
    }
}

/// Reads all objects of one kind, and returns them by name. `read` reads one object. An object with an
/// invalid name is also read, in order to report its other problems.
pub(crate) fn named<K, V>(
    what: &'static str,
    node: &Node,
    findings: &mut Findings,
    read: fn(Fields<'_>, &mut Findings) -> V,
) -> BTreeMap<K, V>
where
    K: FromStr<Err = NameError> + Ord,
{
    named_in(what, what, node, findings, read)
}

/// Like [`named`], for the objects in a table that is part of another object, such as `bridge.br0.port`.
pub(crate) fn named_in<K, V>(
    table: &str,
    what: &'static str,
    node: &Node,
    findings: &mut Findings,
    read: fn(Fields<'_>, &mut Findings) -> V,
) -> BTreeMap<K, V>
where
    K: FromStr<Err = NameError> + Ord,
{
    let mut all = BTreeMap::new();
    let Some(fields) = table_of(table, node, findings) else { return all };
    for entry in fields.entries() {
        let object = path(table, &entry.key);
        if let Some(place) = entry.place {
            findings.places.insert(object.clone(), place);
        }
        let name = entry.key.parse().map_err(|error| {
            findings.add(entry.place, object.clone(), bad_name(what)(&entry.key, error));
        });
        let Some(fields) = table_of(&object, &entry.node, findings) else { continue };
        let value = read(fields, findings);
        if let Ok(name) = name {
            all.insert(name, value);
        }
    }
    all
}

pub(crate) fn path(object: &str, key: &str) -> String {
    if object.is_empty() { key.to_owned() } else { format!("{object}.{key}") }
}

impl<'n> Fields<'n> {
    pub fn new(object: String, place: Place, table: &'n Table) -> Self {
        Fields { object, place, table, known: Vec::new(), renamed: Vec::new() }
    }

    pub fn path(&self, key: &str) -> String {
        path(&self.object, key)
    }

    /// Accepts `old` as another spelling of the key `new`, and adds a warning that names `new`. A configuration
    /// has at most one warning for each old key. Adds a problem if the table contains both spellings.
    pub fn renamed(&mut self, old: &'static str, new: &'static str, findings: &mut Findings) {
        let Some(entry) = self.table.entries.iter().find(|entry| entry.key == old) else { return };
        let object = if self.object.is_empty() { old } else { &self.object };
        if self.has(new) {
            findings.add(entry.place, object, Cause::Exclusive { first: new, second: old });
        } else if findings.old_keys.insert((self.object.is_empty(), old)) {
            let problem = Problem::new(object, Cause::OldKey { old, new }).warning();
            findings.problems.push((entry.place, problem));
        }
        self.renamed.push((old, new));
    }

    /// Returns the entry of a key in its present or its old spelling.
    fn entry(&self, key: &str) -> Option<&'n Entry> {
        let find = |key: &str| self.table.entries.iter().find(|entry| entry.key == key);
        let old = || self.renamed.iter().find(|(_, new)| *new == key);
        find(key).or_else(|| find(old()?.0))
    }

    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Returns the position of the value of a key in the text, or the position of the table if the key is absent.
    pub fn place_of(&self, key: &str) -> Place {
        self.entry(key).map_or(self.place, |entry| entry.place)
    }

    /// Returns the entry of a key. The value of the entry may have any type. Returns `None` if the
    /// key is absent.
    pub fn get(&mut self, key: &'static str, findings: &mut Findings) -> Option<&'n Entry> {
        self.known.push(key);
        let entry = self.entry(key)?;
        if let Some(place) = entry.node.place {
            findings.places.insert(self.path(key), place);
        }
        Some(entry)
    }

    /// Returns all entries of a table whose keys are names.
    pub fn entries(&self) -> &'n [Entry] {
        &self.table.entries
    }

    /// Reports every key of the table that was not read. `foreign` returns the cause for a key that is valid only for
    /// other kinds of objects.
    pub fn finish_with(self, findings: &mut Findings, foreign: impl Fn(&str) -> Option<Cause>) {
        for entry in &self.table.entries {
            let renamed = self.renamed.iter().find(|(old, _)| *old == entry.key);
            let key = renamed.map_or(entry.key.as_str(), |(_, new)| new);
            if self.known.contains(&key) {
                continue;
            }
            if findings.full() {
                return;
            }
            let cause = foreign(key).unwrap_or_else(|| Cause::UnknownKey {
                key: entry.key.clone(),
                near: nearest(&entry.key, self.known.iter().copied()).map(str::to_owned),
                known: self.known.clone(),
            });
            let object = if self.object.is_empty() { &entry.key } else { &self.object };
            findings.add(entry.place, object.clone(), cause);
        }
    }

    pub fn finish(self, findings: &mut Findings) {
        self.finish_with(findings, |_| None);
    }

    pub fn missing(&self, key: &'static str, example: &'static str, findings: &mut Findings) {
        findings.add(self.place, self.object.clone(), Cause::Missing { key, example });
    }

    fn wrong(&self, entry: &Entry, expected: &'static str, findings: &mut Findings) {
        let found = entry.node.value.found();
        findings.add(entry.node.place, self.path(&entry.key), Cause::WrongType { expected, found });
    }

    pub fn text(&mut self, key: &'static str, findings: &mut Findings) -> Option<&'n str> {
        let entry = self.get(key, findings)?;
        match &entry.node.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong(entry, "a text in quotes", findings);
                None
            }
        }
    }

    pub fn flag(&mut self, key: &'static str, findings: &mut Findings) -> Option<bool> {
        let entry = self.get(key, findings)?;
        match &entry.node.value {
            Value::Bool(value) => Some(*value),
            _ => {
                self.wrong(entry, "true or false", findings);
                None
            }
        }
    }

    /// Reads an integer within bounds. `unit` is the text that follows the bounds in a message about a problem, such as
    /// " bytes".
    pub fn number<T: TryFrom<i64>>(
        &mut self,
        key: &'static str,
        (min, max): (i64, i64),
        unit: &'static str,
        findings: &mut Findings,
    ) -> Option<T> {
        let entry = self.get(key, findings)?;
        number_in(&self.path(key), &entry.node, (min, max), unit, findings)
    }

    pub fn power_of_two(
        &mut self,
        key: &'static str,
        bounds: (i64, i64),
        findings: &mut Findings,
    ) -> Option<u32> {
        let size: u32 = self.number(key, bounds, " entries", findings)?;
        if !size.is_power_of_two() {
            let (object, place) = (self.path(key), self.place_of_value(key));
            let near = size.next_power_of_two();
            findings.add(place, object, Cause::NotPowerOfTwo { value: size.into(), near });
            return None;
        }
        Some(size)
    }

    fn place_of_value(&self, key: &str) -> Place {
        self.entry(key).and_then(|entry| entry.node.place)
    }

    /// Reads one of the words `choices`, and returns the item of `values` with the same index.
    pub fn word<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &'static [&'static str],
        values: &[T],
        findings: &mut Findings,
    ) -> Option<T> {
        let entry = self.get(key, findings)?;
        let Value::Text(text) = &entry.node.value else {
            let cause = Cause::NotAWord { found: entry.node.value.found(), choices };
            findings.add(entry.node.place, self.path(key), cause);
            return None;
        };
        if let Some(index) = choices.iter().position(|choice| *choice == text) {
            return values.get(index).copied();
        }
        let near = nearest(text, choices.iter().copied());
        let cause = Cause::NotOneOf { value: text.to_owned(), near, choices };
        findings.add(self.place_of_value(key), self.path(key), cause);
        None
    }

    /// Reads a text and parses it. `cause` builds the cause of the problem if parsing fails.
    pub fn parsed<T: FromStr>(
        &mut self,
        key: &'static str,
        cause: impl FnOnce(String, T::Err) -> Cause,
        findings: &mut Findings,
    ) -> Option<T> {
        let text = self.text(key, findings)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                findings.add(self.place_of_value(key), self.path(key), cause(text.to_owned(), error));
                None
            }
        }
    }

    pub fn device(&mut self, key: &'static str, findings: &mut Findings) -> Option<DeviceName> {
        self.parsed(key, |text, source| Cause::BadName { text, what: "device", source }, findings)
    }

    /// Reads the name of a port's device. The default is the name of the port, if this name is a valid device name.
    pub fn device_of(&mut self, port: &PortName, findings: &mut Findings) -> Option<DeviceName> {
        if self.has("device") {
            return self.device("device", findings);
        }
        self.get("device", findings);
        match port.as_str().parse() {
            Ok(device) => Some(device),
            Err(error) => {
                findings.add(self.place, self.object.clone(), bad_name("device")(port.as_str(), error));
                None
            }
        }
    }

    /// Reads the network namespace in the key `namespace`. Returns `Some(None)` if the key is absent. Returns `None` if
    /// the namespace is invalid, because the device is then unknown.
    pub fn namespace(&mut self, findings: &mut Findings) -> Option<Option<Namespace>> {
        let bad = |text, source| Cause::BadName { text, what: "namespace", source };
        let namespace = self.parsed("namespace", bad, findings);
        if namespace.is_none() && self.has("namespace") { None } else { Some(namespace) }
    }

    pub fn file(&mut self, key: &'static str, findings: &mut Findings) -> Option<PathBuf> {
        let text = self.text(key, findings)?;
        if text.starts_with('/') && !text.contains('\0') {
            return Some(PathBuf::from(text));
        }
        findings.add(self.place_of_value(key), self.path(key), Cause::RelativePath { text: text.to_owned() });
        None
    }

    /// Reads the value of a key as a unicast Ethernet address.
    pub fn station(&mut self, key: &'static str, findings: &mut Findings) -> Option<MacAddr> {
        let mac: MacAddr = self.parsed(key, |text, source| Cause::BadMac { text, source }, findings)?;
        let cause = match mac {
            mac if mac.is_zero() => Cause::ZeroMac,
            mac if mac.is_multicast() => Cause::GroupMac { text: mac.to_string() },
            mac => return Some(mac),
        };
        findings.add(self.place_of_value(key), self.path(key), cause);
        None
    }

    pub fn mtu(&mut self, findings: &mut Findings) -> Option<Mtu> {
        let bounds = (Mtu::MIN.get().into(), Mtu::MAX.get().into());
        self.number("mtu", bounds, " bytes", findings).and_then(Mtu::new)
    }

    pub fn vlan(&mut self, key: &'static str, findings: &mut Findings) -> Option<VlanId> {
        let entry = self.get(key, findings)?;
        vlan_in(&self.path(key), &entry.node, findings)
    }

    /// Returns the items of a list. A single value counts as a list of one item.
    pub fn items(&mut self, key: &'static str, findings: &mut Findings) -> Option<Vec<(String, &'n Node)>> {
        let entry = self.get(key, findings)?;
        let object = self.path(key);
        Some(match &entry.node.value {
            Value::List(items) => {
                items.iter().enumerate().map(|(index, item)| (format!("{object}[{index}]"), item)).collect()
            }
            _ => vec![(object, &entry.node)],
        })
    }

    pub fn addresses(&mut self, findings: &mut Findings) -> Vec<InterfaceAddress> {
        let mut addresses = Vec::new();
        let items = self.items("address", findings).unwrap_or_default();
        self.limit("address", "addresses", items.len(), ADDRESS_LIMIT, findings);
        for (object, item) in items.into_iter().take(ADDRESS_LIMIT) {
            let Value::Text(text) = &item.value else {
                let cause = Cause::WrongType { expected: "a text in quotes", found: item.value.found() };
                findings.add(item.place, object, cause);
                continue;
            };
            let cause = match text.parse::<InterfaceAddress>() {
                Err(_) => Cause::BadAddress { text: text.clone() },
                Ok(address) => match address.reserved_as() {
                    Some(role) => Cause::NotAHost { address, role },
                    None if addresses.contains(&address) => {
                        Cause::Repeated { what: "address", value: text.clone() }
                    }
                    None => {
                        addresses.push(address);
                        continue;
                    }
                },
            };
            findings.add(item.place, object, cause);
        }
        addresses
    }

    /// Adds a problem if a list exceeds its maximum length.
    pub fn limit(&self, key: &str, what: &'static str, count: usize, limit: usize, findings: &mut Findings) {
        if count > limit {
            findings.add(self.place_of(key), self.path(key), Cause::TooMany { what, count, limit });
        }
    }

    /// Reads a list of integers within bounds, without duplicates.
    pub fn numbers(
        &mut self,
        key: &'static str,
        bounds: (i64, i64),
        what: &'static str,
        findings: &mut Findings,
    ) -> Option<Vec<u16>> {
        let mut numbers = Vec::new();
        for (object, item) in self.items(key, findings)? {
            let Some(number) = number_in::<u16>(&object, item, bounds, "", findings) else { continue };
            if numbers.contains(&number) {
                findings.add(item.place, object, Cause::Repeated { what, value: number.to_string() });
                continue;
            }
            numbers.push(number);
        }
        Some(numbers)
    }
}

pub(crate) fn number_in<T: TryFrom<i64>>(
    object: &str,
    node: &Node,
    (min, max): (i64, i64),
    unit: &'static str,
    findings: &mut Findings,
) -> Option<T> {
    let cause = match node.value {
        Value::Integer(value) if (min..=max).contains(&value) => return T::try_from(value).ok(),
        Value::Integer(value) => Cause::OutOfRange { value, min, max, unit },
        Value::Huge => Cause::OutOfRange { value: i64::MAX, min, max, unit },
        ref other => Cause::WrongType { expected: "a whole number", found: other.found() },
    };
    findings.add(node.place, object, cause);
    None
}

pub(crate) fn vlan_in(object: &str, node: &Node, findings: &mut Findings) -> Option<VlanId> {
    let bounds = (VlanId::MIN.get().into(), VlanId::MAX.get().into());
    number_in(object, node, bounds, "", findings).and_then(VlanId::new)
}

/// Returns a function that builds the cause of a problem for an invalid object name. `what` names the kind of the
/// object.
pub(crate) fn bad_name(what: &'static str) -> impl Fn(&str, NameError) -> Cause {
    move |text, source| Cause::BadName { text: text.to_owned(), what, source }
}
