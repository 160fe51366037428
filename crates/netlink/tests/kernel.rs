//! Tests that compare the mirror with the kernel's state. After all operations in a namespace, the mirror must equal a
//! complete dump, and no difference may have required a repair.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use netlink::{Change, Feed, Follower, Kind, Limits, Mirror};
use port::netns::Netns;
use router::Verdict;
use sync::qsbr::Domain;
use testbed::{Lab, Namespace, eventually, require};

/// Test fixture: a namespace with three pairs of devices, and the follower of the namespace's routing state.
struct Site {
    namespace: Namespace,
    follower: Follower,
    told: Arc<Mutex<Vec<Change>>>,
    _lab: Lab,
}

const BUFFER: usize = 64 << 20;

impl Site {
    fn new(buffer: usize, pause: Duration) -> Site {
        let lab = Lab::new().unwrap();
        let namespace = lab.namespace("router").unwrap();
        for key in ["all", "default", "lo"] {
            namespace.run(["sysctl", "-qw", &format!("net.ipv6.conf.{key}.disable_ipv6=0")]).unwrap();
        }
        let told = Arc::<Mutex<Vec<Change>>>::default();
        let to = Arc::clone(&told);
        let netns = Netns::Path(namespace.path());
        let follow = move |_: &Mirror, changes: &[Change]| {
            to.lock().unwrap().extend_from_slice(changes);
            std::thread::sleep(pause);
        };
        let follower = Follower::start(Some(&netns), buffer, follow).unwrap();
        let site = Site { namespace, follower, told, _lab: lab };
        for (name, number) in [("e1", 1), ("e2", 2), ("e3", 3)] {
            site.ip(&format!(
                "link add {name} type veth peer name f{number}\nlink set f{number} up\nlink set {name} up\n\
                 addr add 10.0.{number}.1/24 dev {name}\naddr add 2001:db8:{number}::1/64 dev {name} nodad"
            ));
        }
        site
    }

    /// Executes lines of `ip` commands, and fails if the kernel refuses one of them.
    fn ip(&self, lines: &str) {
        self.batch(lines, &["ip", "-batch"]);
    }

    fn batch(&self, lines: &str, command: &[&str]) -> bool {
        let file = std::env::temp_dir().join(format!("netlink-{}", self.namespace.name()));
        fs::write(&file, format!("{lines}\n")).unwrap();
        let line = command.iter().copied().chain([file.to_str().unwrap()]);
        let done = self.namespace.run(line);
        fs::remove_file(&file).unwrap();
        if !command.contains(&"-force") {
            done.unwrap();
            return true;
        }
        done.is_ok()
    }

    /// Waits until the mirror contains the effects of all previous operations, and returns the mirror. Checks that the
    /// mirror equals the kernel's state. `after` describes the operations, for error messages.
    fn in_step(&self, after: &str) -> Mirror {
        self.follower.settle().unwrap();
        // The kernel sends notifications about IPv6 addresses from a work queue after duplicate address
        // detection (`addrconf_dad_work()`).
        if after.contains("addr add 2001:") {
            eventually("addresses are told", Duration::from_secs(20), || {
                let all = self.namespace.run(["ip", "-o", "-6", "address"]).unwrap();
                let listed = all.lines().filter(|line| !line.contains("tentative")).count();
                let told =
                    |mirror: &Mirror| mirror.addresses.iter().filter(|own| own.local.is_ipv6()).count();
                let told = self.follower.look(told).unwrap();
                if listed == told { Ok(()) } else { Err(format!("{told} of {listed}")) }
            })
            .unwrap();
        }
        let before = self.follower.look(Mirror::clone).unwrap();
        let drift = self.follower.check().unwrap();
        let mirror = self.follower.look(Mirror::clone).unwrap();
        for change in &drift.changes {
            eprintln!("{change:?}: {} is in truth {}", shown(&before, change), shown(&mirror, change));
        }
        assert_eq!(drift.changes, [], "after {after}");
        mirror
    }

    fn told(&self) -> Vec<Change> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

/// Returns the state of a changed object in a mirror as text.
fn shown(mirror: &Mirror, change: &Change) -> String {
    match change {
        Change::Link(index) => format!("{:?}", mirror.links.get(index)),
        Change::Address(address) => format!("{:?}", mirror.addresses.get(address)),
        Change::Neighbour(key) => format!("{:?}", mirror.neighbours.get(key)),
        Change::NextHop(id) => format!("{:?}", mirror.next_hops.get(id)),
        Change::Route4(key) => format!("{:?}", mirror.routes4.get(key)),
        Change::Route6(key) => format!("{:?}", mirror.routes6.get(key)),
        Change::Rules => format!("{:?}", mirror.rules),
        Change::Settings(key) => format!("{:?}", mirror.settings.get(key)),
    }
}

/// Returns the routes of the main table that the kernel has not created itself, as text.
fn added(mirror: &Mirror) -> Vec<String> {
    let v4 = mirror.routes4.iter().filter(|(key, _)| key.table == 254).flat_map(|(key, paths)| {
        paths.all().iter().filter(|path| path.protocol != 2).map(|path| (key.prefix.to_string(), path))
    });
    let v6 = mirror.routes6.iter().filter(|(key, _)| key.table == 254).flat_map(|(key, paths)| {
        paths.all().iter().filter(|path| path.protocol != 2).map(|path| (key.prefix.to_string(), path))
    });
    v4.chain(v6).map(|(prefix, path)| format!("{prefix} {}", path.hops.len())).collect()
}

#[test]
fn every_kind_of_object_is_mirrored() {
    require!("ip", "sysctl");
    let site = Site::new(BUFFER, Duration::ZERO);
    site.in_step("links and addresses");
    for lines in [
        "neigh add 10.0.1.9 lladdr 02:00:00:00:00:09 dev e1\nneigh add 2001:db8:1::9 lladdr 02:00:00:00:00:09 dev e1",
        "neigh change 10.0.1.9 lladdr 02:00:00:00:00:0a dev e1 nud reachable",
        "neigh del 10.0.1.9 dev e1",
        "route add 192.0.2.0/24 via 10.0.1.9\nroute add 2001:db8:ff::/48 via 2001:db8:1::9",
        "route replace 192.0.2.0/24 via 10.0.2.9 mtu 1400 src 10.0.3.1",
        "route append 192.0.2.0/24 via 10.0.3.9\nroute append 2001:db8:ff::/48 via 2001:db8:2::9",
        "route prepend 192.0.2.0/24 via 10.0.3.8\nroute append 2001:db8:ff::/48 via 2001:db8:3::9",
        "route del 192.0.2.0/24 via 10.0.2.9\nroute del 2001:db8:ff::/48 via 2001:db8:2::9",
        "route add 192.0.2.0/24 via 10.0.1.7 metric 50\nroute add 2001:db8:ff::/48 via 2001:db8:1::7 metric 50",
        "route replace 192.0.2.0/24 via 10.0.1.3\nroute replace 2001:db8:ff::/48 via 2001:db8:1::3",
        "route add 198.51.100.0/24 nexthop via 10.0.1.2 weight 3 nexthop via 10.0.2.2 weight 200",
        "route add 2001:db8:fe::/48 nexthop via 2001:db8:1::2 weight 3 nexthop via 2001:db8:2::2 weight 5",
        "route del 2001:db8:fe::/48 via 2001:db8:2::2",
        "route add blackhole 203.0.113.0/26\nroute add unreachable 203.0.113.64/26\nroute add prohibit 203.0.113.128/26",
        "route add blackhole 2001:db8:fd::/64\nroute add unreachable 2001:db8:fd:1::/64",
        "route add throw 203.0.113.192/26 table 100\nroute add default via 10.0.1.9 table 100\nroute add 10.9.0.0/16 dev e2",
        "route add 10.8.0.0/16 via inet6 2001:db8:1::9\nroute add 10.7.0.0/16 via 172.16.0.1 dev e3 onlink",
        "route add 10.6.0.0/16 tos 0x10 via 10.0.1.9\nroute add 10.6.0.0/16 via 10.0.2.9\nroute add default via 172.16.0.9 dev e2 onlink",
        "nexthop add id 1 via 10.0.1.5 dev e1\nnexthop add id 2 via 10.0.2.5 dev e2\nnexthop add id 3 blackhole",
        "nexthop add id 10 group 1,3/2,9\nnexthop add id 11 group 1/2 type resilient buckets 32",
        "route add 10.5.0.0/16 nhid 10\nroute add 10.4.0.0/16 nhid 1",
        "nexthop replace id 1 via 10.0.1.6 dev e1\nnexthop replace id 10 group 2",
        "nexthop add id 21 via 2001:db8:1::5 dev e1\nnexthop add id 22 via 2001:db8:2::5 dev e2\nnexthop add id 20 group 21/22",
        "route add 2001:db8:fc::/48 nhid 20\nroute add 2001:db8:fb::/48 nhid 21",
        "rule add from 10.0.0.0/8 to 192.0.2.0/24 table 100 priority 100\nrule add fwmark 0x10/0xff lookup 1000 priority 100",
        "rule add iif e1 lookup 200 priority 50\nrule add not oif e2 prohibit priority 60\nrule add goto 32766 priority 70",
        "rule del priority 50\nrule add ipproto udp dport 53 lookup 300",
    ] {
        site.ip(lines);
        site.in_step(lines);
        assert!(!site.told().is_empty(), "nothing was told of {lines}");
    }
    site.batch("rule add from 2001:db8::/32 lookup 100 priority 200", &["ip", "-6", "-batch"]);
    let mirror = site.in_step("an IPv6 rule");
    let route = |text: &str| {
        let all = mirror.routes4.iter().find(|(key, _)| key.table == 254 && key.prefix.to_string() == text);
        all.unwrap().1.first().unwrap().clone()
    };
    assert_eq!(route("203.0.113.0/26").kind, Kind::Blackhole);
    let weights: Vec<u16> = route("198.51.100.0/24").hops.iter().map(|hop| hop.weight).collect();
    assert_eq!(weights, [3, 200]);
    assert_eq!(route("10.8.0.0/16").hops[0].gateway.unwrap().to_string(), "2001:db8:1::9");
    assert!(route("10.7.0.0/16").hops[0].onlink);
    assert_eq!(route("10.5.0.0/16").next_hop, Some(10));
    assert_eq!(mirror.links.values().filter(|link| link.kind.as_deref() == Some("veth")).count(), 6);
    assert_eq!(mirror.rules.iter().filter(|rule| rule.v6).count(), 3);
    let status = site.follower.status();
    assert_eq!((status.overruns, status.resyncs, status.drifted), (0, 1, 0), "{status:?}");
}

/// Checks that the follower derives the changes that the kernel does not report: routes that the kernel removes because
/// their link, address or next hop was removed.
#[test]
fn what_the_kernel_does_not_tell_is_derived() {
    require!("ip", "sysctl");
    let site = Site::new(BUFFER, Duration::ZERO);
    let lay = "route add 192.0.2.0/24 via 10.0.1.9\nroute add 198.51.100.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2\n\
        route add 203.0.113.0/24 via 10.0.2.9 src 10.0.1.1\nroute add 203.0.113.0/24 via 10.0.2.9 src 10.0.1.1 table 100\n\
        route add 2001:db8:ff::/48 via 2001:db8:2::9 src 2001:db8:2::1\n\
        route add 2001:db8:fe::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:2::2\n\
        nexthop add id 1 via 10.0.1.5 dev e1\nnexthop add id 2 via 10.0.2.5 dev e2\nnexthop add id 10 group 1/2\n\
        route add 10.5.0.0/16 nhid 10\nroute add 10.4.0.0/16 nhid 1\n\
        nexthop add id 21 via 2001:db8:1::5 dev e1\nroute add 2001:db8:fb::/48 nhid 21";
    site.ip(lay);
    let before = added(&site.in_step("routes"));
    assert_eq!(before.len(), 8, "{before:?}");

    site.ip("link set e1 down");
    let left = added(&site.in_step("a link that is set down"));
    assert!(
        left.contains(&"198.51.100.0/24 2".to_owned()) && !left.contains(&"192.0.2.0/24 1".to_owned()),
        "{left:?}"
    );
    site.ip("link set e2 down");
    site.in_step("two links that are down");
    site.ip("link set e1 up\nlink set e2 up");
    site.in_step("links that are up again");

    // The carrier depends on the state of the peer device.
    for line in ["flush", "add"] {
        if line == "add" {
            site.batch(lay, &["ip", "-force", "-batch"]);
            site.in_step("routes again");
        }
        site.ip("link set f1 down");
        site.in_step("a carrier that is lost");
        site.ip("link set f1 up");
        site.in_step("a carrier that is back");
    }
    site.batch(lay, &["ip", "-force", "-batch"]);
    site.in_step("routes a third time");
    site.ip("addr add 10.0.1.1/32 dev e3\naddr del 10.0.1.1/24 dev e1");
    site.in_step("one of two equal addresses that goes");
    site.ip("addr del 10.0.1.1/32 dev e3");
    site.in_step("an address that goes");
    site.batch("addr del 2001:db8:2::1/64 dev e2", &["ip", "-force", "-batch"]);
    site.in_step("an IPv6 address that goes");
    site.batch("nexthop del id 2", &["ip", "-force", "-batch"]);
    site.in_step("a next hop that goes");
    site.ip("link set e2 name e22");
    site.in_step("a new name");
    site.ip("link del e1");
    site.in_step("a device that goes");
    site.ip(
        "link add bridge0 type bridge\nlink set e3 master bridge0\nlink set e3 nomaster\nlink set e3 netns 1",
    );
    let mirror = site.in_step("a device that leaves");
    assert!(mirror.links.values().all(|link| !["e1", "e3"].contains(&link.name.as_str())));
}

/// Returns the next pseudo-random number (Marsaglia's xorshift64).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns a random line with an `ip` command, which the kernel may refuse.
fn line(state: &mut u64) -> String {
    let mut pick = |count: u64| next(state) % count;
    let number = pick(3) + 1;
    let device = format!("e{number}");
    let (net, host, way) = (pick(4), pick(4) + 2, pick(3) + 1);
    let verb = ["add", "append", "prepend", "replace", "del", "del"][usize::try_from(pick(6)).unwrap()];
    let metric = [0, 0, 10][usize::try_from(pick(3)).unwrap()];
    let table = [254, 254, 100][usize::try_from(pick(3)).unwrap()];
    match pick(16) {
        0 => format!("link set {device} {}", ["up", "down", "up"][usize::try_from(pick(3)).unwrap()]),
        1 => format!("link set f{number} {}", ["up", "down", "up"][usize::try_from(pick(3)).unwrap()]),
        2 => format!(
            "addr {} 10.0.{way}.1/24 dev {device}",
            ["add", "del", "add"][usize::try_from(pick(3)).unwrap()]
        ),
        3 => format!(
            "addr {} 2001:db8:{way}::1/64 dev {device}{}",
            if way == 1 { "del" } else { "add" },
            if way == 1 { "" } else { " nodad" }
        ),
        4 => format!("neigh replace 10.0.{way}.{host} lladdr 02:00:00:00:00:0{host} dev {device}"),
        5 => format!("neigh del 10.0.{way}.{host} dev {device}"),
        6 => format!("nexthop replace id {host} via 10.0.{way}.{host} dev {device}"),
        7 => format!("nexthop del id {host}"),
        8 => format!("nexthop replace id 1{net} group {host}/{}", pick(4) + 2),
        9 => format!("route {verb} 10.{net}.0.0/16 nhid {host} table {table}"),
        10 => format!("route {verb} blackhole 192.0.2.{net}/32 metric {metric}"),
        11 => format!(
            "route replace 2001:db8:f{net}::/48 nexthop via 2001:db8:1::{host} nexthop via 2001:db8:2::{host} metric 1{metric}"
        ),
        12 | 13 => format!(
            "route {verb} 2001:db8:f{net}::/48 via 2001:db8:{way}::{host} metric 1{metric} table {table}"
        ),
        _ => format!("route {verb} 198.51.{net}.0/24 via 10.0.{way}.{host} metric {metric} table {table}"),
    }
}

/// Result of `ip route get` for one address.
#[derive(Debug)]
enum Said {
    /// The route leads to this device and gateway. The gateway is `None` if the destination is on the link.
    Via(String, Option<IpAddr>),
    Local,
    /// The kernel refused the request. The value is the reason.
    Refused(String),
}

/// Asks the kernel (`ip route get`) for the route to each address, as used for packets that this host itself sends.
fn asked(site: &Site, addresses: &[IpAddr]) -> Vec<Said> {
    let ask = |address: &IpAddr| {
        let output = site.namespace.command(["ip", "route", "get", &address.to_string()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Said::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let after = |word: &str| words.iter().position(|other| *other == word).map(|at| words[at + 1]);
        if ["local", "broadcast", "multicast", "anycast"].contains(&words[0]) {
            return Said::Local;
        }
        Said::Via(after("dev").unwrap().to_owned(), after("via").map(|text| text.parse().unwrap()))
    };
    addresses.iter().map(ask).collect()
}

/// Returns the addresses whose routes the test queries.
fn addresses() -> Vec<IpAddr> {
    let text = [
        "10.0.1.1",
        "10.0.2.7",
        "10.0.3.255",
        "10.1.0.1",
        "10.2.3.4",
        "10.3.0.1",
        "192.0.2.1",
        "192.0.2.3",
        "198.51.0.9",
        "198.51.1.9",
        "198.51.2.9",
        "198.51.3.9",
        "203.0.113.1",
        "127.0.0.1",
    ];
    let text6 = [
        "2001:db8:1::1",
        "2001:db8:2::7",
        "2001:db8:f0::1",
        "2001:db8:f1::1",
        "2001:db8:f2::1",
        "2001:db8:f3::1",
    ];
    text.into_iter().chain(text6).map(|text| text.parse().unwrap()).collect()
}

/// Checks that look-ups in the router's main table give the same results as `ip route get`. The router's main table
/// also contains the routes of the kernel's local table.
fn as_the_kernel_routes(
    site: &Site,
    domain: &Arc<Domain>,
    feed: &Feed,
    said: Vec<Said>,
    kinds: &mut BTreeMap<&'static str, usize>,
) {
    let names: BTreeMap<u32, String> = site
        .follower
        .look(|mirror| mirror.links.values().map(|link| (link.index, link.name.clone())).collect())
        .unwrap();
    for (address, said) in addresses().iter().zip(said) {
        let of = |table| feed.table(table).and_then(|fib| fib.why(*address));
        // Many flows are looked up, because the verdict of one flow contains only one of several next hops.
        let routed = |table: u32| -> Vec<Verdict> {
            let Some(fib) = feed.table(table) else { return vec![Verdict::NoRoute] };
            let (view, reader) = (fib.view(), domain.register().unwrap());
            let hash = |nth: usize| u32::try_from(nth).unwrap().wrapping_mul(0x9e37_79b9);
            let mut verdicts = vec![Verdict::NoRoute; 256];
            match address {
                IpAddr::V4(v4) => {
                    view.route4(&reader, &[v4.to_bits(); 256], hash, |at, said| verdicts[at] = said)
                }
                IpAddr::V6(v6) => {
                    view.route6(&reader, &[v6.to_bits(); 256], hash, |at, said| verdicts[at] = said)
                }
            }
            verdicts
        };
        let verdicts = routed(254);
        let why = (of(255), of(254));
        let (kind, agrees) = match &said {
            Said::Local => ("local", verdicts[0] == Verdict::Local),
            Said::Via(device, gateway) => (
                "via",
                verdicts.iter().any(|verdict| {
                    let Verdict::Forward(number) = verdict else { return false };
                    feed.adjacencies()
                        .leads(*number)
                        .is_some_and(|(link, via)| names.get(&link) == Some(device) && via == *gateway)
                }),
            ),
            Said::Refused(text) if text.contains("Network is unreachable") || text.contains("No route") => {
                ("no route", matches!(verdicts[0], Verdict::NoRoute | Verdict::Unreachable))
            }
            Said::Refused(_) => ("refused", matches!(verdicts[0], Verdict::Blackhole | Verdict::Prohibit)),
        };
        *kinds.entry(kind).or_default() += 1;
        assert!(agrees, "{address}: the kernel says {said:?}, the tables {verdicts:?} for {why:?}");
    }
}

/// Applies hundreds of random changes in a namespace. Checks that the mirror equals the kernel's state after each group
/// of changes, and repeatedly compares look-ups in the router's tables with the results of `ip route get`.
#[test]
fn chance_leaves_no_drift() {
    require!("ip", "sysctl");
    let rounds = if std::env::var_os("TRIVIUM_SOAK").is_some() { 10_000 } else { 500 };
    let site = Site::new(BUFFER, Duration::ZERO);
    let domain = Domain::new();
    let mut feed =
        Feed::new(&domain, Limits { words: 1 << 19, routes: 4_000_000, paths: 1000, neighbours: 1000 }, 1);
    let mut state = 0x5eed_u64;
    let mut kinds = BTreeMap::<&str, usize>::new();
    for round in 0..rounds {
        let lines: Vec<String> = (0..12).map(|_| line(&mut state)).collect();
        let lines = lines.join("\n");
        site.batch(&lines, &["ip", "-force", "-batch"]);
        let mirror = site.in_step(&lines);
        assert_eq!(feed.apply(&mirror, &site.told()), []);
        if round % 10 == 0 {
            // After a loss of carrier, next-hop objects are removed with a delay. The answers must belong to
            // the reported state.
            let said = loop {
                let said = asked(&site, &addresses());
                let mirror = site.in_step("answers");
                let told = site.told();
                if told.is_empty() {
                    break said;
                }
                assert_eq!(feed.apply(&mirror, &told), []);
            };
            as_the_kernel_routes(&site, &domain, &feed, said, &mut kinds);
        }
    }
    // Every kind of answer has occurred.
    assert!(kinds.values().all(|count| *count > 0) && kinds.len() == 4, "{kinds:?}");
    let status = site.follower.status();
    assert_eq!((status.overruns, status.drifted), (0, 0), "{status:?}");
    assert!(status.events > 1000, "{status:?}");
}

/// Checks that the mirror equals the kernel's state in the end although a slow follower with a small receive buffer has
/// lost notifications.
#[test]
fn an_overrun_ends_in_step() {
    require!("ip", "sysctl");
    let site = Site::new(4096, Duration::from_millis(20));
    let lines = |verb: &str, from: u32| -> String {
        let line =
            |n: u32| format!("route {verb} 10.{}.{}.0/24 via 10.0.{}.9", 100 + n / 256, n % 256, 1 + n % 3);
        (from..from + 5000).map(line).collect::<Vec<_>>().join("\n")
    };
    for (verb, from) in [("add", 0), ("add", 5000), ("del", 0), ("replace", 2500)] {
        site.ip(&lines(verb, from));
        let mirror = site.in_step(verb);
        let there = site.namespace.run(["sh", "-c", "ip -4 route show table main | wc -l"]).unwrap();
        let main = mirror.routes4.iter().filter(|(key, _)| key.table == 254).count();
        assert_eq!(main, there.trim().parse::<usize>().unwrap(), "{verb}");
    }
    let status = site.follower.status();
    assert!(status.overruns > 0 && status.resyncs > 1, "{status:?}");
    assert_eq!(status.drifted, 0, "{status:?}");
}

/// Adds a real routing table to the kernel, with at most about `limit` prefixes of each address family. Then replaces
/// some of the routes, deletes some, and adds them again. Checks after each step that the mirror equals the kernel's
/// state. Prints the durations of the steps and of a complete dump.
fn table(limit: usize) {
    let Some(prefixes) = testbed::real_prefixes() else { return };
    let (four, six): (Vec<&str>, Vec<&str>) = prefixes.lines().partition(|prefix| !prefix.contains(':'));
    let chosen = |all: &[&str]| -> Vec<String> {
        let step = all.len().div_ceil(limit).max(1);
        all.iter().step_by(step).map(|prefix| (*prefix).to_owned()).collect()
    };
    let (four, six) = (chosen(&four), chosen(&six));
    let lines = |verb: &str, part: usize, way: u32| -> String {
        let of = |all: &[String], gateway: &str| -> Vec<String> {
            let some = all.iter().skip(part / 2).step_by(part);
            some.map(|prefix| format!("route {verb} {prefix} via {gateway}")).collect()
        };
        let v4 = of(&four, &format!("10.0.{way}.9"));
        let v6 = of(&six, &format!("2001:db8:{way}::9"));
        [v4, v6].concat().join("\n")
    };
    let site = Site::new(Follower::BUFFER, Duration::ZERO);
    for (what, lines) in [
        ("came", lines("add", 1, 1)),
        ("replaced, one in three", lines("replace", 3, 2)),
        ("gone, one in five", lines("del", 5, 1)),
        ("back", lines("replace", 5, 3)),
    ] {
        let changes = lines.lines().count();
        let begun = Instant::now();
        // One in three routes has another next hop by then, so that the kernel refuses its deletion.
        site.batch(&lines, &["ip", "-force", "-batch"]);
        let told = begun.elapsed();
        let begun = Instant::now();
        site.follower.settle().unwrap();
        let late = begun.elapsed();
        let begun = Instant::now();
        let mirror = site.in_step(what);
        let added = added(&mirror).len();
        eprintln!(
            "{what}: {changes} changes told to the kernel in {told:.2?}, in step {late:.2?} later, compared in {:.2?}; \
             {added} routes",
            begun.elapsed()
        );
    }
    let netns = Netns::Path(site.namespace.path());
    let whole = Follower::start(Some(&netns), Follower::BUFFER, |_, _| {}).unwrap();
    let status = site.follower.status();
    eprintln!("dumped in {:.2?}; followed: {status:?}", Duration::from_nanos(whole.status().resync_ns));
    assert_eq!(status.drifted, 0);
}

#[test]
fn a_part_of_the_real_table_is_followed() {
    require!("ip", "sysctl");
    table(20_000);
}

#[test]
#[ignore = "a minute and more; `make soak` runs it, and a part of the table is followed above"]
fn the_real_table_is_followed() {
    require!("ip", "sysctl");
    table(usize::MAX);
}

/// Checks that the mirror applies changes of the `sysctl` settings for forwarding and for ignoring routes through
/// devices without a carrier.
#[test]
fn settings_are_followed() {
    require!("ip", "sysctl");
    let site = Site::new(BUFFER, Duration::ZERO);
    let index = |mirror: &Mirror, name: &str| {
        mirror.links.values().find(|link| link.name == name).map(|link| link.index).unwrap()
    };
    let set = |line: &str| {
        site.namespace.run(["sysctl", "-qw", line]).unwrap();
        site.in_step(line)
    };
    let forwards = |mirror: &Mirror| {
        let of = |v6| ["e1", "e2"].map(|name| mirror.forwards(v6, index(mirror, name)));
        (of(false), of(true))
    };
    set("net.ipv4.ip_forward=1");
    assert_eq!(forwards(&set("net.ipv6.conf.all.forwarding=1")), ([true; 2], [true; 2]));
    assert_eq!(forwards(&set("net.ipv4.conf.e1.forwarding=0")), ([false, true], [true; 2]));
    assert_eq!(forwards(&set("net.ipv4.ip_forward=0")), ([false; 2], [true; 2]));
    assert_eq!(forwards(&set("net.ipv6.conf.all.forwarding=0")), ([false; 2], [false; 2]));
    set("net.ipv4.conf.e2.forwarding=1");
    // IPv6 is removed from a device whose MTU is too small.
    site.ip("link set e1 mtu 1200");
    assert_eq!(forwards(&set("net.ipv6.conf.all.forwarding=1")), ([false, true], [false, true]));
    site.ip("link set e1 mtu 1500\naddr add 2001:db8:1::1/64 dev e1 nodad");
    set("net.ipv4.ip_forward=1");

    let lay = "route add 192.0.2.0/24 via 10.0.1.9\nroute add 192.0.2.0/24 via 10.0.2.9 metric 10\n\
        route add 198.51.100.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2\n\
        route add 2001:db8:ff::/48 via 2001:db8:1::9\nroute add 2001:db8:ff::/48 via 2001:db8:2::9 metric 5000\n\
        route add 2001:db8:fe::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:2::2";
    site.ip(lay);
    let by = |mirror: &Mirror| {
        let named = |link: u32| mirror.links[&link].name.clone();
        let four = "192.0.2.1".parse().map(|address| netlink::Prefix { address, length: 32 }).unwrap();
        let six = "2001:db8:ff::1".parse().map(|address| netlink::Prefix { address, length: 128 }).unwrap();
        let four = mirror.routes4.longest(254, four).map(|(_, path)| named(path.hops[0].link)).unwrap();
        let six = mirror.routes6.longest(254, six).map(|(_, path)| named(path.hops[0].link)).unwrap();
        [four, six]
    };
    assert_eq!(by(&site.in_step("routes")), ["e1", "e1"]);
    // The kernel processes carrier changes with a delay.
    let carrier = |up: bool| {
        site.ip(&format!("link set f1 {}", if up { "up" } else { "down" }));
        let shown = || site.namespace.run(["ip", "-o", "link", "show", "e1"]);
        testbed::eventually(&format!("e1 is operational: {up}"), Duration::from_secs(20), || match shown() {
            Ok(said) if said.contains("state UP") == up => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .unwrap();
    };
    carrier(false);
    assert_eq!(by(&site.in_step("a carrier that is lost, and nobody minds")), ["e1", "e1"]);
    assert_eq!(by(&set("net.ipv4.conf.all.ignore_routes_with_linkdown=1")), ["e2", "e1"]);
    assert_eq!(by(&set("net.ipv6.conf.all.ignore_routes_with_linkdown=1")), ["e2", "e2"]);
    carrier(true);
    assert_eq!(by(&site.in_step("a carrier that is back")), ["e1", "e1"]);
    carrier(false);
    assert_eq!(by(&site.in_step("a carrier that is lost")), ["e2", "e2"]);
    site.ip("route add 203.0.113.0/24 via 10.0.1.8\nroute add 2001:db8:fd::/48 via 2001:db8:1::8");
    site.in_step("new routes without a carrier");
    assert_eq!(by(&set("net.ipv4.conf.all.ignore_routes_with_linkdown=0")), ["e1", "e2"]);
    site.ip("link set f1 up\nlink set e1 down\nlink set e1 up");
    site.in_step("a device that was down");
    assert_eq!(site.follower.status().drifted, 0);
}

/// Checks cases in which a single look-up in the router's main table does not suffice. Packets to a prefix whose routes
/// apply only to some packets must go to the kernel. If the local table contains a prefix that covers prefixes of the
/// main table, the two tables must be looked up separately (for IPv4, only if there are additional policy rules).
#[test]
fn what_only_the_kernel_can_tell_is_its_own() {
    require!("ip", "sysctl");
    let site = Site::new(BUFFER, Duration::ZERO);
    let domain = Domain::new();
    let mut feed =
        Feed::new(&domain, Limits { words: 1 << 19, routes: 4_000_000, paths: 1000, neighbours: 1000 }, 1);
    let mut after = |lines: &str| {
        site.ip(lines);
        let mirror = site.in_step(lines);
        assert_eq!(feed.apply(&mirror, &site.told()), []);
        let main = |address: &str| format!("{:?}", feed.table(254).unwrap().why(address.parse().unwrap()));
        let said = ["198.51.100.1", "2001:db8:ff::1"].map(|address| main(address).contains("Local"));
        (said, [false, true].map(|v6| feed.lookups(&mirror, v6, |_| None).len()))
    };
    let plain = "route add 198.51.100.0/24 via 10.0.1.9\nroute add 2001:db8:ff::/48 via 2001:db8:1::9";
    assert_eq!(after(plain), ([false; 2], [1, 1]));
    assert_eq!(after("route add 198.51.100.0/24 tos 0x10 via 10.0.2.9"), ([true, false], [1, 1]));
    assert_eq!(
        after("route add 2001:db8:ff::/48 from 2001:db8:aa::/48 via 2001:db8:2::9"),
        ([true; 2], [1, 1])
    );
    let gone = "route del 198.51.100.0/24 tos 0x10\nroute del 2001:db8:ff::/48 from 2001:db8:aa::/48";
    assert_eq!(after(gone), ([false; 2], [1, 1]));
    // A common table is no longer sufficient: for IPv4 with additional rules, and for IPv6 in every case.
    let own = "route add local 198.51.0.0/16 dev lo\nroute add local 2001:db8:f0::/44 dev lo";
    assert_eq!(after(own), ([false; 2], [1, 2]));
    assert_eq!(after("rule add from 10.77.0.0/16 lookup 77"), ([false; 2], [2, 2]));
    assert_eq!(
        after("rule del from 10.77.0.0/16 lookup 77\nrule add from all lookup main priority 40000").1,
        [3, 2]
    );
}
