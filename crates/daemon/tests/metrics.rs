//! Tests monitoring of the real binary: `/metrics` and live events, over the Unix socket and over TCP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig, TOKEN};
use testbed::{Process, RawSender, eventually, require};

/// Sends frames of 100 bytes for an unknown destination from a host.
fn send(rig: &Rig, host: usize, count: u64) {
    let sender = RawSender::open(&rig.hosts[host - 1], "eth0").unwrap();
    let mut frame = vec![0_u8; 100];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    for _ in 0..count {
        sender.send(&frame).unwrap();
    }
}

/// Sends a GET request on the unix socket, and returns a reader of the body.
fn get(rig: &Rig, path: &str) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(rig.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: trivium\r\nconnection: close\r\n\r\n").unwrap();
    body(BufReader::new(stream), "200")
}

/// Reads the head of an HTTP response, which must have the status `status`, and returns a reader of the body.
fn body<R: BufRead>(mut answer: R, status: &str) -> R {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(answer.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    answer
}

/// Returns the value of one time series in the text of `/metrics`.
fn value(text: &str, series: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

/// Time series of the metrics with their increase per frame that h1 sends: packets and bytes received on h1 and
/// transmitted on h2 and h3, and drops at h1.
const SERIES: [(&str, u64); 6] = [
    ("trivium_port_receive_packets_total{port=\"h1\"}", 1),
    ("trivium_port_receive_bytes_total{port=\"h1\"}", 100),
    ("trivium_port_transmit_packets_total{port=\"h2\"}", 1),
    ("trivium_port_transmit_bytes_total{port=\"h2\"}", 100),
    ("trivium_port_transmit_packets_total{port=\"h3\"}", 1),
    ("trivium_port_drops_total{port=\"h1\"}", 0),
];

/// Sends `count` frames, and waits until the counters in the metrics have increased by exactly the numbers that these
/// frames cause.
fn counts(rig: &Rig, metrics: impl Fn() -> String, count: u64) {
    let read = || {
        let text = metrics();
        SERIES.map(|(series, _)| value(&text, series))
    };
    // Frames that the hook has forwarded are counted a short time later.
    let mut before = read();
    eventually("nothing else is under way", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(600));
        let now = read();
        if std::mem::replace(&mut before, now) == now { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .unwrap();
    send(rig, 1, count);
    let expected: Vec<u64> =
        before.iter().zip(SERIES).map(|(before, (_, each))| before + each * count).collect();
    eventually("every frame is counted, once", PATIENCE, || {
        let now = read();
        if now[..] == expected[..] { Ok(()) } else { Err(format!("{now:?}, not {expected:?}")) }
    })
    .unwrap();
}

#[test]
fn metrics_count_what_was_sent() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(3);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let metrics = || {
        let mut text = String::new();
        get(&rig, "/metrics").read_to_string(&mut text).unwrap();
        text
    };
    for count in [100, 57] {
        counts(&rig, metrics, count);
    }
    for port in ["h1", "h2", "h3"] {
        assert!(metrics().contains(&format!("trivium_port_up{{port=\"{port}\",kind=\"af_xdp\"}} 1\n")));
    }
    rig.lab.hub().run(["ip", "link", "set", "dev", "h3", "down"]).unwrap();
    eventually("h3 is down", PATIENCE, || {
        let text = metrics();
        if text.contains("trivium_port_up{port=\"h3\",kind=\"af_xdp\"} 0\n") { Ok(()) } else { Err(text) }
    })
    .unwrap();
}

/// An event of an event stream: its name and its data.
type Live = (String, serde_json::Value);

/// Reads a stream in a thread until the connection ends.
fn events(stream: impl BufRead + Send + 'static) -> Receiver<Live> {
    let (to, from) = channel();
    std::thread::spawn(move || {
        let mut name = String::new();
        for line in stream.lines().map_while(Result::ok) {
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ")
                && to.send((name.clone(), serde_json::from_str(data).unwrap())).is_err()
            {
                return;
            }
        }
    });
    from
}

/// Returns the next event that `wanted` accepts.
fn until(events: &Receiver<Live>, what: &str, wanted: impl Fn(&Live) -> bool) -> serde_json::Value {
    let (begin, mut passed) = (Instant::now(), Vec::new());
    while let Ok(event) = events.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
        if wanted(&event) {
            return event.1;
        }
        passed.push(event);
    }
    panic!("{what} never came: {passed:?}");
}

/// Sets a link down and up, and checks that the event stream reports both changes.
fn tells_of_a_link(rig: &Rig, stream: &Receiver<Live>) {
    let received = |event: &Live| event.1["ports"]["h1"]["rx_packets"].as_u64();
    let first = until(stream, "counters", |event| event.0 == "counters");
    let before = first["ports"]["h1"]["rx_packets"].as_u64().unwrap();
    send(rig, 1, 40);
    until(stream, "counters of 40 frames more", |event| {
        received(event).is_some_and(|now| now == before + 40)
    });
    let link = |event: &Live, up: bool| event.0 == "link" && event.1["port"] == "h2" && event.1["up"] == up;
    let hub = rig.lab.hub();
    hub.run(["ip", "link", "set", "dev", "h2", "down"]).unwrap();
    let down = until(stream, "the link going", |event| event.0 == "link");
    assert!(down["port"] == "h2" && down["up"] == false, "the first event is this one: {down}");
    hub.run(["ip", "link", "set", "dev", "h2", "up"]).unwrap();
    let up = until(stream, "the link coming", |event| event.0 == "link");
    assert!(up["port"] == "h2" && up["up"] == true, "the second: {up}");
    assert!(up["at_ns"].as_u64() > down["at_ns"].as_u64());
    hub.run(["ip", "link", "set", "dev", "h2", "name", "other"]).unwrap();
    hub.run(["ip", "link", "del", "dev", "other"]).unwrap();
    let gone = until(stream, "the device going", |event| link(event, false));
    assert!(gone["trouble"].as_str().is_some_and(|why| why.contains("deleted")), "{gone}");
}

#[test]
fn a_link_that_goes_is_an_event() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let mut command = Command::new(rig::TRIVIUM);
    command.env("TRIVIUM_SOCKET", rig.socket()).arg("top");
    let mut top = Process::start(command).unwrap();
    let mut tables = 0;
    let mut go_on = |top: &mut Process| {
        tables += 2;
        eventually("tables of top", PATIENCE, || {
            let text = top.output();
            assert!(top.is_running(), "{text}");
            if text.matches("PORT").count() >= tables { Ok(()) } else { Err(text) }
        })
        .unwrap();
        tables = top.output().matches("PORT").count();
    };
    go_on(&mut top);
    tells_of_a_link(&rig, &events(get(&rig, "/v1/events?interval_ms=100")));
    // A view of counters skips other events.
    go_on(&mut top);
}

/// A TLS connection over TCP, which is closed when this value is dropped.
struct Tls {
    client: Child,
}

impl Tls {
    fn connect(rig: &Rig, address: &str, cert: &Path) -> Tls {
        let line = ["openssl", "s_client", "-quiet", "-verify_return_error", "-connect", address, "-CAfile"];
        let mut command = rig.lab.hub().command(line);
        command.arg(cert).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Tls { client: command.spawn().unwrap() }
    }

    /// Sends a GET request, and returns a reader of the body.
    fn get(&mut self, path: &str, token: &str, status: &str) -> BufReader<ChildStdout> {
        let stream = self.client.stdin.as_mut().unwrap();
        let head = format!("host: localhost\r\nauthorization: Bearer {token}\r\nconnection: close");
        write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        stream.flush().unwrap();
        body(BufReader::new(self.client.stdout.take().unwrap()), status)
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

#[test]
fn both_come_over_tcp_to_those_who_have_the_token() {
    require!("ip", "ethtool", "openssl");
    let mut rig = Rig::new(3);
    // The hub is a separate network namespace, so the port is free.
    let address = "127.0.0.1:8443";
    let configuration = format!("{}{}", rig.configuration("persist = false"), rig.tcp_api(address));
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let cert = rig.path("cert.pem");
    let connect = || Tls::connect(&rig, address, &cert);
    for path in ["/metrics", "/v1/events"] {
        connect().get(path, &TOKEN.replace('0', "1"), "401");
    }
    let metrics = || {
        let mut text = String::new();
        connect().get("/metrics", TOKEN, "200").read_to_string(&mut text).unwrap();
        text
    };
    counts(&rig, metrics, 80);
    let mut stream = connect();
    tells_of_a_link(&rig, &events(stream.get("/v1/events?interval_ms=100", TOKEN, "200")));
}
