//! The DHCP relay of a router's interface, by the real binary: busybox's client behind one port, dnsmasq behind another.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::net::UdpSocket;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use serde_json::Value;
use testbed::{LabError, Process, eventually, require};

fn configuration(rig: &Rig, relay: &str) -> String {
    let ports = rig.configuration("");
    let ports = ports.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    let ports: String = ports.flat_map(|line| [line, "\n"]).collect();
    format!("{ports}[router.edge.port.h1]\n{relay}\n[router.edge.port.h2]\n")
}

/// What the interface's relay has done; `Null` where there is none.
fn relayed(rig: &Rig) -> Value {
    let routers: Value = serde_json::from_str(&rig.ok(&["show", "routers", "--json"])).unwrap();
    let interfaces = routers[0]["interfaces"].as_array().unwrap();
    interfaces.iter().find(|one| one["port"] == "h1").unwrap()["dhcp_relay"].clone()
}

fn until(rig: &Rig, what: &str, is_so: impl Fn(&Value) -> bool) {
    eventually(what, PATIENCE, || {
        let relay = relayed(rig);
        if is_so(&relay) { Ok(()) } else { Err(relay.to_string()) }
    })
    .unwrap();
}

/// A client that keeps its address; it ends after so many tries without an answer.
fn client(rig: &Rig, tries: &str) -> Process {
    let script = rig.write(
        "lease",
        "#!/bin/sh\n\
         if [ \"$1\" = bound ]; then\n\
           ip address add \"$ip/24\" dev \"$interface\" && ip route add default via \"$router\"\n\
         fi\n\
         echo \"$1 $ip $router\"\n",
    );
    rig.hosts[0].run(["chmod", "755", script.to_str().unwrap()]).unwrap();
    rig.hosts[0].run(["ip", "address", "flush", "dev", "eth0"]).unwrap();
    let line = ["udhcpc", "-f", "-n", "-i", "eth0", "-t", tries, "-T", "1", "-A", "1", "-s"];
    rig.hosts[0].spawn(line.into_iter().chain([script.to_str().unwrap()])).unwrap()
}

/// What the client has got: its address and its router's.
fn lease(client: &mut Process) -> String {
    client.wait_for_line("bound ", PATIENCE).unwrap().replace("bound ", "")
}

/// As [`lease`], and the client ends.
fn lease_of(mut client: Process) -> String {
    let lease = lease(&mut client);
    client.stop(Signal::TERM, PATIENCE).unwrap();
    lease
}

/// Makes the client renew its address, by a message to the server itself; it has done so before so many times.
fn renew(client: &Process, before: usize) {
    client.signal(Signal::USR1).unwrap();
    eventually("the address is renewed", PATIENCE, || {
        let said = client.output();
        if said.lines().filter(|line| line.starts_with("renew ")).count() > before {
            Ok(())
        } else {
            Err(said)
        }
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
        "--dhcp-range=10.8.1.100,10.8.1.150,255.255.255.0,1h",
        "--dhcp-option=option:router,10.8.1.1",
        &leases,
    ];
    let mut server = rig.hosts[1].spawn(line).unwrap();
    server.wait_for_line("started", PATIENCE).unwrap();
    until(&rig, "the relay listens", |relay| relay["listens"] == true);
    let mut held = client(&rig, "5");
    let first = lease(&mut held);
    assert!(first.starts_with("10.8.1.1") && first.ends_with(" 10.8.1.1"), "{first}");
    let counted = relayed(&rig);
    let (requests, replies) = (counted["requests"].as_u64().unwrap(), counted["replies"].as_u64().unwrap());
    assert!(requests >= 2 && replies >= 2 && counted["unsent"] == 0, "{counted}");
    let shown = rig.ok(&["show", "interfaces"]);
    assert!(shown.contains("DHCP relay of h1: "), "{shown}");

    // Who has an address and a route needs no relay.
    renew(&held, 0);
    assert_eq!(relayed(&rig)["requests"], requests);

    // What is no message, and a reply of somebody who is no server, go nowhere.
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
    until(&rig, "both are counted", |relay| relay["malformed"] == 1 && relay["strangers"] == 1);
    assert_eq!(relayed(&rig)["replies"], replies);

    // A successor relays on, for who holds an address and for who has forgotten it.
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    until(&rig, "the successor listens", |relay| relay["listens"] == true);
    renew(&held, 1);
    held.stop(Signal::TERM, PATIENCE).unwrap();
    assert_eq!(lease_of(client(&rig, "5")), first);
    // Without the key nobody relays, and with it again somebody does.
    let file = rig.write("without.toml", &configuration(&rig, ""));
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert_eq!(relayed(&rig), Value::Null);
    let (status, said) = client(&rig, "1").finish(PATIENCE).unwrap();
    assert!(!status.success() && !said.contains("bound "), "{said}");
    let file = rig.write("with.toml", &with);
    rig.ok(&["apply", file.to_str().unwrap()]);
    until(&rig, "the relay listens again", |relay| relay["listens"] == true);
    assert_eq!(lease_of(client(&rig, "5")), first);
}
