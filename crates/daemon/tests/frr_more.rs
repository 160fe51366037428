//! More routing daemons on a virtual router: FRR's OSPFv3, IS-IS, RIP, RIPng and BFD, and keepalived's VRRP. The
//! unmodified daemons run in the router's namespace and on its neighbours. The ports' hooks pass the daemons' packets
//! to the kernel. Workers or hooks forward packets along the learned routes.
//!
//! ```text
//!   h1 fd00:51::/64 ──OSPFv3──┐            ┌──IS-IS (point to point), BFD── h2 10.53.0.0/24
//!      10.52.0.0/24 ──RIP─────┤ the router ├──RIPng── h2 fd00:54::/64
//!                             └────────────┴──IS-IS (LAN), BFD── h3 10.53.0.0/24, further away
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::{Duration, Instant};

use rig::frr::Frr;
use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::{Namespace, Process, eventually, require};

/// Maximum time to establish adjacencies on a loaded machine. The timers of the daemons are set to several seconds.
const SESSION: Duration = Duration::from_secs(60);

/// Configuration of ospf6d on the router and on h1. The words `DEVICE` and `ID` are placeholders for the device and the
/// router ID.
const OSPF6: &str = "\
interface DEVICE
 ipv6 ospf6 area 0
 ipv6 ospf6 network point-to-point
 ipv6 ospf6 hello-interval 1
 ipv6 ospf6 dead-interval 10
router ospf6
 ospf6 router-id ID
 redistribute connected
";
const RIP: &str = "\
router rip
 network DEVICE
 redistribute connected
 timers basic 5 30 30
";
const RIPNG: &str = "\
router ripng
 network DEVICE
 redistribute connected
 timers basic 5 30 30
";
/// Configuration of isisd with short delays between a topology change and the new routes.
const ISIS: &str = "\
router isis core
 net 49.0001.0000.0000.000ID.00
 is-type level-2-only
 metric-style wide
 lsp-gen-interval 1
 spf-delay-ietf init-delay 20 short-delay 50 long-delay 200 holddown 500 time-to-learn 100
";
/// Configuration of an IS-IS circuit. Without BFD, a silent neighbour is detected after 30 seconds.
const CIRCUIT: &str = "\
interface DEVICE
 ip router isis core
 isis circuit-type level-2-only
 isis hello-interval 3
 isis hello-multiplier 10
 isis csnp-interval 1
 isis bfd
 isis bfd profile quick
";
/// Configuration of BFD. A failure is detected after 800 ms. The time is long enough that a delay on a busy machine is
/// not taken for a failure.
const BFD: &str = "\
bfd
 profile quick
  transmit-interval 200
  receive-interval 200
  detect-multiplier 4
";

fn isis(id: u8, circuits: &str) -> String {
    format!("{circuits}{}", ISIS.replace("ID", &id.to_string()))
}

fn circuit(device: &str, more: &str) -> String {
    CIRCUIT.replace("DEVICE", device) + more
}

/// Starts a router with `hosts` ports, to each of which a host is connected.
fn start(hosts: u8) -> Rig {
    let mut rig = Rig::routed(hosts);
    let ports: String = rig
        .configuration("")
        .lines()
        .filter(|line| !line.contains("bridge") && !line.contains("access"))
        .fold(String::new(), |text, line| text + line + "\n");
    let interfaces: String = (1..=hosts).map(|number| format!("[router.edge.port.h{number}]\n")).collect();
    rig.start(&format!("{ports}[router.edge]\n{interfaces}"));
    rig.until_reachable(1, 2);
    rig
}

/// Adds addresses to the loopback device of a host. The addresses represent networks that are reachable through the
/// host.
fn behind(namespace: &Namespace, addresses: &[&str]) {
    namespace.run(["sysctl", "-qw", "net.ipv6.conf.lo.disable_ipv6=0"]).unwrap();
    for address in addresses {
        namespace.run(["ip", "address", "add", address, "dev", "lo"]).unwrap();
    }
}

/// Returns the output of `trivium show why`, which contains the protocol and the gateways of the router's route to an
/// address.
fn why(rig: &Rig, to: &str) -> serde_json::Value {
    serde_json::from_str(&rig.ok(&["show", "why", to, "--json"])).unwrap()
}

/// Waits until the router has a route to an address, learned through this protocol, with one gateway whose address
/// begins with `gateway`.
fn until_routed(rig: &Rig, to: &str, protocol: &str, gateway: &str) {
    eventually(&format!("{protocol} leads to {to} by {gateway}"), SESSION, || {
        let why = why(rig, to);
        let hops = why["route"]["next_hops"].as_array().map_or(&[][..], Vec::as_slice);
        let [hop] = hops else { return Err(why.to_string()) };
        let is_by = hop["gateway"].as_str().is_some_and(|known| known.starts_with(gateway));
        if why["route"]["protocol"] == protocol && is_by { Ok(()) } else { Err(why.to_string()) }
    })
    .unwrap();
}

/// Sends three echo requests from a host, all of which must be answered.
fn ping(namespace: &Namespace, to: &str) -> Result<(), String> {
    let output = namespace.command(["ping", "-c", "3", "-i", "0.05", "-W", "1", to]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.contains("3 received") { Ok(()) } else { Err(said) }
}

/// Returns the number of packets that Trivium has sent on a port.
fn sent(rig: &Rig, port: &str) -> u64 {
    rig.port(port)["counters"]["tx_packets"].as_u64().unwrap()
}

/// Returns the number of IPv4 and IPv6 packets that the router's kernel has forwarded.
fn by_kernel(rig: &Rig) -> u64 {
    let read = |file: &str| rig.lab.hub().run(["cat", file]).unwrap();
    let snmp = read("/proc/net/snmp");
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let place = lines.next().unwrap().split(' ').position(|name| name == "ForwDatagrams").unwrap();
    let four: u64 = lines.next().unwrap().split(' ').nth(place).unwrap().parse().unwrap();
    let snmp = read("/proc/net/snmp6");
    let six = snmp.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams")).unwrap();
    four + six.trim().parse::<u64>().unwrap()
}

/// Checks that pings from `from` to an address that is reachable through the host on `port` are answered, and that
/// Trivium has forwarded them.
fn forwarded(rig: &Rig, from: &Namespace, to: &str, port: &str) {
    eventually(&format!("an answer from {to} by {port}"), SESSION, || {
        let before = (sent(rig, port), by_kernel(rig));
        ping(from, to)?;
        let (sent, kernel) = (sent(rig, port) - before.0, by_kernel(rig) - before.1);
        if sent >= 3 && kernel == 0 {
            Ok(())
        } else {
            Err(format!("{sent} by {port}, {kernel} by the kernel"))
        }
    })
    .unwrap();
}

#[test]
fn ospf3_isis_rip_ripng_and_bfd_run_above() {
    require!("ip", "ping", "ethtool", "nft", "vtysh", "/usr/lib/frr/zebra", "/usr/lib/frr/ospf6d");
    require!("/usr/lib/frr/isisd", "/usr/lib/frr/ripd", "/usr/lib/frr/ripngd", "/usr/lib/frr/bfdd");
    let rig = start(3);
    let (hub, [one, two, three]) = (rig.lab.hub(), [0, 1, 2].map(|place| &*rig.hosts[place]));
    behind(one, &["10.52.0.1/24", "fd00:51::1/64"]);
    behind(two, &["10.53.0.1/24", "fd00:54::1/64"]);
    behind(three, &["10.53.0.1/24"]);
    let ospf6 = |device: &str, id: &str| OSPF6.replace("DEVICE", device).replace("ID", id);
    let of = |text: &str, device: &str| text.replace("DEVICE", device);
    let (point, far) = (" isis network point-to-point\n", " isis metric 50\n");
    let passive = "interface lo\n ip router isis core\n isis passive\n";
    let circuits = circuit("h2", point) + &circuit("h3", far);
    let at_hub = Frr::start(
        &rig,
        hub,
        "hub",
        &[
            ("bfdd", BFD),
            ("ospf6d", &ospf6("h1", "10.8.0.1")),
            ("ripd", &of(RIP, "h1")),
            ("ripngd", &of(RIPNG, "h2")),
            ("isisd", &isis(1, &circuits)),
        ],
    );
    let _one =
        Frr::start(&rig, one, "one", &[("ospf6d", &ospf6("eth0", "10.8.1.2")), ("ripd", &of(RIP, "eth0"))]);
    let _two = Frr::start(
        &rig,
        two,
        "two",
        &[
            ("bfdd", BFD),
            ("ripngd", &of(RIPNG, "eth0")),
            ("isisd", &isis(2, &(circuit("eth0", point) + passive))),
        ],
    );
    let _three = Frr::start(
        &rig,
        three,
        "three",
        &[("bfdd", BFD), ("isisd", &isis(3, &(circuit("eth0", far) + passive)))],
    );
    // The routes of each protocol are known, and Trivium forwards packets according to them.
    until_routed(&rig, "fd00:51::1", "ospf", "fe80::");
    until_routed(&rig, "10.52.0.1", "rip", "10.8.1.2");
    until_routed(&rig, "fd00:54::1", "ripng", "fe80::");
    until_routed(&rig, "10.53.0.1", "isis", "10.8.2.2");
    forwarded(&rig, two, "fd00:51::1", "h1");
    forwarded(&rig, two, "10.52.0.1", "h1");
    forwarded(&rig, one, "fd00:54::1", "h2");
    forwarded(&rig, one, "10.53.0.1", "h2");
    // h2 becomes silent while its link stays up. BFD detects the failure, and IS-IS uses the path through h3.
    eventually("sessions of BFD with h2 and h3", SESSION, || {
        let said = at_hub.tell("bfdd", &["show bfd peers brief"])?;
        if said.matches(" up").count() == 2 && !said.contains(" down") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    // Frames of both directions are dropped, including those of IS-IS.
    let chain = |hook: &str| {
        format!("chain {hook} {{\ntype filter hook {hook} device \"eth0\" priority 0; policy drop;\n}}\n")
    };
    let mute = format!("table netdev mute {{\n{}{}}}\n", chain("ingress"), chain("egress"));
    let file = rig.write("mute.nft", &mute);
    two.run(["nft", "-f", file.to_str().unwrap()]).unwrap();
    let begin = Instant::now();
    until_routed(&rig, "10.53.0.1", "isis", "10.8.3.2");
    let gone = begin.elapsed();
    eprintln!("a neighbour that fell silent was left after {gone:?}");
    assert!(gone < Duration::from_secs(15), "hellos alone would have missed it after 30 s: {gone:?}");
    forwarded(&rig, one, "10.53.0.1", "h3");
    // h2 sends again.
    two.run(["nft", "delete", "table", "netdev", "mute"]).unwrap();
    until_routed(&rig, "10.53.0.1", "isis", "10.8.2.2");
    forwarded(&rig, one, "10.53.0.1", "h2");
    let drift: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "drift", "--json"])).unwrap();
    assert_eq!(drift["drifted"], 0, "{drift}");
}

/// Starts keepalived in a namespace. Two instances of keepalived in different namespaces share one virtual address.
fn keepalived(rig: &Rig, namespace: &Namespace, name: &str, device: &str, priority: u8) -> Process {
    let file = rig.write(
        &format!("{name}.conf"),
        &format!(
            "vrrp_instance one {{\n state BACKUP\n interface {device}\n virtual_router_id 7\n priority {priority}\n \
             advert_int 0.2\n version 3\n virtual_ipaddress {{\n 10.8.1.9/24\n }}\n}}\n"
        ),
    );
    let path = |end: &str| rig.path(&format!("{name}.{end}")).to_str().unwrap().to_owned();
    let line = ["keepalived", "--dont-fork", "--log-console", "--vrrp"].map(str::to_owned);
    let files = ["--use-file".to_owned(), file.to_str().unwrap().to_owned(), "--pid".to_owned(), path("pid")];
    let more = ["--vrrp_pid".to_owned(), path("vrrp.pid")];
    namespace.spawn(line.into_iter().chain(files).chain(more)).unwrap()
}

/// Returns whether the namespace has the virtual address.
fn has_address(namespace: &Namespace) -> bool {
    namespace.run(["ip", "-4", "address"]).unwrap().contains("10.8.1.9")
}

#[test]
fn vrrp_moves_an_address_to_the_router_and_back() {
    require!("ip", "ping", "ethtool", "keepalived");
    let rig = start(2);
    let (hub, one, two) = (rig.lab.hub(), &*rig.hosts[0], &*rig.hosts[1]);
    one.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"]).unwrap();
    let _backup = keepalived(&rig, one, "backup", "eth0", 100);
    let stands = |at: &Namespace, what: &str| {
        eventually(what, SESSION, || if has_address(at) { Ok(()) } else { Err(String::new()) }).unwrap();
        eventually(&format!("{what}: it answers"), PATIENCE, || ping(two, "10.8.1.9")).unwrap();
    };
    stands(one, "nobody else is there: h1 has it");
    // The router's instance has a higher priority. The two instances receive each other's announcements.
    let master = keepalived(&rig, hub, "master", "h1", 200);
    stands(hub, "the router has it");
    eventually("h1 gives it up", SESSION, || if has_address(one) { Err(String::new()) } else { Ok(()) })
        .unwrap();
    // The router forwards for hosts that have the virtual address as their gateway.
    one.run(["ip", "route", "replace", "default", "via", "10.8.1.9"]).unwrap();
    forwarded(&rig, one, "10.8.2.2", "h2");
    master.stop(Signal::TERM, PATIENCE).unwrap();
    stands(one, "the router's is gone: h1 has it again");
}
