//! Tests the DHCP relay of a router interface with the real binary. The clients are on one port, and the server
//! (dnsmasq) is on another port.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::net::{Ipv6Addr, UdpSocket};

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use serde_json::Value;
use testbed::{LabError, Process, eventually, require};

/// The device of a router interface, by name, and the name of the field that describes the DHCP relay in the
/// interface's state.
type Which = (&'static str, &'static str);

const FOUR: Which = ("h1", "dhcp_relay");
const SIX: Which = ("h1", "dhcp6_relay");
const TAGGED: Which = ("h1.100", "dhcp_relay");

fn configuration(rig: &Rig, relay: &str) -> String {
    let ports = rig.configuration("");
    let ports = ports.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    let ports: String = ports.flat_map(|line| [line, "\n"]).collect();
    format!("{ports}[router.edge.port.h1]\n{relay}\n[router.edge.port.h2]\n")
}

/// Returns the state of the interface's DHCP relay, or `Null` if there is none.
fn relayed(rig: &Rig, which: Which) -> Value {
    let routers: Value = serde_json::from_str(&rig.ok(&["show", "routers", "--json"])).unwrap();
    let interfaces = routers[0]["interfaces"].as_array().unwrap();
    interfaces.iter().find(|one| one["device"] == which.0).unwrap()[which.1].clone()
}

fn until(rig: &Rig, which: Which, what: &str, is_so: impl Fn(&Value) -> bool) {
    eventually(what, PATIENCE, || {
        let relay = relayed(rig, which);
        if is_so(&relay) { Ok(()) } else { Err(relay.to_string()) }
    })
    .unwrap();
}

/// Starts dnsmasq as a DHCP server on the second host. `more` contains additional arguments.
fn server(rig: &Rig, more: &[&str]) -> Process {
    let leases = format!("--dhcp-leasefile={}", rig.path("leases").display());
    let line = [
        "dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--user=root",
        "--pid-file",
        "--log-facility=-",
        "--no-ping",
        "--dhcp-authoritative",
        &leases,
    ];
    let mut server = rig.hosts[1].spawn(line.iter().chain(more)).unwrap();
    server.wait_for_line("started", PATIENCE).unwrap();
    server
}

/// Starts a DHCP client (udhcpc) on the first host. The client assigns the leased address to `device` and does not
/// remove it. The client ends after `tries` requests without an answer.
fn client(rig: &Rig, device: &str, tries: &str) -> Process {
    let script = rig.write(
        "lease",
        "#!/bin/sh\n\
         if [ \"$1\" = bound ]; then\n\
           ip address add \"$ip/24\" dev \"$interface\" && ip route add default via \"$router\"\n\
         fi\n\
         echo \"$1 $ip $router\"\n",
    );
    rig.hosts[0].run(["chmod", "755", script.to_str().unwrap()]).unwrap();
    rig.hosts[0].run(["ip", "address", "flush", "dev", device]).unwrap();
    let line = ["udhcpc", "-f", "-n", "-i", device, "-t", tries, "-T", "1", "-A", "1", "-s"];
    rig.hosts[0].spawn(line.into_iter().chain([script.to_str().unwrap()])).unwrap()
}

/// Waits until the DHCP client has a lease. Returns the leased address and the address of the router, as text.
fn lease(client: &mut Process) -> String {
    client.wait_for_line("bound ", PATIENCE).unwrap().replace("bound ", "")
}

/// Waits for a lease like [`lease`], ends the client, and returns the addresses.
fn lease_of(mut client: Process) -> String {
    let lease = lease(&mut client);
    client.stop(Signal::TERM, PATIENCE).unwrap();
    lease
}

/// Makes the client renew its address with a unicast message to the server. The server answers quickly. If the client
/// does not listen yet when the answer arrives, the client misses it and sends a broadcast a second later.
fn renew(rig: &Rig, which: Which, client: &Process) {
    let renewed = || client.output().lines().filter(|line| line.starts_with("renew ")).count();
    eventually("a renewal without the relay", PATIENCE, || {
        let (times, requests) = (renewed(), relayed(rig, which)["requests"].clone());
        client.signal(Signal::USR1).unwrap();
        eventually("the address is renewed", PATIENCE, || {
            if renewed() > times { Ok(()) } else { Err(client.output()) }
        })
        .unwrap();
        if relayed(rig, which)["requests"] == requests { Ok(()) } else { Err(client.output()) }
    })
    .unwrap();
}

#[test]
fn a_client_gets_its_address_from_a_server_behind_the_router() {
    require!("ip", "ethtool", "dnsmasq", "udhcpc");
    let mut rig = Rig::routed(2);
    let with = configuration(&rig, "dhcp_relay = [\"10.8.2.2\"]");
    rig.start(&with);
    rig.until_reachable(1, 2);
    let _server = server(
        &rig,
        &["--dhcp-range=10.8.1.100,10.8.1.150,255.255.255.0,1h", "--dhcp-option=option:router,10.8.1.1"],
    );
    until(&rig, FOUR, "the relay listens", |relay| relay["listens"] == true);
    let mut held = client(&rig, "eth0", "5");
    let first = lease(&mut held);
    assert!(first.starts_with("10.8.1.1") && first.ends_with(" 10.8.1.1"), "{first}");
    let counted = relayed(&rig, FOUR);
    let (requests, replies) = (counted["requests"].as_u64().unwrap(), counted["replies"].as_u64().unwrap());
    assert!(requests >= 2 && replies >= 2 && counted["unsent"] == 0, "{counted}");
    let shown = rig.ok(&["show", "interfaces"]);
    assert!(shown.contains("DHCP relay of h1: "), "{shown}");

    // A client with an address and a route needs no relay.
    renew(&rig, FOUR, &held);
    let replies = relayed(&rig, FOUR)["replies"].clone();

    // An invalid message and a reply from a host that is no server are not forwarded.
    let mut forged = [0; 300];
    forged[..3].copy_from_slice(&[2, 1, 6]);
    forged[24..28].copy_from_slice(&[10, 8, 1, 1]);
    forged[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    rig.hosts[0]
        .inside(|| {
            let send = || {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.send_to(&forged[..100], "10.8.1.1:67")?;
                socket.send_to(&forged, "10.8.1.1:67")
            };
            send()
                .map(drop)
                .map_err(|source| LabError::System { what: "sending to the relay".to_owned(), source })
        })
        .unwrap();
    until(&rig, FOUR, "both are counted", |relay| relay["malformed"] == 1 && relay["strangers"] == 1);
    assert_eq!(relayed(&rig, FOUR)["replies"], replies);

    // A successor continues to relay, for a client with an address and for a client that has forgotten its
    // address.
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    until(&rig, FOUR, "the successor listens", |relay| relay["listens"] == true);
    renew(&rig, FOUR, &held);
    held.stop(Signal::TERM, PATIENCE).unwrap();
    assert_eq!(lease_of(client(&rig, "eth0", "5")), first);
    // Without the key the relay is off, and with the key it is on again.
    let file = rig.write("without.toml", &configuration(&rig, ""));
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert_eq!(relayed(&rig, FOUR), Value::Null);
    let (status, said) = client(&rig, "eth0", "1").finish(PATIENCE).unwrap();
    assert!(!status.success() && !said.contains("bound "), "{said}");
    let file = rig.write("with.toml", &with);
    rig.ok(&["apply", file.to_str().unwrap()]);
    until(&rig, FOUR, "the relay listens again", |relay| relay["listens"] == true);
    assert_eq!(lease_of(client(&rig, "eth0", "5")), first);
}

/// Returns the DHCPv6 address of the client. The client always uses the same DUID.
fn lease6(rig: &Rig) -> String {
    let script = rig.write("lease6", "#!/bin/sh\necho \"$reason $new_ip6_address\"\n");
    rig.hosts[0].run(["chmod", "755", script.to_str().unwrap()]).unwrap();
    let (leases, pid) = (rig.path("leases6"), rig.path("pid6"));
    let files =
        ["-lf", leases.to_str().unwrap(), "-pf", pid.to_str().unwrap(), "-sf", script.to_str().unwrap()];
    // Without its lease file the client starts from the beginning with an unchanged DUID.
    let _ = std::fs::remove_file(&leases);
    let line = ["dhclient", "-6", "-1", "-d", "-D", "LL"];
    let mut client = rig.hosts[0].spawn(line.into_iter().chain(files).chain(["eth0"])).unwrap();
    let lease = client.wait_for_line("BOUND6 ", PATIENCE).unwrap().replace("BOUND6 ", "");
    client.stop(Signal::TERM, PATIENCE).unwrap();
    lease
}

#[test]
fn a_client_gets_its_ipv6_address_from_a_server_behind_the_router() {
    require!("ip", "ethtool", "dnsmasq", "dhclient");
    let mut rig = Rig::routed(2);
    rig.start(&configuration(&rig, "dhcp_relay = [\"fd00:8:2::2\"]\ndhcp_relay_agents = false"));
    rig.until_reachable(1, 2);
    let _server = server(&rig, &["--dhcp-range=fd00:8:1::100,fd00:8:1::150,64,1h"]);
    until(&rig, SIX, "the relay listens", |relay| relay["listens"] == true);
    assert_eq!(relayed(&rig, FOUR), Value::Null);
    let first = lease6(&rig);
    assert!(first.starts_with("fd00:8:1::1"), "{first}");
    let counted = relayed(&rig, SIX);
    let (requests, replies) = (counted["requests"].as_u64().unwrap(), counted["replies"].as_u64().unwrap());
    assert!(requests >= 2 && replies >= 2 && counted["unsent"] == 0, "{counted}");
    let shown = rig.ok(&["show", "interfaces"]);
    assert!(shown.contains("DHCPv6 relay of h1: "), "{shown}");

    // An invalid message, a client's unicast message and a relay reply from a host that is no server are not
    // forwarded.
    let mut forged = vec![13, 0];
    forged.extend("fd00:8:1::1".parse::<Ipv6Addr>().unwrap().octets());
    forged.extend("fd00:8:1::2".parse::<Ipv6Addr>().unwrap().octets());
    forged.extend([0, 9, 0, 4, 7, 0, 0, 1]);
    rig.hosts[0]
        .inside(|| {
            let send = || {
                let socket = UdpSocket::bind("[::]:0")?;
                for message in [&forged[..33], &[1, 0, 0, 1], &forged] {
                    socket.send_to(message, "[fd00:8:1::1]:547")?;
                }
                Ok(())
            };
            send().map_err(|source| LabError::System { what: "sending to the relay".to_owned(), source })
        })
        .unwrap();
    until(&rig, SIX, "all are counted", |relay| relay["malformed"] == 1 && relay["strangers"] == 2);
    assert_eq!(relayed(&rig, SIX)["replies"], replies);

    // A relay reply with the server's address from the clients' link, and a message of another relay, which
    // is not accepted there.
    rig.hosts[0].run(["sysctl", "-qw", "net.ipv6.conf.lo.disable_ipv6=0"]).unwrap();
    rig.hosts[0].run(["ip", "address", "add", "fd00:8:2::2/128", "dev", "lo", "nodad"]).unwrap();
    let mut relayed_before = forged.clone();
    relayed_before[0] = 12;
    rig.hosts[0]
        .inside(|| {
            let send = || {
                UdpSocket::bind("[fd00:8:2::2]:547")?.send_to(&forged, "[fd00:8:1::1]:547")?;
                UdpSocket::bind("[::]:0")?.send_to(&relayed_before, "[fd00:8:1::1]:547")
            };
            send()
                .map(drop)
                .map_err(|source| LabError::System { what: "sending to the relay".to_owned(), source })
        })
        .unwrap();
    rig.hosts[0].run(["ip", "address", "delete", "fd00:8:2::2/128", "dev", "lo"]).unwrap();
    until(&rig, SIX, "both are counted", |relay| relay["strangers"] == 4);
    assert_eq!(relayed(&rig, SIX)["replies"], replies);

    // A successor continues to relay.
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    until(&rig, SIX, "the successor listens", |relay| relay["listens"] == true);
    assert_eq!(lease6(&rig), first);
}

/// Checks that a client in a VLAN gets its address. On the client's host, another Trivium router provides the VLAN
/// interface, because the kernel may not support VLAN devices.
#[test]
fn a_client_in_a_vlan_gets_its_address() {
    require!("ip", "ethtool", "dnsmasq", "udhcpc");
    let mut rig = Rig::routed(2);
    rig.start(&configuration(&rig, "vlans = [100]\ndhcp_relay = [\"10.8.2.2\"]"));
    rig.lab.hub().run(["ip", "address", "add", "10.20.100.1/24", "dev", "h1.100"]).unwrap();
    let far = format!(
        "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 16384\nhuge_pages = \"off\"\n\
         [port.eth0]\nkind = \"af_xdp\"\ndevice = \"eth0\"\n[router.far.port.eth0]\nvlans = [100]\n",
        rig.path("far.sock"),
        rig.path("far-state"),
    );
    let file = rig.write("far.toml", &far);
    let mut host = rig.hosts[0].spawn([TRIVIUM, "run", "-c", file.to_str().unwrap()]).unwrap();
    host.wait_for_line("ready:", PATIENCE).unwrap();
    rig.hosts[0].run(["ip", "link", "set", "dev", "eth0.100", "up"]).unwrap();
    rig.hosts[0].run(["ip", "route", "delete", "default"]).unwrap();
    let _server = server(
        &rig,
        &[
            "--dhcp-range=10.20.100.100,10.20.100.150,255.255.255.0,1h",
            "--dhcp-option=option:router,10.20.100.1",
        ],
    );
    until(&rig, TAGGED, "the relay listens", |relay| relay["listens"] == true);
    let before = relayed(&rig, FOUR);
    let mut held = client(&rig, "eth0.100", "5");
    let lease = lease(&mut held);
    assert!(lease.starts_with("10.20.100.1") && lease.ends_with(" 10.20.100.1"), "{lease}");
    renew(&rig, TAGGED, &held);
    assert_eq!(relayed(&rig, FOUR), before, "the port itself had nothing to do with it");
    assert!(relayed(&rig, TAGGED)["replies"].as_u64().unwrap() >= 2);
}
