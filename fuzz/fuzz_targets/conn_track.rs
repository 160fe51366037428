//! The tracker of connections, with IPv4 and IPv6 packets of any bytes, and the packets that ICMP errors quote.
//!
//! The input is a row of records: a byte of flags, the length of a packet in one byte, and the packet. The flags say
//! whether the connection is committed, with a mark and a translation.

#![no_main]

use conn::headers::Packet;
use conn::nat::ports::{Ports, Selection};
use conn::nat::spec::{Nat, Target};
use conn::table::Sizes;
use conn::track::{Commit, CtState, Tracked, Tracker};
use conn::tuple::{Address, TupleHash};
use conn::zone::Zones;
use libfuzzer_sys::fuzz_target;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;

/// Tracks a packet, and commits its connection as the flags say.
fn track<A: Address + From<u32>>(
    tracker: &mut Tracker<A>,
    zones: &Zones,
    packet: &Packet<A>,
    flags: u8,
    now: u32,
) {
    let mut tracked = [Tracked::default()];
    tracker.track_burst(zones, &[*packet], now, &mut tracked);
    let [mut tracked] = tracked;
    assert!(tracked.state.has(CtState::TRACKED));
    assert_eq!(tracked.state.has(CtState::INVALID), tracked.invalid.is_some());
    if flags & 1 != 0 {
        let mark = (flags & 2 != 0).then_some((flags.into(), u32::MAX));
        let target = if flags & 32 != 0 { Target::Source } else { Target::Destination };
        let address = A::from(0x0a00_0002);
        let ports = (flags & 64 != 0).then_some([52, 53]);
        let selection = Selection::default();
        let nat = Nat { target, first_address: address, last_address: address, ports, selection };
        let nat = (flags & 16 != 0).then_some(nat);
        let commit = Commit { force: flags & 4 != 0, mark, nat, ..Commit::default() };
        if let Ok(id) = tracker.commit(zones, packet, &mut tracked, &commit, now) {
            assert_eq!(tracker.table.find(&packet.tuple, now), Some(id));
            if let Some((mapping, _)) = tracker.table.mapping(id) {
                let keys = [mapping.tuple().0, mapping.reply_tuple().0];
                assert!(keys.contains(&packet.tuple));
                assert_eq!(keys.map(|key| tracker.table.find(&key, now)), [Some(id); 2]);
            }
        }
    }
    let is_translated = tracker.translate(packet, &mut tracked).is_some();
    assert_eq!(is_translated, tracked.state.0 & (CtState::SNAT | CtState::DNAT).0 != 0);
    if flags & 8 != 0 {
        tracker.table.sweep(now, 2);
    }
    let table = &tracker.table;
    let ports = table.ports().map(Ports::counts).unwrap_or_default();
    assert!(ports.allocated - ports.released <= u64::from(table.count()));
    for (id, entry) in table.connections(0, u32::MAX, now) {
        assert_eq!(table.find(&entry.tuple(), now), Some(id));
        let _ = (entry.tcp().state(), entry.sctp().state());
    }
    assert!(table.count() <= table.sizes().entries && table.embryonic_count() <= table.sizes().embryonic);
}

fuzz_target!(|bytes: &[u8]| {
    let sizes = Sizes { entries: 4, embryonic: 2, extensions: 1, translations: 3 };
    let (mut four, mut six) = (Tracker::new(sizes, TupleHash::new()), Tracker::new(sizes, TupleHash::new()));
    let (zones, mut now, mut rest) = (Zones::new(), u32::MAX - 100_000, bytes);
    while let [flags, len, records @ ..] = rest {
        let (packet, after) = records.split_at(records.len().min(usize::from(*len)));
        rest = after;
        now = now.wrapping_add(u32::from(flags >> 4) * 10_000);
        if let Ok(packet) = Ipv4::parse(packet)
            && let Ok(packet) = Packet::of_ipv4(&packet, 0)
        {
            track(&mut four, &zones, &packet, *flags, now);
        } else if let Ok(packet) = Ipv6::parse(packet)
            && let Ok(packet) = Packet::of_ipv6(&packet, 0)
        {
            track(&mut six, &zones, &packet, *flags, now);
        }
    }
    assert_eq!(four.table.zone_count(0), four.table.count());
    assert_eq!(six.table.zone_count(0), six.table.count());
});
