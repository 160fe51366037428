//! Tests controllers and flow tables that are configured in the database, and the controller status that the daemon
//! writes to the database. The tests use the real `ovsdb-server`, `ovs-vsctl`, `ovs-ofctl` and `ovs-testcontroller`,
//! and a simple test controller that counts messages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::{OvsdbServer, Process, UdpFlow, eventually, require};

/// A lab ([`Rig`]) whose daemon is configured by an OVSDB database.
struct Switch {
    rig: Rig,
    server: OvsdbServer,
}

impl Switch {
    fn new(hosts: u8) -> Switch {
        let rig = Rig::new(hosts);
        let server = OvsdbServer::start(&rig.path("ovs")).unwrap();
        Switch { rig, server }
    }

    fn run(&mut self) {
        let text =
            self.rig.configuration_with("", &vec![0; self.rig.hosts.len()]).replace("[bridge.br0]\n", "");
        self.rig.start(&(text + &format!("[ovsdb]\ndatabase = {:?}\n", self.server.target())));
    }

    /// Starts the daemon with the bridge br0, to which all hosts are connected, and with additional `ovs-vsctl`
    /// commands.
    fn start(hosts: u8, more: &str) -> Switch {
        let mut switch = Switch::new(hosts);
        switch.run();
        let ports = switch.rig.hosts.iter().map(|host| format!(" -- add-port br0 {}", host.device()));
        let line = "add-br br0".to_owned() + &ports.collect::<String>() + more;
        assert_eq!(switch.vsctl(&line), "", "no error is told");
        switch.rig.pin_neighbours();
        switch
    }

    /// Runs `ovs-vsctl`, which waits until the daemon has applied the change.
    fn vsctl(&self, line: &str) -> String {
        self.server.vsctl(line.split(' ')).unwrap()
    }

    /// Waits until the rule file of br0 contains the rule with cookie 0x1a57c00c1e. Then kills the daemon and starts it
    /// again with the stored rules.
    fn restore(&mut self) {
        let file = self.rig.path("state").join("rules").join("br0.rules");
        eventually("the rules are in the file", PATIENCE, || {
            let octets = std::fs::read(&file).unwrap_or_default();
            let found = octets.windows(5).any(|octets| octets == [0x1a, 0x57, 0xc0, 0x0c, 0x1e]);
            if found { Ok(()) } else { Err(format!("{} octets", octets.len())) }
        })
        .unwrap();
        self.rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
        let text = std::fs::read_to_string(self.rig.path("trivium.toml")).unwrap();
        self.rig.start(&text.replace("[memory]", "restore = true\n[memory]"));
        self.until_there();
    }

    /// Waits until the bridge accepts OpenFlow connections. After a start, the daemon must first read the database.
    /// After an upgrade, the new process must first open its sockets.
    fn until_there(&self) {
        eventually("its bridge is there", PATIENCE, || {
            let asked = self.ofctl_as("OpenFlow14", &["show"]);
            if asked.status.success() { Ok(()) } else { Err(said(&asked)) }
        })
        .unwrap();
    }

    fn controller(&self, column: &str) -> String {
        self.vsctl(&format!("--if-exists get controller br0 {column}")).replace('"', "")
    }

    fn until(&self, column: &str, wanted: &str) {
        eventually(&format!("{column} of the controller"), PATIENCE, || {
            let value = self.controller(column);
            if value.contains(wanted) { Ok(()) } else { Err(value) }
        })
        .unwrap();
    }

    fn ofctl_as(&self, version: &str, arguments: &[&str]) -> Output {
        let bridge = format!("unix:{}", self.rig.path("br0.mgmt").display());
        let (command, rest) = arguments.split_first().unwrap();
        let mut client = Command::new("ovs-ofctl");
        client.args(["-O", version, command, &bridge]).args(rest).output().unwrap()
    }

    fn ofctl(&self, arguments: &[&str]) -> String {
        let output = self.ofctl_as("OpenFlow14", arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn versions_and_tables_are_those_of_the_database() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let switch =
        Switch::start(2, " -- set-fail-mode br0 secure -- set bridge br0 protocols=OpenFlow13,OpenFlow14");
    let refused = switch.ofctl_as("OpenFlow15", &["dump-flows"]);
    assert!(said(&refused).contains("version negotiation failed"), "{}", said(&refused));
    assert!(switch.ofctl_as("OpenFlow13", &["dump-flows"]).status.success());
    switch.vsctl("clear bridge br0 protocols");
    assert!(switch.ofctl_as("OpenFlow15", &["dump-flows"]).status.success());

    switch.vsctl(
        "-- --id=@ft create Flow_Table name=acl flow_limit=3 overflow_policy=refuse -- set bridge br0 flow_tables:0=@ft",
    );
    let add = |n: u16| {
        let rule = format!("priority={n},hard_timeout={},actions=drop", 1000 + n);
        switch.ofctl_as("OpenFlow14", &["add-flow", &rule])
    };
    for n in 1..=3 {
        assert!(add(n).status.success());
    }
    assert!(said(&add(4)).contains("OFPFMFC_TABLE_FULL"), "{}", said(&add(4)));
    assert!(switch.ofctl(&["dump-table-features"]).contains("acl"));
    // The rule that expires first is evicted.
    switch.vsctl("set flow_table acl overflow_policy=evict");
    assert!(add(4).status.success());
    let flows = switch.ofctl(&["dump-flows"]);
    assert!(
        !flows.contains("priority=1,") && !flows.contains("priority=1 ") && flows.contains("priority=4"),
        "{flows}"
    );
    // A lower limit takes effect at once.
    switch.vsctl("set flow_table acl flow_limit=1");
    assert_eq!(switch.ofctl(&["dump-flows"]).matches("priority=").count(), 1);
    switch.vsctl("clear bridge br0 flow_tables");
    for n in 1..=9 {
        assert!(add(n).status.success(), "as many as ever");
    }
    assert!(!switch.ofctl(&["dump-table-features"]).contains("acl"));
}

/// If a flow table is full, the column `groups` divides it fairly among groups of flows. The column `prefixes` limits
/// the prefix lengths of megaflows. Unknown fields in these columns are logged.
#[test]
fn groups_and_prefixes_of_tables_are_those_of_the_database() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let switch = Switch::start(2, " -- set-fail-mode br0 secure");
    switch.vsctl(
        "-- --id=@ft create Flow_Table flow_limit=4 overflow_policy=evict groups=\"NXM_OF_IN_PORT[]\",\"NXM_OF_NOTHING[]\" -- set bridge br0 flow_tables:0=@ft",
    );
    let add = |rule: &str| drop(switch.ofctl(&["add-flow", rule]));
    for n in 1..=3 {
        add(&format!("priority={n},in_port=h1,idle_timeout={},actions=drop", 900 + n));
    }
    // These rules expire first, but their group has fewer of them.
    add("priority=1,in_port=h2,idle_timeout=60,actions=drop");
    add("priority=2,in_port=h2,idle_timeout=61,actions=drop");
    let flows = switch.ofctl(&["dump-flows", "--no-names"]);
    assert_eq!((flows.matches("in_port=1").count(), flows.matches("in_port=2").count()), (2, 2), "{flows}");
    assert!(!flows.contains("idle_timeout=901"), "{flows}");
    eventually("a field that there is not is told", PATIENCE, || {
        let said = switch.rig.daemon.as_ref().unwrap().output();
        if said.contains("NXM_OF_NOTHING[]") { Ok(()) } else { Err(said) }
    })
    .unwrap();

    switch.vsctl("clear bridge br0 flow_tables");
    switch.ofctl(&["del-flows"]);
    add("priority=1,ip,nw_dst=10.0.0.0/8,actions=output:h2");
    add("priority=2,ip,nw_dst=10.1.2.3,actions=drop");
    let depends = || {
        let packet = "ip_src=10.8.0.1,ip_dst=10.5.6.7,udp";
        let told = switch.rig.ok(&["explain", "--in", "h1", packet]);
        let megaflow = told.lines().find(|line| line.contains("megaflow")).unwrap_or_default();
        megaflow.split("nw_dst=").nth(1).unwrap_or(&told).split(',').next().unwrap_or_default().to_owned()
    };
    assert_eq!(depends(), "10.5.0.0/16");
    switch.vsctl("-- --id=@ft create Flow_Table prefixes=none -- set bridge br0 flow_tables:0=@ft");
    assert_eq!(depends(), "10.5.6.7");
    switch.vsctl("-- --id=@ft create Flow_Table prefixes=ip_dst,tun_id -- set bridge br0 flow_tables:0=@ft");
    assert_eq!(depends(), "10.5.0.0/16");
}

/// A controller that sets vacancy thresholds of a table is notified when the table is nearly full and when it has space
/// again. Table settings that a controller has made are restored after the daemon was killed.
#[test]
fn controllers_hear_of_a_table_that_is_nearly_full_and_what_they_said_outlives_a_kill() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl", "ovs-appctl");
    let mut switch = Switch::start(1, " -- set-fail-mode br0 secure");
    switch.vsctl("-- --id=@ft create Flow_Table flow_limit=10 -- set bridge br0 flow_tables:0=@ft");
    switch.ofctl(&["mod-table", "0", "vacancy:30,60"]);
    switch.ofctl(&["mod-table", "7", "evict"]);
    switch.ofctl(&["mod-table", "7", "name:seven"]);
    let control = switch.rig.path("monitor.ctl");
    let mut monitor = Command::new("ovs-ofctl");
    monitor
        .args(["-O", "OpenFlow14", "monitor"])
        .arg(format!("unix:{}", switch.rig.path("br0.mgmt").display()));
    monitor.arg("65534").arg(format!("--unixctl={}", control.display())).stdin(Stdio::null());
    let monitor = Process::start(monitor).unwrap();
    // OFPT_SET_ASYNC: as master, both vacancy events are requested.
    let ask = "051c00100000000200090008000000".to_owned() + "18";
    eventually("it is asked for", PATIENCE, || {
        let sent =
            Command::new("ovs-appctl").arg("-t").arg(&control).args(["ofctl/send", &ask]).output().unwrap();
        if sent.status.success() { Ok(()) } else { Err(said(&sent)) }
    })
    .unwrap();
    for n in 1..=8 {
        switch.ofctl(&["add-flow", &format!("priority={n},actions=drop")]);
    }
    let hears = |what: &str| {
        eventually(what, PATIENCE, || {
            let said = monitor.output();
            if said.contains(what) { Ok(()) } else { Err(said) }
        })
        .unwrap();
    };
    hears("reason=VACANCY_DOWN");
    switch.ofctl(&["del-flows"]);
    hears("reason=VACANCY_UP");
    assert_eq!(monitor.output().matches("OFPT_TABLE_STATUS").count(), 2, "{}", monitor.output());
    drop(monitor);

    let desc = |switch: &Switch| {
        let told = switch.ofctl(&["dump-table-desc"]);
        let of = |table: &str| {
            let start = told.find(&format!("table {table}:")).unwrap_or_default();
            let end = told[start + 1..].find("table ").map_or(told.len(), |end| start + 1 + end);
            told[start..end].split_whitespace().collect::<Vec<_>>().join(" ")
        };
        (of("0"), of("7"))
    };
    let (vacancy, eviction) = desc(&switch);
    assert!(vacancy.contains("vacancy_down=30%") && vacancy.contains("vacancy_up=60%"), "{vacancy}");
    assert!(eviction.contains("eviction=on"), "{eviction}");
    switch.ofctl(&["add-flow", "cookie=0x1a57c00c1e,actions=drop"]);
    let before = desc(&switch);
    assert!(before.0.contains("vacancy=90%"), "{}", before.0);
    switch.restore();
    assert_eq!(desc(&switch), before, "behind a kill");
    assert!(switch.ofctl(&["dump-table-features"]).contains("seven"));
    switch.rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    switch.until_there();
    assert_eq!(desc(&switch), before, "behind an upgrade");
}

#[test]
fn how_a_controller_stands_is_written_back() {
    require!("ip", "ethtool", "ovs-vsctl", "ovs-ofctl", "ovsdb-server", "ovs-testcontroller");
    let switch = Switch::start(2, "");
    let socket = switch.rig.path("controller");
    let start = || {
        let mut command = Command::new("ovs-testcontroller");
        command.env("OVS_RUNDIR", &switch.rig.directory).arg("-vconsole:off");
        command.arg(format!("punix:{}", socket.display())).stdin(Stdio::null());
        Process::start(command).unwrap()
    };
    let process = start();
    switch.vsctl(&format!(
        "set-controller br0 unix:{} -- set controller br0 max_backoff=1000",
        socket.display()
    ));
    switch.until("is_connected", "true");
    switch.until("role", "other");
    switch.until("status", "state=ACTIVE");
    switch.until("status", "sec_since_connect");
    // The bridge is given by name, as with Open vSwitch.
    let mut snoop = Command::new("ovs-ofctl");
    snoop.env("OVS_RUNDIR", &switch.rig.directory).args(["snoop", "br0"]).stdin(Stdio::null());
    let snoop = Process::start(snoop).unwrap();
    eventually("what they say is heard", PATIENCE, || {
        switch.rig.hosts[0].reaches(&switch.rig.hosts[1]);
        let said = snoop.output();
        if said.contains("OFPT_ECHO") || said.contains("OFPT_PACKET_IN") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    drop(snoop);
    switch.rig.until_reachable(1, 2);
    process.stop(Signal::KILL, PATIENCE).unwrap();
    switch.until("is_connected", "false");
    switch.until("status", "state=BACKOFF");
    switch.until("status", "last_error");
    switch.until("status", "sec_since_disconnect");
    assert_eq!(switch.controller("role"), "[]");
    std::fs::remove_file(&socket).unwrap();
    let process = start();
    switch.until("is_connected", "true");
    drop(process);
}

/// A test controller that sends a hello and counts messages.
struct Counting {
    stream: UnixStream,
    /// Received octets of a message that is not complete yet.
    octets: Vec<u8>,
}

impl Counting {
    fn accept(listener: &UnixListener) -> Counting {
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
        Counting { stream, octets: Vec::new() }
    }

    /// Returns the types of the messages that arrive within `time`. Echo requests among them are answered.
    fn kinds(&mut self, time: Duration) -> Vec<u8> {
        let end = Instant::now() + time;
        let mut kinds = Vec::new();
        while Instant::now() < end {
            kinds.extend(self.hear().expect("it has ended the session"));
        }
        kinds
    }

    /// Returns the types of the messages that arrive next, or `None` when the session has ended.
    fn hear(&mut self) -> Option<Vec<u8>> {
        let mut part = [0; 65_536];
        let mut kinds = Vec::new();
        match self.stream.read(&mut part) {
            Ok(0) => return None,
            Ok(count) => self.octets.extend_from_slice(&part[..count]),
            Err(_) => return Some(kinds),
        }
        while self.octets.len() >= 8 {
            let length = usize::from(u16::from_be_bytes([self.octets[2], self.octets[3]]));
            if self.octets.len() < length {
                break;
            }
            let mut message: Vec<u8> = self.octets.drain(..length).collect();
            kinds.push(message[1]);
            if message[1] == 2 {
                message[1] = 3;
                self.stream.write_all(&message).ok()?;
            }
        }
        Some(kinds)
    }

    /// Keeps the OpenFlow session open without sending anything, until the returned value is dropped.
    fn stay(mut self) -> Staying {
        let stream = self.stream.try_clone().unwrap();
        let thread = std::thread::spawn(move || while self.hear().is_some() {});
        Staying { stream, thread: Some(thread) }
    }
}

/// An OpenFlow session that is kept open by [`Counting::stay`].
struct Staying {
    stream: UnixStream,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Staying {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn probes_limits_and_silence_are_as_configured() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let switch = Switch::start(2, " -- set-fail-mode br0 secure");
    let socket = switch.rig.path("counting");
    let listener = UnixListener::bind(&socket).unwrap();
    switch.vsctl(&format!(
        "set-controller br0 unix:{} -- set controller br0 inactivity_probe=1000 controller_rate_limit=100 controller_burst_limit=25",
        socket.display()
    ));
    let mut controller = Counting::accept(&listener);
    switch.until("is_connected", "true");
    let echoes = controller.kinds(Duration::from_secs(4)).iter().filter(|kind| **kind == 2).count();
    assert!((1..=4).contains(&echoes), "{echoes} in 4 s");
    switch.ofctl(&["add-flow", "in_port=h1,udp,actions=CONTROLLER:64,output:h2"]);
    let flow = UdpFlow::start(&switch.rig.hosts[0], &switch.rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    let start = Instant::now();
    let packets = controller.kinds(Duration::from_secs(2)).iter().filter(|kind| **kind == 10).count();
    let allowed = 25.0 + 100.0 * (start.elapsed().as_secs_f64() + 1.0);
    assert!(packets >= 50 && packets as f64 <= allowed, "{packets} of {allowed}");
    // Another setting starts another session, which receives neither unrequested messages nor echo requests.
    switch.vsctl("set controller br0 enable_async_messages=false inactivity_probe=0");
    let mut controller = Counting::accept(&listener);
    flow.wait_for(1_000, PATIENCE).unwrap();
    let kinds = controller.kinds(Duration::from_secs(3));
    assert!(!kinds.contains(&10) && !kinds.contains(&2), "{kinds:?}");
    drop(flow.stop());
}

#[test]
fn tls_is_spoken_with_the_keys_of_the_database() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl", "openssl");
    let switch = Switch::start(1, "");
    let directory = switch.rig.directory.display().to_string();
    let openssl = |line: &str| {
        let output = Command::new("openssl")
            .current_dir(&switch.rig.directory)
            .args(line.split(' '))
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", said(&output));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ca -days 2"));
    switch.rig.write("extensions", "basicConstraints=CA:FALSE\n");
    for name in ["bridge", "client"] {
        openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out {name}.pem"
        ));
    }
    let hub = switch.rig.lab.hub();
    hub.run(["ip", "link", "set", "lo", "up"]).unwrap();
    let show = || {
        let options =
            ["private-key", "certificate", "ca-cert"].iter().zip(["client.key", "client.pem", "ca.pem"]);
        let options = options.map(|(option, file)| format!("--{option}={directory}/{file}"));
        let line = ["ovs-ofctl".to_owned()].into_iter().chain(options);
        let line = line.chain(["--timeout=5", "show", "ssl:127.0.0.1:6653"].map(str::to_owned));
        hub.command(line).output().unwrap()
    };
    switch.vsctl("set-controller br0 pssl:6653:127.0.0.1");
    assert!(!show().status.success(), "there are no keys");
    switch.vsctl(&format!("set-ssl {directory}/bridge.key {directory}/bridge.pem {directory}/ca.pem"));
    eventually("the client comes in", PATIENCE, || {
        let shown = show();
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        if shown.status.success() && text.contains("(h1)") { Ok(()) } else { Err(said(&shown)) }
    })
    .unwrap();
}

#[test]
fn rules_of_bridges_of_the_database_wait_for_them_after_a_kill() {
    require!("ip", "ping", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let mut switch = Switch::start(2, " -- set-fail-mode br0 secure");
    switch.ofctl(&["add-flow", "in_port=h1,actions=output:h2"]);
    switch.ofctl(&["add-flow", "cookie=0x1a57c00c1e,in_port=h2,actions=output:h1"]);
    switch.restore();
    switch.rig.until_reachable(1, 2);
    assert_eq!(switch.ofctl(&["dump-flows"]).matches("actions=output").count(), 2);
}

#[test]
fn while_rules_are_given_back_nobody_else_says_what_a_bridge_does() {
    require!("ip", "ping", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let mut switch = Switch::new(2);
    let nobody = switch.rig.path("nobody");
    let listener = UnixListener::bind(&nobody).unwrap();
    switch
        .server
        .vsctl(
            format!(
                "--no-wait set open_vswitch . other_config:flow-restore-wait=true -- add-br br0 -- add-port br0 h1 -- add-port br0 h2 -- set-controller br0 unix:{}",
                nobody.display()
            )
            .split(' '),
        )
        .unwrap();
    switch.run();
    switch.rig.pin_neighbours();
    let reaches = |from: usize, to: usize| switch.rig.hosts[from].reaches(&switch.rig.hosts[to]);
    eventually("the bridge is there", PATIENCE, || {
        if switch.rig.path("br0.mgmt").exists() { Ok(()) } else { Err(String::new()) }
    })
    .unwrap();
    assert!(!reaches(0, 1), "no rules, no packets, although it stands alone");
    switch.ofctl(&["add-flow", "in_port=h1,actions=output:h2"]);
    switch.ofctl(&["add-flow", "in_port=h2,actions=output:h1"]);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it has not asked its controller either");
    switch.vsctl("remove open_vswitch . other_config flow-restore-wait");
    assert!(reaches(0, 1) && !switch.ofctl(&["dump-flows"]).contains("NORMAL"));
    eventually("now it asks", PATIENCE, || listener.accept().map(drop).map_err(|error| error.to_string()))
        .unwrap();
}

/// A port that already has its requested OpenFlow port number keeps this number. Two ports can swap their numbers. If
/// the number of a port changes, the settings that a controller has made for the port are kept.
#[test]
fn numbers_are_their_ports_and_what_was_said_of_a_port_goes_with_it() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let asked = |port: u8| format!(" -- set interface h{port} ofport_request={port}");
    let switch = Switch::start(3, &(1..=3).map(asked).collect::<String>());
    let numbers = || ["h1", "h2", "h3"].map(|name| switch.vsctl(&format!("get interface {name} ofport")));
    assert_eq!(numbers(), ["1", "2", "3"]);
    switch.vsctl("set interface h1 ofport_request=2");
    assert_eq!(numbers(), ["1", "2", "3"]);
    switch.vsctl("set interface h2 ofport_request=1");
    assert_eq!(numbers(), ["2", "1", "3"]);
    let shown = switch.ofctl(&["dump-ports-desc"]);
    assert!(shown.contains(" 2(h1)") && shown.contains(" 1(h2)"), "{shown}");

    let third = || {
        let shown = switch.ofctl(&["dump-ports-desc"]);
        let lines: Vec<&str> = shown.lines().skip_while(|line| !line.contains(" 3(h3)")).collect();
        lines.get(1).map(|line| line.replace("config:", "").trim().to_owned()).unwrap_or_default()
    };
    switch.ofctl(&["mod-port", "3", "down"]);
    assert_eq!(third(), "PORT_DOWN");
    switch.vsctl("del-port h3");
    assert_eq!(third(), "");
    switch.vsctl("add-port br0 h3 -- set interface h3 ofport_request=3");
    assert_eq!(third(), "0");
}

/// A changed datapath ID takes effect immediately, and controllers learn it in a new session.
#[test]
fn an_identifier_that_changes_is_told() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let switch = Switch::start(1, "");
    switch.ofctl(&["add-flow", "cookie=7,priority=7,actions=drop"]);
    let path = switch.rig.path("controller");
    let listener = UnixListener::bind(&path).unwrap();
    switch.vsctl(&format!("set-controller br0 unix:{}", path.display()));
    let mut first = listener.accept().unwrap().0;
    switch.vsctl("set bridge br0 other_config:datapath-id=00000000000000ab");
    assert!(switch.vsctl("get bridge br0 datapath_id").contains("00000000000000ab"));
    switch.until_there();
    let shown = switch.ofctl(&["show"]);
    assert!(shown.contains("dpid:00000000000000ab"), "{shown}");
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    first.read_to_end(&mut Vec::new()).unwrap();
    drop(listener.accept().unwrap());
    assert!(switch.ofctl(&["dump-flows"]).contains("cookie=0x7"), "its rules stay");
}

/// A bridge that has lost its controllers uses their rules for some time and then switches to standalone mode. A
/// controller that connects takes control again.
#[test]
fn a_bridge_stands_alone_while_its_controllers_are_away() {
    require!("ip", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let switch = Switch::start(2, "");
    let hosts = &switch.rig.hosts;
    let shown = || switch.ofctl(&["dump-flows"]);
    switch.rig.until_reachable(1, 2);
    // A successor keeps the standalone rule apart from other rules.
    switch.rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    switch.until_there();
    assert!(shown().contains("actions=NORMAL"));
    let socket = switch.rig.path("counting");
    let listener = UnixListener::bind(&socket).unwrap();
    switch.vsctl(&format!(
        "set-controller br0 unix:{} -- set controller br0 inactivity_probe=3000",
        socket.display()
    ));
    let controller = Counting::accept(&listener).stay();
    let until_gone = |what: &str| {
        eventually(what, PATIENCE, || if shown().contains("NORMAL") { Err(shown()) } else { Ok(()) })
            .unwrap();
    };
    until_gone("it is the controller's");
    switch.ofctl(&["add-flow", "priority=9,actions=drop"]);
    assert!(!hosts[0].reaches(&hosts[1]));
    let left = Instant::now();
    drop(controller);
    drop(listener);
    assert!(!hosts[0].reaches(&hosts[1]), "it may come back soon");
    switch.rig.until_reachable(1, 2);
    assert!(left.elapsed() > Duration::from_secs(8), "after three times the probe");
    assert!(shown().contains("priority=9") && !shown().contains("NORMAL"), "{}", shown());
    // The timeout is over for a successor, too, and for a bridge with another datapath id.
    let flow = UdpFlow::start(&hosts[0], &hosts[1], 100).unwrap();
    flow.wait_for(10, PATIENCE).unwrap();
    switch.rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    switch.until_there();
    switch.vsctl("set bridge br0 other-config:datapath-id=0000000000000abc");
    flow.wait_for(300, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!(report.lost(), 0, "{report:?}");
    switch.vsctl("set-fail-mode br0 secure");
    assert!(!hosts[0].reaches(&hosts[1]));
    switch.vsctl("set-fail-mode br0 standalone");
    switch.rig.until_reachable(1, 2);
    // The controller returns.
    std::fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let controller = Counting::accept(&listener).stay();
    eventually("its rules count", PATIENCE, || {
        if hosts[0].reaches(&hosts[1]) { Err(String::new()) } else { Ok(()) }
    })
    .unwrap();
    // The bridge has no controller any more and follows the rules of its clients.
    drop((controller, listener));
    switch.vsctl("del-controller br0");
    std::thread::sleep(Duration::from_secs(4));
    assert!(!hosts[0].reaches(&hosts[1]), "by the rule that is there");
}
