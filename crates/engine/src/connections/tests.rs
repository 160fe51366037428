use packet::spec;

use switch::flow::{ConnectionFilter, TupleFilter};

use super::*;

const COMMIT: TrackStep =
    TrackStep { zone: 1, commit: true, force: false, mark: None, label: None, nat: None, alg: 0 };
const TRACK: TrackStep = TrackStep { commit: false, ..COMMIT };

/// Returns the number of connections, with those that have expired and were not removed yet.
fn count(all: &Connections) -> u32 {
    all.tables.get().map_or(0, |tables| tables.lock().ipv4.table.count())
}

/// Sends the IPv4 packet that a text describes through the tracker.
fn pass(all: &Connections, text: &str, step: &TrackStep, fields: ConnectionFields) -> ConnectionFields {
    passed(all, &mut spec::parse(text).unwrap()[14..], step, fields, false)
}

fn passed(
    all: &Connections,
    ip: &mut [u8],
    step: &TrackStep,
    fields: ConnectionFields,
    is_dry: bool,
) -> ConnectionFields {
    let checksum = Checksum::Complete;
    all.pass(Passing { ip, is_ipv6: false, checksum, is_sound: true, fields, now: 0, is_dry }, step)
}

/// A flood of new connections in one zone displaces connections of this zone only, and leaves half of the places.
#[test]
fn a_flood_in_one_zone_leaves_the_connections_of_others() {
    let all = Connections::default();
    let other = "ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,src_port=1,dst_port=2";
    let reply = "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,src_port=2,dst_port=1";
    let zone = TrackStep { zone: 2, ..COMMIT };
    pass(&all, other, &zone, ConnectionFields::default());
    let mut frame = spec::parse("ip_src=11.0.0.0,ip_dst=10.0.0.2,udp,src_port=1,dst_port=2").unwrap();
    for number in 0..300_000_u32 {
        frame[26..30].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
        let fields = passed(&all, &mut frame[14..], &COMMIT, ConnectionFields::default(), false);
        assert_eq!(fields.state, (CtState::NEW | CtState::TRACKED).0, "{number}");
    }
    assert!(count(&all) <= IPV4_ENTRIES.div_ceil(8) / 2 + 2, "{}", count(&all));
    let fields = pass(&all, reply, &TrackStep { zone: 2, ..TRACK }, ConnectionFields::default());
    assert_eq!(fields.state, (CtState::ESTABLISHED | CtState::REPLY | CtState::TRACKED).0);
}

/// The request of TFTP announces the data connection, also if rules track the request before they commit it.
#[test]
fn a_helper_reads_the_packet_that_opens_the_connection() {
    let all = Connections::default();
    let mut request = spec::parse("ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,src_port=3000,dst_port=69").unwrap();
    request.truncate(42);
    request.extend(b"\0\x01file\0octet\0");
    let len = u16::try_from(request.len()).unwrap();
    request[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    request[38..40].copy_from_slice(&(len - 34).to_be_bytes());
    let data = "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,src_port=4000,dst_port=3000";
    let first = passed(&all, &mut request[14..], &TRACK, ConnectionFields::default(), false);
    passed(&all, &mut request[14..], &TrackStep { alg: TFTP, ..COMMIT }, first, false);
    let fields = pass(&all, data, &TRACK, ConnectionFields::default());
    assert_eq!(fields.state, (CtState::NEW | CtState::RELATED | CtState::TRACKED).0);
}

#[test]
fn a_dry_run_shows_the_state_and_changes_nothing() {
    let all = Connections::default();
    let dry = |all: &Connections, text: &str| {
        let mut frame = spec::parse(text).unwrap();
        CtState(passed(all, &mut frame[14..], &COMMIT, ConnectionFields::default(), true).state)
    };
    let question = "ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,src_port=1,dst_port=2";
    let reply = "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,src_port=2,dst_port=1";
    let stray = "ip_src=10.0.0.2,ip_dst=10.0.0.1,tcp,src_port=2,dst_port=1,flags=syn+ack";
    for _ in 0..2 {
        assert_eq!(dry(&all, question), CtState::NEW | CtState::TRACKED);
        assert_eq!(dry(&all, reply), CtState::NEW | CtState::TRACKED);
        assert_eq!(dry(&all, stray), CtState::INVALID | CtState::TRACKED);
    }
    assert!(all.tables.get().is_none() && count(&all) == 0);
    pass(&all, question, &COMMIT, ConnectionFields::default());
    for _ in 0..2 {
        assert_eq!(dry(&all, reply), CtState::ESTABLISHED | CtState::REPLY | CtState::TRACKED);
        assert_eq!(dry(&all, question), CtState::NEW | CtState::TRACKED);
        assert_eq!(dry(&all, stray), CtState::INVALID | CtState::TRACKED);
    }
    assert_eq!(count(&all), 1);
}

#[test]
fn a_flush_removes_what_its_filter_selects() {
    let all = Connections::default();
    for (zone, port) in [(1, 1), (1, 2), (2, 1)] {
        let text = format!("ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,src_port={port},dst_port=2");
        pass(&all, &text, &TrackStep { zone, ..COMMIT }, ConnectionFields::default());
    }
    let of_port = TupleFilter { source_port: Some(2), ..TupleFilter::default() };
    for (filter, left) in [
        (ConnectionFilter { zone: Some(3), ..ConnectionFilter::default() }, 3),
        (ConnectionFilter { original: of_port, ..ConnectionFilter::default() }, 2),
        (ConnectionFilter { protocol: Some(6), ..ConnectionFilter::default() }, 2),
        (ConnectionFilter { zone: Some(1), ..ConnectionFilter::default() }, 1),
        (ConnectionFilter::default(), 0),
    ] {
        all.flush(&filter, 0);
        assert_eq!(count(&all), left, "{filter:?}");
    }
}

#[test]
fn a_list_has_both_directions_of_each_connection() {
    let all = Connections::default();
    let range = NatRange {
        end: NatEnd::Source,
        addresses: Some(([192, 0, 2, 1].into(), [192, 0, 2, 1].into())),
        ports: Some((500, 500)),
        persistent: false,
        selection: NatSelection::Any,
    };
    let step = TrackStep { mark: Some((7, 7)), nat: Some(CtNat::New(range)), ..COMMIT };
    let text = "ip_src=10.0.0.1,ip_dst=10.0.0.2,tcp,src_port=1,dst_port=2,flags=syn";
    pass(&all, text, &step, ConnectionFields::default());
    let end = |address: [u8; 4], port: u16| (IpAddr::from(address), port);
    let [view] = &all.list(&ConnectionFilter::default(), 10, 0)[..] else { panic!("one connection") };
    assert_eq!(view.original, [end([10, 0, 0, 1], 1), end([10, 0, 0, 2], 2)]);
    assert_eq!(view.reply, [end([10, 0, 0, 2], 2), end([192, 0, 2, 1], 500)]);
    assert_eq!((view.zone, view.protocol, view.state, view.mark), (1, 6, "SYN_SENT", 7));
    let of_zone = |zone| ConnectionFilter { zone: Some(zone), ..ConnectionFilter::default() };
    assert!(all.list(&of_zone(2), 10, 0).is_empty() && all.list(&of_zone(1), 0, 0).is_empty());
}
