//! Tests of the ICMP errors of routers.

use packet::net::InterfaceAddress;

use super::*;

/// Returns the ICMP error that the sender of `frame` must receive (RFC 792, RFC 4443). The error has the given type and
/// code and the source address `from`, and quotes the packet.
fn told(frame: &[u8], from: &str, [kind, code]: [u8; 2]) -> Vec<u8> {
    let whole = length_of(frame);
    let mut icmp = vec![kind, code, 0, 0, 0, 0, 0, 0];
    match ip(from) {
        IpAddr::V4(from) => {
            icmp.extend(&frame[14..14 + whole.min(548)]);
            packet::checksum::fill(&mut icmp, 2, 0);
            let mut header = vec![0x45, 0xc0 | frame[15] & 0x1e, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0];
            header[2..4].copy_from_slice(&u16::try_from(20 + icmp.len()).unwrap().to_be_bytes());
            header.extend(from.octets().iter().chain(&frame[26..30]));
            packet::checksum::fill(&mut header, 10, 0);
            [&[8, 0], &*header, &icmp].concat()
        }
        IpAddr::V6(from) => {
            let to: [u8; 16] = frame[22..38].try_into().unwrap();
            icmp.extend(&frame[14..14 + whole.min(1232)]);
            let length = u16::try_from(icmp.len()).unwrap();
            let pseudo = packet::checksum::l4_pseudo_v6(from, to.into(), 58, length.into());
            packet::checksum::fill(&mut icmp, 2, pseudo);
            let header =
                [&[0x60, 0, 0, 0], &length.to_be_bytes()[..], &[58, 64], &from.octets(), &to].concat();
            [&[0x86, 0xdd], &*header, &icmp].concat()
        }
    }
}

/// Returns the part of a frame that begins at the EtherType. The identification of an IPv4 packet, and the fields that
/// depend on the identification, are omitted.
fn without_id(frame: &[u8]) -> Vec<u8> {
    let mut rest = frame[12..].to_vec();
    if rest[..2] == [8, 0] {
        assert_eq!(packet::checksum::ipv4_header(&rest[2..22]), 0);
        rest[6..8].fill(0);
        rest[12..14].fill(0);
    }
    rest
}

fn interface_address(text: &str) -> InterfaceAddress {
    text.parse().unwrap()
}

fn telling(tables: &Tables) -> Router {
    let mut router = tables.router();
    let addresses = ["10.0.0.1/24", "fe80::1/64", "2001:db8::1/64"].map(interface_address);
    router.errors.set(0, true, addresses);
    router.errors.set(1, false, [interface_address("10.0.1.1/24")]);
    router
}

#[test]
fn senders_are_told_what_no_route_is_for() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut rig = rig(&config, telling(&tables));
    let cases = [
        ("ip_src=10.0.0.2,ip_dst=30.0.0.1,udp", "10.0.0.1", [3, 0], 0, 1),
        ("ip_src=10.0.0.2,ip_dst=30.0.0.1,udp,ttl=1,len=1400", "10.0.0.1", [3, 0], 0, 1),
        ("ip_src=10.0.0.2,ip_dst=20.3.0.1,tcp,tos=0xfc", "10.0.0.1", [3, 1], 0, 1),
        ("ip_src=10.0.0.2,ip_dst=20.4.0.1,icmp", "10.0.0.1", [3, 13], 0, 1),
        ("ip_src=10.0.0.2,ip_dst=30.0.0.1,udp,frag=first", "10.0.0.1", [3, 0], 0, 1),
        // The route back uses another interface, whose address is the source of an IPv4 error.
        ("ip_src=20.9.9.9,ip_dst=30.0.0.1,udp", "10.0.1.1", [3, 0], 1, 2),
        // An IPv6 error has the address of the arrival interface.
        ("ip_src=2001:db8:1::2,ip_dst=2001:db8:2::2,udp", "2001:db8::1", [1, 0], 1, 6),
        ("ip_src=2001:db8:1::2,ip_dst=2001:db8:2::2,icmpv6,len=1400", "2001:db8::1", [1, 0], 1, 6),
    ];
    for (at, (text, from, kind, port, to)) in (1..).zip(cases) {
        let frame = frame(text);
        let explained = rig.worker.while_offline(|| rig.engine.explain(PORTS[0], &frame));
        let outputs = through(&mut rig, &frame);
        let [(out, error)] = outputs.as_slice() else { panic!("{text}: {outputs:02x?}") };
        assert_eq!(
            (*out, &error[..6], &error[6..12]),
            (PORTS[port], &neighbour(to).0[..], &own(out.0).0[..])
        );
        assert_eq!(
            without_id(error),
            without_id(&[&[0; 12][..], &told(&frame, from, kind)].concat()),
            "{text}"
        );
        assert_eq!(without_id(&explained.outputs[0].1), without_id(error), "{text}");
        let by = |step: &Step| matches!(step, Step::Told { from: by, .. } if *by == ip(from));
        assert!(explained.steps.iter().any(by), "{text}: {:?}", explained.steps);
        assert_eq!(tables.punt_policer.counted(PuntClass::Errors), (at, 0), "explain counts nothing");
    }
    // RFC 1122, 3.2.2; RFC 4443, 2.4: errors and later fragments cause no error.
    let before = rig.dropped()[DropReason::NoRoute.index()];
    for text in [
        "ip_src=10.0.0.2,ip_dst=30.0.0.1,icmp,icmp_type=3",
        "ip_src=10.0.0.2,ip_dst=30.0.0.1,icmp,icmp_type=11",
        "ip_src=10.0.0.2,ip_dst=30.0.0.1,udp,frag=later",
        "ip_src=2001:db8:1::2,ip_dst=2001:db8:2::2,icmpv6,icmp_type=1",
    ] {
        assert_eq!(through(&mut rig, &frame(text)), [], "{text}");
    }
    assert_eq!(rig.dropped()[DropReason::NoRoute.index()], before + 4);
    let mut broken = frame("ip_src=10.0.0.2,ip_dst=30.0.0.1,udp");
    broken[24] ^= 1;
    assert_eq!(through(&mut rig, &broken), []);
    // The kernel processes the unclear cases: an unknown neighbor, and an interface that sends no errors.
    assert_eq!(through(&mut rig, &frame("ip_src=10.0.0.77,ip_dst=30.0.0.1,udp"))[0].0, PORTS[2]);
    rig.send(1, &spec::parse(&format!("eth_dst={},ip_src=10.0.1.2,ip_dst=30.0.0.1,udp", own(1))).unwrap());
    rig.round();
    assert_eq!(rig.outputs()[0].0, PORTS[2]);
    assert_eq!(tables.punt_policer.counted(PuntClass::NoRoute), (2, 0));
    assert_eq!(tables.punt_policer.counted(PuntClass::Errors), (8, 0));
    rig.assert_accounted();
}

#[test]
fn errors_have_their_limit_and_one_address() {
    let config = EngineConfig::default();
    let mut tables = Tables::new(&config);
    tables.punt_policer = Arc::new(PuntPolicer::new(|_| 100, 1, engine::worker::monotonic().ns));
    let mut limited = rig(&config, telling(&tables));
    let frame = frame("ip_src=10.0.0.2,ip_dst=30.0.0.1,udp");
    let told: usize = (0..500).map(|_| through(&mut limited, &frame).len()).sum();
    assert!((64..200).contains(&told), "{told}");
    assert_eq!(tables.punt_policer.counted(PuntClass::Errors), (told as u64, 500 - told as u64));
    assert_eq!(limited.dropped()[DropReason::NoRoute.index()], 500 - told as u64);
    assert_eq!(tables.punt_policer.counted(PuntClass::NoRoute), (0, 0), "the kernel has seen none");
    limited.assert_accounted();
    drop(limited);
    // Without an address or with several possible addresses, the kernel selects one.
    let near = |text: &str| interface_address(&format!("{text}/24"));
    for (addresses, goes) in [
        (vec![], PORTS[2]),
        (vec![near("10.0.0.1"), near("10.0.0.3")], PORTS[2]),
        (vec![near("192.0.2.1"), near("192.0.3.1")], PORTS[2]),
        (vec![near("192.0.2.1"), near("10.0.0.1")], PORTS[0]),
        (vec![near("192.0.2.1")], PORTS[0]),
    ] {
        let config = EngineConfig::default();
        let tables = Tables::new(&config);
        let mut router = tables.router();
        router.errors.set(0, true, addresses.clone());
        let mut rig = rig(&config, router);
        assert_eq!(through(&mut rig, &frame)[0].0, goes, "{addresses:?}");
    }
}
