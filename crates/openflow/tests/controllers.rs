//! Tests with real controllers: `ovs-testcontroller` of Debian, and a learning switch on os-ken (PyPI) if it
//! is installed.

#![allow(clippy::unwrap_used, reason = "a test")]

mod keys;
mod memory;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use memory::Memory;
use openflow::{Address, Controllers, Sockets, Target};
use switch::flow::{Action, Reason, port};
use testbed::skip;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in 30 s: {what}");
}

/// Simulates two stations. The controller floods the first packet, and installs a flow entry for the second.
async fn stations_speak(bridge: &Memory, controllers: &Controllers, who: &str) {
    let is_there = || controllers.status().iter().any(|own| !own.address.is_passive() && own.connected);
    eventually(&format!("{who} is there"), is_there).await;
    let frame = |to: u8, from: u8| {
        let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0];
        // A complete IPv4 header.
        frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        frame.resize(60, 0);
        frame
    };
    let sent_to = |wanted: u32| {
        bridge.sent.lock().unwrap().iter().any(|packet| {
            packet.frame.len() == 60
                && packet
                    .actions
                    .iter()
                    .any(|it| matches!(it, Action::Output { port, .. } if *port == wanted))
        })
    };
    // Events before the session is established are not repeated, so the packet is sent again.
    let mut told = 0;
    eventually(&format!("{who} floods"), || {
        if told % 50 == 0 {
            bridge.packet(1, &frame(2, 1), Reason::NoMatch, 0xffff);
        }
        told += 1;
        sent_to(port::FLOOD)
    })
    .await;
    bridge.packet(2, &frame(1, 2), Reason::NoMatch, 0xffff);
    let rule = || bridge.lock().flows.iter().any(|flow| flow.instructions.outputs_to(1));
    eventually(&format!("{who} makes a rule"), rule).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stock_test_controller_makes_rules() {
    if Command::new("ovs-testcontroller").arg("--version").output().await.is_err() {
        return skip("needs the command ovs-testcontroller ('make setup' installs it)");
    }
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let path = std::env::temp_dir().join(format!("trivium-of-{}-{version}", std::process::id()));
        let mut process = Command::new("ovs-testcontroller");
        process.env("OVS_RUNDIR", std::env::temp_dir()).args(["-O", version, "-vconsole:off"]);
        process.arg(format!("punix:{}", path.display())).stdin(Stdio::null()).kill_on_drop(true);
        let mut process = process.spawn().unwrap();
        let bridge = Memory::new();
        let mut controllers = Controllers::new(bridge.clone());
        controllers.set(vec![Target::new(Address::Unix(path.clone()))]).await;
        stations_speak(&bridge, &controllers, version).await;
        controllers.shutdown().await;
        process.kill().await.unwrap();
        let _ = std::fs::remove_file(path);
    }
}

/// Checks that `ovs-ofctl snoop` shows the messages between a controller and the bridge, whichever OpenFlow version
/// they use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stock_client_listens_to_a_controller() {
    for client in ["ovs-testcontroller", "ovs-ofctl"] {
        if Command::new(client).arg("--version").output().await.is_err() {
            return skip(&format!("needs the command {client} ('make setup' installs it)"));
        }
    }
    let here = |name: &str| std::env::temp_dir().join(format!("trivium-of-{}-{name}", std::process::id()));
    for (version, mark) in [("OpenFlow10", "PACKET_IN (xid"), ("OpenFlow15", "PACKET_IN (OF1.5)")] {
        let (path, snoop) = (here(&format!("heard-{version}")), here("br0.snoop"));
        let mut process = Command::new("ovs-testcontroller");
        process.env("OVS_RUNDIR", std::env::temp_dir()).args(["-O", version, "-vconsole:off"]);
        process.arg(format!("punix:{}", path.display())).stdin(Stdio::null()).kill_on_drop(true);
        let mut process = process.spawn().unwrap();
        let bridge = Memory::new();
        let mut controllers = Controllers::new(bridge.clone());
        let listens = Target { snoops: true, ..Target::new(Address::ListenUnix(snoop.clone())) };
        controllers.set(vec![Target::new(Address::Unix(path.clone())), listens]).await;
        eventually("it can be listened to", || snoop.exists()).await;
        assert_eq!(std::fs::metadata(&snoop).unwrap().permissions().mode() & 0o777, 0o600);
        // One listener uses the socket, and the other uses the name of the bridge.
        let mut listeners = Vec::new();
        for name in [format!("unix:{}", snoop.display()), bridge_of(&snoop)] {
            let mut client = Command::new("ovs-ofctl");
            client.env("OVS_RUNDIR", std::env::temp_dir()).args(["-vtimeval:off", "-vcoverage:off"]);
            client.args(["snoop", &name]).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
            listeners.push(client.spawn().unwrap());
        }
        let both_there = || controllers.status().iter().any(|own| own.sessions == 2);
        eventually("both listen", both_there).await;
        stations_speak(&bridge, &controllers, version).await;
        for mut client in listeners {
            let mut said = String::new();
            let mut from = client.stderr.take().unwrap();
            let hears = async {
                let mut octets = [0; 4096];
                while !(said.contains(mark) && said.contains("OFPT_FLOW_MOD")) {
                    let length = from.read(&mut octets).await.unwrap();
                    assert_ne!(length, 0, "it ends: {said}");
                    said += &String::from_utf8_lossy(&octets[..length]);
                }
            };
            let in_time = tokio::time::timeout(Duration::from_secs(30), hears).await;
            assert!(in_time.is_ok(), "{version}: {said}");
            client.kill().await.unwrap();
        }
        eventually("nobody listens any more", || controllers.status().iter().all(|own| own.sessions < 2))
            .await;
        controllers.shutdown().await;
        assert!(!snoop.exists(), "the socket goes with the bridge");
        process.kill().await.unwrap();
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the name of the bridge with the snoop socket `snoop`. `ovs-ofctl snoop` finds the socket in its run
/// directory by this name.
fn bridge_of(snoop: &Path) -> String {
    snoop.file_stem().unwrap().to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stock_test_controller_makes_rules_over_tls() {
    if Command::new("ovs-testcontroller").arg("--version").output().await.is_err() {
        return skip("needs the command ovs-testcontroller ('make setup' installs it)");
    }
    let authority = keys::Authority::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut process = Command::new("ovs-testcontroller");
    process.env("OVS_RUNDIR", std::env::temp_dir()).args(["-O", "OpenFlow13", "-vconsole:off"]);
    process.args(keys::options(&authority.issue("controller", 2)));
    process.arg(format!("pssl:{}:127.0.0.1", free.port())).stdin(Stdio::null()).kill_on_drop(true);
    let mut process = process.spawn().unwrap();
    let bridge = Memory::new();
    let mut controllers = Controllers::new(bridge.clone());
    let tls = Some(authority.issue("bridge", 2));
    let max_backoff = Duration::from_secs(1);
    controllers.set(vec![Target { tls, max_backoff, ..Target::new(Address::Tls(free)) }]).await;
    stations_speak(&bridge, &controllers, "TLS").await;
    controllers.shutdown().await;
    process.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learning_switch_on_os_ken_makes_rules() {
    let python = std::env::var("OSKEN_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/learning.py");
    for version in ["1.3", "1.5"] {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut process = Command::new(&python);
        process.args([script, version, &free.port().to_string()]).kill_on_drop(true);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = process.spawn().unwrap();
        let bridge = Memory::new();
        let mut controllers = Controllers::new(bridge.clone());
        let mut target = Target::new(Address::Tcp(free));
        target.max_backoff = Duration::from_secs(1);
        controllers.set(vec![target]).await;
        for _ in 0..100 {
            if let Some(ended) = process.try_wait().unwrap() {
                assert_eq!(ended.code(), Some(77), "the controller ended");
                return skip(&format!("{python} has no os_ken ('make setup' installs it)"));
            }
            if controllers.status()[0].connected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stations_speak(&bridge, &controllers, version).await;
        controllers.shutdown().await;
        process.kill().await.unwrap();
        let output = process.wait_with_output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("desc Trivium") && text.contains("ports br0 p1 p2"), "{version}: {text}");
        assert!(!text.contains("error"), "{version}: {text}");
    }
}

/// Checks that the removal of a listener does not remove a socket file on which another process, or a listener of
/// another bridge, listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_removes_only_its_own_socket_file() {
    let here = |name: &str| std::env::temp_dir().join(format!("trivium-of-{}-{name}", std::process::id()));
    let (foreign, shared) = (here("foreign"), here("shared"));
    let _ = std::fs::remove_file(&foreign);
    let _other = std::os::unix::net::UnixListener::bind(&foreign).unwrap();
    let sockets: Arc<Sockets> = Arc::default();
    let bridge = || Controllers::with_sockets(Memory::new(), Arc::clone(&sockets));
    let listens = |path: &Path| Target::new(Address::ListenUnix(path.to_owned()));
    let mut first = bridge();
    first.set(vec![listens(&shared)]).await;
    eventually("the first bridge listens", || shared.exists()).await;
    let mut second = bridge();
    second.set(vec![listens(&foreign), listens(&shared)]).await;
    let failed = |controllers: &Controllers| {
        controllers
            .status()
            .iter()
            .all(|own| own.last_error.as_ref().is_some_and(|why| why.contains("in use")))
    };
    eventually("the second bridge cannot listen", || failed(&second)).await;
    second.set(Vec::new()).await;
    assert!(foreign.exists() && shared.exists(), "the files of other listeners remain");
    tokio::net::UnixStream::connect(&shared).await.unwrap();
    first.set(Vec::new()).await;
    assert!(!shared.exists(), "the listener removes its own file");
    std::fs::remove_file(&foreign).unwrap();
}
