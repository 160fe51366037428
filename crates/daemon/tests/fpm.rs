//! Tests a router that receives routes through FPM: from zebra with its module `dplane_fpm_nl`, and from a test client
//! that also sends messages that a correct zebra never sends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use netlink::Prefix;
use netlink::fpm::speak::{Target, announce, frame, session};
use rig::frr::Frr;
use rig::{PATIENCE, Rig};
use testbed::{UdpFlow, eventually, require};

/// Maximum time to establish a session on a loaded machine. The timers of the sessions are set to several seconds.
const SESSION: Duration = Duration::from_secs(60);
/// Number of prefixes that h1 announces: 10.50.0.0/24, 10.50.1.0/24 and so on.
const PREFIXES: u64 = 100;
/// Address of the router's FPM socket, to which zebra connects.
const ADDRESS: &str = "127.0.0.1:2620";
const ZEBRA: &str = "fpm address 127.0.0.1 port 2620\nfpm use-next-hop-groups\n";
/// Configuration of bgpd on the router.
const HUB: &str = "\
router bgp 65000
 bgp router-id 10.8.0.1
 no bgp ebgp-requires-policy
 neighbor 10.8.1.2 remote-as 65001
 neighbor 10.8.1.2 timers connect 1
 address-family ipv4 unicast
  redistribute connected
 exit-address-family
";
/// Configuration of bgpd on h1. Prefixes are appended.
const ONE: &str = "\
router bgp 65001
 bgp router-id 10.8.1.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.8.1.1 remote-as 65000
 neighbor 10.8.1.1 timers connect 1
 address-family ipv4 unicast
";

fn configuration(rig: &Rig, settings: &str) -> String {
    let ports: String = rig
        .configuration("")
        .lines()
        .filter(|line| !line.contains("bridge") && !line.contains("access"))
        .fold(String::new(), |text, line| text + line + "\n");
    let fpm = format!("[router.edge]\nfpm = \"{ADDRESS}\"\n{settings}");
    ports + &fpm + "[router.edge.port.h1]\n[router.edge.port.h2]\n"
}

fn rig(settings: &str) -> Rig {
    let mut rig = Rig::routed(2);
    rig.start(&configuration(&rig, settings));
    rig.until_reachable(1, 2);
    rig.lab.hub().run(["ip", "link", "set", "lo", "up"]).unwrap();
    rig
}

/// Returns the state of the FPM session.
fn fpm(rig: &Rig) -> serde_json::Value {
    let routers: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "routers", "--json"])).unwrap();
    routers[0]["fpm"].clone()
}

fn until(rig: &Rig, what: &str, reached: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    eventually(what, SESSION, || {
        let fpm = fpm(rig);
        if reached(&fpm) { Ok(fpm) } else { Err(fpm.to_string()) }
    })
    .unwrap()
}

fn until_routes(rig: &Rig, count: u64) -> serde_json::Value {
    until(rig, &format!("{count} routes by FPM"), |fpm| fpm["routes"] == count)
}

/// A network in which FRR runs on the router and on h1. h1 announces prefixes, and h2 sends packets to these prefixes.
struct Network {
    hub: Frr,
    one: Frr,
    rig: Rig,
}

impl Network {
    fn start() -> Network {
        let rig = rig("fpm_settle = 15\n");
        let (one, two) = (&rig.hosts[0], &rig.hosts[1]);
        one.run(["ip", "address", "add", "10.50.7.1/24", "dev", "lo"]).unwrap();
        two.run(["sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=0"]).unwrap();
        let hub =
            Frr::start_with(&rig, rig.lab.hub(), "hub", (ZEBRA, &["-M", "dplane_fpm_nl"]), &[("bgpd", HUB)]);
        let prefixes: String =
            (0..PREFIXES).map(|number| format!("  network 10.50.{number}.0/24\n")).collect();
        let one = Frr::start(&rig, &rig.hosts[0], "one", &[("bgpd", &(ONE.to_owned() + &prefixes))]);
        Network { hub, one, rig }
    }

    /// Starts two flows: from h2 to a prefix of h1, and in the opposite direction.
    fn flows(&self) -> [UdpFlow; 2] {
        let (one, two) = ((&*self.rig.hosts[0], "10.50.7.1"), (&*self.rig.hosts[1], "10.8.2.2"));
        [UdpFlow::between(two, one, 1_000, 7_001).unwrap(), UdpFlow::between(one, two, 1_000, 7_002).unwrap()]
    }

    fn protocol(&self) -> String {
        let why: serde_json::Value =
            serde_json::from_str(&self.rig.ok(&["show", "why", "10.50.7.1", "--json"])).unwrap();
        why["route"]["protocol"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the number of packets that the kernel has forwarded instead of a worker.
    fn by_kernel(&self) -> u64 {
        let snmp = self.rig.lab.hub().run(["cat", "/proc/net/snmp"]).unwrap();
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let place = lines.next().unwrap().split(' ').position(|name| name == "ForwDatagrams").unwrap();
        lines.next().unwrap().split(' ').nth(place).unwrap().parse().unwrap()
    }
}

fn whole(flows: [UdpFlow; 2]) {
    for flow in flows {
        let report = flow.stop().unwrap();
        assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
    }
}

#[test]
fn what_bgp_learns_comes_by_fpm_and_outlives_zebra() {
    require!("ip", "ping", "ethtool", "/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "vtysh");
    require!("/usr/lib/x86_64-linux-gnu/frr/modules/dplane_fpm_nl.so");
    let mut network = Network::start();
    let fpm = until_routes(&network.rig, PREFIXES);
    assert!(fpm["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{fpm}");
    until(&network.rig, "an answer for each", |fpm| fpm["answers"].as_u64().unwrap() >= PREFIXES);
    assert_eq!(network.protocol(), "bgp");
    until(&network.rig, "a whole replay", |fpm| fpm["state"] == "connected");
    let shown = network.rig.ok(&["show", "routers"]);
    assert!(shown.contains("fpm         connected from 127.0.0.1:"), "{shown}");
    // Withdrawn routes are removed.
    let head = ["configure terminal", "router bgp 65001", "address-family ipv4 unicast"];
    let change = |no: &str| -> Vec<String> {
        let prefixes = (PREFIXES / 2..PREFIXES).map(|number| format!("{no}network 10.50.{number}.0/24"));
        head.into_iter().map(str::to_owned).chain(prefixes).collect()
    };
    let flows = network.flows();
    network.one.tell("bgpd", &change("no ")).unwrap();
    until_routes(&network.rig, PREFIXES / 2);
    network.one.tell("bgpd", &change("")).unwrap();
    until_routes(&network.rig, PREFIXES);
    // zebra crashes and its kernel routes are removed. Workers continue with the announced routes.
    let before = network.by_kernel();
    // bgpd is restarted too, as watchfrr does, because it announces only changes to a restarted zebra.
    network.hub.kill("zebra");
    network.hub.kill("bgpd");
    let fpm = until(&network.rig, "nobody", |fpm| fpm["state"] == "waiting");
    assert_eq!(fpm["routes"], PREFIXES);
    network.rig.lab.hub().run(["ip", "nexthop", "flush"]).unwrap();
    let left = network.rig.lab.hub().run(["ip", "route", "show", "proto", "bgp"]).unwrap();
    assert_eq!(left, "");
    flows[0].wait_for(1_000, PATIENCE).unwrap();
    network.hub.run("zebra");
    network.hub.run("bgpd");
    let fpm = until(&network.rig, "another whole replay", |fpm| fpm["state"] == "connected");
    assert_eq!((&fpm["routes"], &fpm["swept"]), (&PREFIXES.into(), &0.into()), "{fpm}");
    assert!(fpm["sessions"].as_u64().unwrap() >= 2);
    flows[0].wait_for(500, PATIENCE).unwrap();
    whole(flows);
    assert_eq!(network.by_kernel(), before, "workers have forwarded all of it");
    // Later announcements of zebra take effect.
    network.one.tell("bgpd", &change("no ")).unwrap();
    until_routes(&network.rig, PREFIXES / 2);
    let drift: serde_json::Value =
        serde_json::from_str(&network.rig.ok(&["show", "drift", "--json"])).unwrap();
    assert_eq!(drift["drifted"], 0, "{drift}");
    // A daemon that starts while zebra is running takes zebra's routes from the kernel until zebra connects.
    let text = configuration(&network.rig, "fpm_settle = 15\n");
    drop(network.rig.daemon.take());
    network.rig.start(&text);
    assert_eq!(network.protocol(), "bgp");
    until(&network.rig, "a session of its own", |fpm| fpm["sessions"] == 1 && fpm["routes"] == PREFIXES / 2);
}

fn prefix(text: &str) -> Prefix<IpAddr> {
    let (address, length) = text.split_once('/').unwrap();
    Prefix { address: address.parse().unwrap(), length: length.parse().unwrap() }
}

/// Connects a test client in the router's namespace to the FPM socket of the daemon.
fn connect(rig: &Rig) -> TcpStream {
    rig.lab.hub().inside(|| Ok(TcpStream::connect(ADDRESS).unwrap())).unwrap()
}

/// Returns the target of a route for FPM messages: the next hop is h1, and the output device is the router's device to
/// h1, identified by the kernel's interface index.
fn target(rig: &Rig) -> Target {
    let shown = rig.lab.hub().run(["ip", "-o", "link", "show", "h1"]).unwrap();
    let (index, _) = shown.split_once(':').unwrap();
    Target::Via("10.8.1.2".parse().unwrap(), index.parse().unwrap())
}

#[test]
fn a_session_that_is_reset_in_its_replay_loses_no_packet() {
    require!("ip", "ping", "ethtool");
    let rig = rig("fpm_settle = 1\n");
    let target = target(&rig);
    rig.hosts[0].run(["ip", "address", "add", "10.50.7.1/24", "dev", "lo"]).unwrap();
    let all = |numbers: std::ops::Range<u64>| -> Vec<Prefix<IpAddr>> {
        numbers.map(|number| prefix(&format!("10.50.{number}.0/24"))).collect()
    };
    let mut first = connect(&rig);
    first.write_all(&session([], all(0..PREFIXES), |_| target.clone())).unwrap();
    until_routes(&rig, PREFIXES);
    until(&rig, "a whole replay", |fpm| fpm["state"] == "connected");
    let (one, two) = ((&*rig.hosts[0], "10.50.7.1"), (&*rig.hosts[1], "10.8.2.2"));
    let flow = UdpFlow::between(two, one, 1_000, 7_003).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    // A connected session is not replaced by another one, and must end first.
    drop(first);
    until(&rig, "it is lost", |fpm| fpm["state"] == "waiting");
    for round in 0..3 {
        // The session announces prefixes that the flow does not use, and ends with half a frame.
        let mut next = connect(&rig);
        let bytes = session([], all(50..50 + round), |_| target.clone());
        next.write_all(&bytes).unwrap();
        next.write_all(&[1, 1, 0, 60, 0, 0]).unwrap();
        until(&rig, "it is taken", |fpm| fpm["sessions"] == round + 2 && fpm["state"] == "replaying");
        drop(next);
        until(&rig, "it is lost", |fpm| fpm["state"] == "waiting");
    }
    flow.wait_for(1_500, PATIENCE).unwrap();
    assert_eq!(fpm(&rig)["routes"], PREFIXES);
    let mut last = connect(&rig);
    last.write_all(&session([], all(5..10), |_| target.clone())).unwrap();
    // The number of routes is updated shortly after the state of the session.
    until(&rig, "what was not announced again is swept", |fpm| {
        fpm["routes"] == 5 && fpm["swept"] == PREFIXES - 5
    });
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
    // The log names an invalid message with its position.
    last.write_all(&[9; 8]).unwrap();
    let fpm = until(&rig, "it is sent away", |fpm| fpm["state"] == "waiting");
    assert!(fpm["ended"].as_str().unwrap().contains("a frame of version 9"), "{fpm}");
    assert_eq!(fpm["routes"], 5);
}

/// Routes change as fast as the daemon reads the session, while packets use another route. No packet is lost or
/// reordered, and the last announcement of each prefix takes effect. With `--nocapture`, the test prints the changes
/// per second and the 99th percentile of the forwarding time.
#[test]
fn packets_go_on_while_a_replayed_session_changes_routes() {
    require!("ip", "ping", "ethtool");
    let soak = std::env::var_os("TRIVIUM_SOAK").is_some();
    let rounds: u64 = if soak { 1_000 } else { 20 };
    let rig = rig("fpm_settle = 1\n");
    let target = target(&rig);
    rig.hosts[0].run(["ip", "address", "add", "10.50.7.1/24", "dev", "lo"]).unwrap();
    let mut client = connect(&rig);
    client.write_all(&frame([announce(prefix("10.50.7.0/24"), 186, &target)])).unwrap();
    until_routes(&rig, 1);
    // The daemon stops reading from a client that does not read the daemon's answers.
    let mut from = client.try_clone().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()).unwrap_or(0));

    let (one, two) = ((&*rig.hosts[0], "10.50.7.1"), (&*rig.hosts[1], "10.8.2.2"));
    let flow = UdpFlow::between(two, one, 5_000, 7_004).unwrap();
    flow.wait_for(10_000, PATIENCE).unwrap();
    let quiet = flow.stop().unwrap();
    let changed: Vec<Prefix<IpAddr>> = (0..1_000_u32)
        .map(|number| prefix(&format!("10.{}.{}.0/24", 60 + number / 250, number % 250)))
        .collect();
    let flow = UdpFlow::between(two, one, 5_000, 7_005).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    let begin = std::time::Instant::now();
    for round in 1..=rounds {
        let way = if round % 2 == 0 { target.clone() } else { Target::Nowhere(6) };
        client.write_all(&session([], changed.iter().copied(), |_| way.clone())).unwrap();
    }
    let all = 1 + rounds * 1_000;
    // Answers reflect the state when they are sent, so changes of a prefix in quick succession share one
    // answer.
    until(&rig, "all changes are read", |fpm| fpm["messages"] == all);
    let taken = begin.elapsed();
    let busy = flow.stop().unwrap();
    assert_eq!((busy.lost(), busy.overtaken, busy.doubled), (0, 0, 0), "{busy:?}");
    assert_eq!(fpm(&rig)["routes"], 1_001);
    for last in ["10.60.0.1", "10.63.249.1"] {
        let why = rig.ok(&["show", "why", last]);
        assert!(!why.contains("blackhole") && why.contains("10.8.1.2"), "{why}");
    }
    let rate = (all - 1) as f64 / taken.as_secs_f64();
    println!(
        "{rate:.0} changes/s; 99 of 100 packets within {:?}, {:?} before",
        busy.delay_p99, quiet.delay_p99
    );
    if soak {
        assert!(rate >= 100_000.0, "{rate:.0} changes/s");
        assert!(busy.delay_p99 <= quiet.delay_p99 * 2, "{busy:?} {quiet:?}");
    }
    client.shutdown(std::net::Shutdown::Both).unwrap();
    reader.join().unwrap();
}

#[test]
fn a_table_that_is_full_and_an_address_that_is_taken_are_named() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig("routes = 60\n");
    let target = target(&rig);
    let mut client = connect(&rig);
    let all = (0..PREFIXES).map(|number| prefix(&format!("10.50.{number}.0/24")));
    client.write_all(&session([], all, |_| target.clone())).unwrap();
    let fpm = until(&rig, "all is read", |fpm| fpm["messages"] == PREFIXES && fpm["answers"] == PREFIXES);
    let (held, refused) = (fpm["routes"].as_u64().unwrap(), fpm["refused"].as_u64().unwrap());
    assert!(held > 10 && held < 60 && held + refused == PREFIXES, "{fpm}");
    // Existing routes remain and may change.
    let via = Target::Nowhere(6);
    client.write_all(&frame([announce(prefix("10.50.0.0/24"), 186, &via)])).unwrap();
    eventually("the change counts", PATIENCE, || {
        let why = rig.ok(&["show", "why", "10.50.0.1"]);
        if why.contains("blackhole") { Ok(()) } else { Err(why) }
    })
    .unwrap();
    rig.daemon().wait_for_line("announced routes find no room", PATIENCE).unwrap();
    // The new address is in use by another socket, so nothing changes.
    let taken = rig.lab.hub().inside(|| Ok(std::net::TcpListener::bind("127.0.0.1:2621").unwrap())).unwrap();
    let other = configuration(&rig, "routes = 60\n").replace(":2620", ":2621");
    let file = rig.write("other.toml", &other);
    let refused = rig.trivium(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    for part in ["router.edge.fpm", "127.0.0.1:2621", "in use", "ss -ltnp"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert_eq!(until(&rig, "as before", |fpm| fpm["state"] != "waiting")["routes"], held);
    drop(taken);
    rig.ok(&["apply", file.to_str().unwrap()]);
    until(&rig, "the other address", |fpm| fpm["listen"] == "127.0.0.1:2621");
    // A higher limit on an unchanged address reuses the socket.
    let more = rig.write("more.toml", &other.replace("routes = 60", "routes = 90"));
    rig.ok(&["apply", more.to_str().unwrap()]);
    let connected = rig.lab.hub().inside(|| Ok(TcpStream::connect("127.0.0.1:2621").unwrap())).unwrap();
    until(&rig, "a session", |fpm| fpm["state"] == "replaying");
    drop(connected);
}
