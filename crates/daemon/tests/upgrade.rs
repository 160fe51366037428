//! Tests the hand-over of all resources of a daemon to its successor: ports of all kinds under traffic, the MAC table,
//! and the API's sockets with connected clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rig::leak::Leak;
use rig::{PATIENCE, Rig, TOKEN, TRIVIUM};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Stdio};
use std::time::Duration;

use testbed::{Namespace, Process, RawSender, UdpFlow, eventually, require};

/// Address of the API in the hub.
const API: &str = "127.0.0.1:8443";
/// Packets per second of each flow. At this rate, the queue of a TAP can hold the packets of its two flows for half a
/// second.
const RATE: u64 = 300;

/// One end of a flow: a namespace, and the IP address in this namespace.
type End<'a> = (&'a Namespace, &'a str);

/// Requests a list from the API over TLS with the given bearer token, and returns the HTTP status.
fn over_tls(rig: &Rig, token: &str) -> String {
    over_tls_at(rig, API, token)
}

/// Like [`over_tls`], at another address of the API.
fn over_tls_at(rig: &Rig, address: &str, token: &str) -> String {
    let (cert, bearer) = (rig.path("cert.pem"), format!("Authorization: Bearer {token}"));
    let line = ["curl", "-sS", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"];
    let rest = ["--cacert", cert.to_str().unwrap(), "-H", &bearer];
    let answer =
        rig.lab.hub().run(line.into_iter().chain(rest).chain([&*format!("https://{address}/v1/ports")]));
    answer.unwrap_or_else(|error| error.to_string())
}

/// Sends requests one after the other until `stop` is set, and returns the errors. Every request must be
/// answered.
fn keep_asking(stop: &AtomicBool, asked: &AtomicU32, ask: impl Fn() -> Result<(), String>) -> Vec<String> {
    let mut refused = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        refused.extend(ask().err());
        asked.fetch_add(1, Ordering::Relaxed);
    }
    refused
}

#[test]
fn ports_of_every_kind_and_all_clients_survive_an_upgrade() {
    require!("ip", "ping", "ethtool", "openssl", "curl");
    let mut rig = Rig::new(2);
    let (guest, tenant) = (rig.lab.namespace("guest").unwrap(), rig.lab.namespace("tenant").unwrap());
    let configuration = format!(
        "{}{}[port.vm]\nkind = \"tap\"\ndevice = \"vm0\"\nnamespace = \"{}\"\naddress = [\"10.8.0.60/24\"]\n\
         [port.host]\nkind = \"internal\"\naddress = [\"10.8.0.61/24\"]\n\
         [port.t]\nkind = \"veth\"\npeer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.8.0.62/24\"] }}\n\
         [bridge.br0.port.vm]\naccess = 10\n[bridge.br0.port.host]\naccess = 10\n[bridge.br0.port.t]\naccess = 10\n",
        rig.configuration(""),
        rig.tcp_api(API),
        guest.name(),
        tenant.name(),
    );
    rig.start(&configuration);
    let (one, two, hub) = (&*rig.hosts[0], &*rig.hosts[1], rig.lab.hub());
    let (one, two) = ((one, "10.8.0.1"), (two, "10.8.0.2"));
    let (vm, host, far) = ((&guest, "10.8.0.60"), (hub, "10.8.0.61"), (&tenant, "10.8.0.62"));
    let pairs: [(End<'_>, End<'_>); 7] =
        [(one, two), (one, vm), (vm, two), (two, host), (host, one), (one, far), (far, two)];
    for ((from, _), (_, to)) in pairs {
        eventually(&format!("{} reaching {to}", from.name()), PATIENCE, || {
            let line = ["ping", "-n", "-c", "1", "-W", "1", to];
            from.run(line).map(drop).map_err(|error| error.to_string())
        })
        .unwrap();
    }
    assert_eq!((over_tls(&rig, TOKEN), over_tls(&rig, "wrong")), ("200".into(), "401".into()));
    // An address that sends only once. A daemon that has it later received it by the hand-over.
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0x77, 0x88, 0xb5]);
    RawSender::open(two.0, "eth0").unwrap().send(&frame).unwrap();
    let silent = ("02:00:00:00:00:77".to_owned(), 10, "h2".to_owned());
    testbed::wait_until("the silent station", PATIENCE, || rig.stations().contains(&silent)).unwrap();
    let stations = rig.stations();
    assert_eq!(stations.len(), 6, "{stations:?}");

    let flows: Vec<UdpFlow> = (7_100..)
        .zip(pairs)
        .map(|(port, (from, to))| UdpFlow::between(from, to, RATE, port).unwrap())
        .collect();
    let (stop, unix, tcp) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let refused = std::thread::scope(|scope| {
        let over_unix = scope.spawn(|| {
            keep_asking(&stop, &unix, || {
                let output = rig.trivium(&["show", "ports"]);
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                if output.status.success() { Ok(()) } else { Err(said) }
            })
        });
        let over_tcp = scope.spawn(|| {
            keep_asking(&stop, &tcp, || {
                let answer = over_tls(&rig, TOKEN);
                if answer == "200" { Ok(()) } else { Err(answer) }
            })
        });
        let asked = |what: &str| {
            let (unix_so_far, tcp_so_far) = (unix.load(Ordering::Relaxed), tcp.load(Ordering::Relaxed));
            testbed::wait_until(what, PATIENCE, || {
                unix.load(Ordering::Relaxed) > unix_so_far + 2 && tcp.load(Ordering::Relaxed) > tcp_so_far + 2
            })
        };
        let done = asked("clients before").and_then(|()| {
            for flow in &flows {
                flow.wait_for(RATE / 10, PATIENCE)?;
            }
            rig.ok(&["upgrade", "--binary", TRIVIUM]);
            for flow in &flows {
                flow.wait_for(RATE / 2, PATIENCE)?;
            }
            asked("clients after")
        });
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
        [over_unix.join().unwrap(), over_tcp.join().unwrap()].concat()
    });
    for (flow, ((from, _), (_, to))) in flows.into_iter().zip(pairs) {
        let report = flow.stop().unwrap();
        assert_eq!(
            (report.lost(), report.overtaken, report.doubled),
            (0, 0, 0),
            "{from:?} to {to}: {report:?}"
        );
    }
    assert_eq!(refused, Vec::<String>::new(), "every client was answered");
    let (status, output) = rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    assert!(status.success() && output.contains("handed over") && !output.contains("WARN"), "{output}");
    assert_eq!(rig.stations(), stations);
    // The successor checks the token and forwards between all kinds of ports in both directions.
    assert_eq!((over_tls(&rig, TOKEN), over_tls(&rig, "wrong")), ("200".into(), "401".into()));
    for ((from, _), (_, to)) in pairs {
        from.run(["ping", "-n", "-c", "3", "-i", "0.01", "-W", "2", to]).unwrap();
    }
}

#[test]
fn who_comes_to_other_sockets_meanwhile_is_answered() {
    require!("ip", "ethtool", "ovs-ofctl", "ovs-appctl");
    let mut rig = Rig::new(2);
    let control = rig.path("ctl");
    let text = rig.configuration("").replace("[memory]", &format!("unixctl = {control:?}\n[memory]"))
        + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n[bridge.br1]\n[bridge.br1.openflow]\n";
    rig.start(&text);
    let run = |client: &mut Command| {
        let output = client.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    let show = |bridge: &str| {
        let socket = format!("unix:{}", rig.path(&format!("{bridge}.mgmt")).display());
        run(Command::new("ovs-ofctl").args(["-O", "OpenFlow13", "--timeout=20", "show", &socket]))
    };
    let (one, two) = (|| show("br0"), || show("br1"));
    let version = || run(Command::new("ovs-appctl").args(["-T", "20", "-t"]).arg(&control).arg("version"));
    let snoop = rig.path("br0.snoop");
    let hear = || {
        // The pause is long enough that connections which are being closed do not use all places for clients.
        std::thread::sleep(std::time::Duration::from_millis(5));
        UnixStream::connect(&snoop).map(drop).map_err(|error| error.to_string())
    };
    let asks: [&(dyn Fn() -> Result<(), String> + Sync); 4] = [&one, &two, &version, &hear];
    let (stop, counts) = (AtomicBool::new(false), [const { AtomicU32::new(0) }; 4]);
    let until = &stop;
    let refused = std::thread::scope(|scope| {
        let clients: Vec<_> = asks
            .iter()
            .zip(&counts)
            .map(|(ask, count)| scope.spawn(move || keep_asking(until, count, ask)))
            .collect();
        let answered = || {
            let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            testbed::wait_until("each client to be answered", PATIENCE, || {
                counts.iter().zip(before).all(|(count, before)| count.load(Ordering::Relaxed) > before + 2)
            })
        };
        let done = (0..3).try_for_each(|_| {
            answered()?;
            let output = rig.trivium(&["upgrade", "--binary", TRIVIUM]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            answered()
        });
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(refused, Vec::<String>::new(), "every client was answered");
    // No socket file remains when the last process ends.
    rig.ok(&["stop"]);
    eventually("their names go", PATIENCE, || {
        let left = ["br0.mgmt", "br0.snoop", "br1.mgmt", "ctl"].map(|name| rig.path(name).exists());
        if left.contains(&true) { Err(format!("{left:?}")) } else { Ok(()) }
    })
    .unwrap();
}

#[test]
fn a_successor_that_cannot_guard_the_api_changes_nothing() {
    require!("ip", "ping", "ethtool", "openssl", "curl");
    let mut rig = Rig::new(2);
    let text = format!("{}{}", rig.configuration(""), rig.tcp_api(API));
    rig.start(&text);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], RATE).unwrap();
    flow.wait_for(RATE / 10, PATIENCE).unwrap();
    // The file was rewritten while the daemon ran, which had read it at its start.
    let token = rig.path("token");
    std::fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
    let output = rig.trivium(&["upgrade", "--binary", TRIVIUM]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("chmod 600"), "{said}");
    assert!(rig.daemon().is_running(), "{}", rig.daemon().output());
    assert_eq!(over_tls(&rig, TOKEN), "200");
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    flow.wait_for(RATE / 10, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    assert_eq!(over_tls(&rig, TOKEN), "200");
}

/// Returns the findings with severity `error` that `doctor` reports for an object.
fn errors_of(rig: &Rig, object: &str) -> Vec<String> {
    let output = rig.trivium(&["doctor", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = all.as_array().unwrap().iter();
    let errors = all.filter(|one| one["object"] == object && one["severity"] == "error");
    errors.map(|one| one["finding"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_fails_behind_an_upgrade_ends_nothing_and_opens_no_filter() {
    require!("ip", "ping", "ethtool");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(2);
    let fault = rig.path("fault");
    let ports =
        rig.configuration("persist = false").replace("device = \"h", "filter = \"edge\"\ndevice = \"h");
    let text = format!(
        "{ports}[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\nsource = \"10.8.0.1\"\n"
    );
    rig.start_with(&text, &[("TRIVIUM_FAULT", "hand-over"), ("TRIVIUM_FAULT_FILE", fault.to_str().unwrap())]);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    let flood = |rig: &Rig| {
        let shown: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
        shown[0]["rules"][0]["packets"].as_u64().unwrap()
    };
    let more_than = |rig: &Rig, before: u64| {
        testbed::wait_until("more of the flood", PATIENCE, || flood(rig) > before).unwrap();
        flood(rig)
    };
    let counted = more_than(&rig, 0);
    // The kernel receives datagrams to the port's device only without the port's hook.
    let leak = Leak::start(&rig, &rig.hosts[0]);
    // The first configuration fails after the hooks have their filters.
    std::fs::write(&fault, "filters refuse\n").unwrap();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    rig.until_reachable(1, 2);
    assert_eq!(errors_of(&rig, "config").len(), 1);
    let counted = more_than(&rig, counted);
    assert_eq!(leak.arrived(), 0, "all ports keep their hooks");
    std::fs::remove_file(&fault).unwrap();
    rig.ok(&["apply", rig.write("trivium.toml", &text).to_str().unwrap()]);
    // The port is opened again, and the first configuration fails, which would set its filter.
    std::fs::write(&fault, "port:h1 refuse\napply refuse\n").unwrap();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    rig.until_reachable(1, 2);
    assert_eq!(errors_of(&rig, "config").len(), 1);
    let stands = |flow: &UdpFlow, when: &str| {
        flow.wait_until_sent(1_000, PATIENCE).unwrap();
        assert_eq!(flow.received(), 0, "{when}");
    };
    stands(&flow, "though the configuration was refused");
    assert_eq!(leak.arrived(), 0, "{}", rig.daemon().output());
    std::fs::remove_file(&fault).unwrap();
    let file = rig.write("trivium.toml", &text);
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert_eq!(errors_of(&rig, "config"), Vec::<String>::new());
    let counted = more_than(&rig, counted);
    // A successor ends after the predecessor has released a port for the successor, before and after the successor has
    // opened the port.
    for step in ["parts", "rebuilt"] {
        std::fs::write(&fault, format!("port:h1 refuse\n{step} kill\n")).unwrap();
        assert!(!rig.trivium(&["upgrade", "--binary", TRIVIUM]).status.success());
        rig.until_reachable(1, 2);
        assert_eq!(leak.arrived(), 0, "{step}");
    }
    // A successor ends after it received everything. The predecessor opens its sockets again.
    std::fs::write(&fault, "committed kill\n").unwrap();
    assert!(!rig.trivium(&["upgrade", "--binary", TRIVIUM]).status.success());
    std::fs::remove_file(&fault).unwrap();
    rig.until_reachable(1, 2);
    more_than(&rig, counted);
    stands(&flow, "after all sockets were opened anew");
    assert_eq!(leak.arrived(), 0);
    drop(leak);
    // A device is deleted after the successor took over its port and before the successor applies its configuration.
    std::fs::write(&fault, "apply hang\n").unwrap();
    let upgrade = Viewer::start(&rig, &["upgrade", "--binary", TRIVIUM]);
    let reached = fault.with_extension("apply");
    testbed::wait_until("the successor to hang", PATIENCE, || reached.exists()).unwrap();
    rig.lab.hub().run(["ip", "link", "del", "h2"]).unwrap();
    std::fs::remove_file(&fault).unwrap();
    rig.port_until("h2", "without its device", |port| port["trouble"].is_string());
    drop(upgrade);
    assert_eq!(errors_of(&rig, "config"), Vec::<String>::new());
    let counted = flood(&rig);
    more_than(&rig, counted);
}

#[test]
fn a_daemon_that_is_told_to_end_during_an_upgrade_ends_and_claims_its_pins_until_then() {
    require!("ip", "ping", "ethtool", "ovs-appctl");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(2);
    let fault = faulty(&mut rig);
    std::fs::write(&fault, "state hang\n").unwrap();
    let upgrade = Viewer::start(&rig, &["upgrade", "--binary", TRIVIUM]);
    let reached = fault.with_extension("state");
    testbed::wait_until("the successor to hang", PATIENCE, || reached.exists()).unwrap();
    // Neither process runs workers now, but the pins are still theirs.
    let released = rig.lab.hub().command([TRIVIUM, "release", "h1"]).output().unwrap();
    let said = String::from_utf8_lossy(&released.stderr).into_owned();
    assert!(said.contains("a daemon that runs"), "{said}");
    let daemon = rig.daemon.take().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (status, output) = daemon.finish(PATIENCE).unwrap();
    assert!(status.success() && !output.contains("handed over"), "{output}");
    drop(upgrade);
    assert_eq!(rig.pins().len(), 2, "what persists stays: {:?}", rig.pins());
    assert!(!rig.socket().exists(), "nobody listens behind its name");
    std::fs::remove_file(&fault).unwrap();
    let text = rig.configuration("ring_size = 4096");
    rig.start(&text);
    rig.until_reachable(1, 2);
}

/// Faults of a successor before it owns all resources. Each fault is a step of the hand-over and a kind: `kill` is a
/// SIGKILL, and `refuse` is an error.
const BEFORE: [(&str, &str); 15] = [
    ("start", "kill"),
    ("offer", "refuse"),
    ("prepared", "kill"),
    ("ready", "kill"),
    ("ready", "refuse"),
    ("state", "kill"),
    ("port:h1", "kill"),
    ("port:h2", "kill"),
    ("parts", "refuse"),
    ("parts", "kill"),
    ("rebuilt", "refuse"),
    ("rebuilt", "kill"),
    ("resumed", "kill"),
    ("commit", "refuse"),
    ("commit", "kill"),
];
/// Faults of a successor after it owns all resources, each with a step of the hand-over and a kind.
const AFTER: [(&str, &str); 3] = [("committed", "kill"), ("run", "kill"), ("run", "refuse")];

/// Starts a daemon with a socket for `ovs-appctl`. In an upgrade, the successor process fails at the steps that a fault
/// file names. Returns the path of the fault file.
fn faulty(rig: &mut Rig) -> std::path::PathBuf {
    let (control, fault) = (rig.path("ctl"), rig.path("fault"));
    let text = rig.configuration("ring_size = 4096");
    let text = text.replace("[memory]", &format!("unixctl = {control:?}\n[memory]"));
    rig.start_with(&text, &[("TRIVIUM_FAULT", "hand-over"), ("TRIVIUM_FAULT_FILE", fault.to_str().unwrap())]);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    fault
}

/// A client process with continuous output (such as `trivium top`) that runs until this value is dropped.
struct Viewer(Child);

impl Viewer {
    fn start(rig: &Rig, arguments: &[&str]) -> Viewer {
        let mut command = Command::new(TRIVIUM);
        command.env("TRIVIUM_SOCKET", rig.socket()).args(arguments);
        Viewer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs an upgrade in which the successor fails at `step`, by the kind of fault `way`. The upgrade must fail.
fn fails(rig: &mut Rig, fault: &std::path::Path, step: &str, way: &str) {
    std::fs::write(fault, format!("{step} {way}\n")).unwrap();
    let output = rig.trivium(&["upgrade", "--binary", TRIVIUM]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{step} {way}: {said}");
    assert!(rig.daemon().is_running(), "{step} {way}: {}", rig.daemon().output());
    std::fs::remove_file(fault).unwrap();
}

/// Checks that all parts of the daemon work: multicast snooping processes joins, one capture can start, and device
/// changes are detected.
fn nothing_is_deaf(rig: &Rig, number: u8) {
    let group = Ipv4Addr::new(239, 1, 2, number);
    let listener = rig.hosts[1]
        .inside(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.join_multicast_v4(&group, &"10.8.0.2".parse().unwrap()).unwrap();
            Ok(socket)
        })
        .unwrap();
    eventually(&format!("the join to {group}"), PATIENCE, || {
        let mut command = Command::new("ovs-appctl");
        let output =
            command.args(["-T", "20", "-t"]).arg(rig.path("ctl")).args(["mdb/show", "br0"]).output().unwrap();
        let known = String::from_utf8_lossy(&output.stdout).into_owned();
        if known.contains(&group.to_string()) { Ok(()) } else { Err(known) }
    })
    .unwrap();
    drop(listener);
    // A capture under traffic. The preceding capture may need a short time to end.
    eventually("a capture", PATIENCE, || {
        let output = rig.trivium(&["capture", "h1", "-n", "2"]);
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    })
    .unwrap();
}

/// Waits until each frame of the frame memory is either free or in a queue of a port, which shows that no frame was
/// lost.
fn frames_are_all_there(rig: &Rig) {
    eventually("all frames", PATIENCE, || {
        let all: serde_json::Value = serde_json::from_str(&rig.ok(&["doctor", "--json"])).unwrap();
        let finding = all.as_array().unwrap().iter().find(|one| one["object"] == "memory.frames").unwrap();
        let text = finding["finding"].as_str().unwrap().to_owned();
        if text.ends_with(", 0 in packets") { Ok(()) } else { Err(text) }
    })
    .unwrap();
}

#[test]
fn a_successor_that_fails_at_any_step_changes_nothing() {
    require!("ip", "ping", "ethtool", "ovs-appctl");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(2);
    let fault = faulty(&mut rig);
    let rounds = if std::env::var_os("TRIVIUM_SOAK").is_some() { 100 / BEFORE.len() + 1 } else { 1 };
    let before = rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    for round in 0..rounds {
        for (at, (step, way)) in BEFORE.into_iter().enumerate() {
            flow.wait_for(50, PATIENCE).unwrap();
            let view = if at % 2 == 0 { ["capture", "all"] } else { ["trace", "udp"] };
            let viewer = Viewer::start(&rig, &view);
            if round % 2 == 0 && at % 3 == 0 {
                // A client disconnects during the hand-over.
                std::thread::scope(|scope| {
                    scope.spawn(|| drop(viewer));
                    fails(&mut rig, &fault, step, way);
                });
            } else {
                fails(&mut rig, &fault, step, way);
            }
            if at % 4 == 3 {
                nothing_is_deaf(&rig, u8::try_from(at).unwrap());
            }
        }
    }
    flow.wait_for(500, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    frames_are_all_there(&rig);
    // Counters are kept and continue.
    let counted = rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap();
    assert!(counted >= before + report.sent, "{counted} of {}", before + report.sent);
    // An upgrade that succeeds.
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    rig.until_reachable(2, 1);
    let after = rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap();
    assert!(after >= counted, "{after} of {counted}");
    frames_are_all_there(&rig);
    nothing_deaf_without_traffic(&rig);
}

/// Sends a flow between two hosts and runs the checks of [`nothing_is_deaf`].
fn nothing_deaf_without_traffic(rig: &Rig) {
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 200).unwrap();
    nothing_is_deaf(rig, 200);
    flow.stop().unwrap();
}

#[test]
fn a_successor_that_fails_with_everything_leaves_a_daemon_that_goes_on() {
    require!("ip", "ping", "ethtool", "ovs-appctl");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(2);
    let fault = faulty(&mut rig);
    for (step, way) in AFTER {
        let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 500).unwrap();
        flow.wait_for(50, PATIENCE).unwrap();
        let viewer = Viewer::start(&rig, &["capture", "all"]);
        fails(&mut rig, &fault, step, way);
        drop(viewer);
        rig.until_reachable(2, 1);
        nothing_is_deaf(&rig, 1);
        let report = flow.stop().unwrap();
        // Sockets are opened again, which loses packets, but does not reorder or corrupt them.
        assert_eq!((report.overtaken, report.doubled), (0, 0), "{report:?}");
        frames_are_all_there(&rig);
    }
    // A port that cannot be resumed is opened again. The queue is free at once, because the predecessor
    // releases it.
    for (faults, succeeds) in [
        ("port:h1 refuse\nrelease kill\n", false),
        ("port:h1 refuse\nrebuilt kill\n", false),
        ("port:h1 refuse\n", true),
    ] {
        std::fs::write(&fault, faults).unwrap();
        let begin = std::time::Instant::now();
        let output = rig.trivium(&["upgrade", "--binary", TRIVIUM]);
        assert_eq!(
            output.status.success(),
            succeeds,
            "{faults}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(begin.elapsed() < PATIENCE, "{faults}");
        rig.until_reachable(1, 2);
        frames_are_all_there(&rig);
    }
    std::fs::remove_file(&fault).unwrap();
    nothing_deaf_without_traffic(&rig);
}

#[test]
fn a_predecessor_whose_workers_cannot_be_stopped_ends() {
    require!("ip");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(1);
    let hang = rig.path("hang");
    let text = format!("{}[port.faulty]\nkind = \"null\"\n", rig.configuration("persist = false"));
    rig.start_with(
        &text,
        &[("TRIVIUM_FAULT", "worker-hang"), ("TRIVIUM_FAULT_FILE", hang.to_str().unwrap())],
    );
    std::fs::write(&hang, "").unwrap();
    let output = rig.trivium(&["upgrade", "--binary", TRIVIUM]);
    assert!(!output.status.success());
    let process: Process = rig.daemon.take().unwrap();
    let (status, output) = process.finish(PATIENCE + Duration::from_secs(20)).unwrap();
    assert!(!status.success() && output.contains("the workers cannot be stopped"), "{output}");
    // A supervisor restarts the daemon.
    std::fs::remove_file(&hang).unwrap();
    rig.start(&text);
}

/// If the slow path of a predecessor process cannot be stopped, the predecessor ends and does not resume its data
/// plane. The slow path may still use frames, which a resumed data plane would count as free.
#[test]
fn a_predecessor_whose_slow_path_cannot_be_stopped_ends() {
    require!("ip");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(1);
    let hang = rig.path("hang");
    let text = format!("{}[bridge.br0.openflow]\n", rig.configuration("persist = false"));
    rig.start_with(
        &text,
        &[("TRIVIUM_FAULT", "slow-path-hang"), ("TRIVIUM_FAULT_FILE", hang.to_str().unwrap())],
    );
    std::fs::write(&hang, "").unwrap();
    let output = rig.trivium(&["upgrade", "--binary", TRIVIUM]);
    assert!(!output.status.success());
    let process: Process = rig.daemon.take().unwrap();
    let (status, output) = process.finish(PATIENCE + Duration::from_secs(20)).unwrap();
    assert!(!status.success() && output.contains("unknown flows are still being decided"), "{output}");
    assert!(!output.contains("this process goes on"), "{output}");
    // A supervisor restarts the daemon.
    std::fs::remove_file(&hang).unwrap();
    rig.start(&text);
}

#[test]
fn settings_of_memory_wait_for_a_restart_through_an_upgrade() {
    require!("ip");
    let mut rig = Rig::new(1);
    let text = rig.configuration("persist = false");
    rig.start(&text);
    let more = text
        .replace("frames = 32768", "frames = 65536")
        .replace("[bridge.br0]\n", "[bridge.br0]\n[bridge.br9]\n");
    let file = rig.write("more.toml", &more);
    let apply = ["apply", file.to_str().unwrap()];
    rig.ok(&apply);
    for when in ["before", "after"] {
        let plan = rig.ok(&["apply", "--dry-run", file.to_str().unwrap()]);
        assert!(
            plan.contains("memory.frames: 32768 -> 65536 (needs a restart)"),
            "{when} the upgrade: {plan}"
        );
        if when == "before" {
            rig.ok(&["upgrade", "--binary", TRIVIUM]);
        }
    }
}

/// Checks that an upgrade applies the group, the scope and the TCP address of the API together, and that the path of
/// the API's Unix socket waits for a restart.
#[test]
fn access_to_the_api_changes_as_a_whole_with_an_upgrade() {
    require!("ip", "openssl", "curl");
    let mut rig = Rig::new(1);
    let members = |group: &str, scope: &str| format!("group = {group:?}\ngroup_scope = {scope:?}\n[memory]");
    let base = rig.configuration("persist = false");
    let tcp = rig.tcp_api(API);
    let before = base.replace("[memory]", &members("daemon", "read"));
    rig.start(&format!("{before}{tcp}"));
    let group = |rig: &Rig| {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::metadata(rig.socket()).unwrap();
        (file.gid(), file.mode() & 0o7777)
    };
    let before = group(&rig);
    let moved = "127.0.0.1:8444";
    let after = base.replace("[memory]", &members("bin", "root")).replace("api.sock", "other.sock");
    let file = rig.write("other.toml", &format!("{after}{}", tcp.replace(API, moved)));
    let file = file.to_str().unwrap();
    let lines = |rig: &Rig| {
        let plan = rig.ok(&["apply", "--dry-run", file]);
        let waits = |field: &&str| plan.contains(&format!("daemon.{field}"));
        ["api", "group:", "group_scope", "tcp.listen"].into_iter().filter(waits).collect::<Vec<_>>()
    };
    rig.ok(&["apply", file]);
    assert_eq!(lines(&rig), ["api", "group:", "group_scope", "tcp.listen"]);
    assert_eq!(group(&rig), before);
    assert_eq!(over_tls(&rig, TOKEN), "200");
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    let after = group(&rig);
    assert!(after.0 != before.0 && after.1 == before.1, "{before:?} to {after:?}");
    assert_eq!(lines(&rig), ["api"]);
    assert_eq!(over_tls_at(&rig, moved, TOKEN), "200");
    assert_ne!(over_tls(&rig, TOKEN), "200", "the old address is closed");
    // The next upgrade hands over the new sockets.
    rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert_eq!((group(&rig), over_tls_at(&rig, moved, TOKEN)), (after, "200".to_owned()));
    // The last process removes the socket file.
    rig.ok(&["stop"]);
    eventually("the socket file to go", PATIENCE, || {
        if rig.socket().exists() { Err("it exists".to_owned()) } else { Ok(()) }
    })
    .unwrap();
}

#[test]
fn a_stop_is_over_when_it_says_so() {
    require!("ip");
    let mut rig = Rig::new(1);
    let text = rig.configuration("");
    rig.start(&text);
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    let file = rig.path("viewer.pcapng");
    let viewer = Viewer::start(&rig, &["capture", "all", "-w", file.to_str().unwrap()]);
    // The client creates its file when the daemon has started the capture.
    eventually("the capture", PATIENCE, || {
        std::fs::metadata(&file).map(drop).map_err(|error| error.to_string())
    })
    .unwrap();
    let events = Command::new("curl")
        .args(["-sN", "--unix-socket"])
        .arg(rig.socket())
        .arg("http://t/v1/events")
        .stdout(Stdio::piped())
        .spawn();
    let mut events = Viewer(events.unwrap());
    let mut first = [0; 16];
    std::io::Read::read_exact(events.0.stdout.as_mut().unwrap(), &mut first).unwrap();
    let begin = std::time::Instant::now();
    rig.ok(&["stop"]);
    assert!(
        begin.elapsed() < Duration::from_millis(2_500),
        "live views hold nothing up: {:?}",
        begin.elapsed()
    );
    // The port's hook has survived the daemon, and no process claims it any more.
    let released = rig.lab.hub().command([TRIVIUM, "release"]).output().unwrap();
    let said = String::from_utf8_lossy(&released.stderr).into_owned();
    assert!(!said.contains("a daemon that runs"), "{said}");
    drop((viewer, events));
}
