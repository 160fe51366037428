//! Tests of translated connections in a table: both keys lead to one entry, and the port is released with the entry.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::Direction::{Original, Reply};
use conn::extension::Extension;
use conn::nat::ports::NotAllocated;
use conn::nat::spec::{Nat, Target};
use conn::table::{EntryId, NewConnection, Refused, Sizes, Table};
use conn::tuple::{End, Side, Tuple, TupleHash};
use conn::zone::Zones;

const PUBLIC: u32 = 0xc633_6401;
const SERVER: End<u32> = End { address: 9, port: 53 };

/// A table beside the settings of its zones.
struct Case {
    table: Table<u32>,
    zones: Zones,
    now: u32,
}

impl Case {
    fn new(translations: u32) -> Case {
        let sizes = Sizes { entries: 20, embryonic: 10, extensions: 2, translations };
        Case { table: Table::new(sizes, TupleHash::new()), zones: Zones::new(), now: 0 }
    }

    fn insert(&mut self, new: &NewConnection<u32>) -> Result<EntryId, Refused> {
        self.table.insert(&self.zones, new, self.now)
    }

    /// Returns the number of ports in use.
    fn ports(&self) -> u64 {
        let counts = self.table.ports().unwrap().counts();
        counts.allocated - counts.released
    }

    fn reply_tuple(&self, id: EntryId) -> Tuple<u32> {
        self.table.mapping(id).unwrap().0.reply_tuple().0
    }

    fn found(&self, tuple: &Tuple<u32>) -> Option<EntryId> {
        let mut found = [None];
        self.table.find_burst(&[*tuple], self.now, &mut found);
        assert_eq!(found[0], self.table.find(tuple, self.now));
        found[0]
    }
}

/// Returns a new connection of a client with source NAT to one address and these ports.
fn new(client: u32, ports: [u16; 2]) -> NewConnection<u32> {
    let source = End { address: 100 + client, port: 5000 };
    let (tuple, originator) = Tuple::of_ends(0, 17, source, SERVER);
    let nat = Nat { first_address: PUBLIC, last_address: PUBLIC, ports: Some(ports), ..Nat::default() };
    NewConnection { nat: Some(nat), ..NewConnection::of(tuple, originator, 1000) }
}

#[test]
fn both_keys_lead_to_one_connection() {
    let mut case = Case::new(10);
    let connection = NewConnection { extension: Extension { mark: 7, label: 8 }, ..new(1, [80, 80]) };
    let id = case.insert(&connection).unwrap();
    let (mapping, target) = case.table.mapping(id).unwrap();
    assert_eq!(target, Target::Source);
    assert_eq!(mapping.translated, [End { address: PUBLIC, port: 80 }, SERVER]);
    let reply_tuple = case.reply_tuple(id);
    assert_eq!([case.found(&connection.tuple), case.found(&reply_tuple)], [Some(id); 2]);
    assert!(case.table.holds(id, &reply_tuple) && case.table.holds(id, &connection.tuple));
    assert_eq!(case.table.extension(id), connection.extension);
    case.table.set_extension(id, Extension::default()).unwrap();
    assert_eq!(case.table.extension(id), Extension::default());
    // The reply tuple belongs to the connection, as its own tuple does.
    let other = NewConnection::of(reply_tuple, Side::Low, 1000);
    assert_eq!(case.insert(&other), Err(Refused::Exists(id)));
    let (server, _) = mapping.reply_tuple();
    let [client_side, server_side] = [Side::Low, Side::High].map(|side| server.end(side) == SERVER);
    assert!(client_side != server_side);
    let server_side = if client_side { Side::Low } else { Side::High };
    let direction = |tuple, side| case.table.get(id).unwrap().direction(tuple, side);
    assert_eq!(direction(&connection.tuple, connection.originator), Some(Original));
    assert_eq!(direction(&connection.tuple, connection.originator.opposite()), None);
    assert_eq!(direction(&reply_tuple, server_side), Some(Reply));
    assert_eq!(direction(&reply_tuple, server_side.opposite()), None);
}

/// Every end of a connection makes its port free for the next one.
#[test]
fn the_port_is_released_at_the_end_of_the_connection() {
    let mut case = Case::new(10);
    let ends: [fn(&mut Case, EntryId); 4] = [
        |case, id| case.table.remove(id),
        |case, _| {
            case.now += 1000;
            assert_eq!(case.table.sweep(case.now, u32::MAX), 1);
        },
        |case, _| assert_eq!(case.table.flush_zone(0, None, u32::MAX), None),
        |case, _| {
            // New connections displace the oldest one.
            for client in 0..10 {
                case.insert(&NewConnection { nat: None, ..new(50 + client, [0, 0]) }).unwrap();
            }
        },
    ];
    for end in ends {
        let connection = NewConnection { expires: case.now + 1000, ..new(1, [80, 80]) };
        let id = case.insert(&connection).unwrap();
        let reply_tuple = case.reply_tuple(id);
        let exhausted = Err(Refused::Nat(NotAllocated::Exhausted));
        assert_eq!((case.insert(&new(2, [80, 80])), case.ports()), (exhausted, 1));
        end(&mut case, id);
        assert_eq!((case.found(&reply_tuple), case.found(&connection.tuple)), (None, None));
        assert_eq!((case.ports(), case.table.ports().unwrap().subscriber_ports(0, 101)), (0, 0));
    }
}

/// A refused connection releases the port that was chosen, and displaces no connection.
#[test]
fn a_refused_connection_has_no_port() {
    let mut case = Case::new(1);
    case.insert(&new(1, [80, 89])).unwrap();
    assert_eq!((case.insert(&new(2, [80, 89])), case.ports()), (Err(Refused::NoExtension), 1));
    case.zones.set_limit(0, Some(0));
    assert_eq!((case.insert(&new(2, [80, 89])), case.ports()), (Err(Refused::ZoneFull), 1));
    assert_eq!(case.table.count(), 1);
    let mut without = Case::new(0);
    assert_eq!(without.insert(&new(1, [80, 89])), Err(Refused::NoExtension));
    // The displaced connection gives its record and its place.
    case.zones.set_limit(0, Some(1));
    let id = case.insert(&new(2, [80, 89])).unwrap();
    assert_eq!((case.ports(), case.table.count(), case.found(&case.reply_tuple(id))), (1, 1, Some(id)));
}

/// An expired connection that has the tuple of the replies gives way, although no sweep has removed it.
#[test]
fn an_expired_connection_does_not_keep_the_tuple_of_replies() {
    let mut case = Case::new(10);
    let reply = Tuple::of_ends(0, 17, End { address: PUBLIC, port: 80 }, SERVER).0;
    case.insert(&NewConnection::of(reply, Side::Low, 500)).unwrap();
    assert_eq!(case.insert(&new(1, [80, 80])), Err(Refused::Nat(NotAllocated::Clash)));
    case.now = 500;
    let id = case.insert(&new(1, [80, 80])).unwrap();
    assert_eq!((case.found(&reply), case.table.count()), (Some(id), 1));
}

#[test]
fn a_translated_connection_is_replaced_by_either_of_its_keys() {
    let mut case = Case::new(2);
    let first = new(1, [80, 81]);
    let id = case.insert(&first).unwrap();
    let reply_tuple = case.reply_tuple(id);
    // The server opens a connection, without and with a translation.
    let connection = NewConnection::of(reply_tuple, Side::Low, 2000);
    case.table.replace(id, &connection, 0).unwrap();
    assert_eq!((case.found(&reply_tuple), case.found(&first.tuple), case.ports()), (Some(id), None, 0));
    assert!(!case.table.get(id).unwrap().is_translated());
    let nat = Nat { ports: None, first_address: 77, last_address: 77, ..Nat::default() };
    let connection = NewConnection { nat: Some(nat), ..connection };
    case.table.replace(id, &connection, 0).unwrap();
    assert_eq!((case.found(&case.reply_tuple(id)), case.found(&reply_tuple)), (Some(id), Some(id)));
    assert_eq!((case.ports(), case.table.count(), case.table.embryonic_count()), (1, 1, 1));
    // Without a free record, a replaced connection gives its own. Without a port, it stays as it is.
    case.insert(&new(2, [90, 90])).unwrap();
    case.table.replace(id, &connection, 0).unwrap();
    let before = case.table.mapping(id);
    let empty = NewConnection { nat: Some(Nat { last_address: 76, ..nat }), ..connection };
    let refused = case.table.replace(id, &empty, 0);
    assert_eq!(refused, Err(Refused::Nat(NotAllocated::EmptyRange)));
    assert_eq!((case.table.mapping(id), case.ports()), (before, 2));
    case.table.remove(id);
    assert_eq!((case.ports(), case.table.count()), (1, 1));
}

/// A translated connection with a kept port and address has one key.
#[test]
fn a_translation_that_changes_nothing_has_one_key() {
    let mut case = Case::new(1);
    let nat = Nat { ports: None, first_address: 0, last_address: 0, ..Nat::default() };
    let connection = NewConnection { nat: Some(nat), ..new(1, [0, 0]) };
    let id = case.insert(&connection).unwrap();
    assert_eq!((case.reply_tuple(id), case.ports()), (connection.tuple, 1));
    let direction =
        case.table.get(id).unwrap().direction(&connection.tuple, connection.originator.opposite());
    assert_eq!(direction, Some(Reply));
    case.table.remove(id);
    assert_eq!((case.found(&connection.tuple), case.ports()), (None, 0));
}

#[test]
fn a_translation_takes_57_bytes_for_ipv4() {
    let sizes = Sizes { entries: 1 << 20, embryonic: 1, extensions: 0, translations: 0 };
    let bytes = |memory: usize| memory as f64 / f64::from(sizes.entries);
    let plain = bytes(Table::<u32>::new(sizes, TupleHash::new()).memory());
    let sizes = Sizes { translations: 1 << 20, ..sizes };
    let four = bytes(Table::<u32>::new(sizes, TupleHash::new()).memory());
    let six = bytes(Table::<u128>::new(sizes, TupleHash::new()).memory());
    assert!(four - plain < 56.6 && six < 177.1, "{plain}, {four} and {six} bytes");
}
