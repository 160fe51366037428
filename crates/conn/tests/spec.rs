//! Tests of the choice of translated ends for source and destination NAT.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use conn::nat::mapping::Mapping;
use conn::nat::ports::{Choice, Lease, NotAllocated, Ports, Selection};
use conn::nat::spec::{Nat, Target, Translation};
use conn::tuple::{End, Query, QueryClass, Side, Tuple};

const CLIENT: u32 = 0x0a00_0002;
const SERVER: u32 = 0x0a00_0009;
const PUBLIC: u32 = 0xc633_6401;

fn connection(protocol: u8, from: (u32, u16), to: (u32, u16)) -> (Tuple<u32>, Side) {
    let end = |(address, port)| End { address, port };
    Tuple::of_ends(3, protocol, end(from), end(to))
}

fn nat(target: Target, addresses: [u32; 2], ports: Option<[u16; 2]>) -> Nat<u32> {
    let [first_address, last_address] = addresses;
    Nat { target, first_address, last_address, ports, selection: Selection::default() }
}

fn ends(connection: (Tuple<u32>, Side), chosen: &Translation<u32>) -> [(u32, u16); 2] {
    let mapping = Mapping::of_tuples(connection, (chosen.reply_tuple, chosen.originator));
    mapping.translated.map(|end| (end.address, end.port))
}

#[test]
fn a_source_keeps_its_port_or_its_class_of_ports() {
    let (mut ports, nat) = (Ports::new(1000), nat(Target::Source, [PUBLIC; 2], None));
    for (port, class) in [(7, 1..=511), (520, 600..=1023), (700, 600..=1023), (5000, 1024..=65_535)] {
        let new = connection(17, (CLIENT, port), (SERVER, 53));
        let mut chosen = || nat.choose(&mut ports, &new.0, new.1, |_| true).unwrap();
        let [[first, server], [second, _]] = [ends(new, &chosen()), ends(new, &chosen())];
        assert_eq!((first.0, server), (PUBLIC, (SERVER, 53)));
        assert!(class.contains(&first.1) && class.contains(&second.1) && second.1 != port);
        assert_eq!(first.1 == port, class.contains(&port));
    }
    let random = Selection { choice: Choice::Random, is_persistent: false };
    let new = connection(17, (CLIENT, 5000), (SERVER + 1, 53));
    let chosen = Nat { selection: random, ..nat }.choose(&mut ports, &new.0, new.1, |_| true).unwrap();
    assert_ne!(ends(new, &chosen)[0].1, 5000);
}

#[test]
fn a_source_has_an_address_and_port_of_the_range() {
    let (mut ports, nat) = (Ports::new(1000), nat(Target::Source, [PUBLIC, PUBLIC + 1], Some([80, 83])));
    let mut leases = Vec::new();
    for client in 0..8 {
        let new = connection(6, (CLIENT + client, 5000), (SERVER, 443));
        let chosen = nat.choose(&mut ports, &new.0, new.1, |_| true).unwrap();
        let [source, _] = ends(new, &chosen);
        assert!((PUBLIC..PUBLIC + 2).contains(&source.0) && (80..84).contains(&source.1));
        leases.push((source, chosen.lease, CLIENT + client));
    }
    assert_eq!(leases.iter().map(|(source, ..)| source).collect::<HashSet<_>>().len(), 8);
    let new = connection(6, (CLIENT, 5000), (SERVER, 443));
    let choose = |ports: &mut Ports<u32>| nat.choose(ports, &new.0, new.1, |_| true);
    assert_eq!(choose(&mut ports), Err(NotAllocated::Exhausted));
    // The lease and the subscriber release the port.
    let (source, lease, client) = leases[5];
    assert!(ports.end_lease(lease, 3, client) && !ports.end_lease(lease, 3, client));
    assert_eq!(ends(new, &choose(&mut ports).unwrap())[0], source);
}

/// Open vSwitch calls this `ct_zero_snat`. OVN uses it for connections that are not translated.
#[test]
fn a_source_of_zero_changes_only_if_the_tuple_of_the_replies_exists() {
    let (mut ports, nat) = (Ports::new(1000), nat(Target::Source, [0; 2], None));
    let new = connection(17, (CLIENT, 5000), (SERVER, 53));
    let chosen = nat.choose(&mut ports, &new.0, new.1, |_| panic!("the tuple is its own")).unwrap();
    assert_eq!((chosen.reply_tuple, ends(new, &chosen)), (new.0, [(CLIENT, 5000), (SERVER, 53)]));
    let chosen = nat.choose(&mut ports, &new.0, new.1, |_| true).unwrap();
    let [source, destination] = ends(new, &chosen);
    assert!(source.0 == CLIENT && source.1 != 5000 && destination == (SERVER, 53));
}

#[test]
fn a_destination_is_chosen_by_hash_and_the_next_one_if_it_exists() {
    let mut ports = Ports::new(1000);
    let nat = nat(Target::Destination, [SERVER, SERVER + 3], None);
    let mut addresses = HashSet::new();
    for port in 1000..1100 {
        let new = connection(6, (CLIENT, port), (PUBLIC, 80));
        let chosen = nat.choose(&mut ports, &new.0, new.1, |_| true).unwrap();
        let [source, destination] = ends(new, &chosen);
        assert_eq!((source, destination.1, chosen.lease), ((CLIENT, port), 80, Lease::NONE));
        addresses.insert(destination.0);
        // The choice repeats, and skips the destinations that are refused.
        assert_eq!(nat.choose(&mut ports, &new.0, new.1, |_| true), Ok(chosen));
        let is_last =
            |tuple: &Tuple<u32>| ends(new, &Translation { reply_tuple: *tuple, ..chosen })[1].0 == SERVER + 3;
        let last = nat.choose(&mut ports, &new.0, new.1, is_last).unwrap();
        assert_eq!(ends(new, &last), [(CLIENT, port), (SERVER + 3, 80)]);
    }
    assert_eq!(addresses.len(), 4);
    // With a persistent choice, all connections of a client have one address, also after a restart.
    let selection = Selection { is_persistent: true, ..Selection::default() };
    let nat = Nat { selection, ports: Some([8000, 8009]), ..nat };
    let (mut addresses, mut chosen_ports) = (HashSet::new(), HashSet::new());
    for port in 1000..1100 {
        let new = connection(6, (CLIENT, port), (PUBLIC, 80));
        let chosen = nat.choose(&mut Ports::new(10), &new.0, new.1, |_| true).unwrap();
        let [_, (address, port)] = ends(new, &chosen);
        addresses.insert(address);
        chosen_ports.insert(port);
    }
    assert_eq!((addresses.len(), chosen_ports.len()), (1, 10));
}

/// Two addresses of a server are translated to the same destination. A client that uses one source port for both
/// addresses needs another source port for the second connection.
#[test]
fn a_destination_with_a_clash_leads_to_another_source_port() {
    let (mut ports, nat) = (Ports::new(1000), nat(Target::Destination, [SERVER; 2], Some([80, 80])));
    let new = connection(6, (CLIENT, 5000), (PUBLIC, 80));
    let taken = connection(6, (CLIENT, 5000), (SERVER, 80)).0;
    let chosen = nat.choose(&mut ports, &new.0, new.1, |tuple| *tuple != taken).unwrap();
    let [source, destination] = ends(new, &chosen);
    assert!(source.0 == CLIENT && source.1 != 5000 && destination == (SERVER, 80));
    assert_eq!((chosen.target, ports.subscriber_ports(3, CLIENT)), (Target::Destination, 1));
    assert!(ports.end_lease(chosen.lease, 3, CLIENT));
    // A protocol without ports has no other source.
    let new = connection(47, (CLIENT, 0), (PUBLIC, 0));
    assert_eq!(nat.choose(&mut ports, &new.0, new.1, |_| false), Err(NotAllocated::Clash));
}

#[test]
fn queries_are_translated_by_address_and_identifier() {
    let mut ports = Ports::new(1000);
    let query = Query { class: QueryClass::Timestamp, identifier: 7, is_reply: false };
    let new = Tuple::of_query(3, 1, CLIENT, SERVER, query);
    let source = nat(Target::Source, [PUBLIC; 2], None);
    for is_kept in [true, false] {
        let chosen = source.choose(&mut ports, &new.0, new.1, |_| true).unwrap();
        let [from, to] = ends(new, &chosen);
        assert!(from.0 == PUBLIC && (from.1 == 7) == is_kept && to == (SERVER, 0));
        assert_eq!(chosen.reply_tuple.query(), Some(QueryClass::Timestamp));
    }
    let destination = nat(Target::Destination, [SERVER + 5; 2], Some([80, 80]));
    let chosen = destination.choose(&mut ports, &new.0, new.1, |_| true).unwrap();
    assert_eq!(ends(new, &chosen), [(CLIENT, 7), (SERVER + 5, 0)]);
}

/// The direction of packets between exchanged or equal ends would be ambiguous.
#[test]
fn ends_are_neither_exchanged_nor_equal() {
    let mut ports = Ports::new(1000);
    let new = connection(17, (CLIENT, 9), (CLIENT, 10));
    let nat = nat(Target::Destination, [CLIENT; 2], Some([9, 9]));
    let mut offered = HashSet::new();
    let refused = nat.choose(&mut ports, &new.0, new.1, |tuple| {
        assert_ne!(*tuple, new.0);
        offered.insert(*tuple);
        false
    });
    // All ports below 512 are offered, except the ports of the original and of the translated destination.
    assert_eq!((refused, offered.len()), (Err(NotAllocated::Clash), 509));
}
