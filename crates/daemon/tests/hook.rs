//! Tests the state of hooks (XDP programs on the ports' devices) that `trivium xdp status` reports. The state is
//! compared with the output of the kernel's own tools.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::Duration;

use rig::Rig;
use serde_json::Value;
use testbed::{UdpFlow, require};

/// Returns the output of `trivium xdp status`. Unless the arguments say otherwise, the command measures the runs of the
/// program.
fn status(rig: &Rig, arguments: &[&str]) -> Vec<Value> {
    let text = rig.ok(&[&["xdp", "status", "--json"], arguments].concat());
    serde_json::from_str(&text).unwrap()
}

/// Returns the state of a device in the hub as `ip -d link show` reports it.
fn link(rig: &Rig, device: &str) -> Value {
    let text = rig.lab.hub().run(["ip", "-d", "-j", "link", "show", "dev", device]).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[0].clone()
}

#[test]
fn the_status_is_what_the_kernel_says() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    // A device without native XDP, and a hook that ends with the daemon.
    rig.lab.hub().run(["ip", "link", "add", "soft", "type", "bridge"]).unwrap();
    let filter = "filter = \"edge\"\npersist = false";
    let configuration = rig
        .configuration("")
        .replace("device = \"h2\"", &format!("device = \"h2\"\n{filter}"))
        + "[port.soft]\nkind = \"af_xdp\"\n[filter.edge]\n[[filter.edge.rule]]\nname = \"a\"\naction = \"count\"\n\
           source = \"10.8.0.2\"\n";
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let hooks = status(&rig, &["--seconds", "0"]);
    let names: Vec<&str> = hooks.iter().map(|hook| hook["port"].as_str().unwrap()).collect();
    assert_eq!(names, ["h1", "h2", "soft"]);
    let inode = rig.lab.hub().run(["stat", "-Lc", "%i", "/proc/self/ns/net"]).unwrap();
    for hook in &hooks {
        let name = hook["port"].as_str().unwrap();
        let link = link(&rig, name);
        assert_eq!(hook["program"]["id"], link["xdp"]["prog"]["id"], "{name}: {link}");
        assert_eq!(hook["program"]["tag"], link["xdp"]["prog"]["tag"], "{name}: {link}");
        assert_eq!(hook["ifindex"], link["ifindex"], "{name}");
        assert_eq!(hook["netns"].to_string(), inode.trim(), "{name}");
        assert!(hook["program"]["instructions"].as_u64().unwrap() > 10, "{hook}");
        assert!(hook["program"]["jited_bytes"].as_u64().unwrap() > 10, "{hook}");
        assert!(hook["measured"].is_null(), "{hook}");
    }
    let [h1, h2, soft] = &hooks[..] else { panic!("{hooks:?}") };
    assert_eq!((&h1["mode"], &soft["mode"]), (&"native".into(), &"generic".into()));
    assert_eq!(h1["when_down"], "drop");
    let stages: Vec<&str> =
        h1["stages"].as_array().unwrap().iter().map(|stage| stage.as_str().unwrap()).collect();
    assert!(
        stages.ends_with(&["steering"]) && !stages.contains(&"filter") && !stages.contains(&"kernel"),
        "{h1}"
    );
    assert_eq!(h2["stages"][0], "filter");
    assert_eq!(soft["stages"], serde_json::json!(["kernel", "steering"]));
    assert_eq!((&h2["filter"], &h1["filter"]), (&"edge".into(), &Value::Null));
    // The reported directory of pins matches the pins in the BPF file system.
    let pinned: Vec<String> = rig.pins();
    let named = h1["pins"].as_str().unwrap();
    assert!(pinned.iter().any(|pin| named.ends_with(pin)), "{named} of {pinned:?}");
    assert!(h2["pins"].is_null());
    let has = |hook: &Value, map: &str| {
        hook["maps"].as_array().unwrap().iter().any(|other| other["name"] == map && other["max_entries"] != 0)
    };
    assert!(has(h1, "xsks") && has(h1, "counters") && has(h2, "filter_rows"), "{h1} {h2}");
    assert!(!has(h1, "filter_rows"), "{h1}");
    let refused = soft["fallbacks"][0].as_str().unwrap();
    assert!(refused.starts_with("native: ") && refused.contains("not supported"), "{refused}");

    let text = rig.ok(&["xdp", "status", "h1", "--seconds", "0"]);
    assert!(text.starts_with("h1: h1 (veth), native\n") && text.contains("xskmap"), "{text}");
    assert!(!text.contains("soft"), "{text}");
    let output = rig.trivium(&["xdp", "status", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("port.nobody"));
    assert_eq!(rig.trivium(&["xdp", "status", "--seconds", "61"]).status.code(), Some(2));
}

/// The kernel counts the runs of BPF programs only while a client measures them with `trivium xdp status`, and not
/// afterwards.
#[test]
fn runs_are_counted_for_as_long_as_asked() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let _flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    let hook = &status(&rig, &["h1", "--seconds", "1"])[0];
    let measured = |what: &str| hook["measured"][what].as_u64().unwrap();
    assert!(measured("elapsed_ns") >= 1_000_000_000, "{hook}");
    // A sender on a loaded machine sends fewer packets and never more.
    assert!((500..4_000).contains(&measured("runs")), "{hook}");
    let each = measured("run_time_ns") / measured("runs");
    assert!((1..100_000).contains(&each), "{hook}");
    assert!(rig.ok(&["xdp", "status", "h1", "--seconds", "0.5"]).contains("ns each"));
    // Another process on the machine may enable the counting, so the check is repeated.
    let runs = || status(&rig, &["h1", "--seconds", "0"])[0]["program"]["runs"].as_u64().unwrap();
    let still = (0..5).any(|_| {
        let before = runs();
        std::thread::sleep(Duration::from_millis(300));
        runs() == before
    });
    assert!(still, "runs are still counted");
    let frames = || status(&rig, &["h1", "--seconds", "0"])[0]["counters"]["steered"].as_u64().unwrap();
    let before = frames();
    std::thread::sleep(Duration::from_millis(300));
    assert!(frames() > before, "the flow goes on");
}
