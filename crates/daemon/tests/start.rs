//! Tests the start of the real binary: the programs of the hooks after the start, filters during the start, and the
//! recovery from SIGKILL while ports are opened.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use serde_json::Value;
use testbed::{UdpFlow, require};
use xdp::{AttachMode, Owner, PinPath, Placeholders, PortProgram, ProgramConfig, WhenDown};

const FILTER: &str = "[filter.edge]\n[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\n\
                      protocol = \"udp\"\nsource = \"10.8.0.1\"\n";

/// Returns the states of all hooks, as `trivium xdp status` reports them.
fn hooks(rig: &Rig) -> Vec<Value> {
    serde_json::from_str(&rig.ok(&["xdp", "status", "--seconds", "0", "--json"])).unwrap()
}

/// Checks that each of the given ports has a hook, and that each hook runs the complete port program and no
/// placeholder.
fn check_programs(rig: &Rig, ports: &[&str]) -> Vec<Value> {
    let hooks = hooks(rig);
    let names: Vec<&str> = hooks.iter().map(|hook| hook["port"].as_str().unwrap()).collect();
    assert_eq!(names, ports);
    let programs: Vec<&Value> = hooks.iter().map(|hook| &hook["program"]["name"]).collect();
    assert!(programs.iter().all(|name| *name == "trivium_port"), "{programs:?}");
    hooks
}

/// Returns a configuration with ports of several kinds. h1 has a filter. Some ports belong to a bridge (with or without
/// forwarding in hooks), and others belong to no bridge or router.
fn all_sorts(rig: &Rig) -> String {
    rig.configuration_with("", &[10, 10, 0]).replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"")
        + "[port.h3]\nkind = \"af_xdp\"\n"
        + "[port.soft]\nkind = \"af_xdp\"\n"
        + "[port.pair]\nkind = \"veth\"\npersist = false\n[port.pair.peer]\nname = \"far\"\n"
        + "[port.slow]\nkind = \"veth\"\n[port.slow.peer]\nname = \"slowfar\"\n"
        + "[bridge.br0.port.pair]\naccess = 10\n[bridge.br1]\nhook = false\n[bridge.br1.port.slow]\n"
        + FILTER
}

const ALL_SORTS: [&str; 6] = ["h1", "h2", "h3", "pair", "slow", "soft"];

/// Creates a device without native XDP.
fn add_soft(rig: &Rig) {
    rig.lab.hub().run(["ip", "link", "add", "soft", "type", "bridge"]).unwrap();
}

#[test]
fn after_the_start_each_hook_has_its_own_program() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    add_soft(&rig);
    let configuration = all_sorts(&rig);
    rig.start(&configuration);
    let hooks = check_programs(&rig, &ALL_SORTS);
    let stages = |at: usize| hooks[at]["stages"].to_string();
    assert_eq!(stages(0), r#"["filter","bridge","steering"]"#);
    assert_eq!(stages(1), r#"["bridge","steering"]"#);
    assert_eq!(
        (stages(2), stages(5)),
        (r#"["kernel","steering"]"#.to_owned(), r#"["kernel","steering"]"#.to_owned())
    );
    assert_eq!((stages(3), stages(4)), (r#"["bridge","steering"]"#.to_owned(), r#"["steering"]"#.to_owned()));
    assert_eq!((&hooks[4]["mode"], &hooks[5]["mode"]), (&"native".into(), &"generic".into()));
    let each = |at: usize| hooks[at]["program"]["id"].as_u64().unwrap();
    let ids: std::collections::BTreeSet<u64> = (0..hooks.len()).map(each).collect();
    assert_eq!(ids.len(), hooks.len(), "no two ports share a program");
    rig.until_reachable(1, 2);
}

#[test]
fn nothing_passes_a_filter_during_the_start() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    rig.pin_neighbours();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    let ports = rig.configuration("persist = false");
    let configuration = ports.replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"") + FILTER;
    for round in 0..4 {
        rig.start(&configuration);
        rig.until_reachable(1, 2);
        assert_eq!(flow.received(), 0, "round {round}");
        rig.daemon.take().unwrap().stop(Signal::TERM, PATIENCE).unwrap();
    }
}

/// If the daemon is killed while it opens the ports and loads the complete programs of their hooks, the next start
/// completes the hooks. The test kills the daemon at various times.
#[test]
fn whenever_it_is_killed_the_next_start_completes_the_hooks() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    add_soft(&rig);
    let configuration = all_sorts(&rig);
    for round in 0..10_u64 {
        rig.launch(&configuration, &[]);
        std::thread::sleep(Duration::from_millis(150 + 40 * round));
        rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
        rig.start(&configuration);
        check_programs(&rig, &ALL_SORTS);
        rig.until_reachable(1, 2);
        rig.daemon.take().unwrap().stop(Signal::TERM, PATIENCE).unwrap();
        // The next round begins without hooks.
        let output = rig.lab.hub().command([TRIVIUM, "release"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(rig.pins().is_empty(), "{:?}", rig.pins());
    }
}

/// Attaches a pinned placeholder program to a device of the hub. A daemon that is killed during its start leaves such a
/// program for a port. Returns the kernel's ID of the BPF link.
fn leave_placeholder(rig: &Rig, device: &str, owner: Owner, when_down: WhenDown) -> u32 {
    let hub = rig.lab.hub();
    let inode = hub.run(["stat", "-Lc", "%i", "/proc/self/ns/net"]).unwrap();
    let link: Value =
        serde_json::from_str(&hub.run(["ip", "-j", "link", "show", "dev", device]).unwrap()).unwrap();
    let ifindex = u32::try_from(link[0]["ifindex"].as_u64().unwrap()).unwrap();
    let pin = PinPath::new(&format!("{device}-{}-{ifindex}", inode.trim())).unwrap();
    let config = ProgramConfig { owner, when_down, queues: 1, locals: Default::default() };
    let port = hub.inside(|| {
        let loaded = PortProgram::load_placeholder(&config, &Placeholders::default()).unwrap();
        Ok(loaded.attach(ifindex, AttachMode::Native, Some(pin)).unwrap())
    });
    port.unwrap().link_id()
}

#[test]
fn the_placeholders_of_a_killed_daemon_are_adopted_or_taken_off() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let links = ["h1", "h2"].map(|port| leave_placeholder(&rig, port, Owner::Bridged, WhenDown::Drop));
    leave_placeholder(&rig, "h3", Owner::Routed, WhenDown::Pass);
    assert_eq!(rig.pins().len(), 3);
    let configuration = rig
        .configuration_with("", &[10, 10, 0])
        .replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"")
        + FILTER;
    rig.start(&configuration);
    let hooks = check_programs(&rig, &["h1", "h2"]);
    assert_eq!([0, 1].map(|at| hooks[at]["link"].clone()), links.map(Value::from), "adopted");
    let log = rig.daemon().output();
    // No port has the third hook.
    assert!(log.contains("no port stands behind this hook"), "{log}");
    assert_eq!(rig.pins().len(), 2, "{:?}", rig.pins());
    rig.until_reachable(1, 2);
    // A command without a daemon finds and removes a placeholder as well.
    leave_placeholder(&rig, "h3", Owner::Routed, WhenDown::Pass);
    let output = rig.lab.hub().command([TRIVIUM, "release", "h3"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("released h3"), "{text}");
    assert_eq!(rig.pins().len(), 2, "{:?}", rig.pins());
}
