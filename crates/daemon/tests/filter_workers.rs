//! Tests filters of ports without a hook (XDP program), with the real binary. A worker filters the frames of a guest on
//! a TAP port.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packet::spec;
use port::pcap::Writer;
use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{LabError, Namespace, RawSender, eventually, require};

/// A guest that is connected to the TAP of port `vm`. This port is a member of the same bridge as h1.
struct Guest {
    rig: Rig,
    namespace: Namespace,
}

/// Guard that sets a flag when it is dropped, even if the test fails. Threads that poll the flag then end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const PORT: &str = "kind = \"tap\"\ndevice = \"vm0\"\nfilter = \"edge\"\n";
const TELNET: &str = "[[filter.edge.rule]]\nname = \"telnet\"\naction = \"drop\"\nprotocol = \"udp\"\n\
                      destination_port = 23\n";
/// Filter rule with a separate rate limit for each source. The token bucket does not refill during a test.
const EACH: &str = "[[filter.edge.rule]]\nname = \"each\"\naction = \"limit\"\nrate = 1\nunit = \"packets\"\n\
                    per = 3600\nburst = 2\nper_source = { ipv4 = 32, ipv6 = 64 }\nprotocol = \"udp\"\n\
                    destination_port = 53\n";
const BLOCKED: &str = "[[filter.edge.rule]]\nname = \"blocked\"\naction = \"drop\"\nlisted = true\n";
/// The last rule, which counts the remaining packets.
const REST: &str =
    "[[filter.edge.rule]]\nname = \"rest\"\naction = \"count\"\nprotocol = \"udp\"\npriority = 0\n";

impl Guest {
    fn start(rules: &str) -> Guest {
        let mut rig = Rig::new(1);
        let namespace = rig.lab.namespace("guest").unwrap();
        let configuration = bridged(&rig, &namespace, rules);
        rig.start(&configuration);
        Guest { rig, namespace }
    }

    fn sender(&self) -> RawSender {
        RawSender::open(&self.namespace, "vm0").unwrap()
    }

    fn apply(&self, rules: &str) {
        let file = self.rig.write("applied.toml", &bridged(&self.rig, &self.namespace, rules));
        self.rig.ok(&["apply", file.to_str().unwrap()]);
    }
}

fn bridged(rig: &Rig, guest: &Namespace, rules: &str) -> String {
    format!(
        "{}[port.vm]\n{PORT}namespace = \"{}\"\n[bridge.br0.port.vm]\naccess = 10\n[filter.edge]\n{rules}",
        rig.configuration("persist = false"),
        guest.name(),
    )
}

/// Returns a UDP frame from the address 192.0.2.X (X is `source`) to the UDP port `port`.
fn udp(source: u8, port: u16) -> Vec<u8> {
    spec::parse(&format!("ip_src=192.0.2.{source},ip_dst=198.51.100.1,udp,dst_port={port}")).unwrap()
}

/// Returns the frame with a VLAN tag.
fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    let (addresses, others) = frame.split_at(12);
    let [high, low] = vlan.to_be_bytes();
    [addresses, &[0x81, 0, high, low], others].concat()
}

/// Returns two counters of a filter rule: the number of matched packets, and the number of packets to which the action
/// of the rule was applied.
fn counted(rig: &Rig, rule: &str) -> (u64, u64) {
    let shown: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
    let rules = shown[0]["rules"].as_array().unwrap();
    let rule = rules.iter().find(|other| other["name"] == rule).unwrap_or_else(|| panic!("{rule}: {shown}"));
    (rule["packets"].as_u64().unwrap(), rule["acted_packets"].as_u64().unwrap())
}

fn until_counted(rig: &Rig, rule: &str, wanted: (u64, u64)) {
    eventually(&format!("{wanted:?} of {rule}"), PATIENCE, || match counted(rig, rule) {
        found if found == wanted => Ok(()),
        found => Err(format!("{found:?}\n{}", rig.ok(&["show", "drops"]))),
    })
    .unwrap();
}

#[test]
fn a_guest_behind_a_tap_is_filtered_limited_and_counted() {
    require!("ip", "ethtool");
    let rules = format!("{TELNET}{EACH}{REST}");
    let guest = Guest::start(&rules);
    let (rig, sender) = (&guest.rig, guest.sender());
    for _ in 0..5 {
        sender.send(&udp(1, 23)).unwrap();
        sender.send(&udp(1, 9)).unwrap();
    }
    until_counted(rig, "telnet", (5, 5));
    until_counted(rig, "rest", (5, 0));
    assert_eq!(rig.dropped("vm", "filter-dropped"), 5);
    // Two packets of each source pass.
    for source in [1, 2, 3] {
        (0..5).for_each(|_| sender.send(&udp(source, 53)).unwrap());
    }
    until_counted(rig, "each", (15, 9));
    until_counted(rig, "rest", (11, 0));
    assert_eq!(rig.dropped("vm", "filter-limited"), 9);
    assert_eq!(rig.port("vm")["filter"], "edge");
    let shown: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
    assert_eq!(shown[0]["ports"], serde_json::json!(["vm"]));

    let said = rig.ok(&["explain", "--in", "vm", "ip_src=192.0.2.9,udp,dst_port=23"]);
    assert!(
        said.contains("rule telnet of the port's filter ends it") && said.contains("filter-dropped"),
        "{said}"
    );
    let said = rig.ok(&["explain", "--in", "vm", "ip_src=192.0.2.1,udp,dst_port=53"]);
    assert!(
        said.contains("rule each of the port's filter ends it") && said.contains("filter-limited"),
        "{said}"
    );
    let said = rig.ok(&["explain", "--in", "vm", "ip_src=192.0.2.9,udp,dst_port=9"]);
    assert!(!said.contains("of the port's filter"), "{said}");
    assert_eq!((counted(rig, "telnet"), counted(rig, "each")), ((5, 5), (15, 9)), "nothing was counted");

    // A successor continues the counters, and filters from its first packet on.
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert_eq!((counted(rig, "telnet"), counted(rig, "each")), ((5, 5), (15, 9)));
    (0..5).for_each(|_| sender.send(&udp(1, 23)).unwrap());
    until_counted(rig, "telnet", (10, 10));
}

/// Returns the frame with `headers` destination options headers after the IPv6 header, and with `tags` priority tags
/// (VLAN ID 0).
fn hidden(frame: &[u8], headers: u8, tags: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for _ in 0..headers {
        let next = std::mem::replace(&mut frame[20], 60);
        // The header is filled with padding.
        frame.splice(54..54, [next, 0, 1, 4, 0, 0, 0, 0]);
        frame[19] += 8;
    }
    (0..tags).fold(frame, |frame, _| tagged(0, &frame))
}

/// A packet that a rule drops does not reach the kernel of a host on the bridge, whatever headers and tags precede the
/// packet's transport header.
#[test]
fn a_guest_cannot_hide_a_datagram_from_a_rule() {
    require!("ip", "ethtool");
    const CLOSED: &str = "[[filter.edge.rule]]\nname = \"closed\"\naction = \"drop\"\nprotocol = \"udp\"\n\
                          destination_port = 22\n[[filter.edge.rule]]\nname = \"all\"\naction = \"pass\"\n";
    let guest = Guest::start(CLOSED);
    let (rig, sender, host) = (&guest.rig, guest.sender(), &guest.rig.hosts[0]);
    host.add_ipv6("fd00:8::1/64").unwrap();
    let bind = |port: u16| {
        let system = |source| LabError::System { what: "a socket".to_owned(), source };
        let socket = host.inside(|| UdpSocket::bind(("::", port)).map_err(system)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let (closed, open, mark) = (bind(22), bind(23), bind(24));
    let received = |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count();
    let plain = |v6: bool, port: u16| {
        let addresses =
            if v6 { "ip_src=fd00:8::77,ip_dst=fd00:8::1" } else { "ip_src=10.8.0.77,ip_dst=10.8.0.1" };
        spec::parse(&format!("eth_dst={},{addresses},udp,dst_port={port}", host.mac().unwrap())).unwrap()
    };
    // Number of tags, number of extension headers, and whether a filter can read the headers after them.
    let stacks = [
        (0, 0, true),
        (1, 0, true),
        (3, 0, true),
        (4, 0, true),
        (16, 0, true),
        (17, 0, false),
        (0, 6, true),
        (3, 6, true),
        (0, 7, false),
        (3, 7, false),
    ];
    let send = || {
        for (tags, headers, _) in stacks {
            for port in [22, 23] {
                sender.send(&hidden(&plain(headers > 0, port), headers, tags)).unwrap();
            }
        }
        sender.send(&plain(false, 24)).unwrap();
        eventually("the last datagram", PATIENCE, || match received(&mark) {
            0 => Err("not yet".to_owned()),
            _ => Ok(()),
        })
        .unwrap();
        (received(&closed), received(&open))
    };
    let readable = stacks.iter().filter(|(.., is_readable)| *is_readable).count();
    assert_eq!(send(), (0, readable), "{}", rig.ok(&["show", "drops"]));
    until_counted(rig, "closed", (7, 7));
    until_counted(rig, "(unreadable)", (6, 6));
    assert_eq!(rig.dropped("vm", "filter-dropped"), 13);
    let frame: String = hidden(&plain(true, 22), 7, 0).iter().map(|octet| format!("{octet:02x}")).collect();
    let said = rig.ok(&["explain", "--in", "vm", &format!("hex:{frame}")]);
    assert!(said.contains("rule (unreadable) of the port's filter ends it"), "{said}");

    // The host's kernel accepts all of these packets, so `doctor` warns if `unreadable` is set to pass.
    let doctor = || String::from_utf8_lossy(&rig.trivium(&["doctor"]).stdout).into_owned();
    assert!(!doctor().contains("filter.edge"), "{}", doctor());
    guest.apply(&format!("unreadable = \"pass\"\n{}", CLOSED.replace("\"pass\"", "\"count\"")));
    assert_eq!(send(), (stacks.len() - readable, stacks.len()));
    let said = doctor();
    assert!(said.contains("filter.edge") && said.contains("unreadable = \"pass\""), "{said}");
}

#[test]
fn rules_of_workers_change_under_traffic_without_a_gap() {
    require!("ip", "ethtool");
    let guest = Guest::start(&format!("{TELNET}{REST}"));
    let (rig, sender, ends) = (&guest.rig, guest.sender(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ends_with_it = Ends(&ends);
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                // If the queue is full, the packet is lost and the next one follows.
                let _ = sender.send(&udp(1, 23));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 0..20 {
            // Each rule set drops everything, by one rule or the other.
            let first =
                "[[filter.edge.rule]]\nname = \"comes\"\naction = \"drop\"\nsource = \"192.0.2.0/24\"\n";
            let first = if round % 2 == 0 { first } else { "" };
            guest.apply(&format!("{first}{TELNET}{REST}"));
            // Frames arrive under each rule set.
            let dropped = rig.dropped("vm", "filter-dropped");
            eventually("frames under the new rules", PATIENCE, || {
                match rig.dropped("vm", "filter-dropped") {
                    now if now >= dropped + 3 => Ok(()),
                    now => Err(format!("{dropped}, then {now}")),
                }
            })
            .unwrap();
        }
        drop(ends_with_it);
    });
    // Frames that did not fit into the queue are not counted as received.
    let received = || rig.port("vm")["counters"]["rx_packets"].as_u64().unwrap();
    eventually("all frames dropped", PATIENCE, || match (rig.dropped("vm", "filter-dropped"), received()) {
        (dropped, all) if dropped == all => Ok(()),
        others => Err(format!("{others:?}")),
    })
    .unwrap();
    let sent = received();
    assert_eq!(counted(rig, "rest"), (0, 0), "nothing passed, whatever rules stood");
    let kept = counted(rig, "telnet").0;
    assert!(
        (1..sent).contains(&kept),
        "its counter lives on while the other comes and goes: {kept} of {sent}"
    );
    // A port without a filter.
    let plain = bridged(rig, &guest.namespace, REST).replace("filter = \"edge\"\n", "");
    let file = rig.write("plain.toml", &plain);
    rig.ok(&["apply", file.to_str().unwrap()]);
    sender.send(&udp(1, 23)).unwrap();
    assert_eq!(counted(rig, "rest"), (0, 0));
}

#[test]
fn sources_are_blocked_on_a_tap() {
    require!("ip", "ethtool");
    let guest = Guest::start(&format!("{BLOCKED}{REST}"));
    let (rig, sender) = (&guest.rig, guest.sender());
    sender.send(&udp(1, 9)).unwrap();
    until_counted(rig, "rest", (1, 0));
    rig.ok(&["xdp", "filter", "block", "192.0.2.1", "198.51.100.0/24"]);
    sender.send(&udp(1, 9)).unwrap();
    until_counted(rig, "blocked", (1, 1));
    // The entries exceed the size of the list's table, which is replaced.
    let many: Vec<String> = (0..2_000).map(|n| format!("10.{}.{}.1", n / 200, n % 200)).collect();
    let mut line = vec!["xdp", "filter", "block"];
    line.extend(many.iter().map(String::as_str));
    rig.ok(&line);
    let of_many = spec::parse("ip_src=10.9.199.1,ip_dst=198.51.100.1,udp,dst_port=9").unwrap();
    sender.send(&of_many).unwrap();
    until_counted(rig, "blocked", (2, 2));
    rig.ok(&["xdp", "filter", "unblock", "192.0.2.1"]);
    sender.send(&udp(1, 9)).unwrap();
    until_counted(rig, "rest", (2, 0));
    assert_eq!(counted(rig, "blocked"), (2, 2));
}

/// A port applies the current content of the block list's file, even if no port referred to the filter when the file
/// changed.
#[test]
fn a_list_that_changed_without_a_port_is_the_new_one() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(1);
    let namespace = rig.lab.namespace("guest").unwrap();
    let list = rig.write("list.txt", "192.0.2.1\n");
    let with_list = format!("blocklist = {list:?}\n{BLOCKED}{REST}");
    let full = bridged(&rig, &namespace, &with_list);
    rig.start(&full);
    let guest = Guest { rig, namespace };
    let (rig, sender) = (&guest.rig, guest.sender());
    sender.send(&udp(1, 9)).unwrap();
    until_counted(rig, "blocked", (1, 1));
    let plain = rig.write("plain.toml", &full.replace("filter = \"edge\"\n", ""));
    rig.ok(&["apply", plain.to_str().unwrap()]);
    let received = || rig.port("vm")["counters"]["rx_packets"].as_u64().unwrap();
    let before = received();
    sender.send(&udp(1, 9)).unwrap();
    eventually(
        "it is taken",
        PATIENCE,
        || if received() > before { Ok(()) } else { Err("not yet".to_owned()) },
    )
    .unwrap();
    rig.write("list.txt", "192.0.2.2\n");
    rig.ok(&["xdp", "filter", "reload", "edge"]);
    guest.apply(&with_list);
    for source in [1, 2, 2] {
        sender.send(&udp(source, 9)).unwrap();
    }
    until_counted(rig, "blocked", (3, 3));
    until_counted(rig, "rest", (1, 0));
    // A successor has the list, with the prefixes blocked later, before it receives any frame.
    rig.ok(&["xdp", "filter", "block", "192.0.2.3"]);
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    for source in [1, 2, 3] {
        sender.send(&udp(source, 9)).unwrap();
    }
    until_counted(rig, "blocked", (5, 5));
    until_counted(rig, "rest", (2, 0));
    // Counters belong to the filter and not to the port.
    rig.ok(&["apply", plain.to_str().unwrap()]);
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert_eq!(counted(rig, "blocked"), (5, 5));
}

#[test]
fn what_needs_a_hook_is_refused_on_a_tap() {
    require!("ip", "ethtool");
    let guest = Guest::start(REST);
    let (rig, sender) = (&guest.rig, guest.sender());
    let sample = format!("{REST}[[filter.edge.rule]]\nname = \"some\"\naction = \"sample\"\none_in = 10\n");
    let file = rig.write("refused.toml", &bridged(rig, &guest.namespace, &sample));
    let refused = rig.trivium(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("port.vm.filter"), "{said}");
    assert!(
        said.contains("has no driver hook") && said.contains("name a filter without `some` here"),
        "{said}"
    );
    sender.send(&udp(1, 9)).unwrap();
    until_counted(rig, "rest", (1, 0));
}

/// Tests the filter of a TAP port that belongs to a router and has VLAN interfaces. The rule matches only packets in
/// one of the VLANs.
#[test]
fn a_routers_tap_is_filtered_by_vlans() {
    require!("ip", "ethtool");
    let mut rig = Rig::routed(1);
    let namespace = rig.lab.namespace("guest").unwrap();
    let ports = rig.configuration("");
    let ports = ports.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    let ports: String = ports.flat_map(|line| [line, "\n"]).collect();
    let rule = "[[filter.edge.rule]]\nname = \"one\"\naction = \"drop\"\nprotocol = \"udp\"\nvlan = 100\n";
    let configuration = format!(
        "{ports}[port.vm]\n{PORT}namespace = \"{}\"\n[router.edge.port.h1]\n[router.edge.port.vm]\nvlans = [100, 200]\n\
         [filter.edge]\n{rule}{REST}",
        namespace.name(),
    );
    rig.start(&configuration);
    let sender = RawSender::open(&namespace, "vm0").unwrap();
    for vlan in [100, 100, 200] {
        sender.send(&tagged(vlan, &udp(1, 9))).unwrap();
    }
    sender.send(&udp(1, 9)).unwrap();
    until_counted(&rig, "one", (2, 2));
    until_counted(&rig, "rest", (2, 0));
    assert_eq!(rig.dropped("vm", "filter-dropped"), 2);
}

/// Tests filters of a capture file port, and of a patch port between two bridges.
#[test]
fn capture_files_and_patch_ports_are_filtered() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(1);
    let file = rig.path("in.pcapng");
    let mut writer = Writer::pcapng(std::fs::File::create(&file).unwrap()).unwrap();
    let interface = writer.interface("any").unwrap();
    for port in [23, 23, 9, 53, 53, 53, 9] {
        let frame = udp(1, port);
        let length = u32::try_from(frame.len()).unwrap();
        writer.packet(interface, 0, length, [frame.as_slice()], None).unwrap();
    }
    writer.flush().unwrap();
    let wire =
        EACH.replace("filter.edge", "filter.wire").replace("per_source = { ipv4 = 32, ipv6 = 64 }\n", "");
    let configuration = format!(
        "{}[port.cap]\nkind = \"pcap\"\nread = {file:?}\nfilter = \"edge\"\n\
         [port.far]\nkind = \"patch\"\npeer = \"near\"\n\
         [port.near]\nkind = \"patch\"\npeer = \"far\"\nfilter = \"wire\"\n\
         [bridge.br1.port.cap]\n[bridge.br1.port.far]\n[bridge.br0.port.near]\n\
         [filter.edge]\n{TELNET}{REST}[filter.wire]\n{wire}",
        rig.configuration("persist = false"),
    );
    rig.start(&configuration);
    let dropped = || {
        let of = |port, reason| rig.dropped(port, reason);
        (of("cap", "filter-dropped"), of("near", "filter-limited"), of("far", "filter-limited"))
    };
    eventually("what both filters end", PATIENCE, || match dropped() {
        (2, 1, 0) => Ok(()),
        others => Err(format!("{others:?}\n{}", rig.ok(&["show", "drops"]))),
    })
    .unwrap();
    assert_eq!(rig.port("near")["filter"], "wire");
    let said = rig.ok(&["explain", "--in", "cap", "ip_src=192.0.2.9,udp,dst_port=53"]);
    assert!(said.contains("filter-limited"), "{said}");
}
