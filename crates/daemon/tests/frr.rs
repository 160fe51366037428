//! Tests routing daemons on a virtual router: FRR in the router's namespace, and FRR and BIRD on its neighbours. The
//! packets of the routing sessions pass through the ports to the kernel, the daemons install routes into the kernel,
//! and workers forward packets according to these routes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rig::frr::Frr;
use rig::{PATIENCE, Rig};
use testbed::{Namespace, Process, UdpFlow, eventually, require};

/// Maximum time to establish sessions and adjacencies on a loaded machine. The timers of the daemons are set to several
/// seconds.
const SESSION: Duration = Duration::from_secs(40);

/// Number of prefixes that h1 announces: 10.50.0.0/24, 10.50.1.0/24 and so on.
const PREFIXES: u8 = 100;

/// Configuration of bgpd in the router's namespace: BGP with h1, OSPF with h2, with redistribution in both
/// directions.
const HUB_BGP: &str = "\
router bgp 65000
 bgp router-id 10.8.0.1
 no bgp ebgp-requires-policy
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 neighbor 10.8.1.2 remote-as 65001
 neighbor 10.8.1.2 timers connect 1
 address-family ipv4 unicast
  redistribute connected
  redistribute ospf
 exit-address-family
";

/// Additional IPv6 configuration of bgpd in the router's namespace, for FRR on h1. Tests that kill bgpd do not use this
/// configuration: when the initial update of one address family ends, FRR 8.4 sometimes assumes that the updates of
/// both families have ended, and drops routes of the other family for a short time.
const HUB_BGP6: &str = "
 neighbor fd00:8:1::2 remote-as 65001
 neighbor fd00:8:1::2 timers connect 1
 address-family ipv4 unicast
  no neighbor fd00:8:1::2 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor fd00:8:1::2 activate
  redistribute connected
 exit-address-family
";
const HUB_OSPF: &str = "\
interface h2
 ip ospf area 0
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 10
router ospf
 ospf router-id 10.8.0.1
 redistribute connected
 redistribute bgp
";

/// Configuration of bgpd on h1. Prefixes are appended.
const ONE_BGP: &str = "\
router bgp 65001
 bgp router-id 10.8.1.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.8.1.1 remote-as 65000
 neighbor 10.8.1.1 timers connect 1
 neighbor fd00:8:1::1 remote-as 65000
 neighbor fd00:8:1::1 timers connect 1
 address-family ipv6 unicast
  neighbor fd00:8:1::1 activate
  network fd00:50::/48
 exit-address-family
 address-family ipv4 unicast
  no neighbor fd00:8:1::1 activate
";

/// Configuration of BIRD on h1, in place of FRR. Prefixes are appended.
const ONE_BIRD: &str = "\
log stderr all;
router id 10.8.1.2;
protocol device {}
protocol kernel {
    ipv4 { export where source = RTS_BGP; };
}
protocol bgp hub {
    local 10.8.1.2 as 65001;
    neighbor 10.8.1.1 as 65000;
    graceful restart on;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import all; export where source = RTS_STATIC; };
}
";

/// Configuration of BIRD on h2, which announces 10.60.0.0/16 by OSPF.
const TWO: &str = "\
log stderr all;
router id 10.8.2.2;
protocol device {}
protocol static behind {
    ipv4;
    route 10.60.0.0/16 blackhole;
}
protocol kernel {
    ipv4 { export where source != RTS_STATIC; };
}
protocol ospf v2 {
    ipv4 { export where source = RTS_STATIC; };
    area 0 {
        interface \"eth0\" { type ptp; hello 1; dead 10; };
    };
}
";

/// Skips the test visibly if one of the programs is not installed.
macro_rules! require_peers {
    () => {
        require!("ip", "ping", "ethtool", "/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "/usr/lib/frr/ospfd");
        require!("vtysh", "bird", "birdc");
    };
}

/// A BIRD process in a namespace.
struct Bird {
    socket: PathBuf,
    process: Process,
}

impl Bird {
    fn start(rig: &Rig, namespace: &Namespace, name: &str, configuration: &str) -> Bird {
        let file = rig.write(&format!("{name}.conf"), configuration);
        let socket = rig.path(&format!("{name}.ctl"));
        let line = ["bird", "-f", "-c", file.to_str().unwrap(), "-s", socket.to_str().unwrap()];
        let mut process = namespace.spawn(line).unwrap();
        process.wait_for_line("Started", PATIENCE).unwrap();
        Bird { socket, process }
    }

    /// Executes a command of birdc.
    fn tell(&self, command: &str) -> Result<String, String> {
        let output =
            Command::new("birdc").arg("-s").arg(&self.socket).args(command.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.socket.display(), self.process.output());
        }
    }
}

/// BGP speaker on h1.
enum Speaker {
    Frr(Frr),
    Bird(Bird),
}

/// A lab with FRR on the router, FRR or BIRD on h1, and BIRD on h2.
struct Network {
    hub: Frr,
    one: Speaker,
    _two: Bird,
    rig: Rig,
}

impl Network {
    /// Starts the lab. `bgp` is the configuration of the router's bgpd, and `one` starts the BGP speaker on h1.
    fn start(bgp: &str, one: impl FnOnce(&Rig) -> Speaker) -> Network {
        let mut rig = Rig::routed(2);
        let mut configuration: String = rig
            .configuration("")
            .lines()
            .filter(|line| !line.contains("bridge") && !line.contains("access"))
            .fold(String::new(), |text, line| text + line + "\n");
        configuration += "[router.edge]\n[router.edge.port.h1]\n[router.edge.port.h2]\n";
        rig.start(&configuration);
        rig.until_reachable(1, 2);
        for host in &rig.hosts {
            host.run(["ip", "route", "del", "default"]).unwrap();
        }
        rig.hosts[0].run(["ip", "-6", "route", "del", "default"]).unwrap();
        // Addresses that are reachable through the hosts.
        for (host, addresses) in
            rig.hosts.iter().zip([&["10.50.7.1/24", "10.50.99.1/24", "fd00:50::1/64"][..], &["10.60.3.1/24"]])
        {
            host.run(["sysctl", "-qw", "net.ipv6.conf.lo.disable_ipv6=0"]).unwrap();
            for address in addresses {
                host.run(["ip", "address", "add", address, "dev", "lo"]).unwrap();
            }
        }
        let hub = Frr::start(&rig, rig.lab.hub(), "hub", &[("bgpd", bgp), ("ospfd", HUB_OSPF)]);
        let one = one(&rig);
        let two = Bird::start(&rig, &rig.hosts[1], "two", TWO);
        let network = Network { hub, one, _two: two, rig };
        network.until_known(PREFIXES);
        network.until_routed("10.60.3.1", "ospf");
        network.until_ping("10.50.7.1", "10.60.3.1");
        network
    }

    /// Starts the lab with FRR on h1.
    fn with_frr() -> Network {
        Network::start(&format!("{HUB_BGP}{HUB_BGP6}"), |rig| {
            let prefixes = (0..PREFIXES).map(|number| format!("  network 10.50.{number}.0/24\n"));
            let configuration = ONE_BGP.to_owned() + &prefixes.collect::<String>();
            Speaker::Frr(Frr::start(rig, &rig.hosts[0], "one", &[("bgpd", &configuration)]))
        })
    }

    /// Starts the lab with BIRD on h1.
    fn with_bird() -> Network {
        Network::start(HUB_BGP, |rig| {
            let mut configuration = ONE_BIRD.to_owned();
            for (half, numbers) in [("lower", 0..PREFIXES / 2), ("upper", PREFIXES / 2..PREFIXES)] {
                let routes: String =
                    numbers.map(|number| format!("    route 10.50.{number}.0/24 blackhole;\n")).collect();
                configuration += &format!("protocol static {half} {{\n    ipv4;\n{routes}}}\n");
            }
            Speaker::Bird(Bird::start(rig, &rig.hosts[0], "one", &configuration))
        })
    }

    /// Waits until the router has a route to an address, learned through this protocol.
    fn until_routed(&self, to: &str, protocol: &str) {
        eventually(&format!("{protocol} leads to {to}"), SESSION, || {
            let why: serde_json::Value =
                serde_json::from_str(&self.rig.ok(&["show", "why", to, "--json"])).unwrap();
            if why["route"]["protocol"] == protocol { Ok(()) } else { Err(why.to_string()) }
        })
        .unwrap();
    }

    /// Waits until echo requests from h1 with this source and destination are answered by h2.
    fn until_ping(&self, from: &str, to: &str) {
        eventually(&format!("an answer from {to} to {from}"), SESSION, || self.ping(from, to)).unwrap();
    }

    /// Sends three echo requests from h1, all of which must be answered.
    fn ping(&self, from: &str, to: &str) -> Result<(), String> {
        let line = ["ping", "-c", "3", "-i", "0.05", "-W", "1", "-I", from, to];
        let output = self.rig.hosts[0].command(line).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if said.contains("3 received") { Ok(()) } else { Err(said) }
    }

    /// Announces (`whether` is true) or withdraws (`whether` is false) the upper half of h1's prefixes.
    fn announce(&self, whether: bool) {
        match &self.one {
            Speaker::Frr(frr) => {
                let no = if whether { "" } else { "no " };
                let head = ["configure terminal", "router bgp 65001", "address-family ipv4 unicast"];
                let prefixes =
                    (PREFIXES / 2..PREFIXES).map(|number| format!("{no}network 10.50.{number}.0/24"));
                let commands: Vec<String> = head.into_iter().map(str::to_owned).chain(prefixes).collect();
                frr.tell("bgpd", &commands).unwrap();
            }
            Speaker::Bird(bird) => {
                bird.tell(if whether { "enable upper" } else { "disable upper" }).unwrap();
            }
        }
    }

    /// Returns the number of routes that the router has learned from h1 through BGP.
    fn by_bgp(&self) -> usize {
        let routes: serde_json::Value =
            serde_json::from_str(&self.rig.ok(&["show", "routes", "10.50.0.0/16", "--json"])).unwrap();
        let routes = routes.as_array().unwrap();
        routes.iter().filter(|route| route["protocol"] == "bgp").count()
    }

    /// Waits until h1's BGP session over IPv4 is established (`whether` is true) or down (`whether` is false).
    fn until_session(&self, whether: bool) {
        eventually(&format!("h1 has its session: {whether}"), SESSION, || {
            let there = match &self.one {
                Speaker::Frr(frr) => {
                    frr.tell("bgpd", &["show bgp neighbors 10.8.1.1"])?.contains("BGP state = Established")
                }
                Speaker::Bird(bird) => bird.tell("show protocols hub")?.contains("Established"),
            };
            if there == whether { Ok(()) } else { Err(String::new()) }
        })
        .unwrap();
    }

    fn until_known(&self, count: u8) {
        eventually(&format!("{count} routes by BGP"), SESSION, || {
            let known = self.by_bgp();
            if known == usize::from(count) { Ok(()) } else { Err(known.to_string()) }
        })
        .unwrap();
    }

    /// Starts a flow from h2 to a prefix of h1, and one from h1 to a prefix of h2.
    fn flows(&self) -> [UdpFlow; 2] {
        let (one, two) = ((&*self.rig.hosts[0], "10.50.7.1"), (&*self.rig.hosts[1], "10.60.3.1"));
        [UdpFlow::between(two, one, 1_000, 7_001).unwrap(), UdpFlow::between(one, two, 1_000, 7_002).unwrap()]
    }

    /// Returns the numbers of packets that workers have sent to h1 and to h2, and the number of packets that the kernel
    /// has forwarded.
    fn counted(&self) -> [u64; 3] {
        let sent = |port: &str| self.rig.port(port)["counters"]["tx_packets"].as_u64().unwrap();
        let snmp = self.rig.lab.hub().run(["cat", "/proc/net/snmp"]).unwrap();
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let place = lines.next().unwrap().split(' ').position(|name| name == "ForwDatagrams").unwrap();
        let kernel = lines.next().unwrap().split(' ').nth(place).unwrap().parse().unwrap();
        [sent("h1"), sent("h2"), kernel]
    }

    /// Returns how much the numbers of [`Network::counted`] have increased during `work`.
    fn counted_by(&self, work: impl FnOnce()) -> [u64; 3] {
        let before = self.counted();
        work();
        let after = self.counted();
        std::array::from_fn(|index| after[index] - before[index])
    }
}

/// Stops the flows, and checks that no packet of them was lost.
fn whole(flows: [UdpFlow; 2]) {
    for (flow, to) in flows.into_iter().zip(["h1", "h2"]) {
        let report = flow.stop().unwrap();
        assert_eq!((report.lost(), report.doubled), (0, 0), "to {to}: {report:?}");
    }
}

#[test]
fn what_bgp_and_ospf_learn_workers_forward() {
    require_peers!();
    let network = Network::with_frr();
    let [to_one, to_two, kernel] = network.counted_by(|| network.ping("10.50.7.1", "10.60.3.1").unwrap());
    assert!(
        to_one >= 3 && to_two >= 3 && kernel == 0,
        "{to_one} to h1, {to_two} to h2, {kernel} by the kernel"
    );
    // IPv6 routes. FRR uses the gateway's link-local address.
    network.until_routed("fd00:50::1", "bgp");
    let why = network.rig.ok(&["show", "why", "fd00:50::1"]);
    assert!(why.contains("protocol bgp") && why.contains("fe80::"), "{why}");
    network.until_ping("fd00:50::1", "fd00:8:2::2");
    let [to_one, to_two, _] = network.counted_by(|| network.ping("fd00:50::1", "fd00:8:2::2").unwrap());
    assert!(to_one >= 3 && to_two >= 3, "{to_one} to h1, {to_two} to h2");
    let drift: serde_json::Value =
        serde_json::from_str(&network.rig.ok(&["show", "drift", "--json"])).unwrap();
    assert_eq!(drift["drifted"], 0, "{drift}");
}

#[test]
fn routes_are_withdrawn_and_come_again() {
    require_peers!();
    let network = Network::with_frr();
    // The kernel must send every ICMP error.
    network.rig.lab.hub().run(["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0"]).unwrap();
    // h2 continues to send to these prefixes, whatever ICMP errors it receives.
    let two = &network.rig.hosts[1];
    two.run(["ip", "route", "add", "10.50.0.0/16", "via", "10.8.2.1"]).unwrap();
    let ping = || {
        let output =
            two.command(["ping", "-c", "3", "-i", "0.05", "-W", "1", "10.50.99.1"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let flows = network.flows();
    for _ in 0..2 {
        network.announce(false);
        network.until_known(PREFIXES / 2);
        let said = ping();
        assert!(said.contains("From 10.8.2.1") && said.contains("Net Unreachable"), "{said}");
        network.announce(true);
        network.until_known(PREFIXES);
        let said = ping();
        assert!(said.contains("3 received"), "{said}");
    }
    let [to_one, to_two, _] = network.counted_by(|| {
        for flow in &flows {
            flow.wait_for(500, PATIENCE).unwrap();
        }
    });
    assert!(to_one >= 450 && to_two >= 450, "{to_one} to h1, {to_two} to h2");
    whole(flows);
}

#[test]
fn bgp_is_killed_and_started_again_and_no_packet_is_lost() {
    require_peers!();
    let mut network = Network::with_bird();
    let flows = network.flows();
    flows[0].wait_for(200, PATIENCE).unwrap();
    network.hub.kill("bgpd");
    network.until_session(false);
    flows[0].wait_for(1_000, PATIENCE).unwrap();
    assert_eq!(network.by_bgp(), usize::from(PREFIXES), "zebra keeps what bgpd had");
    network.hub.run("bgpd");
    network.until_session(true);
    // The restarted daemon is in control: withdrawn routes are removed, and no others.
    network.announce(false);
    network.until_known(PREFIXES / 2);
    let [to_one, to_two, _] = network.counted_by(|| {
        for flow in &flows {
            flow.wait_for(1_000, PATIENCE).unwrap();
        }
    });
    assert!(to_one >= 900 && to_two >= 900, "{to_one} to h1, {to_two} to h2");
    whole(flows);
}
