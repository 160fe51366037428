//! Numbers of ports and bridges. The data path identifies ports and bridges by small consecutive numbers, the API by
//! names. A port or bridge keeps its number as long as it exists. The number of a removed port is reused only when all
//! other numbers are taken, because the port's counters still exist.

use std::collections::BTreeMap;

use packet::{BridgeId, PortId};

/// An allocator that assigns numbers below a limit to the names of ports or bridges.
#[derive(Clone, Debug)]
pub struct Numbers {
    names: BTreeMap<u16, String>,
    next: u16,
    limit: u16,
}

impl Numbers {
    /// Returns an allocator of the numbers from 0 up to `limit` - 1.
    pub fn below(limit: u16) -> Self {
        Numbers { names: BTreeMap::new(), next: 0, limit }
    }

    /// Allocates a number for a name. Numbers that were never used are preferred to released ones. Returns
    /// `None` when all numbers are in use.
    pub fn take(&mut self, name: &str) -> Option<u16> {
        let fresh = (self.next < self.limit).then_some(self.next);
        let number = fresh.or_else(|| (0..self.limit).find(|number| !self.names.contains_key(number)))?;
        self.insert(number, name);
        Some(number)
    }

    /// Assigns the number `number` to a name that had this number in a predecessor process.
    pub fn insert(&mut self, number: u16, name: &str) {
        self.next = self.next.max(number.saturating_add(1));
        self.names.insert(number, name.to_owned());
    }

    /// Releases a number, so that it can be allocated again.
    pub fn release(&mut self, number: u16) {
        self.names.remove(&number);
    }

    /// Releases the numbers of all names for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.names.retain(|_, name| keep(name));
    }

    /// Returns the name to which a number is assigned. Returns the number as text if it is not assigned to a
    /// name.
    pub fn name(&self, number: u16) -> String {
        self.names.get(&number).cloned().unwrap_or_else(|| format!("#{number}"))
    }

    /// Returns the number that is assigned to a name. Returns `None` if the name has no number.
    pub fn find(&self, name: &str) -> Option<u16> {
        self.names.iter().find(|(_, own)| *own == name).map(|(number, _)| *number)
    }
}

/// Numbers of the ports and bridges. The steps of packet traces and the drop records contain these
/// numbers instead of names.
#[derive(Clone, Debug)]
pub struct Names {
    /// Numbers by which the data path identifies ports, by port name.
    pub ports: Numbers,
    /// Numbers by which the data path identifies bridges, by bridge name.
    pub bridges: Numbers,
}

impl Names {
    /// Creates allocators of numbers for ports and bridges, without any assigned number.
    pub fn new() -> Self {
        let limit = u16::try_from(engine::counters::MAX_PORTS).unwrap_or(u16::MAX);
        Names { ports: Numbers::below(limit), bridges: Numbers::below(u16::MAX) }
    }

    /// Returns the name of the port with this number. Returns the number as text if no port has it.
    pub fn port(&self, id: PortId) -> String {
        self.ports.name(id.0)
    }

    /// Returns the name of the bridge with this number. Returns the number as text if no bridge has it.
    pub fn bridge(&self, id: BridgeId) -> String {
        self.bridges.name(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_only_when_all_are_taken() {
        let mut numbers = Numbers::below(3);
        assert_eq!((numbers.take("a"), numbers.take("b")), (Some(0), Some(1)));
        numbers.release(0);
        assert_eq!(numbers.take("c"), Some(2));
        assert_eq!(numbers.take("d"), Some(0));
        assert_eq!(numbers.take("e"), None);
        assert_eq!((numbers.name(2), numbers.name(9)), ("c".to_owned(), "#9".to_owned()));
        assert_eq!(numbers.find("b"), Some(1));
    }

    #[test]
    fn numbers_of_a_predecessor_are_not_given_out_again() {
        let mut numbers = Numbers::below(10);
        numbers.insert(5, "old");
        assert_eq!(numbers.take("new"), Some(6));
    }
}
