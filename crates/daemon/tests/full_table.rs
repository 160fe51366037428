//! Tests a router with a real Internet routing table, which exabgp announces to FRR on the router. All routes arrive at
//! the workers. Some of the routes are withdrawn and announced again while packets use the other routes. At the end the
//! tables match the kernel's. `TRIVIUM_PREFIXES` sets the number of prefixes (`all` for every prefix).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rig::frr::Frr;
use rig::{PATIENCE, Rig};
use testbed::{Process, UdpFlow, eventually, real_prefixes, require};

/// Default number of prefixes, taken evenly from the table. exabgp and FRR need more than a minute for the
/// complete table.
const PREFIXES: usize = 50_000;
/// Maximum time until the whole routing table has arrived at the router.
const PATIENT: Duration = Duration::from_secs(600);

const HUB: &str = "\
router bgp 65000
 bgp router-id 10.8.0.1
 no bgp ebgp-requires-policy
 neighbor 10.8.1.2 remote-as 65001
 neighbor 10.8.1.2 timers connect 1
 address-family ipv6 unicast
  neighbor 10.8.1.2 activate
 exit-address-family
";

/// exabgp on h1, which reads its commands from a pipe.
struct Injector {
    pipe: PathBuf,
    process: Process,
}

impl Injector {
    fn start(rig: &Rig) -> Injector {
        let pipe = rig.path("routes");
        rig.hosts[0].run(["mkfifo", pipe.to_str().unwrap()]).unwrap();
        let feed = rig.write("feed", "while :; do cat \"$1\"; done\n");
        let file = rig.write(
            "exabgp.conf",
            &format!(
                "process routes {{\n run /bin/sh {} {};\n encoder text;\n}}\nneighbor 10.8.1.1 {{\n router-id 10.8.1.2;\n \
                 local-address 10.8.1.2;\n local-as 65001;\n peer-as 65000;\n family {{\n  ipv4 unicast;\n  ipv6 unicast;\n }}\n \
                 api {{\n  processes [ routes ];\n }}\n}}\n",
                feed.display(),
                pipe.display()
            ),
        );
        let settings = [
            "env",
            "exabgp.daemon.user=root",
            "exabgp.daemon.drop=false",
            "exabgp.api.ack=false",
            "exabgp.api.cli=false",
            "exabgp.log.level=WARNING",
        ];
        let process =
            rig.hosts[0].spawn(settings.into_iter().chain(["exabgp", file.to_str().unwrap()])).unwrap();
        Injector { pipe, process }
    }

    /// Sends commands to exabgp that announce or withdraw prefixes, with 100 prefixes in each command.
    fn tell(&self, what: &str, prefixes: &[&str]) {
        let (six, four): (Vec<&str>, Vec<&str>) = prefixes.iter().partition(|prefix| prefix.contains(':'));
        let mut text = String::new();
        for (gateway, prefixes) in [("10.8.1.2", four), ("fd00:8:1::2", six)] {
            for some in prefixes.chunks(100) {
                let _ = writeln!(text, "{what} attributes next-hop {gateway} nlri {}", some.join(" "));
            }
        }
        std::fs::write(&self.pipe, text).unwrap();
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("exabgp:\n{}", self.process.output());
        }
    }
}

fn router(rig: &Rig) -> serde_json::Value {
    let all: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "routers", "--json"])).unwrap();
    all[0].clone()
}

/// Waits until both the kernel and the router have `count` BGP routes, and prints the time that this took.
fn until_routes(rig: &Rig, what: &str, count: usize) {
    let begin = Instant::now();
    let by_bgp =
        |family| rig.lab.hub().run(["ip", family, "route", "show", "proto", "bgp"]).unwrap().lines().count();
    eventually(&format!("{what}: {count} routes"), PATIENT, || {
        let router = router(rig);
        let known = router["routes4"].as_u64().unwrap() + router["routes6"].as_u64().unwrap();
        // The kernel has a few other routes, which change with addresses. The next step compares all routes
        // individually.
        let known = usize::try_from(known).unwrap();
        if router["in_step"] != true || !(count..count + 64).contains(&known) {
            return Err(router.to_string());
        }
        let kernel = by_bgp("-4") + by_bgp("-6");
        if kernel == count { Ok(()) } else { Err(format!("{kernel} of the kernel's: {router}")) }
    })
    .unwrap();
    eprintln!("{what}: {count} routes after {:?}", begin.elapsed());
}

fn assert_is_the_kernels(rig: &Rig) {
    let drift: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "drift", "--json"])).unwrap();
    assert_eq!((&drift["drifted"], &router(rig)["drifted"]), (&0.into(), &0.into()), "{drift}");
}

/// Returns the second address of a prefix.
fn inside(prefix: &str) -> String {
    let (address, _) = prefix.split_once('/').unwrap();
    match address.parse::<Ipv4Addr>() {
        Ok(address) => Ipv4Addr::from_bits(address.to_bits() + 1).to_string(),
        Err(_) => Ipv6Addr::from_bits(address.parse::<Ipv6Addr>().unwrap().to_bits() + 1).to_string(),
    }
}

#[test]
fn the_real_table_comes_by_bgp_and_changes_under_traffic() {
    require!("ip", "ping", "ethtool", "exabgp", "vtysh", "/usr/lib/frr/zebra", "/usr/lib/frr/bgpd");
    let Some(table) = real_prefixes() else { return };
    let all: Vec<&str> = table.lines().collect();
    let wanted = match std::env::var("TRIVIUM_PREFIXES").as_deref() {
        Ok("all") => all.len(),
        Ok(number) => number.parse().unwrap(),
        Err(_) => PREFIXES,
    };
    let some: Vec<&str> =
        all.iter().step_by((all.len() / wanted.max(1)).max(1)).take(wanted).copied().collect();
    let mut rig = Rig::routed(2);
    let ports: String = rig
        .configuration("")
        .lines()
        .filter(|line| !line.contains("bridge") && !line.contains("access"))
        .fold(String::new(), |text, line| text + line + "\n");
    rig.start(&format!("{ports}[router.edge]\n[router.edge.port.h1]\n[router.edge.port.h2]\n"));
    rig.until_reachable(1, 2);
    let hub = Frr::start(&rig, rig.lab.hub(), "hub", &[("bgpd", HUB)]);
    let injector = Injector::start(&rig);
    eventually("a session", PATIENCE, || {
        let said = hub.tell("bgpd", &["show bgp neighbors 10.8.1.2"])?;
        if said.contains("BGP state = Established") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    injector.tell("announce", &some);
    until_routes(&rig, "announced", some.len());
    assert_is_the_kernels(&rig);
    // One prefix of each family stays, and every tenth prefix is withdrawn and announced again.
    let (changing, staying): (Vec<_>, Vec<_>) =
        some.iter().enumerate().partition(|(place, _)| place % 10 == 0);
    let changing: Vec<&str> = changing.into_iter().map(|(_, prefix)| *prefix).collect();
    let mut stays = staying.into_iter().map(|(_, prefix)| *prefix);
    // The prefixes are long, so that no other prefix lies within them.
    let four = inside(stays.find(|prefix| prefix.ends_with("/24")).unwrap());
    let six = inside(stays.find(|prefix| prefix.ends_with("/48")).unwrap());
    let (one, two) = (&*rig.hosts[0], &*rig.hosts[1]);
    one.run(["sysctl", "-qw", "net.ipv6.conf.lo.disable_ipv6=0"]).unwrap();
    one.run(["ip", "address", "add", &four, "dev", "lo"]).unwrap();
    one.run(["ip", "-6", "address", "add", &six, "dev", "lo", "nodad"]).unwrap();
    let flows = [
        UdpFlow::between((two, "10.8.2.2"), (one, &four), 1_000, 7_001).unwrap(),
        UdpFlow::between((two, "fd00:8:2::2"), (one, &six), 1_000, 7_002).unwrap(),
    ];
    flows.iter().for_each(|flow| flow.wait_for(200, PATIENCE).unwrap());
    for prefix in [changing[0], changing[changing.len() - 1]] {
        let why = rig.ok(&["show", "why", &inside(prefix)]);
        assert!(why.contains("bgp"), "{prefix}: {why}");
    }
    injector.tell("withdraw", &changing);
    until_routes(&rig, "every tenth withdrawn", some.len() - changing.len());
    assert_is_the_kernels(&rig);
    injector.tell("announce", &changing);
    until_routes(&rig, "announced again", some.len());
    flows.iter().for_each(|flow| flow.wait_for(200, PATIENCE).unwrap());
    for flow in flows {
        let report = flow.stop().unwrap();
        assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
    }
    assert_is_the_kernels(&rig);
}
