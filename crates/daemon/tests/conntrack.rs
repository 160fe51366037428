//! Tests of connection tracking with real connections: the stock `ovs-ofctl` adds rules with `ct` actions to the real
//! binary, and hosts in network namespaces connect to each other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use rig::{PATIENCE, Rig};
use testbed::{Host, require};

/// Time after which a packet that the rules drop has not arrived.
const DROPPED: Duration = Duration::from_millis(500);

fn ofctl(rig: &Rig, command: &str, arguments: &[&str]) {
    let bridge = format!("unix:{}", rig.path("br0.mgmt").display());
    let mut client = Command::new("ovs-ofctl");
    client.args(["-O", "OpenFlow13", "--timeout=20", command, &bridge]).args(arguments);
    let output = client.output().unwrap();
    assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
}

/// Starts a daemon with two hosts on an OpenFlow bridge with these rules. The host with index N has the port N + 1.
fn started(rules: &str) -> Rig {
    let mut rig = Rig::new(2);
    let mut text = rig.configuration("");
    for number in 1..=2 {
        let entry = format!("[bridge.br0.port.h{number}]\n");
        text = text.replace(&entry, &format!("{entry}number = {number}\n"));
    }
    text += "[bridge.br0.openflow]\nfail_mode = \"secure\"\n";
    rig.start(&text);
    let file = rig.write("flows", rules);
    ofctl(&rig, "add-flows", &[file.to_str().unwrap()]);
    rig.pin_neighbours();
    rig
}

fn listener(host: &Host) -> TcpListener {
    host.inside(|| Ok(TcpListener::bind((host.ip(), 0)).unwrap())).unwrap()
}

fn connect(from: &Host, to: SocketAddr, patience: Duration) -> std::io::Result<TcpStream> {
    from.inside(|| Ok(TcpStream::connect_timeout(&to, patience))).unwrap()
}

fn udp(host: &Host) -> UdpSocket {
    let socket = host.inside(|| Ok(UdpSocket::bind((host.ip(), 0)).unwrap())).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a megabyte in each direction, and checks that it arrives unchanged.
fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[1] ^ at.to_le_bytes()[0]).collect();
    let send = |from: &mut TcpStream, to: &mut TcpStream| {
        let mut received = vec![0; bytes.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&bytes).unwrap());
            to.read_exact(&mut received).unwrap();
        });
        assert!(received == bytes, "other bytes than those sent have arrived");
    };
    send(client, server);
    send(server, client);
}

fn firewall() -> Rig {
    started(
        "table=0,priority=100,arp,actions=NORMAL\n\
         table=0,priority=10,ip,actions=ct(table=1,zone=7)\n\
         table=1,ct_state=+trk+new,ip,in_port=1,actions=ct(commit,zone=7,exec(set_field:0x5->ct_mark)),output:2\n\
         table=1,ct_state=+trk+est,ip,in_port=1,actions=output:2\n\
         table=1,ct_state=+trk+est+rpl,ct_mark=0x5,ip,in_port=2,actions=output:1\n",
    )
}

#[test]
fn a_stateful_bridge_passes_connections_from_one_side_only() {
    require!("ip", "ethtool", "ovs-ofctl");
    let rig = firewall();
    let (inside, outside) = (&rig.hosts[0], &rig.hosts[1]);
    let server = listener(outside);
    let mut client = connect(inside, server.local_addr().unwrap(), PATIENCE).unwrap();
    let mut accepted = server.accept().unwrap().0;
    exchange(&mut client, &mut accepted);
    let shown = rig.ok(&["show", "connections"]);
    let row = shown.lines().find(|line| line.contains("ESTABLISHED")).expect(&shown);
    assert!(row.contains("10.8.0.1:") && row.contains("10.8.0.2:"), "{shown}");
    let server = listener(inside);
    let refused = connect(outside, server.local_addr().unwrap(), DROPPED);
    assert!(refused.is_err_and(|error| error.kind() == ErrorKind::TimedOut));
    let shown = rig.ok(&["show", "megaflows", "br0"]);
    assert!(shown.contains("ct(zone=7),recirc(0x") && shown.contains("ct_state("), "{shown}");
}

#[test]
fn flushed_connections_are_unknown() {
    require!("ip", "ethtool", "ovs-ofctl");
    let rig = firewall();
    let (client, server) = (udp(&rig.hosts[0]), udp(&rig.hosts[1]));
    let mut buffer = [0; 16];
    let ask = || client.send_to(b"question", server.local_addr().unwrap()).unwrap();
    ask();
    let peer = server.recv_from(&mut buffer).unwrap().1;
    server.send_to(b"one", peer).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 3);
    // A flush of another zone, or of connections of another host, changes nothing.
    ofctl(&rig, "ct-flush-zone", &["8"]);
    ofctl(&rig, "ct-flush", &["zone=7", "ct_nw_src=10.8.0.9"]);
    server.send_to(b"two", peer).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 3);
    client.set_read_timeout(Some(DROPPED)).unwrap();
    for flush in [&["zone=7", "ct_nw_src=10.8.0.1"][..], &[]] {
        match flush {
            [] => ofctl(&rig, "ct-flush-zone", &["7"]),
            filter => ofctl(&rig, "ct-flush", filter),
        }
        server.send_to(b"three", peer).unwrap();
        assert!(client.recv(&mut buffer).is_err(), "the reply of a flushed connection has arrived");
        ask();
        server.recv_from(&mut buffer).unwrap();
        server.send_to(b"four", peer).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 4);
    }
}

#[test]
fn source_nat_translates_real_connections() {
    require!("ip", "ethtool", "ovs-ofctl");
    let rig = started(
        "table=0,priority=100,arp,actions=NORMAL\n\
         table=0,priority=10,ip,in_port=1,actions=ct(commit,table=1,zone=3,nat(src=10.8.0.100:40000-40999))\n\
         table=0,priority=10,ip,in_port=2,actions=ct(table=2,zone=3,nat)\n\
         table=1,ip,in_port=1,actions=output:2\n\
         table=2,ct_state=+trk+est,ip,in_port=2,actions=output:1\n",
    );
    let (inside, outside) = (&rig.hosts[0], &rig.hosts[1]);
    let mac = inside.mac().unwrap();
    let neighbour = ["ip", "neighbour", "replace", "10.8.0.100", "lladdr", &mac, "dev", "eth0"];
    outside.run(neighbour).unwrap();
    let server = listener(outside);
    let mut streams = Vec::new();
    for _ in 0..5 {
        let client = connect(inside, server.local_addr().unwrap(), PATIENCE).unwrap();
        let (accepted, peer) = server.accept().unwrap();
        assert_eq!(peer.ip().to_string(), "10.8.0.100");
        assert!((40_000..=40_999).contains(&peer.port()), "{peer}");
        streams.push((client, accepted));
    }
    for (client, server) in &mut streams {
        exchange(client, server);
    }
}
