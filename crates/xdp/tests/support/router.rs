//! A namespace that routes between three devices, for the kernel routing stage. The devices n1, n2 and n3 belong to the
//! router, and their peers f1, f2 and f3 to other hosts.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use xdp::fib::{FibPort, FibStage, Takes};
use xdp::live::Pass;
use xdp::{AttachMode, Attached, Counter, Loaded, Owner, PortProgram, StageChange, Verdict, WhenDown};

use super::{Namespace, config, sh};

/// MAC addresses of n1, n2 and n3.
pub const NEAR: [[u8; 6]; 3] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1], [2, 0, 0, 0, 3, 1]];
/// MAC addresses of the neighbours at f1, f2 and f3.
pub const FAR: [[u8; 6]; 3] = [[2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 2, 2], [2, 0, 0, 0, 3, 2]];

/// Routes of every kind. The kernel has neighbour entries for 10.0.N.2 and fd00:N::2 on n2 and n3.
const ROUTES: &str = "
    route add 198.51.100.0/24 via 10.0.2.2
    route add 203.0.113.0/24 via inet6 fd00:3::2 dev n3
    route add default via 10.0.3.2
    route add blackhole 192.0.2.0/30
    route add unreachable 192.0.2.4/30
    route add prohibit 192.0.2.8/30
    route add throw 192.0.2.12/30
    route add 192.0.2.16/30 encap seg6 mode encap segs fd00:2::2 dev n2
    route add 192.0.2.20/30 via 10.0.2.2 mtu lock 1000
    route add 192.0.2.24/30 via 10.0.2.2 mtu lock 9000
    route add 192.0.2.28/30 via 10.0.1.2
    -6 route add 2001:db8::/64 via fd00:2::2
    -6 route add 2001:db8:1::/64 via fd00:3::2
    -6 route add blackhole 2001:db8:2::/64
    -6 route add unreachable 2001:db8:3::/64
    -6 route add prohibit 2001:db8:4::/64
    -6 route add 2001:db8:5::/64 encap seg6 mode encap segs fd00:2::2 dev n2
    -6 route add 2001:db8:6::/64 via fd00:1::2
    -6 route add 2001:db8:7::/64 via fd00:2::2 mtu lock 1300";

pub struct Router {
    pub attached: Attached,
    pub near: [u32; 3],
    pub far: [u32; 3],
    pub pass: Vec<Pass>,
    pub namespace: Namespace,
}

impl Router {
    /// Creates the router. n1 has a port's XDP program without the kernel routing stage, and n2 and n3 accept
    /// redirected frames.
    pub fn new() -> Router {
        let namespace = Namespace::enter_new();
        let (mut near, mut far, mut pass) = ([0; 3], [0; 3], Vec::new());
        for at in 0..3 {
            let number = at + 1;
            let (f, n) = (format!("f{number}"), format!("n{number}"));
            (far[at], near[at]) = namespace.veth(&f, &n, "");
            pass.push(Pass::attach(far[at], AttachMode::Native).unwrap());
            let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
            namespace.ip(&format!("link set dev {n} address {}", text(NEAR[at])));
            namespace.ip(&format!("address add 10.0.{number}.1/24 dev {n}"));
            namespace.ip(&format!("address add fd00:{number}::1/64 dev {n} nodad"));
            for address in [format!("10.0.{number}.2"), format!("fd00:{number}::2")] {
                namespace.ip(&format!("neighbor add {address} lladdr {} dev {n}", text(FAR[at])));
            }
            // The far ends only carry frames. They own no addresses and send nothing themselves.
            sh(&format!("echo 1 > /proc/sys/net/ipv6/conf/{f}/disable_ipv6"));
            namespace.ip(&format!("link set dev {f} arp off"));
        }
        sh("echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
        for route in ROUTES.lines().map(str::trim).filter(|line| !line.is_empty()) {
            namespace.ip(route);
        }
        let mut all = config(Owner::Routed, WhenDown::Pass);
        all.locals.v4 = [1, 2, 3].map(|number| Ipv4Addr::new(10, 0, number, 1)).into();
        let loaded = PortProgram::load(&all).unwrap();
        let attached = loaded.attach(near[0], AttachMode::Native, None).unwrap();
        let router = Router { attached, near, far, pass, namespace };
        router.check_sources(0);
        router
    }

    /// Sets `rp_filter` of n1.
    pub fn check_sources(&self, mode: u8) {
        sh(&format!(
            "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo {mode} > /proc/sys/net/ipv4/conf/n1/rp_filter"
        ));
    }

    pub fn port() -> FibPort {
        FibPort { mac: NEAR[0], check_sources: false, partial_checksums: false }
    }

    pub fn takes(&self, two: Takes, three: Takes) -> BTreeMap<u32, Takes> {
        [(self.near[1], two), (self.near[2], three)].into()
    }

    /// Returns a kernel routing stage that can send frames through n2 and n3, and a program with this stage.
    pub fn stage(&self, port: &FibPort) -> (FibStage, Loaded) {
        let stage = FibStage::new(port, &self.attached).unwrap();
        stage.set_devices(&self.takes(Takes::Frames, Takes::MultiBuffer)).unwrap();
        let loaded = self.attached.prepare_stage(StageChange::Fib(Some(&stage))).unwrap();
        (stage, loaded)
    }

    /// Runs the program on a frame that n1 receives. Returns the verdict, the only counter that changed, and the frame
    /// after the run.
    pub fn see(&self, loaded: &Loaded, frame: &[u8]) -> (Verdict, Counter, Vec<u8>) {
        let before = self.attached.counters().unwrap();
        let run = loaded.test_run_from(frame, Some((self.near[0], 0)), 1).unwrap();
        let after = self.attached.counters().unwrap();
        let moved: Vec<Counter> =
            Counter::ALL.into_iter().filter(|c| after.get(*c) != before.get(*c)).collect();
        assert_eq!(moved.len(), 1, "{moved:?}");
        (run.verdict, moved[0], run.frame)
    }
}

/// Writes the header's checksum (RFC 791).
pub fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&(!sum).to_be_bytes());
}

pub fn ethernet(to: [u8; 6], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&to[..], &FAR[0], &ethertype.to_be_bytes(), packet].concat()
}

/// Returns a UDP packet from 10.0.1.2 whose IPv4 packet has `length` bytes. `edit` changes the header before its
/// checksum is written.
pub fn ipv4(to: Ipv4Addr, length: u16, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; usize::from(length)];
    packet[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0]);
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[12..16].copy_from_slice(&[10, 0, 1, 2]);
    packet[16..20].copy_from_slice(&to.octets());
    packet[20..28].copy_from_slice(&[4, 0, 0, 9, 0, 8, 0, 0]);
    edit(&mut packet);
    let header = usize::from(packet[0] & 15) * 4;
    seal(&mut packet[..header.max(20)]);
    ethernet(NEAR[0], 0x0800, &packet)
}

/// Like [`ipv4`], for IPv6 from fd00:1::2.
pub fn ipv6(to: Ipv6Addr, length: u16, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; usize::from(length)];
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 17, 64]);
    packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
    packet[8..24].copy_from_slice(&Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2).octets());
    packet[24..40].copy_from_slice(&to.octets());
    packet[40..48].copy_from_slice(&[4, 0, 0, 9, 0, 8, 1, 1]);
    edit(&mut packet);
    ethernet(NEAR[0], 0x86dd, &packet)
}
