//! Numbers for names: the data path knows ports and bridges by dense numbers, people by names. A number stays with its
//! name while the object lives; a port's number is used again only when all others are taken, because counters outlive
//! ports.

use std::collections::BTreeMap;

use packet::{BridgeId, PortId};

/// Hands out numbers below a limit.
#[derive(Clone, Debug)]
pub struct Numbers {
    names: BTreeMap<u16, String>,
    next: u16,
    limit: u16,
}

impl Numbers {
    /// Numbers from 0 up to, not including, `limit`.
    pub fn below(limit: u16) -> Self {
        Numbers { names: BTreeMap::new(), next: 0, limit }
    }

    /// A number for a name: fresh ones first, then those that were given back. `None` when all are in use.
    pub fn take(&mut self, name: &str) -> Option<u16> {
        let fresh = (self.next < self.limit).then_some(self.next);
        let number = fresh.or_else(|| (0..self.limit).find(|number| !self.names.contains_key(number)))?;
        self.insert(number, name);
        Some(number)
    }

    /// Gives a name the number that it had in a predecessor process.
    pub fn insert(&mut self, number: u16, name: &str) {
        self.next = self.next.max(number.saturating_add(1));
        self.names.insert(number, name.to_owned());
    }

    /// Gives a number back.
    pub fn release(&mut self, number: u16) {
        self.names.remove(&number);
    }

    /// Gives the numbers of all names back that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.names.retain(|_, name| keep(name));
    }

    /// The name behind a number, or the number in words.
    pub fn name(&self, number: u16) -> String {
        self.names.get(&number).cloned().unwrap_or_else(|| format!("#{number}"))
    }

    /// The number of a name.
    pub fn find(&self, name: &str) -> Option<u16> {
        self.names.iter().find(|(_, own)| *own == name).map(|(number, _)| *number)
    }
}

/// The names of everything that steps and drops mention.
#[derive(Clone, Debug)]
pub struct Names {
    /// Ports.
    pub ports: Numbers,
    /// Bridges.
    pub bridges: Numbers,
}

impl Names {
    /// Nothing is named yet.
    pub fn new() -> Self {
        let limit = u16::try_from(engine::counters::MAX_PORTS).unwrap_or(u16::MAX);
        Names { ports: Numbers::below(limit), bridges: Numbers::below(u16::MAX) }
    }

    /// A port's name.
    pub fn port(&self, id: PortId) -> String {
        self.ports.name(id.0)
    }

    /// A bridge's name.
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
