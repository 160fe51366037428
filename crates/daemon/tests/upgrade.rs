//! A hand-over of everything that a daemon can have: ports of all kinds under traffic, the MAC table, and the API's sockets
//! with clients at them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rig::{PATIENCE, Rig, TOKEN, TRIVIUM};
use testbed::{Namespace, RawSender, UdpFlow, eventually, require};

/// Where the API is offered in the hub.
const API: &str = "127.0.0.1:8443";
/// Packets a second of each flow: a TAP's queue holds half a second of both of its flows.
const RATE: u64 = 300;

/// One end of a flow: a namespace and its address.
type End<'a> = (&'a Namespace, &'a str);

/// What the API over TLS answers with this token.
fn over_tls(rig: &Rig, token: &str) -> String {
    let (cert, bearer) = (rig.path("cert.pem"), format!("Authorization: Bearer {token}"));
    let line = ["curl", "-sS", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"];
    let rest = ["--cacert", cert.to_str().unwrap(), "-H", &bearer];
    let answer = rig.lab.hub().run(line.into_iter().chain(rest).chain([&*format!("https://{API}/v1/ports")]));
    answer.unwrap_or_else(|error| error.to_string())
}

/// One after the other, until told to stop: requests that must all be answered.
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
    // One that never speaks again: whoever knows it afterwards was told.
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
    // The successor has the same guards, and all kinds of ports still in both directions.
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
        // Few enough that what a session takes to end does not fill all places.
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
    // Nobody listens behind a name that is left when the last of them ends.
    rig.ok(&["stop"]);
    eventually("their names go", PATIENCE, || {
        let left = ["br0.mgmt", "br0.snoop", "br1.mgmt", "ctl"].map(|name| rig.path(name).exists());
        if left.contains(&true) { Err(format!("{left:?}")) } else { Ok(()) }
    })
    .unwrap();
}
