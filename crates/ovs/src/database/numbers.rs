//! Assignment of OpenFlow port numbers to interfaces. The interface of a bridge itself has the number 65534. Each other
//! interface has the number that its database row requests. If the row requests no number, or that number is taken, the
//! interface keeps its previous number. An interface without a previous number gets the lowest free number.
//!
//! An interface keeps its number as long as it is in the tables. The number survives a restart because it is
//! stored in the database.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Desired, Interface, Uuid};

/// OpenFlow port number of a bridge's own interface (`OFPP_LOCAL`).
pub const LOCAL: u16 = 65_534;
/// Highest OpenFlow port number that is assigned: `OFPP_MAX` of OpenFlow 1.0, minus one.
const HIGHEST: u16 = 65_279;

/// OpenFlow port numbers of the interfaces in the OVSDB tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    held: BTreeMap<Uuid, u16>,
    /// Interfaces that cannot be configured. Their OpenFlow port numbers stay reserved.
    idle: BTreeSet<Uuid>,
}

impl Numbers {
    /// Returns the OpenFlow port number of an interface. Returns `None` if the interface has no number or
    /// cannot be configured.
    pub fn of(&self, interface: Uuid) -> Option<u16> {
        self.held.get(&interface).copied().filter(|_| !self.idle.contains(&interface))
    }

    /// Assigns an OpenFlow port number to every interface of the OVSDB tables that is not in `refused`. An
    /// interface that is no longer in the tables loses its number.
    pub fn assign(&mut self, desired: &Desired, refused: &BTreeMap<Uuid, String>) {
        let mut all = BTreeMap::new();
        self.idle.clear();
        for (name, bridge) in &desired.bridges {
            let mut interfaces: Vec<(&String, &Interface)> =
                bridge.ports.values().flat_map(|port| &port.interfaces).collect();
            let told = |interface: &Interface| interface.ofport.and_then(|number| u16::try_from(number).ok());
            // An interface that has its requested number keeps it, even if another interface requests the
            // number.
            let lacks = |interface: &Interface| {
                let has = self.held.get(&interface.uuid).copied().or_else(|| told(interface));
                interface.ofport_request.is_none() || interface.ofport_request != has
            };
            interfaces.sort_by_key(|(_, interface)| lacks(interface));
            let mut taken = BTreeMap::new();
            let mut take = |number: Option<u16>, row: Uuid| {
                let free =
                    number.filter(|number| (1..=HIGHEST).contains(number) && !taken.contains_key(number));
                free.map(|number| taken.insert(number, row)).is_some()
            };
            let mut left = Vec::new();
            for (own, interface) in &interfaces {
                if refused.contains_key(&interface.uuid) {
                    self.idle.insert(interface.uuid);
                }
                if *own == name {
                    all.insert(interface.uuid, LOCAL);
                } else if !take(interface.ofport_request, interface.uuid) {
                    left.push(*interface);
                }
            }
            left.retain(|interface| !take(self.held.get(&interface.uuid).copied(), interface.uuid));
            left.retain(|interface| !take(told(interface), interface.uuid));
            let mut lowest = 1;
            for interface in left.into_iter().filter(|interface| !refused.contains_key(&interface.uuid)) {
                while lowest <= HIGHEST && !take(Some(lowest), interface.uuid) {
                    lowest += 1;
                }
            }
            all.extend(taken.into_iter().map(|(number, row)| (row, number)));
        }
        self.held = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::{Bridge, Port};

    fn desired(ports: &[(&str, u128, Option<u16>, Option<i64>)]) -> Desired {
        let mut bridge = Bridge::default();
        for (name, row, ofport_request, ofport) in ports {
            let (ofport_request, ofport) = (*ofport_request, *ofport);
            let interface = Interface { uuid: Uuid(*row), ofport_request, ofport, ..Interface::default() };
            let interfaces = [((*name).to_owned(), interface)].into();
            bridge.ports.insert((*name).to_owned(), Port { interfaces, ..Port::default() });
        }
        Desired { bridges: [("br0".to_owned(), bridge)].into(), ..Desired::default() }
    }

    #[test]
    fn who_asks_gets_it_and_who_had_keeps_it() {
        let mut numbers = Numbers::default();
        let of = |numbers: &Numbers| (1..=5).map(|row| numbers.of(Uuid(row))).collect::<Vec<_>>();
        let first = desired(&[
            ("br0", 1, None, None),
            ("a", 2, None, None),
            ("b", 3, Some(1), None),
            ("c", 4, None, Some(9)),
        ]);
        numbers.assign(&first, &BTreeMap::new());
        assert_eq!(of(&numbers), [Some(LOCAL), Some(2), Some(1), Some(9), None]);
        // `b` was removed. The next new interface takes its number, and `a` keeps its own.
        let second = desired(&[
            ("br0", 1, None, None),
            ("a", 2, None, Some(2)),
            ("c", 4, None, Some(9)),
            ("d", 5, None, Some(2)),
        ]);
        numbers.assign(&second, &BTreeMap::new());
        assert_eq!(of(&numbers), [Some(LOCAL), Some(2), None, Some(9), Some(1)]);
        // A refused interface has no number, and gets its own back later.
        numbers.assign(&second, &[(Uuid(2), "gone".to_owned())].into());
        assert_eq!(numbers.of(Uuid(2)), None);
        numbers.assign(&second, &BTreeMap::new());
        assert_eq!(numbers.of(Uuid(2)), Some(2));
    }

    #[test]
    fn a_number_that_two_ask_for_is_one_of_theirs() {
        let mut numbers = Numbers::default();
        numbers.assign(&desired(&[("a", 2, Some(7), None), ("b", 3, Some(7), None)]), &BTreeMap::new());
        assert_eq!((numbers.of(Uuid(2)), numbers.of(Uuid(3))), (Some(7), Some(1)));
        // A request for a number that another interface requests and has is not granted, whatever the names,
        // also after a restart.
        let asked = desired(&[("a", 2, Some(1), Some(7)), ("b", 3, Some(1), Some(1))]);
        numbers.assign(&asked, &BTreeMap::new());
        assert_eq!((numbers.of(Uuid(2)), numbers.of(Uuid(3))), (Some(7), Some(1)));
        let mut restarted = Numbers::default();
        restarted.assign(&asked, &BTreeMap::new());
        assert_eq!(restarted, numbers);
        // Two interfaces swap their numbers.
        numbers.assign(&desired(&[("a", 2, Some(1), None), ("b", 3, Some(7), None)]), &BTreeMap::new());
        assert_eq!((numbers.of(Uuid(2)), numbers.of(Uuid(3))), (Some(1), Some(7)));
    }
}
