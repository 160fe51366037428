//! Tests with the real binary that no filtered packet passes while hooks (XDP programs) are opened, replaced, detached
//! and put back, and that guards drop nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rig::filters::{FLOOD, applied, packets, packets_until, with_filter};
use rig::leak::Leak;
use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{UdpFlow, eventually, require};

/// The sockets of a new port could receive frames before the hook has the filter. No such frame may pass.
#[test]
fn nothing_passes_before_the_filter_of_a_new_port_is_there() {
    require!("ip", "ping", "ethtool", "bpftool");
    let mut rig = Rig::new(2);
    let with = with_filter(&rig, FLOOD);
    let without = rig.configuration_with("", &[0, 10]);
    rig.start(&without);
    rig.pin_neighbours();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    for round in 0..5 {
        applied(&rig, &with);
        packets_until(&rig, "flood", 50);
        assert_eq!(flow.received(), 0, "round {round}: {}", rig.ok(&["show", "filters"]));
        rig.until_reachable(1, 2);
        applied(&rig, &without);
    }
    // The filter also holds when another program detaches the hook and the daemon attaches it again.
    applied(&rig, &with);
    packets_until(&rig, "flood", 50);
    for _ in 0..3 {
        let before = packets(&rig, "flood");
        detach(&rig, "h1", "").unwrap();
        packets_until(&rig, "flood", before + 500);
        assert_eq!(flow.received(), 0, "{}", rig.ok(&["show", "filters"]));
    }
    flow.stop().unwrap();
}

/// Checks that no filtered packet passes while a port that is opened again with other settings has no program.
#[test]
fn nothing_passes_between_two_programs_of_a_port() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    // The port has no function, so its device belongs to the kernel.
    let with = |settings: &str| {
        let port = format!("[port.h1]\nkind = \"af_xdp\"\ndevice = \"h1\"\nfilter = \"edge\"\n{settings}\n");
        let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
        format!("{}{port}{rule}", rig.configuration_with("", &[0, 10]))
    };
    let texts = ["", "mode = \"generic\"", "ring_size = 1024"].map(with);
    rig.start(&texts[0]);
    let leak = Leak::start(&rig, &rig.hosts[0]);
    packets_until(&rig, "flood", 50);
    for (round, text) in texts.iter().cycle().skip(1).take(9).enumerate() {
        let said = applied(&rig, text);
        assert_eq!(leak.arrived(), 0, "round {round}: {said}");
    }
    // No guard program remains: the kernel receives the frames that the filter does not drop.
    let said = applied(&rig, &texts[0].replace("\"drop\"", "\"count\""));
    assert!(leak.arrived() > 0, "{said}");
}

/// Checks that no filtered packet passes if one change removes a port from its bridge and adds a filter to the port.
#[test]
fn nothing_passes_when_a_port_leaves_its_bridge_and_gets_a_filter() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(6);
    let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
    let bridged = rig.configuration_with("persist = true", &[10; 6]);
    let members = (1..=6).map(|number| format!("[bridge.br0.port.h{number}]\naccess = 10\n"));
    let alone = members.fold(bridged.clone(), |text, member| text.replace(&member, ""));
    let alone = alone.replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"");
    let alone = format!("{alone}{rule}");
    let loose = "[[filter.loose.rule]]\nname = \"all\"\naction = \"count\"\n";
    let filtered = bridged.replace("device = \"h1\"", "device = \"h1\"\nfilter = \"loose\"") + loose;
    // With another value of `persist`, the port is opened again.
    let other_link = alone.replacen("persist = true", "persist = false", 1);
    rig.start(&bridged);
    let leak = Leak::start(&rig, &rig.hosts[0]);
    let pairs = [(&alone, &bridged), (&other_link, &filtered), (&alone, &filtered), (&alone, &bridged)];
    for (round, (other, bridged)) in pairs.into_iter().enumerate() {
        let said = applied(&rig, other);
        packets_until(&rig, "flood", 50);
        assert_eq!(leak.arrived(), 0, "round {round}: {said}");
        let said = applied(&rig, bridged);
        assert_eq!(leak.arrived(), 0, "round {round}, back: {said}");
    }
    // The kernel receives what the filter does not drop.
    let said = applied(&rig, &alone.replace("\"drop\"", "\"count\""));
    assert!(leak.arrived() > 0, "{said}");
}

/// Checks that no filtered packet passes while a starting daemon replaces the hook of a killed daemon.
#[test]
fn nothing_passes_when_a_start_replaces_the_hook_of_a_killed_daemon() {
    require!("ip", "ethtool");
    let mut rig = Rig::with_queues(2, 2);
    let with = |settings: &str| {
        let port = format!("[port.h1]\nkind = \"af_xdp\"\ndevice = \"h1\"\nfilter = \"edge\"\n{settings}\n");
        let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
        format!("{}{port}{rule}", rig.configuration_with("", &[0, 10]))
    };
    let (pinned, unpinned) = (with("persist = true"), with("persist = false"));
    rig.start(&pinned);
    let leak = Leak::start(&rig, &rig.hosts[0]);
    packets_until(&rig, "flood", 50);
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    // The program of the killed daemon was made for a number of queues that the device no longer has.
    rig.hosts[0].run(["ethtool", "-L", "eth0", "tx", "1"]).unwrap();
    // The kernel refuses the change until it has released the sockets of the killed daemon.
    let fewer =
        || rig.lab.hub().run(["ethtool", "-L", "h1", "rx", "1"]).map(drop).map_err(|error| error.to_string());
    eventually("one receive queue", PATIENCE, fewer).unwrap();
    leak.arrived();
    rig.start(&pinned);
    assert_eq!(leak.arrived(), 0, "a hook with another number of queues");
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    // The hook is pinned, and the next one is not.
    rig.start(&unpinned);
    assert_eq!(leak.arrived(), 0, "a hook without a pin");
    let said = applied(&rig, &unpinned.replace("\"drop\"", "\"count\""));
    assert!(leak.arrived() > 0, "{said}");
}

/// Checks that no packet passes while a hook that another program has detached is attached again. When the daemon
/// notices that the hook is detached, a guard program drops the frames that the device passes to the kernel.
#[test]
fn nothing_passes_while_a_detached_hook_is_put_back() {
    require!("ip", "ethtool", "bpftool");
    let mut rig = Rig::new(2);
    let port = "[port.h1]\nkind = \"af_xdp\"\ndevice = \"h1\"\nfilter = \"edge\"\n";
    let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
    rig.start(&format!("{}{port}{rule}", rig.configuration_with("", &[0, 10])));
    let leak = Leak::start(&rig, &rig.hosts[0]);
    let before = packets_until(&rig, "flood", 50);
    detach(&rig, "h1", "").unwrap();
    rig.daemon().wait_for_line("it is put back", PATIENCE).unwrap();
    // Skips the datagrams that arrived before.
    leak.arrived();
    assert_eq!(leak.arrived(), 0, "{}", rig.daemon().output());
    packets_until(&rig, "flood", before + 500);
    assert_eq!(leak.arrived(), 0);
}

/// Checks that no filtered packet passes while another XDP program is attached in place of a port's hook, so that the
/// port cannot be opened again. A guard program drops the frames meanwhile, and `doctor` reports this.
#[test]
fn nothing_passes_while_another_program_has_the_place_of_a_hook() {
    require!("ip", "ethtool", "bpftool", "clang");
    let mut rig = Rig::new(2);
    let port = "[port.h1]\nkind = \"af_xdp\"\ndevice = \"h1\"\nfilter = \"edge\"\n";
    let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
    let text = format!("{}{port}{rule}", rig.configuration_with("", &[0, 10]));
    rig.start(&text);
    let leak = Leak::start(&rig, &rig.hosts[0]);
    packets_until(&rig, "flood", 50);
    let pin = load_pass(&rig);
    let then = &format!("&& bpftool net attach xdp pinned {pin} dev h1");
    let take = || detach(&rig, "h1", then);
    eventually("the place of the hook", PATIENCE, take).unwrap();
    let finding = |expected| is_guarded(&rig, expected);
    eventually("a finding", PATIENCE, || finding(true)).unwrap();
    leak.arrived();
    assert_eq!(leak.arrived(), 0, "{}", rig.daemon().output());
    // The guard also stays when a successor takes over.
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    finding(true).unwrap();
    assert_eq!(leak.arrived(), 0, "{}", rig.daemon().output());
    rig.lab.hub().run(["bpftool", "net", "detach", "xdp", "dev", "h1"]).unwrap();
    std::fs::remove_file(&pin).unwrap();
    eventually("the port", PATIENCE, || finding(false)).unwrap();
    assert_eq!(leak.arrived(), 0, "{}", rig.daemon().output());
    let said = applied(&rig, &text.replace("\"drop\"", "\"count\""));
    assert!(leak.arrived() > 0, "{said}");
}

/// Detaches the hook of a port from its device, and runs the rest of a shell command directly afterwards.
fn detach(rig: &Rig, port: &str, then: &str) -> Result<(), String> {
    let hooks = rig.ok(&["xdp", "status", port, "--seconds", "0", "--json"]);
    let hooks: serde_json::Value = serde_json::from_str(&hooks).unwrap();
    let link = hooks[0]["link"].as_u64().ok_or(hooks.to_string())?;
    let script = format!("bpftool link detach id {link} {then}");
    rig.lab.hub().run(["sh", "-c", &script]).map(drop).map_err(|error| error.to_string())
}

/// Loads an XDP program that passes every frame. Returns the path of its pin.
fn load_pass(rig: &Rig) -> String {
    static LOADED: AtomicU32 = AtomicU32::new(0);
    let source = "__attribute__((section(\"xdp\"))) int pass(void *frame) { return 2; }\n\
                  char terms[] __attribute__((section(\"license\"))) = \"GPL\";\n";
    rig.write("pass.c", source);
    let number = LOADED.fetch_add(1, Relaxed);
    let (directory, pin) = (rig.path(""), format!("/sys/fs/bpf/pass-{}-{number}", std::process::id()));
    let compile = "clang -O2 -target bpf -c pass.c -o pass.o";
    let script = format!("cd {} && {compile} && bpftool prog load pass.o {pin}", directory.display());
    rig.lab.hub().run(["sh", "-c", &script]).unwrap();
    pin
}

/// Returns an error with the output of `doctor` unless `doctor` reports a guard, or none, as expected.
fn is_guarded(rig: &Rig, expected: bool) -> Result<(), String> {
    let said = String::from_utf8_lossy(&rig.trivium(&["doctor"]).stdout).into_owned();
    let is_guarded = said.contains("a guard drops them until the port is open");
    if is_guarded == expected { Ok(()) } else { Err(said) }
}

/// Checks that a failed change leaves no guard on a device that is no port in the running configuration.
#[test]
fn a_failed_change_leaves_no_guard_on_another_device() {
    require!("ip", "ethtool", "bpftool", "clang");
    let mut rig = Rig::new(2);
    let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
    let with = |device: &str| {
        let port = format!("[port.p]\nkind = \"af_xdp\"\ndevice = \"{device}\"\nfilter = \"edge\"\n");
        format!("{}{port}{rule}", rig.configuration_with("", &[0, 10]))
    };
    let (missing, there) = (with("missing"), with("h1"));
    rig.start(&missing);
    let pin = load_pass(&rig);
    rig.lab.hub().run(["bpftool", "net", "attach", "xdp", "pinned", &pin, "dev", "h1"]).unwrap();
    std::fs::remove_file(&pin).unwrap();
    let leak = Leak::start(&rig, &rig.hosts[0]);
    let file = rig.write("there.toml", &there);
    let refused = rig.trivium(&["apply", file.to_str().unwrap()]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(leak.arrived() > 0, "{}", rig.daemon().output());
    is_guarded(&rig, false).unwrap();
}

/// Checks that a port that waits with a guard also has a guard on a new device of the same name, if another program is
/// attached there.
#[test]
fn a_guard_follows_its_port_to_a_new_device() {
    require!("ip", "ethtool", "bpftool", "clang");
    let mut rig = Rig::new(2);
    let port = "[port.p]\nkind = \"af_xdp\"\ndevice = \"first\"\nfilter = \"edge\"\n";
    let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
    let hub = rig.lab.hub().clone();
    hub.run(["ip", "link", "add", "first", "type", "veth", "peer", "name", "far"]).unwrap();
    rig.start(&format!("{}{port}{rule}", rig.configuration("")));
    let pin = load_pass(&rig);
    let place = |device: &str| format!("bpftool net attach xdp pinned {pin} dev {device}");
    let then = &format!("&& {}", place("first"));
    let take = || detach(&rig, "p", then);
    eventually("the place of the hook", PATIENCE, take).unwrap();
    eventually("a guard", PATIENCE, || is_guarded(&rig, true)).unwrap();
    hub.run(["ip", "link", "delete", "first"]).unwrap();
    eventually("no guard", PATIENCE, || is_guarded(&rig, false)).unwrap();
    let next = "ip link add next type veth peer name far";
    hub.run(["sh", "-c", &format!("{next} && {} && ip link set dev next name first", place("next"))])
        .unwrap();
    eventually("a guard again", PATIENCE, || is_guarded(&rig, true)).unwrap();
    hub.run(["bpftool", "net", "detach", "xdp", "dev", "first"]).unwrap();
    std::fs::remove_file(&pin).unwrap();
    eventually("an open port", PATIENCE, || is_guarded(&rig, false)).unwrap();
    packets(&rig, "flood");
}

/// Checks that the former bridge of a port receives no frame that only the filter of the new configuration passes.
#[test]
fn nothing_passes_to_the_former_bridge_when_a_port_changes_its_bridge() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(6);
    let rule = |filter: &str, action: &str| {
        format!("[[filter.{filter}.rule]]\nname = \"flood\"\naction = \"{action}\"\nprotocol = \"udp\"\n")
    };
    let ports = |filter: &str| {
        let ports = rig.configuration("");
        ports.replace("device = \"h1\"", &format!("device = \"h1\"\nfilter = \"{filter}\""))
    };
    let strict = format!("{}{}", ports("edge"), rule("edge", "drop"));
    // New filters of other ports lengthen the change.
    let moved = |filter: &str| {
        let moved = ports(filter).replace("[bridge.br0.port.h1]", "[bridge.br1.port.h1]");
        let others = (3..=6).fold(moved, |text, number| {
            let device = format!("device = \"h{number}\"");
            text.replace(&device, &format!("{device}\nfilter = \"loose\""))
        });
        format!("{others}{}{}", rule("loose", "count"), rule("edge", "count"))
    };
    // The port gets another filter, or its filter gets other rules.
    let others = [moved("loose"), moved("edge")];
    rig.start(&strict);
    rig.pin_neighbours();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    for (round, other) in others.iter().cycle().take(6).enumerate() {
        flow.wait_until_sent(200, PATIENCE).unwrap();
        let before = flow.received();
        let said = applied(&rig, other);
        flow.wait_until_sent(200, PATIENCE).unwrap();
        assert_eq!(flow.received(), before, "round {round}: {said}");
        applied(&rig, &strict);
    }
    // The hook passes frames again, and the bridge forwards what the filter passes.
    applied(&rig, &strict.replace("\"drop\"", "\"count\""));
    flow.wait_for(100, PATIENCE).unwrap();
    flow.stop().unwrap();
}

/// Returns a configuration in which the port h1 is not a member of the bridge, with the settings `settings`. The pin of
/// the hook stays when the daemon ends.
fn without_bridge(rig: &Rig, settings: &str) -> String {
    let port = format!("device = \"h1\"\npersist = true\n{settings}");
    let text = rig.configuration("").replace("device = \"h1\"", &port);
    text.replace("[bridge.br0.port.h1]\naccess = 10\n", "")
}

/// Checks that no filtered packet passes while a starting daemon adopts the hook of a bridge port for a port without a
/// bridge that has another filter.
#[test]
fn nothing_passes_when_a_start_takes_the_port_of_a_killed_daemon_from_its_bridge() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(6);
    let rule = |action: &str| {
        format!("[[filter.edge.rule]]\nname = \"flood\"\naction = \"{action}\"\nprotocol = \"udp\"\n")
    };
    let ports = rig.configuration("").replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"");
    let (bridged, alone) = (format!("{ports}{}", rule("count")), without_bridge(&rig, "filter = \"edge\""));
    rig.start(&bridged);
    let leak = Leak::start(&rig, &rig.hosts[0]);
    packets_until(&rig, "flood", 50);
    for round in 0..3 {
        rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
        leak.arrived();
        rig.start(&format!("{alone}{}", rule("drop")));
        assert_eq!(leak.arrived(), 0, "round {round}: {}", rig.daemon().output());
        rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
        rig.start(&bridged);
    }
    let said = applied(&rig, &format!("{alone}{}", rule("count")));
    assert!(leak.arrived() > 0, "{said}");
}

/// Checks that a start that fails leaves the hook of a killed daemon as it was: the kernel receives nothing from the
/// device of a bridge port that has another function in the configuration of the failed start.
#[test]
fn nothing_passes_after_a_start_that_fails() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let bridged = rig.configuration("");
    let rule = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n";
    let filtered = without_bridge(&rig, "filter = \"edge\"") + rule;
    let configurations = [filtered, without_bridge(&rig, "")];
    rig.start(&bridged);
    let leak = Leak::start(&rig, &rig.hosts[0]);
    for (round, text) in configurations.iter().enumerate() {
        rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
        leak.arrived();
        // The device of h2 has only one queue.
        rig.launch(&text.replace("device = \"h2\"", "device = \"h2\"\nqueues = 3"), &[]);
        let (status, output) = rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
        assert!(!status.success() && output.contains("3"), "round {round}: {output}");
        assert_eq!(rig.pins().len(), 2, "round {round}: {output}");
        // Without a filter, the kernel may receive datagrams during the start.
        let arrived = leak.arrived();
        assert!(arrived == 0 || round == 1, "round {round}: {arrived} datagrams: {output}");
        assert_eq!(leak.arrived(), 0, "round {round}: {output}");
        rig.start(&bridged);
        assert_eq!(leak.arrived(), 0, "round {round}, started again");
    }
    rig.until_reachable(1, 2);
    let said = applied(&rig, &configurations[1]);
    assert!(leak.arrived() > 0, "{said}");
}

/// Checks that a change of the rules of a filter succeeds while another program has detached the hook of one of its
/// ports. The hook gets the new rules when it is attached again.
#[test]
fn a_filter_changes_while_one_of_its_hooks_is_detached() {
    require!("ip", "ethtool", "bpftool");
    let mut rig = Rig::new(2);
    let ports = rig.configuration("").replace("device = \"h", "filter = \"edge\"\ndevice = \"h");
    let with = |rule: &str| {
        format!("{ports}[[filter.edge.rule]]\nname = \"{rule}\"\naction = \"drop\"\nprotocol = \"udp\"\n")
    };
    rig.start(&with("first"));
    rig.pin_neighbours();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    packets_until(&rig, "first", 50);
    for rule in ["second", "third", "fourth"] {
        detach(&rig, "h1", "").unwrap();
        applied(&rig, &with(rule));
        packets_until(&rig, rule, 50);
        assert_eq!(flow.received(), 0, "{rule}");
    }
    flow.stop().unwrap();
}
