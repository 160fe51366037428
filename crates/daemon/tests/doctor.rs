//! Tests `trivium doctor` with real devices: the doctor finds and names each fault, and the suggested fix repairs the
//! fault.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{PATIENCE, Rig};
use serde_json::Value;
use testbed::{Namespace, eventually, require};

/// An expected finding: the object, the severity, a part of the finding's text, and a part of the fix.
type Finding<'a> = (&'a str, &'a str, &'a str, String);

/// A fault and the expected finding.
struct Case<'a> {
    /// Namespace in which the commands that cause and repair the fault run.
    place: &'a Namespace,
    disturb: &'a str,
    mend: &'a str,
    found: Finding<'a>,
}

fn examine(rig: &Rig) -> Vec<Value> {
    // The exit code is 1 if a finding is an error.
    serde_json::from_slice(&rig.trivium(&["doctor", "--json"]).stdout).unwrap()
}

fn is_found(findings: &[Value], (object, severity, finding, fix): &Finding<'_>) -> bool {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    findings.iter().any(|value| {
        text(value, "object") == *object
            && text(value, "severity") == *severity
            && text(value, "finding").contains(finding)
            && text(value, "fix").contains(fix.as_str())
    })
}

fn until(rig: &Rig, what: &str, case: &Case<'_>, wanted: bool) {
    eventually(&format!("{what} after `{}`", case.disturb), PATIENCE, || {
        let findings = examine(rig);
        if is_found(&findings, &case.found) == wanted {
            Ok(())
        } else {
            Err(format!("{:?} in {findings:#?}", case.found))
        }
    })
    .unwrap();
}

fn type_there(place: &Namespace, command: &str) {
    place.run(["sh", "-c", command]).unwrap();
}

/// Starts the daemon with four ports: h1 in native mode and h2 in generic mode (both veth devices of the lab), the veth
/// port t with its peer in another namespace, and q, which is configured with one queue too many.
fn start(rig: &mut Rig, far: &Namespace, tenant: &Namespace) {
    let configuration =
        rig.configuration("persist = false").replace("[port.h2]\n", "[port.h2]\nmode = \"generic\"\n");
    let more = format!(
        "[port.t]\nkind = \"veth\"\ndevice = \"t\"\nnamespace = \"{}\"\npersist = false\n\
         peer = {{ name = \"eth0\", namespace = \"{}\" }}\n[bridge.br0.port.t]\naccess = 10\n\
         [port.q]\nkind = \"af_xdp\"\ndevice = \"q\"\nqueues = 1\npersist = false\n[bridge.br0.port.q]\naccess = 10\n",
        far.name(),
        tenant.name()
    );
    let hub = rig.lab.hub().clone();
    type_there(
        &hub,
        "ip link add name q numrxqueues 2 numtxqueues 2 type veth peer name qq numrxqueues 2 numtxqueues 2",
    );
    type_there(&hub, "ip link set dev qq up; ip link set dev q up");
    rig.start(&format!("{configuration}{more}"));
}

#[test]
fn the_machine_is_examined_without_a_daemon() {
    let socket = std::env::temp_dir().join("no-daemon-listens-here.sock");
    let output = std::process::Command::new(rig::TRIVIUM)
        .args(["--socket", socket.to_str().unwrap(), "doctor", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("trivium run -c FILE"), "{output:?}");
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for object in ["privileges", "kernel", "bpffs"] {
        assert!(findings.iter().any(|finding| finding["object"] == object), "{object}: {findings:#?}");
    }
}

/// Returns the findings that the doctor always reports in this lab, even without a fault.
fn standing() -> [Finding<'static>; 9] {
    [
        ("port.h1", "ok", "driver veth: native XDP", String::new()),
        (
            "port.h2",
            "warning",
            "driver veth, although it has native XDP: generic XDP",
            "mode = \"auto\"".to_owned(),
        ),
        (
            "port.h2",
            "warning",
            "before the hook sees it, and what its stations send and get passes a worker",
            "mode = \"auto\"".to_owned(),
        ),
        (
            "port.h1",
            "advice",
            "its peer may leave checksums open",
            "ethtool -K PEER tx off tso off".to_owned(),
        ),
        (
            "port.h1",
            "advice",
            "h1 takes no redirected frames",
            "at the peer: `ethtool -K PEER gro on`".to_owned(),
        ),
        ("port.q", "advice", "q takes no redirected frames", "`ethtool -K qq gro on`".to_owned()),
        ("port.q", "ok", "its peer qq runs no XDP program", String::new()),
        ("port.q", "warning", "1 of 2 receive queues are served", "`ethtool -L q combined 1`".to_owned()),
        ("memory", "advice", "in normal pages", "sysctl -w vm.nr_hugepages=".to_owned()),
    ]
}

/// Returns the faults of the ports, each with the expected finding.
fn disturbances<'a>(
    hub: &'a Namespace,
    host: &'a Namespace,
    far: &'a Namespace,
    tenant: &'a Namespace,
) -> Vec<Case<'a>> {
    let in_far = |command: &str| format!("ip netns exec {} {command}", far.name());
    let in_tenant = |command: &str| format!("ip netns exec {} {command}", tenant.name());
    vec![
        Case {
            place: hub,
            disturb: "ip link set dev h1 down",
            mend: "ip link set dev h1 up",
            found: ("port.h1", "error", "h1 is down", "ip link set dev h1 up".to_owned()),
        },
        Case {
            place: host,
            disturb: "ip link set dev eth0 down",
            mend: "ip link set dev eth0 up",
            found: ("port.h1", "warning", "h1 has no carrier", "set the other end up".to_owned()),
        },
        Case {
            place: hub,
            disturb: "ip link set dev h1 mtu 1400",
            mend: "ip link set dev h1 mtu 1500",
            found: ("bridge.br0", "warning", "h1 1400", "ip link set dev h1 mtu 1500".to_owned()),
        },
        Case {
            place: tenant,
            disturb: "ip link set dev eth0 mtu 1300",
            mend: "ip link set dev eth0 mtu 1500",
            found: (
                "port.t",
                "warning",
                "has an MTU of 1300, not 1500",
                in_tenant("ip link set dev eth0 mtu 1500"),
            ),
        },
        Case {
            place: far,
            disturb: "ip address add 10.9.9.9/24 dev t",
            mend: "ip address flush dev t",
            found: ("port.t", "warning", "the kernel has 10.9.9.9 on t", in_far("ip address flush dev t")),
        },
        Case {
            place: far,
            disturb: "ip link set dev t arp on",
            mend: "ip link set dev t arp off",
            found: ("port.t", "warning", "the kernel's ARP is on at t", in_far("ip link set dev t arp off")),
        },
        Case {
            place: far,
            disturb: "ethtool -K t rxvlan on",
            mend: "ethtool -K t rxvlan off",
            found: ("port.t", "warning", "t takes VLAN tags out", in_far("ethtool -K t rxvlan off")),
        },
        // The far end of the daemon's own pair accepts redirected frames until another process changes that.
        Case {
            place: tenant,
            disturb: "ethtool -K eth0 gro off",
            mend: "ethtool -K eth0 gro on",
            found: ("port.t", "advice", "t takes no redirected frames", in_tenant("ethtool -K eth0 gro on")),
        },
        // The setting is on, but the kernel has not applied it to the port's end.
        Case {
            place: tenant,
            disturb: "ethtool -K eth0 gro off; ip link set eth0 down; ethtool -K eth0 gro on; ip link set eth0 up",
            mend: "ethtool -K eth0 gro off; ethtool -K eth0 gro on",
            found: (
                "port.t",
                "advice",
                "t takes no redirected frames",
                format!(
                    "`{}`, then `{}`",
                    in_tenant("ethtool -K eth0 gro off"),
                    in_tenant("ethtool -K eth0 gro on")
                ),
            ),
        },
    ]
}

#[test]
fn every_disturbance_is_found_and_mended() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let (far, tenant) = (rig.lab.namespace("far").unwrap(), rig.lab.namespace("tenant").unwrap());
    start(&mut rig, &far, &tenant);
    let (hub, host) = (rig.lab.hub().clone(), &*rig.hosts[0]);

    // Findings without a disturbance.
    let findings = examine(&rig);
    let standing = standing();
    for found in &standing {
        assert!(is_found(&findings, found), "{found:?} in {findings:#?}");
    }

    let cases = disturbances(&hub, host, &far, &tenant);
    for case in &cases {
        // A carrier needs time to return after the preceding case.
        until(&rig, "absent", case, false);
        type_there(case.place, case.disturb);
        until(&rig, "found", case, true);
        type_there(case.place, case.mend);
        until(&rig, "mended", case, false);
    }
}

/// If an XDP program is attached to the peer of a port's veth device, that program receives the port's frames first.
/// The doctor reports the program by name.
#[test]
fn the_program_of_a_peer_is_named() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let (far, tenant) = (rig.lab.namespace("far").unwrap(), rig.lab.namespace("tenant").unwrap());
    start(&mut rig, &far, &tenant);
    let name = format!("its peer eth0@{} runs no XDP program", tenant.name());
    assert!(is_found(&examine(&rig), &("port.t", "ok", name.as_str(), String::new())));
    // The hook of a second daemon serves as an example.
    let file = rig.write(
        "second.toml",
        &format!(
            "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 4096\nhuge_pages = \"off\"\n\
             [port.p]\nkind = \"af_xdp\"\ndevice = \"eth0\"\npersist = false\n[bridge.br1.port.p]\n",
            rig.path("second.sock"),
            rig.path("second-state")
        ),
    );
    let mut second = tenant.spawn([rig::TRIVIUM, "run", "-c", file.to_str().unwrap()]).unwrap();
    second.wait_for_line("ready:", PATIENCE).unwrap();
    let found = ("port.t", "advice", "runs an XDP program (trivium_port, native)", "BPF link".to_owned());
    let findings = examine(&rig);
    assert!(is_found(&findings, &found), "{findings:#?}");
    second.stop(rustix::process::Signal::TERM, PATIENCE).unwrap();
    assert!(!is_found(&examine(&rig), &found));
}
