//! Tests of routers with VLAN interfaces.

use super::*;

/// Checks that a VLAN of port 0 can be a router interface (interface number 2, device index 20). Port 3 is connected to
/// the mirror device of this interface in the kernel.
#[test]
fn vlans_are_interfaces() {
    let config = EngineConfig::default();
    let mut tables = Tables::new(&config);
    tables.adjacencies.bind(20, Some(2));
    tables.set(ip("10.0.5.0"), 24, &Path::NextHops(vec![hop(20, None)]));
    tables.set(ip("2001:db8:5::"), 64, &Path::NextHops(vec![hop(20, None)]));
    tables.adjacencies.resolve(20, ip("10.0.5.2"), Some(neighbour(20)));
    tables.adjacencies.resolve(20, ip("2001:db8:5::2"), Some(neighbour(20)));
    let mac = MacAddr([2, 0, 0, 0, 1, 0x20]);
    let mut router = tables.router();
    router.interfaces.push(Some(Interface { port: PortId(0), mac, mtu: 1300, vrrp: false }));
    router.mirrored.add_vlan(2, 0, VlanTags::one(VlanId::new(100).unwrap()));
    router.mirrored.add_kernel(2, Kernel { port: PortId(3), mac });
    let router = Arc::new(router);
    let ports = [PortId(0), PortId(1), PortId(2), PortId(3)];
    let mut rig = Rig::with(&config, &ports, |port| match port {
        PortId(2) => Function::None,
        PortId(3) => Function::TaggedCrossConnect(PortId(0), VlanTags::one(VlanId::new(100).unwrap())),
        PortId(interface) => Function::Router(Arc::clone(&router), interface),
    });
    let tagged = |bytes: &[u8], vid: u8| [&bytes[..12], &[0x81, 0, 0, vid], &bytes[12..]].concat();
    let for_vlan = |text: &str| spec::parse(&format!("eth_dst={mac},{text}")).unwrap();
    let mut ask = |port: u16, bytes: &[u8]| told_and_done(&mut rig, port, bytes);
    for text in ["ip_dst=10.0.1.2,udp", "ip_src=2001:db8:5::2,ip_dst=2001:db8:1::2,udp"] {
        // The packet arrives on the VLAN and leaves without a tag.
        let last = if text.contains("::") { 6 } else { 2 };
        let frame = for_vlan(text);
        assert_eq!(ask(0, &tagged(&frame, 100)), [(PORTS[1], routed(&frame, neighbour(last)))], "{text}");
        // Priority tags count as no tags, also after the tag of the VLAN.
        for depth in [1, 2, 9] {
            let hidden = tagged(&(0..depth).fold(frame.clone(), |frame, _| tagged(&frame, 0)), 100);
            assert_eq!(
                ask(0, &hidden),
                [(PORTS[1], routed(&frame, neighbour(last)))],
                "{text}, {depth} tags"
            );
        }
        // A tagged packet to the port's own MAC address is dropped. A packet of an unknown VLAN is punted at
        // the port.
        assert_eq!(ask(0, &tagged(&self::frame(text), 100)), []);
        let other = tagged(&self::frame(text), 101);
        assert_eq!(ask(0, &other).iter().map(|(port, _)| *port).collect::<Vec<_>>(), [PORTS[2]]);
    }
    for text in ["ip_dst=10.0.5.2,udp,len=200", "ip_src=2001:db8:1::2,ip_dst=2001:db8:5::2,tcp,len=200"] {
        // The packet arrives on port 1 and leaves by the VLAN.
        let frame = spec::parse(&format!("eth_dst={},{text}", own(1))).unwrap();
        let mut wanted = routed(&frame, neighbour(20));
        wanted[6..12].copy_from_slice(&mac.0);
        assert_eq!(ask(1, &frame), [(PORTS[0], tagged(&wanted, 100))], "{text}");
    }
    // The MTU of the VLAN applies, not the MTU of the port.
    let long = spec::parse(&format!("eth_dst={},ip_dst=10.0.5.2,udp,len=1315", own(1))).unwrap();
    assert_eq!(ask(1, &long)[0].0, PORTS[2]);
    // Packets for the kernel go to the mirror without the tag. Packets that the kernel sends to the mirror
    // leave with the tag.
    for frame in [
        for_vlan("arp,arp_tpa=10.0.5.1"),
        spec::parse("arp,arp_tpa=10.0.5.1").unwrap(),
        for_vlan("ip_dst=10.0.1.1,tcp"),
    ] {
        assert_eq!(ask(0, &tagged(&frame, 100)), [(PortId(3), frame)]);
    }
    let reply = spec::parse("eth_dst=02:00:00:00:02:14,arp,arp_op=2").unwrap();
    assert_eq!(ask(3, &reply), [(PORTS[0], tagged(&reply, 100))]);
    // The port itself works as before.
    let frame = frame("ip_dst=10.0.1.2,udp");
    assert_eq!(ask(0, &frame), [(PORTS[1], routed(&frame, neighbour(2)))]);
    rig.assert_accounted();
}

/// Checks that a pair of tags on port 0 (an outer provider tag and an inner customer tag) can be a router interface
/// (interface number 2, device index 20). The provider tag alone selects no interface.
#[test]
fn two_tags_are_an_interface() {
    for service in [true, false] {
        let config = EngineConfig::default();
        let mut tables = Tables::new(&config);
        tables.adjacencies.bind(20, Some(2));
        tables.set(ip("10.0.5.0"), 24, &Path::NextHops(vec![hop(20, None)]));
        tables.adjacencies.resolve(20, ip("10.0.5.2"), Some(neighbour(20)));
        let mac = MacAddr([2, 0, 0, 0, 1, 0x20]);
        let (outer, inner) = (VlanId::new(100).unwrap(), VlanId::new(20));
        let tags = VlanTags { outer, inner, service };
        let mut router = tables.router();
        router.interfaces.push(Some(Interface { port: PortId(0), mac, mtu: 1300, vrrp: false }));
        router.mirrored.add_vlan(2, 0, tags);
        router.mirrored.add_kernel(2, Kernel { port: PortId(3), mac });
        let router = Arc::new(router);
        let ports = [PortId(0), PortId(1), PortId(2), PortId(3)];
        let mut rig = Rig::with(&config, &ports, |port| match port {
            PortId(2) => Function::None,
            PortId(3) => Function::TaggedCrossConnect(PortId(0), tags),
            PortId(interface) => Function::Router(Arc::clone(&router), interface),
        });
        let kind = |service: bool| if service { [0x88, 0xa8] } else { [0x81, 0] };
        let with = |bytes: &[u8], service: bool, outer: u8, inner: u8| {
            [&bytes[..12], &kind(service), &[0, outer, 0x81, 0, 0x60, inner], &bytes[12..]].concat()
        };
        let leaves =
            |bytes: &[u8]| [&bytes[..12], &kind(service), &[0, 100, 0x81, 0, 0, 20], &bytes[12..]].concat();
        let mut ask = |port: u16, bytes: &[u8]| told_and_done(&mut rig, port, bytes);
        let frame = spec::parse(&format!("eth_dst={mac},ip_dst=10.0.1.2,udp")).unwrap();
        assert_eq!(ask(0, &with(&frame, service, 100, 20)), [(PORTS[1], routed(&frame, neighbour(2)))]);
        // Priority tags between the two tags and after them count as no tags.
        let priority = [0x81, 0, 0xe0, 0];
        let pair = with(&frame, service, 100, 20);
        for at in [12, 16, 20] {
            let hidden = [&pair[..at], &priority, &priority, &pair[at..]].concat();
            assert_eq!(ask(0, &hidden), [(PORTS[1], routed(&frame, neighbour(2)))], "at {at}");
        }
        // Other tags of either kind, the other kind of outer tag, and a single tag belong to the port, where
        // they are not IP packets.
        let own =
            spec::parse("ip_dst=10.0.1.2,udp").map(|bytes| [&own(0).0[..], &bytes[6..]].concat()).unwrap();
        let alone = [&own[..12], &kind(service), &[0, 100], &own[12..]].concat();
        let others =
            [with(&own, service, 100, 21), with(&own, service, 101, 20), with(&own, !service, 100, 20)];
        for other in others.into_iter().chain([alone]) {
            assert_eq!(ask(0, &other).iter().map(|(port, _)| *port).collect::<Vec<_>>(), [PORTS[2]]);
        }
        let frame = spec::parse(&format!("eth_dst={},ip_dst=10.0.5.2,udp,len=200", self::own(1))).unwrap();
        let mut wanted = routed(&frame, neighbour(20));
        wanted[6..12].copy_from_slice(&mac.0);
        assert_eq!(ask(1, &frame), [(PORTS[0], leaves(&wanted))]);
        // Packets for and from the kernel.
        let arp = spec::parse(&format!("eth_dst={mac},arp,arp_tpa=10.0.5.1")).unwrap();
        assert_eq!(ask(0, &with(&arp, service, 100, 20)), [(PortId(3), arp)]);
        let reply = spec::parse("eth_dst=02:00:00:00:02:14,arp,arp_op=2").unwrap();
        assert_eq!(ask(3, &reply), [(PORTS[0], leaves(&reply))]);
        rig.assert_accounted();
    }
}
