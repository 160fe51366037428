//! Tests virtual routers as configuration objects, with the real binary: plans list them, each router has an owner, and
//! an upgrade keeps them. Forwarding is only tested by checking that hosts in different networks reach each other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{Rig, TRIVIUM};
use testbed::require;

/// Returns the configuration of one port for each host, without a bridge.
fn ports(rig: &Rig) -> String {
    let all = rig.configuration("");
    let lines = all.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn routers_come_stay_and_go() {
    require!("ip", "ping", "ethtool", "sysctl");
    let mut rig = Rig::routed(2);
    let ports = ports(&rig);
    rig.start(&ports);
    rig.until_reachable(1, 2);
    let routed = format!(
        "{ports}[router.edge]\nroutes = 1000\n[router.edge.port.h1]\n[router.edge.port.h2]\nmiss = \"punt\"\n"
    );
    let file = rig.write("routed.toml", &routed);
    let file = file.to_str().unwrap();
    let plan = "+ router.edge\n+ router.edge.port.h1: miss unreachable\n+ router.edge.port.h2: miss punt\n";
    assert!(rig.ok(&["check", file]).contains("2 ports, 0 bridges, 1 router, 0 filters: fine"));
    let told = rig.ok(&["apply", file, "--dry-run"]);
    assert!(told.contains(plan), "{told}");
    assert!(!rig.ok(&["show", "config"]).contains("router"));
    assert!(rig.ok(&["apply", file]).contains(plan));
    rig.until_reachable(1, 2);
    // The API can create routers, too. The API can neither change the file's routers nor create a router in a namespace
    // that already has a router.
    for (path, body, status, said) in [
        ("routers/edge", "{}", "409", "belongs to file"),
        ("routers/core", "{}", "422", "is already that of router `core`"),
        ("routers/core/ports/h1", "{}", "404", "there is no router `core`"),
        ("routers/none", r#"{"namespace": "a b"}"#, "422", "router.none.namespace"),
    ] {
        let answer = rig.put(&format!("/v1/{path}"), body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(said), "{answer}");
    }
    let shown = rig.ok(&["show", "config"]);
    assert!(shown.contains("[router.edge.port.h2]\nmiss = \"punt\"\n"), "{shown}");
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert_eq!(rig.ok(&["show", "config"]), shown);
    rig.until_reachable(2, 1);
    let fewer = routed.replace("miss = \"punt\"\n", "").replace("1000", "2000");
    let file = rig.write("fewer.toml", &fewer);
    assert_eq!(
        rig.ok(&["apply", file.to_str().unwrap(), "--dry-run"]).lines().take(2).collect::<Vec<_>>(),
        ["~ router.edge: routes 1000 -> 2000", "~ router.edge.port.h2: miss \"punt\" -> \"unreachable\""]
    );
    let file = rig.write("none.toml", &ports);
    let told = rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(told.contains("- router.edge.port.h1\n- router.edge.port.h2\n- router.edge\n"), "{told}");
    rig.until_reachable(1, 2);
    assert!(rig.ok(&["show", "routers"]).contains("no router runs"));
    let output = rig.trivium(&["show", "why", "10.8.2.2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("[router.NAME]"), "{output:?}");
}
