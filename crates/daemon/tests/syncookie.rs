//! End-to-end tests of SYN cookies. The hooks of the daemon protect real services. Real clients connect during a flood,
//! and after the daemon was killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use port::pcap::Writer;
use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use serde_json::Value;
use testbed::{Host, Namespace, Process, eventually, require};

const PORT: u16 = 8080;

/// A TCP echo server that runs on separate threads until it is dropped.
struct Echo {
    stop: Arc<AtomicBool>,
}

impl Echo {
    fn start(at: &Namespace, address: &str) -> Echo {
        let address: SocketAddr = address.parse().unwrap();
        let listener = at.inside(|| Ok(TcpListener::bind(address))).unwrap().unwrap();
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => drop(std::thread::spawn(|| echo(stream))),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Echo { stop }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn echo(mut stream: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    while let Ok(length) = stream.read(&mut bytes) {
        if length == 0 || stream.write_all(&bytes[..length]).is_err() {
            return;
        }
    }
}

/// Starts a server that sends `hello` to one client.
fn greeter(at: &Namespace, address: &str) -> std::thread::JoinHandle<()> {
    let address: SocketAddr = address.parse().unwrap();
    let listener = at.inside(|| Ok(TcpListener::bind(address))).unwrap().unwrap();
    std::thread::spawn(move || drop(listener.accept().map(|(mut stream, _)| stream.write_all(b"hello"))))
}

fn connect(from: &Namespace, to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    let stream = from.inside(|| Ok(TcpStream::connect_timeout(&to, Duration::from_secs(5)))).unwrap()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends `bytes` bytes and receives the echo.
fn exchange(stream: &mut TcpStream, bytes: usize) {
    let chunk: Vec<u8> = (0..=255).cycle().take(1 << 15).collect();
    for _ in 0..bytes.div_ceil(chunk.len()) {
        stream.write_all(&chunk).unwrap();
        let mut back = vec![0; chunk.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == chunk);
    }
}

fn connects(from: &Namespace, to: &str) {
    let mut stream = connect(from, to).unwrap_or_else(|error| panic!("{to}: {error}"));
    exchange(&mut stream, 1);
}

/// Returns a configuration for a client on h1, a service on h2 and a flood from h3. The filter with the rule `rule`
/// applies to h1 and h3.
fn with_service(rig: &Rig, rule: &str) -> String {
    let filtered = |text: String, name: &str| {
        text.replace(&format!("device = \"{name}\""), &format!("device = \"{name}\"\nfilter = \"edge\""))
    };
    let ports = filtered(filtered(rig.configuration(""), "h1"), "h3");
    format!(
        "{ports}[[filter.edge.rule]]\nname = \"web\"\naction = \"syncookie\"\n\
         destination = [\"10.8.0.2\", \"fd00:8::2\"]\ndestination_port = {PORT}\n{rule}"
    )
}

fn apply(rig: &Rig, text: &str) -> String {
    let file = rig.write("applied.toml", text);
    rig.ok(&["apply", file.to_str().unwrap()])
}

fn cookies(rig: &Rig) -> Value {
    let shown: Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
    shown[0]["rules"][0]["cookies"].clone()
}

fn count(rig: &Rig, what: &str) -> u64 {
    let cookies = cookies(rig);
    cookies[what].as_u64().unwrap_or_else(|| panic!("{what}: {cookies}"))
}

/// Waits until the hooks of h1 and h2 forward packets between the two hosts. The hooks get the hosts' MAC addresses at
/// the first poll after a change. Only then does an open connection between the hosts continue without the daemon.
fn until_bridged(rig: &Rig, stream: &mut TcpStream) {
    let bridged = || {
        ["h1", "h2"].map(|port| {
            let text = rig.ok(&["xdp", "status", port, "--seconds", "0", "--json"]);
            let all: Value = serde_json::from_str(&text).unwrap();
            all[0]["counters"]["bridged"].as_u64().unwrap()
        })
    };
    eventually("the hooks answer", PATIENCE, || {
        let before = bridged();
        exchange(stream, 1);
        let after = bridged();
        if after.iter().zip(before).all(|(after, before)| after - before >= 10) {
            return Ok(());
        }
        Err(format!("{before:?}, {after:?}"))
    })
    .unwrap();
}

/// Creates hosts with IPv6 addresses and with GRO enabled on their devices. A veth device without GRO does not accept
/// the answers that a hook transmits.
fn rig() -> Rig {
    let rig = Rig::new(3);
    for (host, number) in rig.hosts.iter().zip(1..) {
        host.run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
        host.add_ipv6(&format!("fd00:8::{number}/64")).unwrap();
    }
    rig
}

fn sum(parts: &[&[u8]]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair[1]);
    let mut sum: u32 = parts.concat().chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

fn octets(mac: &str) -> Vec<u8> {
    mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// Writes a capture file with SYNs from 2000 clients that do not exist. The addresses of the clients are in the
/// service's network, so that the service sends its answers there.
fn flood_file(rig: &Rig) -> PathBuf {
    syns_file(rig, (0..2000).map(|number| (number, PORT)))
}

/// Writes a capture file with one SYN for each pair in `syns`. The first value of a pair identifies a client that does
/// not exist, and the second is a port of the service.
fn syns_file(rig: &Rig, syns: impl Iterator<Item = (u16, u16)>) -> PathBuf {
    let (from, to) = (octets(&rig.hosts[2].mac().unwrap()), octets(&rig.hosts[1].mac().unwrap()));
    let path = rig.path("syns.pcapng");
    let mut writer = Writer::pcapng(std::fs::File::create(&path).unwrap()).unwrap();
    let interface = writer.interface("flood").unwrap();
    for (number, port) in syns {
        let addresses = [10, 8, 0, 100 + u8::try_from(number % 100).unwrap(), 10, 8, 0, 2];
        let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        let header = sum(&[&ip, &addresses]).to_be_bytes();
        ip[10..12].copy_from_slice(&header);
        let mut tcp = [(1024 + number).to_be_bytes(), port.to_be_bytes()].concat();
        tcp.extend([0, 0, 1, 0, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
        let check = sum(&[&addresses, &[0, 6, 0, 20], &tcp]).to_be_bytes();
        tcp[16..18].copy_from_slice(&check);
        let frame = [&to[..], &from, &[8, 0], &ip, &addresses, &tcp, &[0; 6]].concat();
        writer.packet(interface, 0, 60, [&frame[..]], None).unwrap();
    }
    writer.flush().unwrap();
    path
}

/// Sends 20,000 SYNs per second from h3, until the returned process is dropped.
fn flood(rig: &Rig, file: &std::path::Path) -> Process {
    let mut command =
        rig.hosts[2].command([TRIVIUM, "xdp", "gen", "eth0", "--rate", "20000", "--seconds", "600"]);
    command.args(["--pcap", file.to_str().unwrap()]);
    Process::start(command).unwrap()
}

/// Returns the number of half-open connections (state SYN-RECV) in the host's kernel.
fn half_open(host: &Host) -> usize {
    let table = host.run(["cat", "/proc/net/tcp"]).unwrap();
    table.lines().filter(|line| line.split_whitespace().nth(3) == Some("03")).count()
}

fn syn_queue_until(host: &Host, what: &str, fits: impl Fn(usize) -> bool) {
    eventually(what, PATIENCE, || match half_open(host) {
        count if fits(count) => Ok(()),
        count => Err(format!("{count} half-open connections")),
    })
    .unwrap();
}

/// Returns a TCP counter (`TcpExt` in /proc/net/netstat) of the host's kernel.
fn tcp_extension(host: &Host, name: &str) -> u64 {
    let text = host.run(["cat", "/proc/net/netstat"]).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let at = lines[0].split_whitespace().position(|word| word == name).unwrap();
    lines[1].split_whitespace().nth(at).unwrap().parse().unwrap()
}

/// Returns the TCP window scale that the host's kernel uses for sockets with default buffers (docs/config.md).
fn window_scale(host: &Host) -> u32 {
    let text = host.run(["cat", "/proc/sys/net/ipv4/tcp_rmem"]).unwrap();
    let own: u32 = text.split_whitespace().nth(2).unwrap().parse().unwrap();
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    let most: u32 = most.trim().parse().unwrap();
    own.max(most).ilog2().saturating_sub(15).min(14)
}

/// Tests the scheme `retry`, which needs no support by the service's host. Clients try again on their own, and the
/// host's SYN queue stays empty. While no daemon runs, the hook continues to protect the service, and open connections
/// continue.
#[test]
fn a_flood_reaches_nobody_and_clients_connect_by_a_retry() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig();
    let service = format!("10.8.0.2:{PORT}");
    let retry = with_service(&rig, "mode = \"auto\"\nabove = 100\n");
    rig.start(&with_service(&rig, "mode = \"auto\"\nabove = 100\ndry_run = true\n"));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    rig.until_reachable(3, 2);
    // The host's own SYN cookies are off, so that it has no protection, and incomplete connections expire
    // soon.
    rig.hosts[1]
        .run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=0", "net.ipv4.tcp_synack_retries=1"])
        .unwrap();
    let _echo = Echo::start(&rig.hosts[1], &service);
    connects(&rig.hosts[0], &service);
    let mut early = connect(&rig.hosts[0], &service).unwrap();
    exchange(&mut early, 1);
    let file = flood_file(&rig);
    let flooding = flood(&rig, &file);
    syn_queue_until(&rig.hosts[1], "a dry run only counts: the queue is full", |count| count > 50);
    assert!(count(&rig, "answered") > 0 && cookies(&rig)["answering"] == true, "{}", cookies(&rig));

    apply(&rig, &retry);
    syn_queue_until(&rig.hosts[1], "the queue is empty", |count| count == 0);
    let answered = count(&rig, "answered");
    for _ in 0..5 {
        connects(&rig.hosts[0], &service);
    }
    // While the flood pauses, as on a busy machine, clients are not challenged.
    eventually("a client has brought its cookie", PATIENCE, || {
        connects(&rig.hosts[0], &service);
        if count(&rig, "valid") >= 1 { Ok(()) } else { Err(cookies(&rig).to_string()) }
    })
    .unwrap();
    exchange(&mut early, 1 << 20);
    let text = rig.ok(&["show", "filters"]);
    assert!(text.contains("SYN COOKIES") && text.contains("answering"), "{text}");
    let said = rig.ok(&["explain", "--in", "h3", "ip_src=10.8.0.3,ip_dst=10.8.0.2,tcp,dst_port=8080"]);
    assert!(said.contains("rule web of the port's filter"), "{said}");
    assert_eq!(half_open(&rig.hosts[1]), 0);
    assert!(count(&rig, "answered") > answered);

    // No daemon runs.
    until_bridged(&rig, &mut early);
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    exchange(&mut early, 1);
    connects(&rig.hosts[0], &service);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(half_open(&rig.hosts[1]), 0, "answered while nobody is there");
    rig.start(&retry);
    let adopted = count(&rig, "answered");
    assert!(adopted > answered + 2_000, "counted meanwhile: {answered}, {adopted}");
    rig.until_reachable(1, 2);
    connects(&rig.hosts[0], &service);
    exchange(&mut early, 1 << 20);
    assert_eq!(half_open(&rig.hosts[1]), 0);

    // After the flood, SYNs pass to the service again.
    drop(flooding);
    eventually("calm", PATIENCE, || match cookies(&rig) {
        cookies if cookies["answering"] == false => Ok(()),
        cookies => Err(cookies.to_string()),
    })
    .unwrap();
    let answered = count(&rig, "answered");
    connects(&rig.hosts[2], &service);
    assert_eq!(count(&rig, "answered"), answered);
}

/// The service's kernel accepts the cookies of the hook, over IPv4 and IPv6, with and without options.
#[test]
fn a_kernel_accepts_the_hooks_cookies_under_a_flood() {
    require!("ip", "ping", "ethtool", "ss");
    let mut rig = rig();
    let (v4, v6) = (format!("10.8.0.2:{PORT}"), format!("[fd00:8::2]:{PORT}"));
    let plain = with_service(&rig, "scheme = \"cookie\"\nmode = \"always\"\n");
    rig.start(&plain);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    rig.until_reachable(3, 2);
    rig.hosts[1].run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=2", "net.ipv4.tcp_timestamps=2"]).unwrap();
    let _echo = Echo::start(&rig.hosts[1], &v4);
    let _echo6 = Echo::start(&rig.hosts[1], &v6);
    let file = flood_file(&rig);
    let flooding = flood(&rig, &file);
    for to in [&v4, &v6] {
        // The first SYN passes to the service, which starts to use cookies.
        connects(&rig.hosts[0], to);
        let (valid, received) = (count(&rig, "valid"), tcp_extension(&rig.hosts[1], "SyncookiesRecv"));
        let mut kept = connect(&rig.hosts[0], to).unwrap();
        exchange(&mut kept, 1 << 20);
        let port = format!(":{}", kept.local_addr().unwrap().port());
        let text = rig.hosts[1].run(["ss", "-Htino", "dport", "=", &port]).unwrap();
        assert!(text.contains("ESTAB") && !text.contains("wscale"), "there is nowhere to keep it: {text}");
        for _ in 0..5 {
            connects(&rig.hosts[0], to);
        }
        assert_eq!(count(&rig, "valid"), valid + 6, "{to}: {}", cookies(&rig));
        assert_eq!(tcp_extension(&rig.hosts[1], "SyncookiesRecv"), received + 6, "{to}");
        exchange(&mut kept, 1 << 20);
    }
    assert_eq!(half_open(&rig.hosts[1]), 0);

    // With timestamps, TCP options are preserved.
    let scale = window_scale(&rig.hosts[1]);
    let scaled = with_service(&rig, &format!("scheme = \"cookie\"\nmode = \"always\"\nwscale = {scale}\n"));
    apply(&rig, &scaled);
    let valid = count(&rig, "valid");
    let mut kept = connect(&rig.hosts[0], &v4).unwrap();
    exchange(&mut kept, 4 << 20);
    assert_eq!(count(&rig, "valid"), valid + 1, "{}", cookies(&rig));
    let port = format!(":{}", kept.local_addr().unwrap().port());
    let text = rig.hosts[1].run(["ss", "-Htino", "dport", "=", &port]).unwrap();
    let client = rig.hosts[0].run(["ss", "-Htino", "sport", "=", &port]).unwrap();
    for text in [&text, &client] {
        assert!(
            text.contains(" sack ")
                && text.contains(" ts ")
                && text.contains(&format!("wscale:{scale},{scale}")),
            "{text}"
        );
    }

    // Segments of unknown connections are dropped now. Existing connections continue, across a kill, too.
    until_bridged(&rig, &mut kept);
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    exchange(&mut kept, 1);
    connects(&rig.hosts[0], &v4);
    rig.start(&scaled);
    rig.until_reachable(1, 2);
    exchange(&mut kept, 1 << 20);
    connects(&rig.hosts[0], &v6);
    assert_eq!(half_open(&rig.hosts[1]), 0);
    drop(flooding);
}

/// A flood of forged SYNs to all ports of an address uses up the number of SYNs that the rule passes. Nevertheless, the
/// first client of a service at this address that was idle until then can connect.
#[test]
fn a_quiet_service_is_reached_under_a_flood_to_all_ports() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig();
    let (spoken, silent) = ("10.8.0.2:22", "[fd00:8::2]:25");
    let ports = with_service(&rig, "scheme = \"cookie\"\nmode = \"always\"\n");
    rig.start(&ports.replace(&format!("destination_port = {PORT}"), "destination_port = \"1-65535\""));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    rig.until_reachable(3, 2);
    rig.hosts[1].run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=2"]).unwrap();
    let _echo = Echo::start(&rig.hosts[1], spoken);
    let _greeter = greeter(&rig.hosts[1], silent);
    let file = syns_file(&rig, (1024..=65_535).map(|port| (port % 2000, port)));
    let flooding = flood(&rig, &file);
    eventually("the flood uses up the SYNs of the rule", PATIENCE, || match count(&rig, "answered") {
        0..10_000 => Err(cookies(&rig).to_string()),
        _ => Ok(()),
    })
    .unwrap();
    connects(&rig.hosts[0], spoken);
    // The service sends first, so that only the client's ACK can open the connection.
    let mut greeted = connect(&rig.hosts[0], silent).unwrap();
    let mut greeting = [0; 5];
    greeted.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"hello");
    drop(flooding);
}

/// Tests SYN cookies for a service on the daemon's own machine. The doctor and `apply` report the kernel settings that
/// the service needs, and the service works with these settings.
#[test]
fn the_doctor_knows_what_a_service_needs() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(1);
    let hub = rig.lab.hub().clone();
    hub.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=1", "net.ipv4.tcp_timestamps=1"]).unwrap();
    let ports = |rule: &str| {
        let base = rig.configuration("").split("[bridge.br0]").next().unwrap().to_owned();
        format!(
            "{base}[port.h1]\nkind = \"af_xdp\"\ndevice = \"h1\"\nfilter = \"edge\"\n\
             [[filter.edge.rule]]\nname = \"web\"\naction = \"syncookie\"\nmode = \"always\"\n\
             destination = \"10.8.1.1\"\ndestination_port = {PORT}\n{rule}"
        )
    };
    let (cookie, retry) = (ports("scheme = \"cookie\"\nwscale = 7\n"), ports(""));
    rig.start(&retry);
    let findings = |rig: &Rig| rig.ok(&["doctor"]);
    assert!(!findings(&rig).contains("tcp_syncookies"), "nothing is needed for retries");
    let said = apply(&rig, &cookie);
    for text in [&said, &findings(&rig)] {
        assert!(text.contains("filter.edge") && text.contains("net.ipv4.tcp_syncookies is 1"), "{text}");
        assert!(text.contains("net.ipv4.tcp_timestamps is 1"), "{text}");
    }
    assert!(findings(&rig).contains("sysctl -w net.ipv4.tcp_syncookies=2"));
    hub.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=2", "net.ipv4.tcp_timestamps=2"]).unwrap();
    assert!(!findings(&rig).contains("tcp_syncookies is"), "{}", findings(&rig));
    let service = format!("10.8.1.1:{PORT}");
    let _echo = Echo::start(&hub, &service);
    for _ in 0..4 {
        connects(&rig.hosts[0], &service);
    }
    // The service's own cookie for the passed SYN is valid, too.
    assert_eq!((count(&rig, "answered"), count(&rig, "through")), (3, 1), "{}", cookies(&rig));
    assert_eq!(count(&rig, "valid"), 4);

    // Answers need a device that accepts them.
    rig.hosts[0].run(["ethtool", "-K", "eth0", "gro", "off"]).unwrap();
    eventually("the doctor misses it", PATIENCE, || match findings(&rig) {
        text if text.contains("answers to SYNs are lost") => Ok(()),
        text => Err(text),
    })
    .unwrap();
    rig.hosts[0].run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
    apply(&rig, &retry);
    connects(&rig.hosts[0], &service);
    assert!(!rig.ok(&["doctor"]).contains("answers to SYNs are lost"));
}
