//! Tests changes of devices that a running daemon uses, under traffic. Devices are deleted, renamed, set down and up,
//! or removed with their namespace, and their MTU changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use port::af_xdp::{AfXdpConfig, AfXdpQueue};
use port::{Depot, FrameMemory, HugePages, MemoryConfig, Queue};
use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::{FlowReport, UdpFlow, eventually, require};

#[test]
fn devices_are_deleted_renamed_and_set_down_under_traffic() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let (hub, mac) = (rig.lab.hub().clone(), rig.hosts[2].mac().unwrap());

    hub.run(["ip", "link", "set", "dev", "h3", "name", "other"]).unwrap();
    rig.port_until("h3", "renamed", |port| port["device"] == "other" && port["link_up"] == true);
    rig.until_reachable(1, 3);

    hub.run(["ip", "link", "set", "dev", "other", "down"]).unwrap();
    rig.port_until("h3", "down", |port| port["link_up"] == false);
    hub.run(["ip", "link", "set", "dev", "other", "up"]).unwrap();
    rig.port_until("h3", "up", |port| port["link_up"] == true);
    rig.until_reachable(1, 3);

    hub.run(["ip", "link", "set", "dev", "other", "mtu", "1400"]).unwrap();
    rig.port_until("h3", "resized", |port| port["mtu"] == 1400);
    rig.until_reachable(1, 3);

    hub.run(["ip", "link", "del", "dev", "other"]).unwrap();
    rig.port_until("h3", "in trouble", |port| {
        port["trouble"].as_str().is_some_and(|why| why.contains("deleted"))
    });
    let doctor = rig.trivium(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("error    port.h3"));
    // The device returns under its name, and the daemon opens the port again.
    rig.hosts[2].plug_again(&hub, &mac, &[]).unwrap();
    rig.pin_neighbours();
    rig.until_reachable(1, 3);

    flow.wait_for(200, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "the others never noticed: {report:?}");
    assert!(rig.daemon().is_running());
}

/// Makes a change of h2's device while one flow is sent to h2 and another flow is sent by h2. Both flows must continue
/// after the change. Returns the reports of the flows.
fn through_the_port(rig: &mut Rig, change: impl FnOnce(&Rig, &[UdpFlow; 2])) -> [FlowReport; 2] {
    let (one, two) = (&rig.hosts[0], &rig.hosts[1]);
    // Each run has another UDP port, so that packets in flight of an earlier flow are not counted.
    static PORT: AtomicU16 = AtomicU16::new(7100);
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let start = |from, to| UdpFlow::start_on(from, to, 2_000, port).unwrap();
    let flows = [start(one, two), start(two, one)];
    let go_on = |what: &str| {
        for flow in &flows {
            flow.wait_for(300, PATIENCE)
                .unwrap_or_else(|error| panic!("{what}: {error}: {}", rig.port("h2")));
        }
    };
    go_on("before");
    change(rig, &flows);
    go_on("afterwards");
    let reports = flows.map(|flow| flow.stop().unwrap());
    for report in &reports {
        assert_eq!((report.overtaken, report.doubled), (0, 0), "{reports:?}");
    }
    reports
}

/// Makes a change of h2's device under traffic, and asserts that no packet is lost.
fn loses_nothing(rig: &mut Rig, what: &str, change: impl FnOnce(&Rig)) {
    let reports = through_the_port(rig, |rig, _| change(rig));
    let lost = reports.iter().map(FlowReport::lost).sum::<u64>();
    assert_eq!(lost, 0, "{what}: {reports:?} {}", rig.ok(&["show", "drops"]));
}

#[test]
fn flows_through_a_port_go_on_after_what_happens_to_its_device() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    rig.start(&rig.configuration(""));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let (hub, mac) = (rig.lab.hub().clone(), rig.hosts[1].mac().unwrap());

    // Packets do not need the device's name, and all packets of the flows fit these MTUs.
    loses_nothing(&mut rig, "renamed", |rig| {
        hub.run(["ip", "link", "set", "dev", "h2", "name", "other"]).unwrap();
        rig.port_until("h2", "renamed", |port| port["device"] == "other");
    });
    // A change that opens the port again would not find the device by its former name.
    loses_nothing(&mut rig, "refused", |rig| {
        let changed = rig.configuration("ring_size = 1024");
        let changed = rig.write("changed.toml", &changed);
        let refused = rig.trivium(&["apply", changed.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("its device h2 was renamed to other"), "{said}");
    });
    loses_nothing(&mut rig, "resized", |rig| {
        for mtu in [1400, 1500, 1300] {
            hub.run(["ip", "link", "set", "dev", "other", "mtu", &mtu.to_string()]).unwrap();
            rig.port_until("h2", "resized", |port| port["mtu"] == mtu);
        }
    });

    let down = through_the_port(&mut rig, |rig, flows| {
        hub.run(["ip", "link", "set", "dev", "other", "down"]).unwrap();
        rig.port_until("h2", "down", |port| port["link_up"] == false);
        stands_still(flows);
        hub.run(["ip", "link", "set", "dev", "other", "up"]).unwrap();
    });
    // Frames to the port may wait in its transmit ring until the device is up again. Frames from it are lost.
    assert!(down.iter().any(|report| report.lost() > 0), "{down:?}");

    let deleted = through_the_port(&mut rig, |rig, flows| {
        hub.run(["ip", "link", "del", "dev", "other"]).unwrap();
        let waits = |port: &serde_json::Value| {
            port["trouble"].as_str().is_some_and(|why| why.contains("deleted")) && port["link_up"] == false
        };
        rig.port_until("h2", "waiting for its device", waits);
        stands_still(flows);
        assert!(waits(&rig.port("h2")), "it waits for as long as it takes");
        rig.hosts[1].plug_again(&hub, &mac, &[&rig.hosts[0]]).unwrap();
        rig.port_until("h2", "there again", |port| port["trouble"].is_null() && port["link_up"] == true);
    });
    assert!(deleted[0].lost() > 0, "{deleted:?}");
    let port = rig.port("h2");
    assert_eq!((port["device"].as_str(), port["persist"].as_bool()), (Some("h2"), Some(true)), "{port}");
    assert_eq!(rig.pins().len(), 2, "the pin of the device that went is gone: {:?}", rig.pins());
    assert!(rig.daemon().is_running());
}

/// Waits until no packet of the flows arrives any more.
fn stands_still(flows: &[UdpFlow; 2]) {
    let received = || flows.each_ref().map(UdpFlow::received);
    let mut before = received();
    eventually("silence", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(100));
        let now = received();
        if std::mem::replace(&mut before, now) == now { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .unwrap();
}

#[test]
fn a_namespace_vanishes_under_its_port() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let far = rig.lab.namespace("far").unwrap();
    let tenant = rig.lab.namespace("tenant").unwrap();
    let configuration = format!(
        "{}[port.t]\nkind = \"veth\"\ndevice = \"t\"\nnamespace = \"{}\"\npersist = false\n\
         peer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.8.0.9/24\"] }}\n[bridge.br0.port.t]\naccess = 10\n",
        rig.configuration("persist = false"),
        far.name(),
        tenant.name(),
    );
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    assert!(rig.hosts[0].ping("10.8.0.9", 5).is_ok(), "{}", rig.ok(&["show", "ports"]));
    // One flow ends with the namespace, and another one is not affected.
    let _through = rig.hosts[0].spawn(["ping", "-n", "-i", "0.002", "10.8.0.9"]).unwrap();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(300, PATIENCE).unwrap();
    far.remove_name().unwrap();
    rig.port_until("t", "in trouble", |port| port["trouble"].is_string());
    assert!(rig.hosts[0].ping("10.8.0.9", 2).is_err());
    flow.wait_for(300, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    rig.until_reachable(1, 2);
}

/// Checks that a port is opened again if, between two polls, its container is replaced by another container with an
/// equal name. The device in the new namespace has the name, the index and the address of the old device.
#[test]
fn a_namespace_that_is_made_anew_has_its_port_opened_anew() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let names = ["yard", "far"].map(|name| rig.lab.namespace_name(name));
    let yard = rig.lab.namespace("yard").unwrap();
    let far = rig.lab.namespace("far").unwrap();
    let lines = |lines: &[&str]| {
        for line in lines {
            let line = line.replace("YARD", &names[0]).replace("FAR", &names[1]);
            let status = std::process::Command::new("sh").args(["-ec", &line]).status().unwrap();
            assert!(status.success(), "{line}");
        }
    };
    let pair = "ip -n YARD link add y index 77 address 02:00:00:00:07:07 type veth peer name eth0 address 02:00:00:00:07:08 netns FAR && \
                ip -n YARD link set y up && ip -n FAR address add 10.8.0.77/24 dev eth0 && ip -n FAR link set eth0 up && \
                ip netns exec FAR ethtool -K eth0 tx off";
    lines(&[pair]);
    rig.start(&format!(
        "{}[port.y]\nkind = \"af_xdp\"\ndevice = \"y\"\nnamespace = \"{}\"\npersist = false\n\
         [bridge.br0.port.y]\naccess = 10\n",
        rig.configuration("persist = false"),
        yard.name(),
    ));
    let reaches = |rig: &Rig| {
        eventually("the container answers", PATIENCE, || match rig.hosts[0].ping("10.8.0.77", 1) {
            Ok(report) if report.received > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .unwrap();
    };
    reaches(&rig);
    rig.daemon().signal(Signal::STOP).unwrap();
    // The old devices continue to exist, because the daemon's sockets hold their namespace.
    let aside = "ip -n FAR link set eth0 down && ip -n FAR address flush dev eth0 && ip -n FAR link set eth0 name old && \
                 ip -n FAR link set old address 02:00:00:00:07:09";
    lines(&[aside, "ip netns del YARD && ip netns add YARD", pair]);
    rig.daemon().signal(Signal::CONT).unwrap();
    rig.daemon().wait_for_line("was made anew", PATIENCE).unwrap();
    rig.port_until("y", "open again", |port| port["trouble"].is_null() && port["link_up"] == true);
    reaches(&rig);
    drop(far);
}

#[test]
fn a_hook_that_is_taken_off_from_outside_is_put_back() {
    require!("ip", "ping", "ethtool", "bpftool");
    let mut rig = Rig::new(2);
    rig.start(&rig.configuration(""));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let link = |rig: &Rig| {
        let hooks: serde_json::Value =
            serde_json::from_str(&rig.ok(&["xdp", "status", "h2", "--seconds", "0", "--json"])).unwrap();
        hooks[0]["link"].as_u64().unwrap()
    };
    let before = link(&rig);
    rig.lab.hub().run(["bpftool", "link", "detach", "id", &before.to_string()]).unwrap();
    rig.daemon().wait_for_line("taken off the device by another program", PATIENCE).unwrap();
    rig.until_reachable(1, 2);
    assert_ne!(link(&rig), before);
    let doctor = rig.trivium(&["doctor"]);
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("its XDP program was taken off the device by another program once"), "{said}");
    assert_eq!(rig.pins().len(), 2, "{:?}", rig.pins());
}

#[test]
fn stations_of_a_port_without_a_link_are_forgotten() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    rig.start(&rig.configuration(""));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let mac = rig.hosts[1].mac().unwrap();
    let home =
        |rig: &Rig| rig.stations().into_iter().find(|station| station.0 == mac).map(|station| station.2);
    assert_eq!(home(&rig).as_deref(), Some("h2"));
    // The third host has the addresses of the second one and is silent, so only a flooded frame reaches it.
    let third = &rig.hosts[2];
    third.run(["ip", "link", "set", "dev", "eth0", "address", &mac]).unwrap();
    third.run(["ip", "address", "add", &format!("{}/32", rig.hosts[1].ip()), "dev", "eth0"]).unwrap();
    third.pin_neighbour(&rig.hosts[0]).unwrap();
    rig.lab.hub().run(["ip", "link", "set", "dev", "h2", "down"]).unwrap();
    rig.port_until("h2", "down", |port| port["link_up"] == false);
    rig.until_reachable(1, 2);
    assert_eq!(home(&rig).as_deref(), Some("h3"));
    // The MAC table has no entries of a deleted device.
    rig.lab.hub().run(["ip", "link", "del", "dev", "h3"]).unwrap();
    rig.port_until("h3", "gone", |port| port["trouble"].is_string());
    eventually("no station at h3", PATIENCE, || match home(&rig) {
        None => Ok(()),
        Some(port) => Err(port),
    })
    .unwrap();
}

/// Checks that an attempt to open a port does not trigger the next attempt. Each attempt changes the port's device, and
/// reverts the change if the attempt fails. The daemon must not treat these changes as a reason to try again.
#[test]
fn a_port_that_cannot_be_opened_is_tried_a_few_times_a_second() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::with_queues(2, 2);
    rig.lab.hub().run(["ethtool", "-L", "h2", "rx", "2", "tx", "2"]).unwrap();
    rig.start(&rig.configuration("queues = 2\npersist = false"));
    let hub = rig.lab.hub().clone();
    hub.run(["ip", "link", "del", "dev", "h2"]).unwrap();
    rig.port_until("h2", "gone", |port| port["trouble"].is_string());
    let mac = "02:00:00:00:00:77";
    rig.hosts[1].plug_again(&hub, mac, &[]).unwrap();
    rig.port_until("h2", "refused", |port| {
        port["trouble"].as_str().is_some_and(|why| why.contains("1 receive queues"))
    });
    let monitor = hub.spawn(["ip", "-o", "monitor", "link"]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let told = monitor.output().lines().filter(|line| line.contains("h2")).count();
    assert_eq!(told, 0, "an attempt that fails changes nothing: {}", monitor.output());
}

/// While another program has a socket on the queue of a port's device, an attempt to open the port does not change the
/// device and attaches no program.
#[test]
fn a_port_whose_queue_is_busy_leaves_its_device_alone() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    rig.start(&rig.configuration("persist = false"));
    let hub = rig.lab.hub().clone();
    hub.run(["ip", "link", "del", "dev", "h2"]).unwrap();
    rig.port_until("h2", "gone", |port| port["trouble"].is_string());
    hub.run(["ip", "link", "add", "x2", "type", "veth", "peer", "name", "y2"]).unwrap();
    hub.run(["ip", "link", "set", "dev", "x2", "up"]).unwrap();
    let config = MemoryConfig { frames: 4096, huge_pages: HugePages::Off, ..MemoryConfig::default() };
    let memory = FrameMemory::new(config).unwrap();
    let mut pool = Depot::new(Arc::new(memory)).pool();
    let config = AfXdpConfig::new("x2", 0);
    let opened = port::netns::within(hub.path(), || AfXdpQueue::open(config, &mut pool));
    let socket = opened.unwrap().unwrap();
    hub.run(["ip", "link", "set", "dev", "x2", "name", "h2"]).unwrap();
    rig.port_until("h2", "busy", |port| {
        port["trouble"].as_str().is_some_and(|why| why.contains("another socket is bound to this queue"))
    });
    let monitor = hub.spawn(["ip", "-o", "monitor", "link"]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let told = monitor.output().lines().filter(|line| line.contains("h2")).count();
    assert_eq!(told, 0, "{}", monitor.output());
    Box::new(socket).close(&mut pool);
    rig.port_until("h2", "open", |port| port["trouble"].is_null() && port["mode"].is_string());
}

/// Checks that a device with many queues takes no frames from other ports. The owner of a namespace creates the device
/// with as many queues as the kernel allows. Each queue would reduce the number of frames for other ports.
#[test]
fn a_device_that_claims_many_queues_takes_no_frames_of_other_ports() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    rig.start(&rig.configuration("persist = false"));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let (hub, mac) = (rig.lab.hub().clone(), rig.hosts[2].mac().unwrap());
    hub.run(["ip", "link", "del", "dev", "h3"]).unwrap();
    let many = "ip link add h3 numrxqueues 1024 numtxqueues 1024 type veth peer name far && \
                ethtool -L h3 rx 1024 tx 1024 2>/dev/null; ip -d link show h3";
    hub.run(["sh", "-c", many]).unwrap();
    rig.port_until("h3", "refused", |port| {
        port["trouble"].as_str().is_some_and(|why| why.contains("1024 receive queues"))
    });
    rig.until_reachable(1, 2);
    hub.run(["ip", "link", "del", "dev", "h3"]).unwrap();
    rig.hosts[2].plug_again(&hub, &mac, &[]).unwrap();
    rig.pin_neighbours();
    rig.until_reachable(1, 3);
}

/// Checks that packets that a container sends directly after its link comes up are not lost.
#[test]
fn no_packet_is_lost_when_a_link_comes_up() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    rig.start(&rig.configuration(""));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let (one, two) = (&rig.hosts[0], &rig.hosts[1]);
    let mac = one.mac().unwrap();
    for round in 0..10 {
        two.run(["ip", "link", "set", "dev", "eth0", "down"]).unwrap();
        rig.port_until("h2", "down", |port| port["link_up"] == false);
        let line = format!(
            "ip link set dev eth0 up && ip neigh replace {} lladdr {mac} dev eth0 nud permanent && \
             ping -n -q -i 0.005 -c 40 -W 5 {}",
            one.ip(),
            one.ip()
        );
        let said = two.run(["sh", "-c", &line]).unwrap();
        assert!(
            said.contains("40 packets transmitted, 40 received"),
            "round {round}: {said} {}",
            rig.ok(&["show", "drops"])
        );
        rig.port_until("h2", "up", |port| port["link_up"] == true);
    }
}

/// A veth pair that is deleted and recreated keeps its MAC addresses, so that the ARP entries of its neighbours stay
/// valid. The test deletes the port's device, the peer and the peer's namespace.
#[test]
fn a_pair_that_is_made_again_keeps_its_ethernet_addresses() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(1);
    let tenant = rig.lab.namespace("tenant").unwrap();
    let configuration = format!(
        "{}[port.t]\nkind = \"veth\"\ndevice = \"t\"\npeer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.8.0.9/24\"] }}\n\
         [bridge.br0.port.t]\naccess = 10\n",
        rig.configuration(""),
        tenant.name(),
    );
    rig.start(&configuration);
    let ip = |line: &str| {
        let output = std::process::Command::new("ip").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let name = tenant.name().to_owned();
    let ends = |rig: &Rig| {
        let far: serde_json::Value =
            serde_json::from_str(&ip(&format!("-n {name} -j link show dev eth0"))).unwrap();
        (rig.port("t")["mac"].clone(), far[0]["address"].clone())
    };
    let before = ends(&rig);
    let made_again = |rig: &Rig, what: &str, change: &dyn Fn()| {
        let index = rig.port("t")["ifindex"].clone();
        change();
        rig.port_until("t", what, |port| {
            port["ifindex"].is_number() && port["ifindex"] != index && port["link_up"] == true
        });
        assert_eq!(ends(rig), before, "{what}");
    };
    let hub = rig.lab.hub().clone();
    made_again(&rig, "deleted", &|| drop(hub.run(["ip", "link", "del", "dev", "t"]).unwrap()));
    rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    made_again(&rig, "its far end deleted", &|| drop(ip(&format!("-n {name} link del dev eth0"))));
    made_again(&rig, "its far end's namespace made again", &|| {
        ip(&format!("netns del {name}"));
        ip(&format!("netns add {name}"));
    });
    eventually("the far end answers", PATIENCE, || {
        rig.hosts[0].ping("10.8.0.9", 2).map(drop).map_err(|error| error.to_string())
    })
    .unwrap();
}

/// Checks that a loop is reported because MAC addresses move between ports. A cable connects two ports of the bridge,
/// so that every frame returns to the bridge and its source address moves.
#[test]
fn a_loop_is_told_by_the_stations_that_move() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let hub = rig.lab.hub().clone();
    hub.run(["ip", "link", "add", "l1", "type", "veth", "peer", "name", "l2"]).unwrap();
    let mut configuration = rig.configuration("");
    for name in ["l1", "l2"] {
        configuration.push_str(&format!(
            "[port.{name}]\nkind = \"af_xdp\"\ndevice = \"{name}\"\n[bridge.br0.port.{name}]\naccess = 10\n"
        ));
    }
    rig.start(&configuration);
    // Broadcasts for an unknown neighbour circulate in the loop.
    let _asking = rig.hosts[0].spawn(["ping", "-n", "-i", "0.2", "10.8.0.77"]).unwrap();
    let doctor = |rig: &Rig| String::from_utf8_lossy(&rig.trivium(&["doctor"]).stdout).into_owned();
    let is_told = |text: &str| {
        let of_bridge =
            |line: &&str| line.starts_with("warning  bridge.br0: stations move between the ports l");
        text.lines().find(of_bridge).is_some_and(|line| line.contains("l1") && line.contains("l2"))
    };
    eventually("doctor tells", PATIENCE, || {
        let text = doctor(&rig);
        if is_told(&text) { Ok(()) } else { Err(text) }
    })
    .unwrap();
    rig.daemon().wait_for_line("they are probably joined behind the bridge", PATIENCE).unwrap();
    let bridges: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "bridges", "--json"])).unwrap();
    for member in bridges[0]["members"].as_array().unwrap() {
        let in_loop = member["port"].as_str().unwrap().starts_with('l');
        assert_eq!(member["moves"].as_u64().unwrap() > 50, in_loop, "{bridges}");
    }
    hub.run(["ip", "link", "del", "dev", "l1"]).unwrap();
    eventually("the loop is open", PATIENCE, || {
        let text = doctor(&rig);
        if is_told(&text) { Err(text) } else { Ok(()) }
    })
    .unwrap();
    rig.until_reachable(1, 2);
}

/// If the owner of a namespace has renamed the peer of a veth port, all other ports still start, and no hook of a
/// killed daemon is removed.
#[test]
fn a_far_end_that_its_owner_renamed_keeps_no_other_port_from_starting() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let tenant = rig.lab.namespace("tenant").unwrap();
    let text = format!(
        "{}[port.t1]\nkind = \"veth\"\ndevice = \"t1\"\n[port.t1.peer]\nname = \"eth0\"\nnamespace = \"{}\"\n[bridge.br0.port.t1]\naccess = 10\n",
        rig.configuration("persist = true"),
        tenant.name()
    );
    rig.start(&text);
    rig.until_reachable(1, 2);
    let pins = rig.pins();
    rig.daemon.take().unwrap().stop(rustix::process::Signal::KILL, PATIENCE).unwrap();
    tenant.run(["ip", "link", "set", "dev", "eth0", "down"]).unwrap();
    tenant.run(["ip", "link", "set", "dev", "eth0", "name", "x"]).unwrap();
    rig.start(&text);
    rig.until_reachable(1, 2);
    assert!(pins.iter().all(|pin| rig.pins().contains(pin)), "{pins:?}: {:?}", rig.pins());
    assert!(rig.port("t1")["trouble"].as_str().is_some_and(|why| why.contains("far end eth0")));
    let doctor = rig.trivium(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("error    port.t1"));
    // The port is opened when the owner has renamed the far end back.
    tenant.run(["ip", "link", "set", "dev", "x", "name", "eth0"]).unwrap();
    rig.port_until("t1", "open", |port| port["trouble"].is_null() && port["link_up"] == true);
}

/// If the owner of a namespace has created a device with the name of a port's TAP, all other ports still start.
#[test]
fn a_device_in_the_place_of_a_tap_keeps_no_other_port_from_starting() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let tenant = rig.lab.namespace("tenant").unwrap();
    tenant.run(["ip", "link", "add", "vm1", "type", "veth", "peer", "name", "vm1-far"]).unwrap();
    let text = format!(
        "{}[port.vm1]\nkind = \"tap\"\nnamespace = \"{}\"\n[bridge.br0.port.vm1]\naccess = 10\n",
        rig.configuration(""),
        tenant.name()
    );
    rig.start(&text);
    rig.until_reachable(1, 2);
    assert!(
        rig.port("vm1")["trouble"].as_str().is_some_and(|why| why.contains("vm1")),
        "{}",
        rig.port("vm1")
    );
    tenant.run(["ip", "link", "delete", "vm1"]).unwrap();
    rig.port_until("vm1", "open", |port| port["trouble"].is_null());
}

/// A daemon whose start fails does not remove the hooks that a killed daemon has left.
#[test]
fn a_start_that_fails_leaves_the_hooks_that_it_has_found() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let text = rig.configuration("persist = true");
    rig.start(&text);
    rig.until_reachable(1, 2);
    let pins = rig.pins();
    rig.daemon.take().unwrap().stop(rustix::process::Signal::KILL, PATIENCE).unwrap();
    // A foreign device has the name of a port, so the start is refused.
    rig.lab.hub().run(["ip", "link", "add", "zz", "type", "veth", "peer", "name", "zz-far"]).unwrap();
    let wrong = format!(
        "{text}[port.zz]\nkind = \"veth\"\n[port.zz.peer]\nname = \"zz-far\"\n[bridge.br0.port.zz]\n"
    );
    rig.launch(&wrong, &[]);
    let (ended, said) = rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    assert!(!ended.success(), "{said}");
    assert_eq!(rig.pins(), pins);
    rig.start(&text);
    rig.until_reachable(1, 2);
}
