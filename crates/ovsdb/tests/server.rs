//! Tests the client with the original `ovsdb-server` and `ovs-vsctl`. Each test has a separate server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ovsdb::{
    BridgeStatus, Client, Desired, FailMode, InterfaceStatus, Mode, Options, Standing, SwitchStatus, Target,
    client,
};
use testbed::{OvsdbServer, have_command, skip};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("ovsdb-{}-{number}", std::process::id()))
}

/// Starts an OVSDB server for a test. If the server is not installed, reports a skip and ends the test.
macro_rules! server {
    ($start:expr) => {{
        if !have_command("ovsdb-server") {
            skip("needs the command ovsdb-server ('make setup' installs it)");
            return;
        }
        $start
    }};
    () => {
        server!(OvsdbServer::start(&directory()).unwrap())
    };
}

fn follow(target: &str) -> Client {
    let (client, work) = client::run(Options::new(target.parse().unwrap()));
    tokio::spawn(work);
    client
}

/// Runs `ovs-vsctl` for the server, while the task of the client continues to run.
async fn vsctl(server: &OvsdbServer, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    tokio::task::block_in_place(|| server.vsctl(words).unwrap())
}

/// Waits until the desired configuration of the client meets the condition `reached`, and returns the configuration.
async fn wanted(client: &mut Client, what: &str, reached: impl Fn(&Desired) -> bool) -> Arc<Desired> {
    let found = client.desired.wait_for(|desired| desired.as_deref().is_some_and(&reached));
    let found = timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{what}")).unwrap();
    found.clone().unwrap()
}

async fn standing(client: &mut Client, what: &str, reached: impl FnMut(&Standing) -> bool) -> Standing {
    let found = client.standing.wait_for(reached);
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{what}")).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ovs_vsctl_says_is_wanted_and_what_is_told_is_there() {
    let server = server!();
    let mut client = follow(&server.target());
    wanted(&mut client, "an empty database", |desired| desired.bridges.is_empty()).await;
    vsctl(
        &server,
        "--no-wait add-br br0 -- set bridge br0 fail_mode=secure other-config:datapath-id=00000000000000aa \
         protocols=OpenFlow13 -- set-controller br0 tcp:127.0.0.1:6653 -- add-port br0 p1 tag=10 -- set interface p1 \
         type=internal mtu_request=1400 ofport_request=7 -- add-port br0 p2 trunks=20,30 -- --id=@t create Flow_Table \
         flow_limit=10 overflow_policy=evict -- set bridge br0 flow_tables:3=@t",
    )
    .await;
    let desired = wanted(&mut client, "a bridge", |desired| desired.bridges.contains_key("br0")).await;
    let bridge = &desired.bridges["br0"];
    assert_eq!(bridge.fail_mode, FailMode::Secure);
    assert_eq!(bridge.datapath_id.as_deref(), Some("00000000000000aa"));
    assert_eq!(bridge.protocols.iter().collect::<Vec<_>>(), ["OpenFlow13"]);
    assert_eq!(bridge.controllers.values().next().unwrap().target, "tcp:127.0.0.1:6653");
    let table = &bridge.flow_tables[&3];
    assert_eq!((table.flow_limit, table.evict), (Some(10), true));
    assert_eq!(bridge.ports.keys().collect::<Vec<_>>(), ["br0", "p1", "p2"]);
    let (one, two) = (&bridge.ports["p1"], &bridge.ports["p2"]);
    assert_eq!((one.vlans.effective(), one.vlans.tag), (Mode::Access, Some(10)));
    assert_eq!((two.vlans.effective(), two.vlans.trunks.len()), (Mode::Trunk, 2));
    let interface = &one.interfaces["p1"];
    assert_eq!(
        (interface.kind.as_str(), interface.mtu_request, interface.ofport_request),
        ("internal", Some(1400), Some(7))
    );

    let mut told = SwitchStatus {
        version: Some("0.1".into()),
        iface_types: vec!["internal".into()],
        ..SwitchStatus::default()
    };
    let id = Some("00000000000000aa".to_owned());
    told.bridges.insert(bridge.uuid, BridgeStatus { datapath_id: id });
    let up = InterfaceStatus {
        ofport: Some(7),
        link_up: Some(true),
        statistics: [("rx_packets".to_owned(), 3)].into(),
        ..InterfaceStatus::default()
    };
    told.interfaces.insert(interface.uuid, up);
    client.told.send_replace(Arc::new(told.clone()));
    wanted(&mut client, "the number", |desired| {
        desired.bridges["br0"].ports["p1"].interfaces["p1"].ofport == Some(7)
    })
    .await;
    assert_eq!(vsctl(&server, "get interface p1 ofport link_state statistics:rx_packets").await, "7\nup\n3");
    assert_eq!(vsctl(&server, "get open_vswitch . ovs_version iface_types").await, "\"0.1\"\n[internal]");
    assert_eq!(vsctl(&server, "get bridge br0 datapath_id").await, "\"00000000000000aa\"");

    // Status values that another client changes are restored, and `ovs-vsctl` waits for the status.
    vsctl(&server, "--no-wait set interface p1 link_state=down").await;
    let told_again = Arc::new(told.clone());
    timeout(PATIENCE, async {
        while vsctl(&server, "get interface p1 link_state").await != "up" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    let tell = client.told.clone();
    let mut news = client.desired.clone();
    let waiting = tokio::spawn(async move {
        let changed =
            news.wait_for(|desired| !desired.as_ref().unwrap().bridges["br0"].ports.contains_key("p2"));
        let number = changed.await.unwrap().as_ref().unwrap().next_cfg;
        tell.send_replace(Arc::new(SwitchStatus {
            cur_cfg: Some(number),
            ..SwitchStatus::clone(&told_again)
        }));
    });
    vsctl(&server, "del-port br0 p2").await;
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_any_changes_the_replica_is_what_a_new_one_is() {
    let server = server!();
    let mut client = follow(&server.target());
    // Changes of sets, maps and single values.
    let lines = [
        "add-br br0 -- add-port br0 a -- add-port br0 b -- add-port br0 c",
        "set port a trunks=1,2,3 tag=4 -- set port b vlan_mode=access tag=9",
        "set port a trunks=2,5 tag=6 -- clear port b tag -- add port c trunks 7",
        "set bridge br0 other-config:x=1 other-config:y=2 external-ids:z=3",
        "set bridge br0 other-config:x=9 -- remove bridge br0 other-config y -- set interface a options:k=v type=patch",
        "del-port br0 b -- add-port br0 d -- remove port c trunks 7 -- set interface a options:k=w",
        "set-controller br0 tcp:127.0.0.1:1 tcp:127.0.0.1:2 -- set-fail-mode br0 secure",
        "del-controller br0 -- del-fail-mode br0 -- add-br br1 -- set bridge br1 mcast_snooping_enable=true",
        "del-br br0 -- add-port br1 a -- set interface a ingress_policing_rate=100 mtu_request=1300",
    ];
    for (number, line) in (1..).zip(lines) {
        vsctl(&server, &format!("--no-wait {line} -- set open_vswitch . external-ids:line={number}")).await;
        let marked = |desired: &Desired| desired.external_ids.get("line") == Some(&number.to_string());
        let old = wanted(&mut client, line, marked).await;
        // Another lock, because the first client holds the usual one.
        let mut options = Options::new(server.target().parse().unwrap());
        options.lock = "another".to_owned();
        let (mut fresh, work) = client::run(options);
        let work = tokio::spawn(work);
        let new = wanted(&mut fresh, line, marked).await;
        assert_eq!(old, new, "after {line}");
        drop(fresh);
        timeout(PATIENCE, work).await.expect("the work ends with its client").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_and_comes_is_followed_again() {
    let mut server = server!();
    let mut client = follow(&server.target());
    vsctl(&server, "--no-wait add-br br0").await;
    wanted(&mut client, "a bridge", |desired| desired.bridges.contains_key("br0")).await;
    tokio::task::block_in_place(|| server.halt().unwrap());
    let gone = standing(&mut client, "the loss", |standing| standing.trouble.is_some()).await;
    assert!(!gone.connected && !gone.whole);
    assert!(client.desired.borrow().is_some(), "what was wanted stays");
    // Status that is set while the server is away is written later.
    client
        .told
        .send_replace(Arc::new(SwitchStatus { version: Some("9.9".into()), ..SwitchStatus::default() }));
    tokio::task::block_in_place(|| server.resume().unwrap());
    vsctl(&server, "--no-wait del-br br0 -- add-br br1").await;
    let desired = wanted(&mut client, "the change", |desired| desired.bridges.contains_key("br1")).await;
    assert!(!desired.bridges.contains_key("br0"));
    standing(&mut client, "the tables", |standing| standing.whole && standing.locked).await;
    timeout(PATIENCE, async {
        while vsctl(&server, "get open_vswitch . ovs_version").await != "\"9.9\"" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_is_one_daemons() {
    let server = server!();
    vsctl(&server, "--no-wait add-br br0").await;
    let mut first = follow(&server.target());
    wanted(&mut first, "a bridge", |desired| desired.bridges.contains_key("br0")).await;
    let mut second = follow(&server.target());
    let waits = standing(&mut second, "the tables", |standing| standing.whole).await;
    assert!(!waits.locked);
    assert!(second.desired.borrow().is_none());
    second
        .told
        .send_replace(Arc::new(SwitchStatus { version: Some("second".into()), ..SwitchStatus::default() }));
    first
        .told
        .send_replace(Arc::new(SwitchStatus { version: Some("first".into()), ..SwitchStatus::default() }));
    timeout(PATIENCE, async {
        while vsctl(&server, "get open_vswitch . ovs_version").await != "first" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    drop(first);
    wanted(&mut second, "the lock", |desired| desired.bridges.contains_key("br0")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_lacks_columns_is_followed() {
    let directory = directory();
    let file = directory.with_extension("ovsschema");
    let script = "import json, sys; s = json.load(open('/usr/share/openvswitch/vswitch.ovsschema')); \
        [s['tables'][t]['columns'].pop(c) for t, c in [('Open_vSwitch', 'iface_types'), ('Interface', 'mtu_request'), \
        ('Interface', 'error'), ('Bridge', 'mcast_snooping_enable')]]; json.dump(s, open(sys.argv[1], 'w'))";
    let made = std::process::Command::new("python3").args(["-c", script]).arg(&file).status();
    let server = server!({
        assert!(made.unwrap().success());
        OvsdbServer::start_with(&directory, &file, &["ptcp:0:127.0.0.1"]).unwrap()
    });
    let mut client = follow(&server.target());
    vsctl(&server, "--no-wait add-br br0").await;
    let desired = wanted(&mut client, "a bridge", |desired| desired.bridges.contains_key("br0")).await;
    let (_, _, _, interface) = desired.interfaces().next().unwrap();
    let told = InterfaceStatus { ofport: Some(5), error: Some("none".into()), ..InterfaceStatus::default() };
    let told = SwitchStatus {
        interfaces: [(interface.uuid, told)].into(),
        iface_types: vec!["x".into()],
        ..SwitchStatus::default()
    };
    client.told.send_replace(Arc::new(told));
    wanted(&mut client, "the number", |desired| desired.interfaces().next().unwrap().3.ofport == Some(5))
        .await;
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn garbage_and_silence_end_a_connection_and_it_is_tried_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
    let probe = Duration::from_millis(100);
    let (mut client, work) = client::run(Options { probe, ..Options::new(target) });
    tokio::spawn(work);
    let said: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n", "should begin"),
        (br#"{"id":77,"result":[],"error":null}"#, "answer to nothing"),
        (br#"{"id":1,"result":{"version":1},"error":null}"#, "`version`"),
        (br#"{"id":1,"result":null,"error":"unknown database"}"#, "no database"),
        (br#"{"id":1,"result":{"vers"#, "says nothing"),
    ];
    for (bytes, expected) in said {
        let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, bytes).await.unwrap();
        let told =
            |standing: &Standing| standing.trouble.as_ref().is_some_and(|text| text.contains(expected));
        standing(&mut client, expected, told).await;
    }
    assert!(client.desired.borrow().is_none());
}
