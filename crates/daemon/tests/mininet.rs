//! Tests Mininet with the switch class of `contrib/mininet_trivium.py`. All hosts in a tree of switches, controlled by
//! `ovs-testcontroller`, reach each other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{Rig, TRIVIUM};
use testbed::{require, skip};

#[test]
fn pingall_reaches_every_host_of_a_tree() {
    require!("ip", "mn", "ovs-testcontroller", "ovs-ofctl", "ethtool");
    // Objects that Mininet creates outside of the hosts' namespaces are in the hub, and are removed with it.
    let rig = Rig::new(0);
    let hub = rig.lab.hub();
    hub.run(["ip", "link", "set", "lo", "up"]).unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = format!("{root}/crates/daemon/tests/mininet/pingall.py");
    // Debian's Mininet package needs Debian's Python.
    let mut command = hub.command(["/usr/bin/python3", &script, &format!("{root}/contrib")]);
    command.env("TRIVIUM", TRIVIUM).env("OVS_RUNDIR", &rig.directory).env("TMPDIR", &rig.directory);
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&rig.directory);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.code() == Some(77) {
        return skip("needs Mininet ('make setup' installs it)");
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("loss: 0.0"), "{text}");
    // The controller has added rules to each switch.
    for switch in ["s1", "s2", "s3"] {
        let line = text.lines().find(|line| line.starts_with(&format!("{switch} rules: "))).unwrap_or(&text);
        let rules: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(rules >= 4, "{text}");
    }
}
