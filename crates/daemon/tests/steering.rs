//! Tests flow steering with the real binary between real hosts. Some flows are steered to the hub's kernel or to a
//! certain CPU, while other flows are bridged. The policy changes under traffic, and the daemon is killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::net::sockopt;
use rustix::process::Signal;
use serde_json::Value;
use testbed::{Namespace, UdpFlow, eventually, require};

/// IP address of the hub, which is assigned to the hub's loopback device.
const HUB: &str = "10.8.0.99";
/// UDP port of the hub's sockets.
const PORT: u16 = 9;

/// Returns the usual configuration of the test lab, with a steering policy on h1 that has the fields `fields`.
fn with_steering(rig: &Rig, extra: &str, fields: &str) -> String {
    let ports = rig.configuration(extra).replace("device = \"h1\"", "device = \"h1\"\nsteering = \"s\"");
    format!("{ports}[steering.s]\n{fields}")
}

/// Returns the configuration of an exact flow from a UDP port of h1 to the hub. `to` is the target of the flow.
fn to_hub(source_port: u16, to: &str) -> String {
    format!(
        "[[steering.s.flow]]\nsource = \"10.8.0.1\"\ndestination = \"{HUB}\"\nprotocol = \"udp\"\n\
         source_port = {source_port}\ndestination_port = {PORT}\n{to}\n"
    )
}

/// Returns the arguments of `trivium xdp steering add` and `remove` that identify a UDP flow from a port of h1 to the
/// hub.
fn flow_of(source_port: &str) -> [&str; 10] {
    let ports = ["--source-port", source_port, "--destination-port", "9"];
    let [a, b, c, d] = ports;
    ["--source", "10.8.0.1", "--destination", HUB, "--protocol", "udp", a, b, c, d]
}

fn add<'a>(rig: &Rig, source_port: &'a str, more: &[&'a str]) -> String {
    rig.ok(&[&["xdp", "steering", "add"], &flow_of(source_port)[..], more].concat())
}

/// Adds an IP address to the hub, and configures h1 so that it reaches this address through its cable to the hub.
fn address_hub(rig: &Rig) {
    let hub = rig.lab.hub();
    hub.run(["ip", "link", "set", "lo", "up"]).unwrap();
    hub.run(["ip", "address", "add", &format!("{HUB}/32"), "dev", "lo"]).unwrap();
    hub.run(["ip", "route", "add", "10.8.0.1/32", "dev", "h1"]).unwrap();
    let link = hub.run(["ip", "-o", "link", "show", "dev", "h1"]).unwrap();
    let mac = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap();
    let host = &rig.hosts[0];
    host.run(["ip", "neighbor", "replace", HUB, "lladdr", mac, "dev", "eth0"]).unwrap();
}

fn bound(namespace: &Namespace, address: &str, port: u16) -> UdpSocket {
    let socket = namespace.inside(|| Ok(UdpSocket::bind((address, port)))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

/// Sender that sends one datagram per millisecond from a port of h1 to the hub until it is dropped.
struct Talk {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Talk {
    fn start(rig: &Rig, source_port: u16) -> Talk {
        let socket = bound(&rig.hosts[0], "10.8.0.1", source_port);
        socket.connect((HUB, PORT)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let talk = move || {
            while !stopping.load(Ordering::Relaxed) {
                let _ = socket.send(&[1; 18]);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Talk { stop, thread: Some(std::thread::spawn(talk)) }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Returns whether further datagrams arrive at the socket. Datagrams that have arrived before the call do not count.
fn hears(socket: &UdpSocket) -> bool {
    // Earlier datagrams do not count.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 64]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    socket.recv(&mut [0; 64]).is_ok()
}

/// Waits until no more datagrams arrive at the socket. Datagrams that are in flight may still arrive for a short time.
fn falls_silent(socket: &UdpSocket) {
    eventually("silence", PATIENCE, || if hears(socket) { Err(String::new()) } else { Ok(()) }).unwrap();
}

/// Waits until a datagram from the port `source_port` of h1 arrives that was received on the CPU `cpu`.
fn hears_on(socket: &UdpSocket, source_port: u16, cpu: u32) {
    // The kernel records the CPU only for connected sockets.
    socket.connect(("10.8.0.1", source_port)).unwrap();
    eventually(&format!("datagrams on CPU {cpu}"), PATIENCE, || {
        let heard = hears(socket);
        match sockopt::socket_incoming_cpu(socket) {
            Ok(found) if heard && found == cpu => Ok(()),
            found => Err(format!("{heard}, {found:?}")),
        }
    })
    .unwrap();
}

fn shown(rig: &Rig) -> Value {
    let all: Value = serde_json::from_str(&rig.ok(&["show", "steering", "--json"])).unwrap();
    all[0].clone()
}

/// Returns the number of packets that the steering policy has sent to a target.
fn sent(rig: &Rig, to: &str) -> u64 {
    let shown = shown(rig);
    let all = shown["sent"].as_array().unwrap();
    all.iter().find(|sent| sent["to"] == to).map_or(0, |sent| sent["packets"].as_u64().unwrap())
}

fn sent_until(rig: &Rig, to: &str, least: u64) {
    eventually(&format!("{least} packets to {to}"), PATIENCE, || match sent(rig, to) {
        packets if packets >= least => Ok(()),
        packets => Err(format!("{packets}: {}", shown(rig))),
    })
    .unwrap();
}

fn applied(rig: &Rig, text: &str) -> String {
    let file = rig.write("applied.toml", text);
    rig.ok(&["apply", file.to_str().unwrap()])
}

fn refused(rig: &Rig, arguments: &[&str], cause: &str) {
    let output = rig.trivium(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(cause), "{cause}: {said}");
}

fn last_cpu() -> u32 {
    let cpus = std::thread::available_parallelism().unwrap().get();
    u32::try_from(cpus - 1).unwrap()
}

#[test]
fn a_flow_goes_to_the_hub_while_others_are_bridged() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    address_hub(&rig);
    let configured = with_steering(&rig, "", &format!("capacity = 2\n{}", to_hub(7001, "to = \"kernel\"")));
    rig.start(&configured);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let socket = bound(rig.lab.hub(), HUB, PORT);
    let bridged = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    bridged.wait_for(300, PATIENCE).unwrap();
    let talk = Talk::start(&rig, 7001);
    assert!(hears(&socket), "{}", rig.ok(&["xdp", "status", "h1", "--seconds", "0"]));
    sent_until(&rig, "kernel", 100);
    let status = rig.ok(&["xdp", "status", "h1", "--seconds", "0"]);
    assert!(status.contains("flows > bridge > steering") && status.contains("steering_kernel"), "{status}");
    let listed = rig.ok(&["xdp", "steering", "flows"]);
    assert!(
        listed.contains(&format!("udp 10.8.0.1:7001 > {HUB}:9")) && listed.contains("kernel"),
        "{listed}"
    );
    let asked = format!("ip_src=10.8.0.1,ip_dst={HUB},udp,src_port=7001,dst_port=9");
    let said = rig.ok(&["explain", "--in", "h1", &asked]);
    assert!(
        said.contains(&format!("exact flow udp 10.8.0.1:7001 > {HUB}:9 of the port's steering")),
        "{said}"
    );
    assert!(said.ends_with("given to the kernel by the driver hook's steering\n"), "{said}");
    // Another flow of the host goes to the bridge, which does not know the destination address.
    let other = Talk::start(&rig, 7002);
    drop(talk);
    falls_silent(&socket);
    // An added flow is steered, too. One more flow exceeds the capacity.
    let said = add(&rig, "7002", &["--to", "kernel", "--expires", "4"]);
    assert!(said.contains("udp 10.8.0.1:7002 > 10.8.0.99:9: to kernel; 2 flows"), "{said}");
    assert!(hears(&socket));
    let third = [&["xdp", "steering", "add"], &flow_of("7003")[..], &["--to", "kernel"]].concat();
    refused(
        &rig,
        &third,
        "steering.s: its 2 slots for exact flows are full; remove flows, or give it a larger `capacity`",
    );
    let shown = shown(&rig);
    assert_eq!((shown["flows"].as_u64(), shown["live_flows"].as_u64()), (Some(2), Some(1)), "{shown}");
    falls_silent(&socket);
    eventually("its place is free", PATIENCE, || match add(&rig, "7002", &["--to", "kernel"]) {
        said if said.contains("2 flows") => Ok(()),
        said => Err(said),
    })
    .unwrap();
    assert!(hears(&socket));
    rig.ok(&[&["xdp", "steering", "remove"], &flow_of("7002")[..]].concat());
    falls_silent(&socket);
    // A flow of the configuration cannot be removed, and CPUs must exist.
    let theirs = [&["xdp", "steering", "remove"], &flow_of("7001")[..]].concat();
    refused(&rig, &theirs, "flow udp 10.8.0.1:7001 > 10.8.0.99:9 is the configuration's; change it there");
    let absent = format!("cpu {}", last_cpu() + 1);
    let asked = [&["xdp", "steering", "add"], &flow_of("7002")[..], &["--to", absent.as_str()]].concat();
    refused(&rig, &asked, &format!("there is no CPU {} that runs; use 0 to {}", last_cpu() + 1, last_cpu()));
    refused(&rig, &["xdp", "steering", "table", "s", "kernel"], "it has no table");
    let asked =
        [&["xdp", "steering", "add"], &flow_of("7002")[..], &["--to", "kernel", "--mark", "1"]].concat();
    refused(&rig, &asked, "it hands no marks on; give it `metadata = true`");
    // An invalid configuration changes nothing.
    let bad = with_steering(&rig, "", &format!("table = [\"{absent}\"]\n"));
    let file = rig.write("bad.toml", &bad);
    refused(
        &rig,
        &["apply", file.to_str().unwrap()],
        &format!("steering.s: there is no CPU {}", last_cpu() + 1),
    );
    let late = with_steering(&rig, "", &to_hub(7002, "to = \"kernel\""));
    let late = format!("{late}[port.z]\nkind = \"af_xdp\"\ndevice = \"nodev\"\n");
    let file = rig.write("late.toml", &late);
    assert!(!rig.trivium(&["apply", file.to_str().unwrap()]).status.success());
    falls_silent(&socket);
    // Another flow in the configuration with a larger capacity, and then none.
    let said = applied(&rig, &with_steering(&rig, "", &to_hub(7002, "to = \"kernel\"")));
    assert!(said.contains("~ steering.s: capacity 2 -> 65536, flow udp 10.8.0.1:7001"), "{said}");
    assert!(hears(&socket));
    let kernel = sent(&rig, "kernel");
    assert!(kernel >= 200, "counts go on: {kernel}");
    applied(&rig, &rig.configuration(""));
    falls_silent(&socket);
    assert!(rig.ok(&["show", "steering"]).contains("no steering"));
    drop(other);
    // The other flow was bridged throughout.
    let report = bridged.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
}

#[test]
fn a_flow_can_be_the_workers_though_the_hook_knows_its_stations() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    // The hosts' devices accept redirected frames.
    for host in &rig.hosts {
        host.run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
    }
    rig.start(&with_steering(&rig, "", ""));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let receiver = bound(&rig.hosts[1], "10.8.0.2", PORT);
    let sender = bound(&rig.hosts[0], "10.8.0.1", 7001);
    sender.connect(("10.8.0.2", PORT)).unwrap();
    let counters = || -> Value {
        let all: Value =
            serde_json::from_str(&rig.ok(&["xdp", "status", "h1", "--seconds", "0", "--json"])).unwrap();
        all[0]["counters"].clone()
    };
    let send = |count: u64| {
        for number in 0..count {
            sender.send(&number.to_be_bytes()).unwrap();
            let mut bytes = [0; 8];
            assert_eq!(receiver.recv(&mut bytes).unwrap(), 8);
            assert_eq!(u64::from_be_bytes(bytes), number, "in order");
        }
    };
    let figure = |name: &str| counters()[name].as_u64().unwrap();
    eventually("the hook answers", PATIENCE, || {
        let before = figure("bridged");
        send(10);
        if figure("bridged") >= before + 10 { Ok(()) } else { Err(counters().to_string()) }
    })
    .unwrap();
    let flow = ["--source", "10.8.0.1", "--destination", "10.8.0.2", "--protocol", "udp"];
    let flow = [&flow[..], &["--source-port", "7001", "--destination-port", "9"]].concat();
    rig.ok(&[&["xdp", "steering", "add"], &flow[..], &["--to", "worker"]].concat());
    let (bridged, steered) = (figure("bridged"), figure("steered"));
    send(50);
    assert!(figure("steered") >= steered + 50 && figure("bridged") < bridged + 50, "{}", counters());
    assert_eq!(sent(&rig, "worker"), 50);
    rig.ok(&[&["xdp", "steering", "remove"], &flow[..]].concat());
    eventually("the hook answers again", PATIENCE, || {
        let before = figure("bridged");
        send(10);
        if figure("bridged") >= before + 10 { Ok(()) } else { Err(counters().to_string()) }
    })
    .unwrap();
}

#[test]
fn flows_go_to_the_cpu_that_is_named() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    address_hub(&rig);
    let flow = to_hub(7001, &format!("to = \"cpu {}\"", last_cpu()));
    rig.start(&with_steering(&rig, "", &format!("table = [\"worker\"]\n{flow}")));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let socket = bound(rig.lab.hub(), HUB, PORT);
    let talk = Talk::start(&rig, 7001);
    hears_on(&socket, 7001, last_cpu());
    sent_until(&rig, &format!("cpu {}", last_cpu()), 100);
    drop(talk);
    // Other flows use the table: each CPU in turn, and then the bridge's worker.
    let _talk = Talk::start(&rig, 7002);
    socket.connect(("10.8.0.1", 7002)).unwrap();
    falls_silent(&socket);
    for cpu in 0..=last_cpu() {
        let said = rig.ok(&["xdp", "steering", "table", "s", &format!("cpu {cpu}")]);
        assert_eq!(said, format!("0-255: cpu {cpu}\n"));
        hears_on(&socket, 7002, cpu);
    }
    let shown = shown(&rig);
    let expected = serde_json::json!([{"to": format!("cpu {}", last_cpu()), "buckets": 256}]);
    assert_eq!((&shown["buckets"], &shown["live_table"]), (&expected, &Value::from(true)));
    let asked = format!("ip_src=10.8.0.1,ip_dst={HUB},udp,src_port=7002,dst_port=9");
    let said = rig.ok(&["explain", "--in", "h1", &asked]);
    assert!(said.contains("the table of the port's steering says cpu"), "{said}");
    let end = format!("given to the kernel on CPU {} by the driver hook's steering\n", last_cpu());
    assert!(said.ends_with(&end), "{said}");
    refused(&rig, &["xdp", "steering", "table", "s", "kernel", "kernel", "kernel"], "power of two");
    // The configuration's table is restored when the configuration changes it.
    applied(&rig, &with_steering(&rig, "", &format!("table = [\"kernel\", \"worker\"]\n{flow}")));
    let back = eventually("the configuration's table", PATIENCE, || {
        let table = rig.ok(&["xdp", "steering", "table", "s"]);
        if table == "0, 2, ..., 254: kernel\n1, 3, ..., 255: worker\n" { Ok(()) } else { Err(table) }
    });
    back.unwrap();
}

/// In generic mode, frames that the policy steers to another CPU stay on the CPU that has received them and are passed
/// to the kernel there. The kernel would lose frames that a program in generic mode redirects to another CPU.
#[test]
fn in_generic_mode_what_is_for_a_cpu_stays_with_the_kernel() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    address_hub(&rig);
    let flow = to_hub(7001, &format!("to = \"cpu {}\"", last_cpu()));
    rig.start(&with_steering(&rig, "mode = \"generic\"", &format!("table = [\"worker\"]\n{flow}")));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let socket = bound(rig.lab.hub(), HUB, PORT);
    let _talk = Talk::start(&rig, 7001);
    sent_until(&rig, "kernel", 100);
    assert!(hears(&socket), "{}", rig.ok(&["xdp", "status", "h1", "--seconds", "0"]));
    let why = "in generic mode packets for a CPU stay with the kernel on the one that they came to";
    assert!(rig.port("h1")["reasons"].to_string().contains(why), "{}", rig.port("h1"));
    assert!(rig.ok(&["doctor"]).contains(why));
    assert!(!rig.port("h2")["reasons"].to_string().contains(why), "h2 has no steering");
}

#[test]
fn a_steering_goes_on_through_a_kill_and_an_upgrade() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    address_hub(&rig);
    let configured =
        with_steering(&rig, "", &format!("table = [\"worker\"]\n{}", to_hub(7001, "to = \"kernel\"")));
    rig.start(&configured);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let socket = bound(rig.lab.hub(), HUB, PORT);
    let cpu = format!("cpu {}", last_cpu());
    add(&rig, "7002", &["--to", &cpu]);
    let talk = Talk::start(&rig, 7002);
    hears_on(&socket, 7002, last_cpu());
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    assert!(hears(&socket), "the hook goes on");
    hears_on(&socket, 7002, last_cpu());
    let before = std::time::Instant::now();
    let mut heard = 0;
    while before.elapsed() < Duration::from_secs(1) {
        heard += u64::from(socket.recv(&mut [0; 64]).is_ok());
    }
    assert!(heard > 100, "{heard} datagrams while nobody was there");
    rig.start(&configured);
    let shown_now = shown(&rig);
    assert_eq!((shown_now["flows"].as_u64(), shown_now["live_flows"].as_u64()), (Some(2), Some(1)));
    assert!(sent(&rig, &cpu) >= heard, "counted while nobody was there: {shown_now}");
    hears_on(&socket, 7002, last_cpu());
    // Targets also survive an upgrade, with a table that was set meanwhile.
    rig.ok(&["xdp", "steering", "table", "s", "worker", "kernel"]);
    let counted = sent(&rig, &cpu);
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert!(sent(&rig, &cpu) >= counted);
    let table = rig.ok(&["xdp", "steering", "table", "s"]);
    assert_eq!(table, "0, 2, ..., 254: worker\n1, 3, ..., 255: kernel\n");
    rig.until_reachable(1, 2);
    hears_on(&socket, 7002, last_cpu());
    // The successor can change the flows and the table.
    rig.ok(&[&["xdp", "steering", "remove"], &flow_of("7002")[..]].concat());
    rig.ok(&["xdp", "steering", "table", "s", "worker"]);
    falls_silent(&socket);
    drop(talk);
    let _talk = Talk::start(&rig, 7001);
    socket.connect(("10.8.0.1", 7001)).unwrap();
    assert!(hears(&socket));
    // After a restart, a flow that is no longer in the configuration is removed.
    rig.ok(&["stop"]);
    rig.start(&with_steering(&rig, "", "table = [\"worker\"]\n"));
    falls_silent(&socket);
}

#[test]
fn tc_reads_the_mark_that_the_hook_has_put_in_front() {
    require!("ip", "ping", "ethtool", "tc", "nft", "clang");
    let mut rig = Rig::new(2);
    address_hub(&rig);
    let object = rig.path("mark.o");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/xdp/mark.bpf.c");
    let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let compiled = std::process::Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-Wall", "-Werror", &include, "-c", source, "-o"])
        .arg(&object)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let flow = to_hub(7001, "to = \"kernel\"\nmark = 0x10");
    rig.start(&with_steering(&rig, "", &flow));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let hub = rig.lab.hub();
    hub.run(["tc", "qdisc", "add", "dev", "h1", "clsact"]).unwrap();
    let filter = ["tc", "filter", "add", "dev", "h1", "ingress", "bpf", "direct-action", "object-file"];
    hub.run([&filter[..], &[object.to_str().unwrap(), "section", "tc"]].concat()).unwrap();
    hub.run(["nft", "add table inet t; add chain inet t input { type filter hook input priority 0; }"])
        .unwrap();
    hub.run(["nft", "add rule inet t input meta mark 0x10 drop"]).unwrap();
    let socket = bound(hub, HUB, PORT);
    let talk = Talk::start(&rig, 7001);
    falls_silent(&socket);
    sent_until(&rig, "kernel", 100);
    falls_silent(&socket);
    // A flow without a mark, and one with another mark.
    let _other = Talk::start(&rig, 7002);
    add(&rig, "7002", &["--to", "kernel"]);
    eventually("it is heard", PATIENCE, || if hears(&socket) { Ok(()) } else { Err(String::new()) }).unwrap();
    add(&rig, "7002", &["--to", "kernel", "--mark", "0x10"]);
    falls_silent(&socket);
    add(&rig, "7002", &["--to", "kernel", "--mark", "0x11"]);
    eventually("it is heard", PATIENCE, || if hears(&socket) { Ok(()) } else { Err(String::new()) }).unwrap();
    assert_eq!(shown(&rig)["unmarked"], 0);
    assert!(rig.ok(&["show", "steering"]).contains("metadata, owner file"));
    drop(talk);
    // The bridge's sequence numbers on steered frames continue.
    rig.until_reachable(1, 2);
}

#[test]
fn a_steering_of_another_name_inherits_nothing() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    address_hub(&rig);
    let first = with_steering(&rig, "persist = true", "table = [\"worker\", \"kernel\"]\n");
    rig.start(&first);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    sent_until(&rig, "worker", 1);
    rig.ok(&["stop"]);
    // With an unchanged name, counters are kept.
    rig.start(&first);
    assert!(sent(&rig, "worker") >= 1, "{}", shown(&rig));
    rig.ok(&["stop"]);
    rig.lab.hub().run(["ip", "link", "set", "h1", "down"]).unwrap();
    rig.start(
        &first
            .replace("[steering.s]", "[steering.other]")
            .replace("steering = \"s\"", "steering = \"other\""),
    );
    let counted = shown(&rig);
    assert_eq!(counted["name"], "other");
    assert_eq!((sent(&rig, "worker"), sent(&rig, "kernel")), (0, 0), "{counted}");
}
