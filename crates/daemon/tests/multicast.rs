//! Tests IGMP and MLD snooping with the real binary. Hosts join and leave groups with real sockets, and the test
//! captures the frames that each host receives.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rig::{PATIENCE, Rig};
use testbed::{Host, LabError, RawReceiver, eventually, require};

const PORT: u16 = 7117;
const PAYLOAD: &[u8] = b"whoever listens to the group";
/// Number of packets that a test sends to a group in one round.
const ROUND: u64 = 50;

/// A multicast group with its sender.
struct Group {
    address: IpAddr,
    socket: UdpSocket,
    /// Socket for the broadcast that marks the end of a round.
    marks: UdpSocket,
    /// Destination MAC address of frames to the group.
    mac: [u8; 6],
    round: AtomicU64,
}

fn system(source: std::io::Error) -> LabError {
    LabError::System { what: "a multicast socket".to_owned(), source }
}

impl Group {
    /// Creates a group. `from` is the sending host's address of the group's address family.
    fn new(sender: &Host, from: &str, address: &str) -> Group {
        let address: IpAddr = address.parse().unwrap();
        let bind = |from: &str| {
            let from: IpAddr = from.parse().unwrap();
            sender.inside(|| UdpSocket::bind((from, 0)).map_err(system)).unwrap()
        };
        let (socket, marks) = (bind(from), bind(sender.ip()));
        marks.set_broadcast(true).unwrap();
        // RFC 1112 section 6.4, RFC 2464 section 7.
        let mac = match address {
            IpAddr::V4(group) => {
                let [_, b, c, d] = group.octets();
                [0x01, 0x00, 0x5e, b & 0x7f, c, d]
            }
            IpAddr::V6(group) => {
                let [.., a, b, c, d] = group.octets();
                [0x33, 0x33, a, b, c, d]
            }
        };
        Group { address, socket, marks, mac, round: AtomicU64::new(0) }
    }

    /// Joins the group with a real socket. The host's kernel reports the membership, and sends a leave when the socket
    /// is dropped.
    fn join(&self, host: &Host) -> UdpSocket {
        let listener = host.inside(|| {
            let any = if self.address.is_ipv4() { "0.0.0.0" } else { "::" };
            let socket = UdpSocket::bind((any, PORT)).map_err(system)?;
            match self.address {
                IpAddr::V4(group) => socket.join_multicast_v4(&group, &host.ip().parse().unwrap()),
                IpAddr::V6(group) => socket.join_multicast_v6(&group, index(host)),
            }
            .map_err(system)?;
            Ok(socket)
        });
        let listener = listener.unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    /// Sends `count` packets to the group and then a broadcast. Returns the number of packets that arrived at each of
    /// `wires` before the broadcast. Packets that arrive later count as lost.
    fn counted(&self, wires: &[RawReceiver], count: u64) -> Vec<u64> {
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        let mark = format!("the end of round {round}.");
        for _ in 0..count {
            self.socket.send_to(PAYLOAD, SocketAddr::new(self.address, PORT)).unwrap();
        }
        self.marks.send_to(mark.as_bytes(), "255.255.255.255:7118").unwrap();
        let to_group = |frame: &[u8]| frame.starts_with(&self.mac) && frame.ends_with(PAYLOAD);
        let last = |frame: &[u8]| frame.ends_with(mark.as_bytes());
        wires.iter().map(|wire| wire.count_until(to_group, last, PATIENCE).unwrap()).collect()
    }

    /// Waits until packets to the group reach exactly the hosts in `wanted`, then sends a round of packets and checks
    /// that every packet reaches these hosts only.
    fn until(&self, what: &str, wires: &[RawReceiver], wanted: [bool; 3]) {
        let times = |count| wanted.map(|wanted| if wanted { count } else { 0 });
        eventually(&format!("{}: {what}", self.address), PATIENCE, || {
            let came = self.counted(wires, 1);
            if came == times(1) { Ok(()) } else { Err(format!("{came:?}")) }
        })
        .unwrap();
        assert_eq!(self.counted(wires, ROUND), times(ROUND), "{}: {what}", self.address);
    }
}

/// Returns the interface index of the host's device.
fn index(host: &Host) -> u32 {
    let line = host.run(["ip", "-o", "link", "show", "eth0"]).unwrap();
    line.split(':').next().unwrap().parse().unwrap()
}

/// Returns the number of packets that a listener's socket received since the last call.
fn heard(listener: &UdpSocket) -> u64 {
    let mut buffer = [0; 64];
    std::iter::from_fn(|| listener.recv(&mut buffer).ok()).count() as u64
}

/// Starts the daemon with four hosts that have IPv4 and IPv6 addresses, a group to which the first host sends, and
/// captures of the frames that the other hosts receive. `querier` is the index of the host that sends queries, which
/// makes its port a router port.
fn begin(family: &str, querier: usize) -> (Rig, Group, Vec<RawReceiver>) {
    let mut rig = Rig::new(4);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    become_querier(&rig.hosts[querier]);
    for (number, host) in (1..).zip(&rig.hosts) {
        // The querier's bridge has no IPv6 address. Otherwise the bridge would use this address as the source of its
        // queries, but RFC 3810 requires a link-local source.
        host.add_ipv6(&format!("fd00::{number}/64")).unwrap();
    }
    let group = match family {
        "IGMP" => Group::new(&rig.hosts[0], rig.hosts[0].ip(), "239.1.1.1"),
        _ => Group::new(&rig.hosts[0], "fd00::1", "ff05::1:3"),
    };
    let wires = rig.hosts[1..].iter().map(|host| RawReceiver::open(host, "eth0").unwrap()).collect();
    (rig, group, wires)
}

fn snooped(family: &str) {
    // The sender is the querier, so its port is a router port. The sender's packets are not sent back.
    let (rig, group, wires) = begin(family, 0);
    group.until("nobody has joined, so it floods", &wires, [true, true, true]);
    let second = group.join(&rig.hosts[1]);
    group.until("host 2 listens", &wires, [true, false, false]);
    assert!(heard(&second) > ROUND, "its socket too");
    let fourth = group.join(&rig.hosts[3]);
    group.until("hosts 2 and 4 listen", &wires, [true, false, true]);
    drop(second);
    group.until("host 4 listens still", &wires, [false, false, true]);
    assert!(heard(&fourth) > 2 * ROUND, "nothing was cut off");
    // A group without members is unknown again, and is flooded.
    drop(fourth);
    group.until("everybody has left, so it floods again", &wires, [true, true, true]);
}

#[test]
fn igmp_leads_a_group_to_its_listeners() {
    require!("ip", "ethtool", "sysctl");
    snooped("IGMP");
}

#[test]
fn mld_leads_a_group_to_its_listeners() {
    require!("ip", "ethtool", "sysctl");
    snooped("MLD");
}

/// Creates a Linux bridge on the host, which makes the host a querier. The bridge queries a group when a member leaves
/// it. The querier uses the newest protocol versions. After a query of an older version, a host may leave a group
/// without a message if another host was the last to report the group.
fn become_querier(host: &Host) {
    let bridge = "ip link add br0 type bridge mcast_snooping 1 mcast_igmp_version 3 mcast_mld_version 2 \
                  mcast_querier 1 mcast_query_use_ifaddr 1 mcast_query_interval 200 mcast_startup_query_interval 100 \
                  mcast_query_response_interval 100";
    for line in [
        bridge,
        "sysctl -qw net.ipv6.conf.br0.accept_dad=0 net.ipv6.conf.br0.disable_ipv6=0",
        "ip address flush dev eth0",
        "ip link set dev eth0 master br0",
        &format!("ip address add {}/24 dev br0", host.ip()),
        "ip link set dev br0 up",
    ] {
        host.run(line.split_whitespace()).unwrap();
    }
}

fn asked(family: &str) {
    let (rig, group, wires) = begin(family, 3);
    let second = group.join(&rig.hosts[1]);
    group.until("host 2 listens, and host 4 is a router", &wires, [true, false, true]);
    let third = group.join(&rig.hosts[2]);
    group.until("hosts 2 and 3 listen", &wires, [true, true, true]);
    drop(second);
    // Host 3 answers the query, and host 2 does not.
    group.until("host 3 listens still", &wires, [false, true, true]);
    assert!(heard(&third) > ROUND, "nothing was cut off");
    // The pause is longer than the maximum response time. The membership persists.
    std::thread::sleep(Duration::from_secs(3));
    group.until("host 3 listens for good", &wires, [false, true, true]);
}

#[test]
fn an_igmp_querier_is_a_router_and_its_question_ends_a_membership() {
    require!("ip", "ethtool", "sysctl");
    asked("IGMP");
}

#[test]
fn an_mld_querier_is_a_router_and_its_question_ends_a_membership() {
    require!("ip", "ethtool", "sysctl");
    asked("MLD");
}

/// A bridge without snooping floods packets to a multicast group to all hosts, even after a host has joined the group.
#[test]
fn a_bridge_that_does_not_snoop_floods() {
    require!("ip", "ethtool", "sysctl");
    let mut rig = Rig::new(4);
    let configuration =
        rig.configuration("persist = false").replace("[bridge.br0]\n", "[bridge.br0]\nsnooping = false\n");
    rig.start(&configuration);
    become_querier(&rig.hosts[0]);
    let group = Group::new(&rig.hosts[0], rig.hosts[0].ip(), "239.1.1.1");
    let wires: Vec<RawReceiver> =
        rig.hosts[1..].iter().map(|host| RawReceiver::open(host, "eth0").unwrap()).collect();
    let listener = group.join(&rig.hosts[1]);
    // The pause is longer than a join needs to take effect.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(group.counted(&wires, ROUND), [ROUND; 3]);
    assert_eq!(heard(&listener), ROUND);
}
