//! Tests of the table of expected connections: limits and time-outs, and a comparison with a naive table.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use conn::extension::Extension;
use conn::helper::expectation::{Expectation, Expectations, Limits, NotExpected, Parent};
use conn::nat::spec::Nat;
use conn::table::{EntryId, NewConnection, Sizes, Table};
use conn::timeout::LONGEST_TIMEOUT;
use conn::tuple::{End, Side, Tuple, TupleHash};
use conn::zone::Zones;
use proptest::prelude::*;

/// Returns identifiers of connections, which only a table gives.
fn ids() -> Vec<EntryId> {
    let (mut table, zones) = (Table::<u32>::new(Sizes::of_entries(64), TupleHash::new()), Zones::new());
    let mut insert = |port| {
        let (tuple, side) = Tuple::of_ends(0, 6, End { address: 1, port }, End { address: 2, port: 21 });
        table.insert(&zones, &NewConnection::of(tuple, side, 1000), 0).unwrap()
    };
    (1..8).map(&mut insert).collect()
}

/// Returns an expectation of a connection from a source to an address and a port.
fn expectation(parent: Parent, source: u32, address: u32, port: u16) -> Expectation<u32> {
    let (destination, extension) = (End { address, port }, Extension { mark: 7, label: 8 });
    Expectation {
        parent,
        zone: 3,
        protocol: 6,
        source,
        destination,
        extension,
        nat: None,
        is_single_use: true,
    }
}

/// Returns the tuple and the side of a packet from a source with this port.
fn packet(source: (u32, u16), destination: (u32, u16)) -> (Tuple<u32>, Side) {
    let end = |(address, port)| End { address, port };
    Tuple::of_ends(3, 6, end(source), end(destination))
}

#[test]
fn the_defaults_are_those_of_linux() {
    assert_eq!(Limits::default(), Limits { expectations: 4096, per_parent: 1, timeout: 300_000 });
    let most = Limits { expectations: 0, per_parent: 0, timeout: u32::MAX };
    let limits = Expectations::<u32>::new(most, TupleHash::new()).limits();
    assert_eq!(limits, Limits { expectations: 1, per_parent: 1, timeout: LONGEST_TIMEOUT });
}

#[test]
fn only_the_source_port_is_free() {
    let parent = Parent { worker: 0, id: ids()[0] };
    let mut table = Expectations::new(Limits::default(), TupleHash::new());
    let expected = expectation(parent, 10, 20, 4000);
    table.expect(&expected, 0).unwrap();
    let found = |table: &Expectations<u32>, (tuple, source): (Tuple<u32>, Side)| {
        table.find(&tuple, source, 1).copied()
    };
    for port in [0, 1, 20, 4000, u16::MAX] {
        let packet = packet((10, port), (20, 4000));
        assert_eq!(found(&table, packet), Some(expected));
        // The tuple has both directions, and only one is expected.
        assert_eq!(found(&table, (packet.0, packet.1.opposite())), None);
        let (tuple, source) = packet;
        for other in [Tuple { zone: 4, ..tuple }, Tuple { protocol: 17, ..tuple }] {
            assert_eq!(found(&table, (other, source)), None);
        }
    }
    for (from, to) in [((11, 20), (20, 4000)), ((10, 20), (21, 4000)), ((10, 20), (20, 4001))] {
        assert_eq!(found(&table, packet(from, to)), None);
    }
    // The ends are on the other sides of the tuple, and the ends have one address.
    for (source, destination) in [(30, 20), (20, 20), (0, 0), (u32::MAX, 0)] {
        let expected = expectation(parent, source, destination, 5);
        table.expect(&expected, 0).unwrap();
        assert_eq!(found(&table, packet((source, 77), (destination, 5))), Some(expected));
    }
}

#[test]
fn an_expectation_ends_with_its_time_out() {
    let ids = ids();
    let mut table = Expectations::new(Limits::default(), TupleHash::new());
    let (tuple, source) = packet((10, 20), (20, 4000));
    for start in [0, 5, u32::MAX - 100_000, LONGEST_TIMEOUT] {
        let expected = expectation(Parent { worker: 0, id: ids[0] }, 10, 20, 4000);
        table.expect(&expected, start).unwrap();
        let at = |after: u32| start.wrapping_add(after);
        assert!(table.find(&tuple, source, at(299_999)).is_some() && table.iter(at(299_999)).count() == 1);
        assert!(table.find(&tuple, source, at(300_000)).is_none() && table.iter(at(300_000)).count() == 0);
        // Another parent takes the place of the expired expectation.
        let other = expectation(Parent { worker: 0, id: ids[1] }, 10, 20, 4000);
        assert!(table.expect(&other, at(299_999)).is_err());
        table.expect(&other, at(300_000)).unwrap();
        assert_eq!((table.count(), table.sweep(at(599_999), 9), table.sweep(at(600_000), 9)), (1, 0, 1));
        assert_eq!(table.count(), 0);
    }
}

/// The names of the refusals. A refused expectation changes nothing.
#[test]
fn a_full_table_refuses_expectations() {
    let parents: Vec<Parent> = ids().into_iter().map(|id| Parent { worker: 1, id }).collect();
    let limits = Limits { expectations: 3, per_parent: 2, timeout: 1000 };
    let mut table = Expectations::new(limits, TupleHash::new());
    let expect = |table: &mut Expectations<u32>, parent: usize, port, now| {
        table.expect(&expectation(parents[parent], 1, 2, port), now)
    };
    let ports = |table: &Expectations<u32>, now| -> Vec<u16> {
        table.iter(now).map(|expected| expected.destination.port).collect()
    };
    for port in 1..=3 {
        assert_eq!(expect(&mut table, usize::from(port / 2), port, 0), Ok(()));
    }
    assert_eq!(ports(&table, 1), [1, 2, 3]);
    assert_eq!(expect(&mut table, 2, 4, 1), Err(NotExpected::Full));
    assert_eq!(expect(&mut table, 2, 3, 1), Err(NotExpected::Exists(parents[1])));
    assert_eq!(ports(&table, 1), [1, 2, 3]);
    // The oldest expectation of a parent gives way, and an equal one begins again.
    assert_eq!(expect(&mut table, 1, 5, 1), Ok(()));
    assert_eq!(ports(&table, 1), [1, 3, 5]);
    assert_eq!(expect(&mut table, 1, 3, 500), Ok(()));
    assert_eq!(ports(&table, 500), [1, 5, 3]);
    // An expired expectation gives way.
    assert_eq!(expect(&mut table, 2, 4, 1000), Ok(()));
    assert_eq!(ports(&table, 1000), [5, 3, 4]);
    // Another worker has another connection with the same identifier.
    let other = Parent { worker: 2, ..parents[1] };
    assert_eq!((table.remove_of(other), table.remove_of(parents[1])), (0, 2));
    assert_eq!(ports(&table, 1000), [4]);
    let expected = expectation(parents[2], 1, 2, 4);
    assert!(!table.remove(&Expectation { nat: Some(Nat::default()), ..expected }));
    assert!(table.remove(&expected) && !table.remove(&expected));
    assert_eq!(table.count(), 0);
    let text = NotExpected::Full.to_string();
    assert_eq!(text, "the table of expected connections is full");
}

/// Expectation with its time of expiry, and a number that states the order of creation.
type Known = (Expectation<u32>, u64, u64);

/// Naive table.
#[derive(Default)]
struct Model {
    expectations: HashMap<(u32, u32, u16), Known>,
    created: u64,
}

impl Model {
    fn expect(&mut self, new: &Expectation<u32>, now: u64, limits: Limits) -> Result<(), NotExpected> {
        self.expectations.retain(|_, (_, expires, _)| *expires > now);
        let key = (new.source, new.destination.address, new.destination.port);
        if let Some((known, ..)) = self.expectations.get(&key) {
            if known.parent != new.parent {
                return Err(NotExpected::Exists(known.parent));
            }
            self.expectations.remove(&key);
        }
        let siblings = || self.expectations.iter().filter(|(_, (other, ..))| other.parent == new.parent);
        if siblings().count() >= limits.per_parent as usize {
            let oldest = *siblings().min_by_key(|(_, (_, _, created))| created).unwrap().0;
            self.expectations.remove(&oldest);
        } else if self.expectations.len() >= limits.expectations as usize {
            return Err(NotExpected::Full);
        }
        self.created += 1;
        self.expectations.insert(key, (*new, now + u64::from(limits.timeout), self.created));
        Ok(())
    }

    fn live(&self, now: u64) -> Vec<Expectation<u32>> {
        let mut live: Vec<_> = self.expectations.values().filter(|(_, expires, _)| *expires > now).collect();
        live.sort_by_key(|(_, _, created)| *created);
        live.into_iter().map(|(expectation, ..)| *expectation).collect()
    }
}

/// One step: kind, parent, worker, source, destination, port, and milliseconds before the next step.
type Step = (u8, usize, u32, u32, u32, u16, u32);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..8_u8, 0..4_usize, 0..2_u32, 0..3_u32, 0..3_u32, 0..4_u16, 0..400_u32);
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_naive_table(expectations in 1..12_u32, per_parent in 1..4_u32, steps in steps()) {
        let (ids, limits) = (ids(), Limits { expectations, per_parent, timeout: 1000 });
        let (mut table, mut model) = (Expectations::new(limits, TupleHash::new()), Model::default());
        let mut now = u64::from(u32::MAX) - 10_000;
        for (kind, parent, worker, source, address, port, after) in steps {
            now += u64::from(after);
            let wrapped = u32::try_from(now & u64::from(u32::MAX)).unwrap();
            let new = expectation(Parent { worker, id: ids[parent] }, source, address, port);
            let key = (source, address, port);
            match kind {
                0..5 => prop_assert_eq!(table.expect(&new, wrapped), model.expect(&new, now, limits)),
                5 => {
                    model.expectations.retain(|_, (other, expires, _)| other.parent != new.parent && *expires > now);
                    table.sweep(wrapped, u32::MAX);
                    table.remove_of(new.parent);
                    prop_assert_eq!(table.count() as usize, model.expectations.len());
                }
                6 => {
                    let known = model.live(now).into_iter().find(|known| *known == new);
                    prop_assert!(known.is_none() || table.remove(&new));
                    if known.is_some() {
                        model.expectations.remove(&key);
                    }
                }
                _ => {
                    table.sweep(wrapped, 2);
                }
            }
            let (tuple, side) = packet((source, 1234), (address, port));
            let found = model.expectations.get(&key).filter(|(_, expires, _)| *expires > now);
            prop_assert_eq!(table.find(&tuple, side, wrapped), found.map(|(known, ..)| known));
            prop_assert_eq!(table.iter(wrapped).copied().collect::<Vec<_>>(), model.live(now));
            prop_assert!(table.count() <= expectations);
        }
    }
}
