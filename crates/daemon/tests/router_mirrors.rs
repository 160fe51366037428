//! Tests router interfaces on ports without a kernel device, with the real binary. A guest is connected to a TAP port.
//! For this port, the router has a mirror device, which represents the port in the kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{Namespace, RawReceiver, RawSender, UdpFlow, eventually, require};

/// The lab of a test: the host h1, which is connected through a device, and a guest, which is connected through the TAP
/// of port `vm`.
struct Guests {
    rig: Rig,
    guest: Namespace,
}

fn configuration(rig: &Rig, guest: &str, interface: &str) -> String {
    configuration_with(rig, guest, "", interface)
}

fn configuration_with(rig: &Rig, guest: &str, settings: &str, interface: &str) -> String {
    let ports = rig.configuration("");
    let ports = ports.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    let ports: String = ports.flat_map(|line| [line, "\n"]).collect();
    format!(
        "{ports}[port.vm]\nkind = \"tap\"\ndevice = \"eth0\"\nnamespace = \"{guest}\"\naddress = [\"10.9.0.2/24\"]\n\
         [router.edge]\n{settings}[router.edge.port.h1]\n{interface}"
    )
}

const MEMBER: &str = "[router.edge.port.vm]\n";

impl Guests {
    fn start() -> Guests {
        Guests::start_with("")
    }

    fn start_with(settings: &str) -> Guests {
        let mut rig = Rig::routed(1);
        let guest = rig.lab.namespace("guest").unwrap();
        let text = configuration_with(&rig, guest.name(), settings, MEMBER);
        rig.start(&text);
        let all = Guests { rig, guest };
        all.address();
        all.guest.run(["ip", "route", "replace", "default", "via", "10.9.0.1"]).unwrap();
        all
    }

    fn address(&self) {
        self.rig.lab.hub().run(["ip", "address", "replace", "10.9.0.1/24", "dev", "vm"]).unwrap();
    }

    fn ping(&self, from: &Namespace, to: &str) -> Result<String, String> {
        let line = ["ping", "-n", "-c", "2", "-i", "0.05", "-W", "1", to];
        from.run(line).map_err(|error| error.to_string())
    }

    fn reaches(&self, from: &Namespace, to: &str) {
        eventually(&format!("{} reaching {to}", from.name()), PATIENCE, || self.ping(from, to)).unwrap();
    }

    fn link(&self) -> serde_json::Value {
        let line = ["ip", "-j", "-s", "-s", "link", "show", "dev", "vm"];
        let all: serde_json::Value = serde_json::from_str(&self.rig.lab.hub().run(line).unwrap()).unwrap();
        all[0].clone()
    }

    fn counted(&self, port: &str, counter: &str) -> u64 {
        self.rig.port(port)["counters"][counter].as_u64().unwrap()
    }
}

#[test]
fn a_tap_is_an_interface_with_a_mirror_in_the_kernel() {
    require!("ip", "ping", "ethtool", "iperf3");
    let all = Guests::start();
    let (rig, guest, host, hub) = (&all.rig, &all.guest, rig_host(&all.rig), all.rig.lab.hub());
    // The kernel answers ARP and echo requests through the mirror. The worker forwards packets for others.
    all.reaches(guest, "10.9.0.1");
    all.reaches(guest, "10.8.1.2");
    all.reaches(host, "10.9.0.2");
    let before = (all.counted("vm", "tx_packets"), all.counted("h1", "tx_packets"));
    assert!(all.ping(host, "10.9.0.2").unwrap().contains("2 received"));
    let after = (all.counted("vm", "tx_packets"), all.counted("h1", "tx_packets"));
    assert!(after.0 >= before.0 + 2 && after.1 >= before.1 + 2, "{before:?} {after:?}");
    let shown = rig.ok(&["show", "interfaces"]);
    assert!(shown.lines().any(|line| line.contains("vm") && line.contains("10.9.0.1/24")), "{shown}");
    // Segments whose segmentation the guest's kernel leaves to Trivium.
    let server = host.spawn(["iperf3", "-s", "-1"]).unwrap();
    eventually("two megabytes from the guest", PATIENCE, || {
        guest.run(["iperf3", "-c", "10.8.1.2", "-n", "2M"]).map(drop).map_err(|error| error.to_string())
    })
    .unwrap();
    drop(server);
    // Settings of the mirror apply to the port, here the MTU.
    hub.run(["ip", "link", "set", "dev", "vm", "mtu", "1300"]).unwrap();
    eventually("the smaller MTU counts", PATIENCE, || {
        let line = ["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", "1350", "10.9.0.2"];
        let said = host.command(line).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if said.contains("mtu = 1300") || said.contains("mtu=1300") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    hub.run(["ip", "link", "set", "dev", "vm", "mtu", "1500"]).unwrap();
    // The MAC address of the mirror applies to the port.
    let other = "02:00:00:00:20:01";
    hub.run(["ip", "link", "set", "dev", "vm", "address", other]).unwrap();
    guest.run(["ip", "neighbor", "flush", "dev", "eth0"]).unwrap();
    all.reaches(guest, "10.8.1.2");
    let known = guest.run(["ip", "neighbor", "show", "10.9.0.1"]).unwrap();
    assert!(known.contains(other), "{known}");
    // A mirror that is set down disables the interface.
    hub.run(["ip", "link", "set", "dev", "vm", "down"]).unwrap();
    eventually("it is down", PATIENCE, || match all.ping(guest, "10.8.1.2") {
        Err(_) => Ok(()),
        Ok(said) => Err(said),
    })
    .unwrap();
    hub.run(["ip", "link", "set", "dev", "vm", "up"]).unwrap();
    all.address();
    all.reaches(guest, "10.8.1.2");
}

fn rig_host(rig: &Rig) -> &Namespace {
    &rig.hosts[0]
}

#[test]
fn a_mirror_stays_in_an_upgrade_and_goes_with_its_port() {
    require!("ip", "ping", "ethtool");
    let all = Guests::start();
    let (rig, hub) = (&all.rig, all.rig.lab.hub());
    all.reaches(&all.guest, "10.8.1.2");
    let known = || {
        let link = all.link();
        (link["ifindex"].clone(), link["stats64"]["tx"]["carrier_changes"].clone())
    };
    let before = known();
    let flow = UdpFlow::between((rig_host(rig), "10.8.1.2"), (&all.guest, "10.9.0.2"), 1_000, 9_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    for _ in 0..2 {
        rig.ok(&["upgrade", "--binary", TRIVIUM]);
        flow.wait_for(500, PATIENCE).unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    assert_eq!(known(), before, "the kernel has not noticed");
    let file = rig.write("less.toml", &configuration(rig, all.guest.name(), ""));
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(!hub.run(["ip", "-br", "link"]).unwrap().contains("vm "));
    // A foreign device has the name, so nothing changes.
    hub.run(["ip", "link", "add", "vm", "type", "veth", "peer", "name", "vm-far"]).unwrap();
    let file = rig.write("more.toml", &configuration(rig, all.guest.name(), MEMBER));
    let refused = rig.trivium(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("ip link del vm"), "{said}");
}

/// Messages of link protocols from the guest arrive unchanged at the mirror device, and messages that a program sends
/// on the mirror device arrive unchanged at the guest.
#[test]
fn protocols_of_the_link_come_and_leave_by_the_mirror() {
    require!("ip", "ping", "ethtool");
    let all = Guests::start();
    let hub = all.rig.lab.hub();
    all.reaches(&all.guest, "10.9.0.1");
    let raw = |to: [u8; 6], from: u8, head: &[u8]| -> Vec<u8> {
        let mut frame = [&to[..], &[2, 0, 0, 0, 9, from], head].concat();
        frame.resize(80, from);
        frame
    };
    let spec = |text: &str| packet::spec::parse(text).unwrap();
    let frames = |from: u8| {
        let source = format!("eth_src=02:00:00:00:09:{from:02x}");
        let four = |to: &str, group: &str, more: &str| {
            spec(&format!("{source},eth_dst={to},ip_src=10.9.0.{from},ip_dst={group},{more}"))
        };
        let six = |to: &str, group: &str, more: &str| {
            spec(&format!("{source},eth_dst={to},ip_src=fe80::{from},ip_dst={group},{more}"))
        };
        let bgp = "tcp,src_port=50000,dst_port=179,ttl=1";
        [
            ("LLDP", raw([1, 0x80, 0xc2, 0, 0, 0x0e], from, &[0x88, 0xcc, 2, 7, 4])),
            ("LACP", raw([1, 0x80, 0xc2, 0, 0, 2], from, &[0x88, 0x09, 1, 1])),
            // An 802.3 frame: a length, and LLC.
            ("IS-IS", raw([1, 0x80, 0xc2, 0, 0, 0x14], from, &[0, 66, 0xfe, 0xfe, 3, 0x83])),
            ("OSPF", four("01:00:5e:00:00:05", "224.0.0.5", "ip_proto=89,ttl=1")),
            ("VRRP", four("01:00:5e:00:00:12", "224.0.0.18", "ip_proto=112,ttl=255")),
            ("RIP", four("01:00:5e:00:00:09", "224.0.0.9", "udp,src_port=520,dst_port=520,ttl=1")),
            ("DHCP", four("ff:ff:ff:ff:ff:ff", "255.255.255.255", "udp,src_port=68,dst_port=67")),
            ("RIPng", six("33:33:00:00:00:09", "ff02::9", "udp,src_port=521,dst_port=521,ttl=255")),
            ("OSPFv3", six("33:33:00:00:00:05", "ff02::5", "ip_proto=89,ttl=1")),
            ("RA", six("33:33:00:00:00:01", "ff02::1", "icmpv6,icmp_type=134,icmp_code=0,ttl=255")),
            ("BGP", four("02:00:00:00:09:77", if from == 66 { "10.9.0.1" } else { "10.9.0.77" }, bgp)),
        ]
    };
    for (from, to, number) in
        [((&all.guest, "eth0"), (hub, "vm"), 66), ((hub, "vm"), (&all.guest, "eth0"), 77)]
    {
        let sender = RawSender::open(from.0, from.1).unwrap();
        let receiver = RawReceiver::open(to.0, to.1).unwrap();
        for (protocol, mut frame) in frames(number) {
            if protocol == "BGP" && number == 66 {
                // The frame is addressed to the router itself.
                frame[..6].copy_from_slice(&mac_of(&all.link()));
            }
            sender.send(&frame).unwrap();
            eventually(&format!("{protocol} from {}", from.1), PATIENCE, || {
                match receiver.arrived(PATIENCE).map_err(|error| error.to_string())? {
                    Some(came) if came == frame => Ok(()),
                    other => Err(format!("{other:02x?} and not {frame:02x?}")),
                }
            })
            .unwrap();
        }
    }
}

fn mac_of(link: &serde_json::Value) -> [u8; 6] {
    let octets = link["address"].as_str().unwrap().split(':');
    let octets: Vec<u8> = octets.map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    octets.try_into().unwrap()
}

/// While a guest floods its router with messages of one protocol, all messages of another protocol arrive at the socket
/// of the program that receives them.
#[test]
fn a_flood_of_hellos_leaves_other_protocols_whole() {
    const UPDATES: u64 = 200;
    require!("ip", "ping", "ethtool");
    let all = Guests::start_with("punt_limits = { ospf = 100 }\n");
    let (rig, hub) = (&all.rig, all.rig.lab.hub());
    all.reaches(&all.guest, "10.9.0.1");
    let socket = hub.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:520").unwrap();
        socket.join_multicast_v4(&"224.0.0.9".parse().unwrap(), &"10.9.0.1".parse().unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(socket)
    });
    let socket = socket.unwrap();
    let frame = |text: &str| packet::spec::parse(&format!("ip_src=10.9.0.2,{text}")).unwrap();
    let hello = frame("eth_dst=01:00:5e:00:00:05,ip_dst=224.0.0.5,ip_proto=89,ttl=1");
    let update = frame("eth_dst=01:00:5e:00:00:09,ip_dst=224.0.0.9,udp,src_port=520,dst_port=520,ttl=1");
    let sender = RawSender::open(&all.guest, "eth0").unwrap();
    for number in 0..UPDATES * 50 {
        sender.send(&hello).unwrap();
        if number % 50 == 0 {
            sender.send(&update).unwrap();
            // Routing daemons also wait for each other's messages, so that the messages in flight fit into
            // every queue.
            socket.recv(&mut [0; 64]).unwrap();
        }
    }
    let counted = |class: &str| {
        let all: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "punts", "--json"])).unwrap();
        let one = all.as_array().unwrap().iter().find(|punt| punt["class"] == class).unwrap();
        (one["limit"].as_u64().unwrap(), one["packets"].as_u64().unwrap(), one["refused"].as_u64().unwrap())
    };
    assert_eq!(counted("rip"), (20_000, UPDATES, 0));
    let (limit, hellos, refused) = counted("ospf");
    assert_eq!(limit, 100);
    assert!(hellos >= 64 && refused > hellos, "{hellos} {refused}");
    // The limit changes while the router runs, and the counters continue.
    let text = configuration_with(rig, all.guest.name(), "punts = 700\n", MEMBER);
    let said = rig.ok(&["apply", rig.write("other.toml", &text).to_str().unwrap()]);
    assert!(said.contains("punt_limits"), "{said}");
    assert_eq!((counted("ospf").0, counted("rip").0, counted("rip").1), (700, 700, UPDATES));
}

/// A BGP session between kernel sockets survives a flood on the guest's link. The flood consists of TCP segments from
/// port 179 with forged source addresses, and of TCP segments, OSPF packets and BFD packets with the peer's address.
/// The peer's data arrives, although the rate limits are far below the rate of the flood.
#[test]
fn a_session_lives_in_a_flood_of_forged_segments() {
    require!("ip", "ping", "ethtool");
    // The burst of the session exceeds all of its data, however fast the machine is.
    let all =
        Guests::start_with("punt_limits = { bgp = 100, session = 4000, peer = 100, peer-multihop = 100 }\n");
    let (rig, hub) = (&all.rig, all.rig.lab.hub());
    all.reaches(&all.guest, "10.9.0.1");
    let listener = hub.inside(|| Ok(TcpListener::bind("10.9.0.1:179").unwrap())).unwrap();
    let mut far = all.guest.inside(|| Ok(TcpStream::connect("10.9.0.1:179").unwrap())).unwrap();
    far.set_nodelay(true).unwrap();
    let (mut near, _) = listener.accept().unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    let counted = |class: &str| {
        let all: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "punts", "--json"])).unwrap();
        let one = all.as_array().unwrap().iter().find(|punt| punt["class"] == class).unwrap();
        (one["packets"].as_u64().unwrap(), one["refused"].as_u64().unwrap())
    };
    let mut keepalive = [0xff; 19];
    keepalive[16..].copy_from_slice(&[0, 19, 4]);
    eventually("the session is known", PATIENCE, || {
        far.write_all(&keepalive).unwrap();
        near.read_exact(&mut [0; 19]).unwrap();
        if counted("session").0 > 0 { Ok(()) } else { Err(format!("{:?}", counted("bgp"))) }
    })
    .unwrap();
    let mac: Vec<String> = mac_of(&all.link()).iter().map(|octet| format!("{octet:02x}")).collect();
    let forged = |source: &str, what: &str| {
        let text = format!("eth_dst={},ip_src={source},ip_dst=10.9.0.1,{what}", mac.join(":"));
        packet::spec::parse(&text).unwrap()
    };
    let segment = "tcp,src_port=179,dst_port=5000";
    // Packets with the peer's address that do not belong to the session.
    let others = ["ip_proto=89,ttl=1", "udp,dst_port=4784,ttl=60", "udp,dst_port=3784,ttl=255", segment];
    let others = others.map(|what| forged("10.9.0.2", what));
    let sender = RawSender::open(&all.guest, "eth0").unwrap();
    let before = counted("bgp");
    let mut number = 0_u32;
    for round in 0..200 {
        for _ in 0..100 {
            number += 1;
            let source = std::net::Ipv4Addr::from(0x0b00_0000 + number).to_string();
            sender.send(&forged(&source, segment)).unwrap();
            sender.send(&others[round % others.len()]).unwrap();
        }
        far.write_all(&keepalive).unwrap();
        near.read_exact(&mut [0; 19]).unwrap_or_else(|error| panic!("keepalive {round}: {error}"));
    }
    let (after, session) = (counted("bgp"), counted("session"));
    assert!(
        after.1 - before.1 > 10_000,
        "forged segments beyond the limit are refused: {before:?} {after:?}"
    );
    assert_eq!(session.1, 0, "of the session no segment is");
    assert!(counted("peer").0 > 0 && counted("peer-multihop").0 > 0, "the others have counts of their own");
}
