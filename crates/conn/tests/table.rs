//! Comparison of the connection table with a naive table over random sequences of changes, and cases of full tables,
//! floods and times that wrap.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod naive;

use std::collections::HashSet;

use conn::table::{NewConnection, Refused, Sizes, Table};
use conn::timeout::LONGEST_TIMEOUT;
use conn::tuple::{Address, End, Side, Tuple, TupleHash};
use conn::zone::Zones;
use naive::Model;
use proptest::prelude::*;

/// Zones of the tuples in these tests.
const ZONES: u16 = 3;

/// A random change. Numbers select a tuple.
#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u64),
    Establish(u8),
    SetExpires(u8, u64),
    Remove(u8),
    Advance(u64),
    Sweep,
    FlushZone(u16, u32),
    Limit(u16, Option<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let timeout = prop_oneof![5 => 1..100_u64, 1 => Just(u64::from(LONGEST_TIMEOUT))];
    prop_oneof![
        8 => (any::<u8>(), timeout.clone()).prop_map(|(tuple, timeout)| Step::Insert(tuple, timeout)),
        4 => any::<u8>().prop_map(Step::Establish),
        2 => (any::<u8>(), timeout).prop_map(|(tuple, timeout)| Step::SetExpires(tuple, timeout)),
        2 => any::<u8>().prop_map(Step::Remove),
        4 => (0..60_u64).prop_map(Step::Advance),
        1 => Just(Step::Sweep),
        1 => (0..ZONES, 1..5_u32).prop_map(|(zone, slice)| Step::FlushZone(zone, slice)),
        1 => (0..ZONES, prop::option::of(0..6_u32)).prop_map(|(zone, limit)| Step::Limit(zone, limit)),
    ]
}

/// A table beside its model. The time of the table wraps soon after the start.
struct Pair<A> {
    table: Table<A>,
    zones: Zones,
    model: Model<A>,
    now: u64,
    tuples: Vec<Tuple<A>>,
}

impl<A: Address> Pair<A> {
    fn new(sizes: Sizes, tuples: Vec<Tuple<A>>) -> Pair<A> {
        let (table, zones, model) = (Table::new(sizes, TupleHash::new()), Zones::new(), Model::new(sizes));
        Pair { table, zones, model, now: u64::from(u32::MAX) - 200, tuples }
    }

    fn tuple(&self, number: u8) -> Tuple<A> {
        self.tuples[usize::from(number) % self.tuples.len()]
    }

    fn insert(&mut self, tuple: Tuple<A>, side: Side, timeout: u64) {
        let expires = self.now + timeout;
        let inserted = self.table.insert(
            &self.zones,
            &NewConnection::of(tuple, side, wrapped(expires)),
            wrapped(self.now),
        );
        let expected = self.model.insert(tuple, side, self.now, expires);
        let found = inserted.map(|_| ()).map_err(|refused| match refused {
            Refused::Exists(_) => naive::Refused::Exists,
            Refused::ZoneFull => naive::Refused::ZoneFull,
            Refused::TableFull => naive::Refused::TableFull,
            other => panic!("the table has slots, no marks and no translations: {other}"),
        });
        assert_eq!(found, expected);
    }

    fn step(&mut self, step: &Step) {
        let now = wrapped(self.now);
        match *step {
            Step::Insert(number, timeout) => {
                let side = if number & 64 == 0 { Side::Low } else { Side::High };
                self.insert(self.tuple(number), side, timeout);
            }
            Step::Establish(number) => {
                let tuple = self.tuple(number);
                if let Some(id) = self.table.find(&tuple, now) {
                    self.table.establish(id);
                    self.model.establish(&tuple);
                }
            }
            Step::SetExpires(number, timeout) => {
                let tuple = self.tuple(number);
                if let Some(id) = self.table.find(&tuple, now) {
                    self.table.set_expires(id, wrapped(self.now + timeout));
                    self.model.connections.get_mut(&tuple).unwrap().expires = self.now + timeout;
                }
            }
            Step::Remove(number) => {
                let tuple = self.tuple(number);
                if let Some(id) = self.table.find(&tuple, now) {
                    self.table.remove(id);
                    self.model.remove(&tuple);
                }
            }
            Step::Advance(ms) => self.now += ms,
            Step::Sweep => {
                let removed = self.table.sweep(now, u32::MAX);
                let at = self.now;
                assert_eq!(removed as usize, self.model.retain(|_, known| known.expires > at));
            }
            Step::FlushZone(zone, slice) => {
                let mut next = self.table.flush_zone(zone, None, slice);
                while next.is_some() {
                    next = self.table.flush_zone(zone, next, slice);
                }
                self.model.retain(|tuple, _| tuple.zone != zone);
            }
            Step::Limit(zone, limit) => {
                self.zones.set_limit(zone, limit);
                self.model.limits.remove(&zone);
                self.model.limits.extend(limit.map(|limit| (zone, limit)));
            }
        }
    }

    /// Compares everything that can be read.
    fn compare(&self) {
        let now = wrapped(self.now);
        let mut found = vec![None; self.tuples.len()];
        self.table.find_burst(&self.tuples, now, &mut found);
        for (tuple, id) in self.tuples.iter().zip(&found) {
            assert_eq!(self.table.find(tuple, now), *id);
            let known = id.map(|id| {
                let entry = self.table.get(id).unwrap();
                assert_eq!(entry.tuple(), *tuple);
                (entry.originator(), entry.is_embryonic(), self.table.expires(id).unwrap())
            });
            let expected = self.model.find(tuple, self.now);
            let expected =
                expected.map(|known| (known.originator, known.is_embryonic, wrapped(known.expires)));
            assert_eq!(known, expected);
        }
        assert_eq!(self.table.count() as usize, self.model.connections.len());
        assert_eq!(self.table.embryonic_count() as usize, self.model.embryonic.len());
        for zone in 0..ZONES {
            assert_eq!(self.table.zone_count(zone) as usize, self.model.count(zone));
        }
        let listed: Vec<_> =
            self.table.connections(0, u32::MAX, now).map(|(_, entry)| entry.tuple()).collect();
        let live = self.tuples.iter().filter(|tuple| self.model.find(tuple, self.now).is_some());
        assert_eq!(listed.len(), listed.iter().collect::<HashSet<_>>().len());
        assert_eq!(listed.iter().collect::<HashSet<_>>(), live.collect::<HashSet<_>>());
    }
}

#[allow(clippy::cast_possible_truncation, reason = "times of the table wrap")]
fn wrapped(time: u64) -> u32 {
    time as u32
}

fn tuple<A: Address + From<u32>>(number: u32) -> Tuple<A> {
    let (source, destination) =
        (End { address: A::from(number), port: 1 }, End { address: A::from(7), port: 2 });
    Tuple::of_ends(u16::try_from(number).unwrap_or(0) % ZONES, 17, source, destination).0
}

fn agree<A: Address + From<u32>>(sizes: Sizes, steps: &[Step]) {
    let mut pair = Pair::<A>::new(sizes, (0..40).map(tuple).collect());
    for step in steps {
        pair.step(step);
        pair.compare();
    }
}

proptest! {
    #[test]
    fn the_table_agrees_with_the_model(
        entries in 1..24_u32, embryonic in 1..12_u32, steps in prop::collection::vec(step(), 1..150),
    ) {
        agree::<u32>(Sizes { entries, embryonic, extensions: 0, translations: 0 }, &steps);
        agree::<u128>(Sizes { entries, embryonic, extensions: 0, translations: 0 }, &steps);
    }
}

/// Runs a large table through its life beside the model: filled, replaced at full load, and swept until it is empty.
#[test]
fn a_large_table_agrees_with_the_model_at_full_load() {
    const ENTRIES: u32 = 20_000;
    let sizes = Sizes { entries: ENTRIES, embryonic: 500, extensions: 0, translations: 0 };
    let mut pair = Pair::<u32>::new(sizes, Vec::new());
    for number in 0..3 * ENTRIES {
        let new = tuple(number);
        pair.insert(new, Side::High, 1_000_000);
        if let Some(id) = pair.table.find(&new, wrapped(pair.now)) {
            pair.table.establish(id);
            pair.model.establish(&new);
        }
        // At full load, each new connection takes the place of one that ends.
        if number > ENTRIES && number % 2 == 0 {
            let old = tuple(number - ENTRIES);
            if let Some(id) = pair.table.find(&old, wrapped(pair.now)) {
                pair.table.remove(id);
                pair.model.remove(&old);
            }
        }
    }
    assert_eq!(pair.table.count(), ENTRIES);
    assert!(pair.table.counts().table_full > 0);
    assert_eq!(pair.table.counts().crowded, 0);
    pair.tuples = (0..3 * ENTRIES).map(tuple).collect();
    pair.compare();
    pair.now += 1_000_000;
    let slices = (0..ENTRIES.div_ceil(64)).map(|_| pair.table.sweep(wrapped(pair.now), 64));
    assert_eq!(slices.sum::<u32>(), ENTRIES);
    pair.model.retain(|_, _| false);
    pair.compare();
}

/// Live entries evicted by new ones (cilium #3239, #20068).
#[test]
fn a_flood_displaces_no_established_connection_and_lets_new_ones_be_established() {
    let sizes = Sizes { entries: 1000, embryonic: 100, extensions: 0, translations: 0 };
    let (mut table, zones) = (Table::<u32>::new(sizes, TupleHash::new()), Zones::new());
    let open = |table: &mut Table<u32>, number| {
        table.insert(&zones, &NewConnection::of(tuple(number), Side::Low, 60_000), 0)
    };
    for number in 0..801 {
        let id = open(&mut table, number).unwrap();
        table.establish(id);
    }
    for round in 0..99 {
        // An answer that arrives within 99 opening packets finds its connection.
        let late = open(&mut table, 801 + round).unwrap();
        for flood in 0..99 {
            open(&mut table, 10_000 + 100 * round + flood).unwrap();
        }
        assert_eq!(table.find(&tuple(801 + round), 1), Some(late));
        table.establish(late);
        assert!(table.embryonic_count() <= 100);
    }
    assert!((0..900).all(|number| table.find(&tuple(number), 1).is_some()));
    // The remaining places go to established connections. Then the table refuses the flood.
    for number in 900..1000 {
        let last = open(&mut table, number).unwrap();
        table.establish(last);
    }
    assert_eq!(open(&mut table, 5000), Err(Refused::TableFull));
    assert!((0..1000).all(|number| table.find(&tuple(number), 1).is_some()));
    assert_eq!(table.counts().table_full, 1);
}

#[test]
fn a_flood_within_a_zone_does_not_close_the_zone() {
    let (mut table, mut zones) = (Table::<u32>::new(Sizes::of_entries(1000), TupleHash::new()), Zones::new());
    zones.set_limit(0, Some(20));
    let open = |table: &mut Table<u32>, number| {
        table.insert(&zones, &NewConnection::of(tuple(number), Side::Low, 60_000), 0)
    };
    // The tuples of these numbers are in zone 0. Another zone has as many embryonic connections.
    for number in (0..300).step_by(3) {
        let new = open(&mut table, number).unwrap();
        open(&mut table, number + 1).unwrap();
        if number < 57 {
            table.establish(new);
        }
    }
    // 19 connections are established. The last place of the zone goes from one new connection to the next.
    let last = open(&mut table, 3000).unwrap();
    assert_eq!(table.find(&tuple(3000), 1), Some(last));
    table.establish(last);
    assert_eq!(open(&mut table, 3003), Err(Refused::ZoneFull));
    assert!((0..57).step_by(3).all(|number| table.find(&tuple(number), 1).is_some()));
}

/// A zone whose limit became smaller than its number of connections loses no connection to a refused one.
#[test]
fn a_refused_connection_displaces_none() {
    let (mut table, mut zones) = (Table::<u32>::new(Sizes::of_entries(100), TupleHash::new()), Zones::new());
    for number in [0, 3, 6] {
        table.insert(&zones, &NewConnection::of(tuple(number), Side::Low, 60_000), 0).unwrap();
    }
    for limit in [2, 0] {
        zones.set_limit(0, Some(limit));
        assert_eq!(
            table.insert(&zones, &NewConnection::of(tuple(9), Side::Low, 60_000), 0),
            Err(Refused::ZoneFull)
        );
    }
    assert_eq!((table.zone_count(0), table.counts().displaced, table.counts().zone_full), (3, 0, 2));
}

/// The tables of both address families share the settings of a zone. IPv6 connections take no place of IPv4 ones.
#[test]
fn a_zone_has_its_limit_in_each_address_family() {
    let sizes = Sizes::of_entries(100);
    let (mut four, mut six) =
        (Table::<u32>::new(sizes, TupleHash::new()), Table::new(sizes, TupleHash::new()));
    let mut zones = Zones::new();
    zones.set_limit(0, Some(2));
    for number in [0, 3] {
        let id = six.insert(&zones, &NewConnection::of(tuple::<u128>(number), Side::Low, 60_000), 0).unwrap();
        four.insert(&zones, &NewConnection::of(tuple::<u32>(number), Side::Low, 60_000), 0).unwrap();
        six.establish(id);
    }
    assert_eq!((four.zone_count(0), six.zone_count(0)), (2, 2));
    // The oldest IPv4 connection gives way to a new one, and the IPv6 table is full of established connections.
    assert!(four.insert(&zones, &NewConnection::of(tuple::<u32>(6), Side::Low, 60_000), 0).is_ok());
    let refused = six.insert(&zones, &NewConnection::of(tuple::<u128>(6), Side::Low, 60_000), 0);
    assert_eq!((refused, four.counts().displaced), (Err(Refused::ZoneFull), 1));
}

#[test]
fn an_ipv4_connection_takes_65_bytes_and_an_ipv6_connection_89() {
    let sizes = Sizes { entries: 1 << 20, embryonic: 1, extensions: 0, translations: 0 };
    let bytes = |memory: usize| memory as f64 / f64::from(sizes.entries);
    let four = bytes(Table::<u32>::new(sizes, TupleHash::new()).memory());
    let six = bytes(Table::<u128>::new(sizes, TupleHash::new()).memory());
    assert!(four < 64.6 && six < 88.6, "{four} and {six} bytes");
}

#[test]
fn an_entry_that_was_removed_is_gone_for_its_number_too() {
    let (mut table, zones) = (Table::<u32>::new(Sizes::of_entries(4), TupleHash::new()), Zones::new());
    let id = table.insert(&zones, &NewConnection::of(tuple(1), Side::Low, 10), 0).unwrap();
    table.remove(id);
    table.remove(id);
    table.establish(id);
    table.set_expires(id, 1000);
    assert!(table.get(id).is_none() && table.expires(id).is_none());
    assert_eq!((table.count(), table.embryonic_count(), table.zone_count(1)), (0, 0, 0));
}
