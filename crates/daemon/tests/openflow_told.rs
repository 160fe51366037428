//! Tests packet-ins to controllers, and rules that are learned from packets, with the real binary and the stock
//! `ovs-ofctl`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::{Command, Stdio};

use rig::{PATIENCE, Rig};
use testbed::{Process, eventually, require};

fn start() -> Rig {
    let mut rig = Rig::new(3);
    let text = rig.configuration("") + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n";
    rig.start(&text);
    rig.pin_neighbours();
    rig
}

fn bridge(rig: &Rig) -> String {
    format!("unix:{}", rig.path("br0.mgmt").display())
}

/// Runs `ovs-ofctl COMMAND BRIDGE ARGUMENTS`, which must succeed.
fn ofctl(rig: &Rig, command: &str, arguments: &[&str]) -> String {
    let output = Command::new("ovs-ofctl").arg(command).arg(bridge(rig)).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn reaches(rig: &Rig, from: usize, to: usize) -> bool {
    rig.hosts[from - 1].reaches(&rig.hosts[to - 1])
}

#[test]
fn packets_wait_for_a_controller_that_resumes_them() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start();
    ofctl(&rig, "add-flow", &["table=0,in_port=1,actions=load:5->NXM_NX_REG0[],resubmit(,1),output:2"]);
    ofctl(
        &rig,
        "add-flow",
        &["table=1,actions=controller(userdata=01.02,pause),load:6->NXM_NX_REG0[],resubmit(,2)"],
    );
    ofctl(&rig, "add-flow", &["table=2,reg0=6,actions=mod_nw_tos:32"]);
    ofctl(&rig, "add-flow", &["in_port=2,actions=output:1"]);
    assert!(!reaches(&rig, 1, 2), "nobody resumes them");
    // A monitor that does not resume packets leaves them paused.
    let mut monitor = Command::new("ovs-ofctl");
    monitor
        .env("OVS_RUNDIR", rig.path(""))
        .args(["monitor", &bridge(&rig), "65534", "-P", "standard"])
        .stdin(Stdio::null());
    let watch = Process::start(monitor).unwrap();
    assert!(!reaches(&rig, 1, 2));
    drop(watch);
    let mut monitor = Command::new("ovs-ofctl");
    monitor
        .env("OVS_RUNDIR", rig.path(""))
        .args(["monitor", &bridge(&rig), "65534", "resume"])
        .stdin(Stdio::null());
    let mut resumes = Process::start(monitor).unwrap();
    eventually("packets are resumed", PATIENCE, || {
        if reaches(&rig, 1, 2) { Ok(()) } else { Err(resumes.output()) }
    })
    .unwrap();
    resumes.wait_for_line("userdata=01.02", PATIENCE).unwrap();
    let told = resumes.output();
    assert!(told.contains("NXT_RESUME") && !told.contains("decode error"), "{told}");
    eventually("what comes behind was done", PATIENCE, || {
        let flows = ofctl(&rig, "dump-flows", &["table=2"]);
        if flows.contains("n_packets=0") { Err(flows) } else { Ok(()) }
    })
    .unwrap();
    // A resume of a packet that was never paused is refused, and the bridge continues.
    drop(resumes);
    assert!(!reaches(&rig, 1, 2), "they wait again");
    assert!(ofctl(&rig, "show", &[]).contains("h1"));
}

#[test]
fn learning_has_a_limit_and_goes_with_who_taught() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start();
    // Learned rules forward to the port on which an address was seen, for at most two hosts.
    let learn = "learn(table=1,cookie=0x77,priority=9,delete_learned,limit=2,result_dst=NXM_NX_REG0[0],\
                 NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    ofctl(&rig, "add-flow", &[&format!("table=0,actions={learn},resubmit(,1),resubmit(,2)")]);
    ofctl(&rig, "add-flow", &["table=1,priority=0,actions=flood"]);
    ofctl(&rig, "add-flow", &["table=2,priority=1,reg0=1,actions=drop"]);
    ofctl(&rig, "add-flow", &["table=2,priority=0,actions=drop"]);
    let learnt = || ofctl(&rig, "dump-flows", &["cookie=0x77/-1,table=1"]).matches("cookie=0x77").count();
    assert!(reaches(&rig, 1, 2) && reaches(&rig, 3, 1));
    eventually("two are learnt", PATIENCE, || if learnt() == 2 { Ok(()) } else { Err(learnt().to_string()) })
        .unwrap();
    eventually("the third is told that there is no room", PATIENCE, || {
        let told = ofctl(&rig, "dump-flows", &["table=2,reg0=0x1"]);
        reaches(&rig, 3, 1);
        let refused = ofctl(&rig, "dump-flows", &["--no-names", "table=2"]);
        let is_refused = |line: &&str| line.contains("priority=0") && !line.contains("n_packets=0");
        if !told.contains("n_packets=0") && refused.lines().any(|line| is_refused(&line)) {
            Ok(())
        } else {
            Err(refused)
        }
    })
    .unwrap();
    assert_eq!(learnt(), 2);
    // The stock client can read what it wrote.
    let shown = ofctl(&rig, "dump-flows", &["table=0"]);
    for part in ["limit=2", "delete_learned", "result_dst=NXM_NX_REG0[0]"] {
        assert!(shown.contains(part), "{shown}");
    }
    ofctl(&rig, "mod-flows", &["table=0,actions=resubmit(,1)"]);
    assert_eq!(learnt(), 0);
}

/// A learning controller of OpenFlow 1.0 receives the complete packets that no rule matches, and can request the list
/// of ports.
#[test]
fn a_controller_of_openflow_1_0_learns_from_packets_that_no_rule_matches() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl", "ovs-testcontroller");
    let mut rig = Rig::new(2);
    let socket = rig.path("controller");
    let controllers = format!("controllers = [\"unix:{}\"]\nfail_mode = \"secure\"\n", socket.display());
    let text = rig.configuration("") + "[bridge.br0.openflow]\n" + &controllers;
    rig.start(&text);
    rig.pin_neighbours();
    assert!(!reaches(&rig, 1, 2), "no controller, no rule, no way");
    // The controller runs without rules of its own that would send it the packets.
    let mut command = Command::new("ovs-testcontroller");
    command.env("OVS_RUNDIR", rig.path("")).args(["-vconsole:off", "-O", "OpenFlow10"]);
    command.arg(format!("punix:{}", socket.display())).stdin(Stdio::null());
    let _controller = Process::start(command).unwrap();
    rig.until_reachable(1, 2);
    let flows = ofctl(&rig, "dump-flows", &[]);
    assert!(flows.contains("idle_timeout=60") && !flows.contains("CONTROLLER"), "{flows}");
    // A client that has requested packet-ins receives the packets, too.
    let mut monitor = Command::new("ovs-ofctl");
    monitor.env("OVS_RUNDIR", rig.path("")).args(["monitor", &bridge(&rig), "65534"]).stdin(Stdio::null());
    let watch = Process::start(monitor).unwrap();
    eventually("a miss is seen", PATIENCE, || {
        ofctl(&rig, "del-flows", &[]);
        reaches(&rig, 2, 1);
        let seen = watch.output();
        if seen.contains("(via no_match)") { Ok(()) } else { Err(seen) }
    })
    .unwrap();
}

#[test]
fn fragments_are_dropped_or_matched_as_clients_say() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start();
    ofctl(&rig, "add-flow", &["actions=normal"]);
    for (mode, shown) in [("drop", "drop"), ("nx-match", "nx-match"), ("normal", "normal")] {
        ofctl(&rig, "set-frags", &[mode]);
        assert!(ofctl(&rig, "get-frags", &[]).contains(shown), "{mode}");
        let large = rig.hosts[0].run(["ping", "-c1", "-W1", "-s3000", rig.hosts[1].ip()]);
        assert_eq!(large.is_ok(), mode != "drop", "{mode}: {large:?}");
        assert!(reaches(&rig, 1, 2), "{mode}: whole packets go on");
    }
}
