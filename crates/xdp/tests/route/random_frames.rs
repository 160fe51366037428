//! Compares the decisions of the virtual router stage on random frames with those of a simple parser.

use super::*;

/// Parses a frame field by field, and returns the reason why the frame must go to the kernel. `None` means that the
/// frame is to be routed.
fn why(frame: &[u8], own: &BTreeSet<IpAddr>, port: &RoutePort) -> Option<Counter> {
    let (Some(mac), Some(ethertype)) = (frame.get(..6), frame.get(12..14)) else {
        return Some(Counter::PassedMalformed);
    };
    let (packet, v4) = match ethertype {
        [0x81, 0] | [0x88, 0xa8] => return Some(Counter::RouteTagged),
        [8, 0] => (&frame[14..], true),
        [0x86, 0xdd] => (&frame[14..], false),
        _ => return Some(Counter::PassedControl),
    };
    let vrrp = [0, 0, 0x5e, 0, if v4 { 1 } else { 2 }];
    match mac {
        [first, ..] if first % 2 == 1 => return Some(Counter::PassedGroup),
        mac if mac == port.mac || (port.vrrp && mac[..5] == vrrp) => {}
        _ => return Some(Counter::RouteStation),
    }
    if packet.len() < if v4 { 20 } else { 40 } || packet[0] >> 4 != if v4 { 4 } else { 6 } {
        return Some(Counter::PassedMalformed);
    }
    let total = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (source, destination, hops, options, whole): (IpAddr, IpAddr, u8, bool, bool);
    if v4 {
        let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap();
        (source, destination) = (address(12).into(), address(16).into());
        let words = packet[0] & 15;
        (hops, options) = (packet[8], words > 5);
        let mut sealed = packet[..20].to_vec();
        seal(&mut sealed);
        // The sums 0 and 0xffff are equivalent.
        let sum = |header: &[u8]| match [header[10], header[11]] {
            [0xff, 0xff] => [0, 0],
            other => other,
        };
        let right = total(2) >= 20 && total(2) <= packet.len() && sum(&sealed) == sum(packet);
        whole = words > 5 || (words == 5 && right);
    } else {
        let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap();
        (source, destination) = (address(8).into(), address(24).into());
        (hops, options) = (packet[7], packet[6] == 0);
        whole = 40 + total(4) <= packet.len();
    }
    let confined = |address: IpAddr| match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            first == 0 || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || first >= 240
        }
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast() || v6.octets()[..8] == [0; 8],
    };
    let is_broadcast = [[0; 4], [255; 4]].map(IpAddr::from).contains(&destination);
    let (local, counter) = (own.contains(&destination), |four, six| Some(if v4 { four } else { six }));
    if !whole {
        Some(Counter::PassedMalformed)
    } else if destination.is_multicast() || is_broadcast {
        Some(Counter::PassedGroup)
    } else if local {
        counter(Counter::PassedLocal4, Counter::PassedLocal6)
    } else if options {
        Some(Counter::RouteOptions)
    } else if confined(source) || confined(destination) || (v4 && own.contains(&source)) {
        Some(Counter::RouteAddress)
    } else if hops <= 1 {
        Some(Counter::RouteTtl)
    } else {
        None
    }
}

const REASONS: [Counter; 7] = [
    Counter::PassedMalformed,
    Counter::PassedLocal4,
    Counter::PassedLocal6,
    Counter::RouteStation,
    Counter::RouteAddress,
    Counter::RouteTtl,
    Counter::RouteOptions,
];

fn address4() -> impl Strategy<Value = [u8; 4]> {
    let known =
        [[10, 0, 1, 1], [10, 0, 1, 255], [10, 0, 1, 2], [169, 254, 1, 1], [224, 0, 0, 5], [255; 4], [0; 4]];
    prop_oneof![3 => Just([198, 51, 100, 7]), 2 => select(known.to_vec()), 2 => any::<[u8; 4]>()]
}

fn address6() -> impl Strategy<Value = [u8; 16]> {
    let known = ["fd00:1::1", "fd00:1::2", "fe80::1", "::1", "::", "::ffff:10.0.1.1", "ff02::1", "0:0:0:1::"];
    let known = known.map(|text| text.parse::<Ipv6Addr>().unwrap().octets()).to_vec();
    prop_oneof![3 => Just(BEHIND6.octets()), 2 => select(known), 2 => any::<[u8; 16]>()]
}

/// Generates frames that are mostly for the port, sometimes truncated or changed in one byte.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let hops = select(vec![0_u8, 1, 2, 64, 255]);
    let four =
        (address4(), address4(), hops.clone(), select(vec![0x45_u8, 0x45, 0x45, 0x46, 0x4f, 0x44, 0x55]));
    let four = four.prop_map(|(from, to, hops, first)| {
        ipv4(to.into(), 80, |ip| {
            ip[12..16].copy_from_slice(&from);
            (ip[0], ip[8]) = (first, hops);
        })
    });
    let six = (address6(), address6(), hops, select(vec![17_u8, 6, 58, 0, 43, 44, 60, 59]));
    let six = six.prop_map(|(from, to, hops, next)| {
        ipv6(to.into(), 80, |ip| {
            ip[8..24].copy_from_slice(&from);
            (ip[6], ip[7]) = (next, hops);
        })
    });
    let macs = vec![NEAR[1], [0, 0, 0x5e, 0, 1, 9], [0, 0, 0x5e, 0, 2, 9], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
    let mac = prop_oneof![4 => Just(NEAR[0]), 1 => select(macs)];
    let change = proptest::option::weighted(0.4, (any::<prop::sample::Index>(), any::<u8>()));
    let cut = proptest::option::weighted(0.1, any::<prop::sample::Index>());
    (prop_oneof![four, six], mac, change, cut).prop_map(|(frame, mac, change, cut)| {
        let mut frame = to(mac, &frame);
        if let Some((at, byte)) = change {
            let at = at.index(60);
            frame[at] = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(14 + cut.index(frame.len() - 13));
        }
        frame
    })
}

#[test]
fn random_frames_are_read_as_they_are_plainly() {
    need_root!();
    for port in [PORT, VRRP] {
        let own = own();
        let loaded = load(&port, &own, WhenDown::Drop);
        let mut runner =
            TestRunner::new(Config { cases: 4000, failure_persistence: None, ..Config::default() });
        let seen = std::cell::RefCell::new(BTreeSet::new());
        let held = runner.run(&frame(), |frame| {
            let expected = match why(&frame, own.addresses(), &port) {
                None => (Verdict::Drop, Counter::DownDropped),
                Some(why) => (Verdict::Pass, why),
            };
            seen.borrow_mut().insert(expected.1);
            prop_assert_eq!(see(&loaded, &frame), expected);
            Ok(())
        });
        held.unwrap();
        // A tag occurs only by chance.
        let all =
            [&REASONS[..], &[Counter::DownDropped, Counter::PassedControl, Counter::PassedGroup]].concat();
        let missing: Vec<_> = all.iter().filter(|way| !seen.borrow().contains(way)).collect();
        assert_eq!(missing, [&Counter::RouteTagged; 0], "they have not come");
    }
}
