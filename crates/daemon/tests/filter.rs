//! Tests filters with the real binary between real hosts: dropped packets, changes under traffic, restarts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::Command;
use std::time::{Duration, Instant};

use port::pcap::Reader;
use rig::filters::{FLOOD, applied, packets, packets_until, with_filter};
use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{Process, UdpFlow, eventually, require};

const PING: &str = "[[filter.edge.rule]]\nname = \"ping\"\naction = \"count\"\nprotocol = \"icmp\"\n";
const BLOCKED: &str = "[[filter.edge.rule]]\nname = \"blocked\"\naction = \"drop\"\nlisted = true\n";

#[test]
fn a_flood_is_dropped_while_ping_passes_and_rules_change_under_it() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let both = with_filter(&rig, &format!("{FLOOD}{PING}"));
    rig.start(&both);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    packets_until(&rig, "flood", 500);
    assert_eq!(flow.received(), 0, "{}", rig.ok(&["show", "filters"]));
    assert!(rig.hosts[0].ping(rig.hosts[1].ip(), 3).is_ok());
    let port = rig.port("h1");
    assert_eq!(port["filter"], "edge");
    assert!(port["counters"]["drops"].as_u64().unwrap() >= 500, "{port}");
    assert!(rig.port("h2")["filter"].is_null());
    assert!(rig.ok(&["show", "drops", "h1"]).contains("filter-dropped"));
    assert!(rig.ok(&["xdp", "filter", "show", "edge"]).contains("edge: on h1"));
    let counted = packets(&rig, "ping");
    let said = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.0.1,udp"]);
    assert!(said.contains("rule flood of the port's filter matched and acted"), "{said}");
    assert!(said.ends_with("dropped in the hook: filter-dropped\n"), "{said}");
    let said = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.0.1,icmp"]);
    assert!(said.contains("rule ping") && said.contains("up, to the worker"), "{said}");
    assert_eq!(packets(&rig, "ping"), counted, "nothing was counted");

    // A rule is replaced by another one with its name. The flood passes, and both counters continue.
    let (pings, flood) = (packets(&rig, "ping"), packets(&rig, "flood"));
    assert!(pings >= 3);
    let other = with_filter(&rig, &format!("{FLOOD}destination_port = 9\n{PING}"));
    let said = applied(&rig, &other);
    assert!(said.contains("~ filter.edge: rule.flood.destination_port"), "{said}");
    assert!(!said.contains("made anew"), "{said}");
    flow.wait_for(300, PATIENCE).unwrap();
    assert!(packets(&rig, "ping") >= pings && packets(&rig, "flood") >= flood);

    // Rules that exceed a limit together are refused, and nothing changes.
    let places: String = (0..9)
        .map(|place| {
            let pattern =
                format!("pattern = {{ at = \"payload\", offset = {}, bytes = \"00\" }}", place * 16);
            format!("[[filter.edge.rule]]\nname = \"p{place}\"\naction = \"drop\"\n{pattern}\n")
        })
        .collect();
    let file = rig.write("refused.toml", &with_filter(&rig, &format!("{FLOOD}{places}")));
    let refused = rig.trivium(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("filter.edge") && said.contains("9th place"),
        "{said}"
    );
    flow.wait_for(300, PATIENCE).unwrap();

    // A change that fails later reverts the rules, too.
    let late = format!("{both}[port.z]\nkind = \"af_xdp\"\ndevice = \"nodev\"\n");
    let file = rig.write("late.toml", &late);
    assert!(!rig.trivium(&["apply", file.to_str().unwrap()]).status.success());
    flow.wait_for(300, PATIENCE).unwrap();

    applied(&rig, &both);
    let flood = packets(&rig, "flood");
    packets_until(&rig, "flood", flood + 300);
    // Without a filter everything passes.
    applied(&rig, &rig.configuration(""));
    flow.wait_for(300, PATIENCE).unwrap();
    assert!(rig.ok(&["show", "filters"]).contains("no filter"));
}

#[test]
fn a_filter_goes_on_through_a_kill_and_is_adopted() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = with_filter(&rig, &format!("{FLOOD}{PING}{BLOCKED}"));
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    let before = packets_until(&rig, "flood", 300);
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    // About a thousand packets arrive while no daemon runs.
    std::thread::sleep(Duration::from_millis(500));
    rig.start(&configuration);
    let after = packets(&rig, "flood");
    assert!(after >= before + 500, "counted while nobody was there: {before}, {after}");
    rig.until_reachable(1, 2);
    packets_until(&rig, "flood", after + 300);
    assert_eq!(flow.received(), 0);
    // The new daemon has taken over the rules and the block list.
    rig.ok(&["xdp", "filter", "block", "10.8.0.1"]);
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    rig.ok(&["xdp", "filter", "unblock", "10.8.0.1"]);
    rig.until_reachable(1, 2);
    let kept = packets(&rig, "flood");
    applied(&rig, &with_filter(&rig, &format!("{FLOOD}destination_port = 9\n")));
    flow.wait_for(300, PATIENCE).unwrap();
    assert!(packets(&rig, "flood") >= kept);
}

#[test]
fn prefixes_are_blocked_for_a_time_and_through_an_upgrade() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let list = rig.write("list.txt", "# nobody yet\n192.0.2.0/24\n");
    let configuration = with_filter(&rig, &format!("blocklist = {list:?}\n{BLOCKED}"));
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let said = rig.ok(&["xdp", "filter", "block", "10.8.0.1", "198.51.100.0/24", "--expires", "2"]);
    assert!(said.contains("edge: 2 of 2 blocked, 3 in its block list"), "{said}");
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]), "{}", rig.ok(&["show", "filters"]));
    rig.until_reachable(1, 2);
    rig.ok(&["xdp", "filter", "block", "10.8.0.0/29"]);
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]), "the successor knows of it");
    let said = rig.ok(&["xdp", "filter", "unblock", "10.8.0.0/29"]);
    assert!(said.contains("1 of 1 taken out, 1 in its block list"), "{said}");
    rig.until_reachable(1, 2);
    // The file of the block list is read on request.
    std::fs::write(&list, "192.0.2.0/24\n10.8.0.1\n").unwrap();
    rig.ok(&["xdp", "filter", "reload"]);
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    std::fs::write(&list, "10.8.0.1/33\n").unwrap();
    let refused = rig.trivium(&["xdp", "filter", "reload", "edge"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("line 1"), "{said}");
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]), "the list is as before");
}

#[test]
fn a_rule_ends_when_it_expires() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let until = model::Timestamp(now + 6);
    let rule = format!("[[filter.edge.rule]]\nname = \"all\"\naction = \"drop\"\nexpires = {until}\n{PING}");
    rig.start(&with_filter(&rig, &rule));
    rig.pin_neighbours();
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    rig.until_reachable(1, 2);
    let shown = eventually("the rule has expired", PATIENCE, || match rig.ok(&["show", "filters"]) {
        shown if shown.contains("expired") => Ok(shown),
        shown => Err(shown),
    });
    assert!(shown.unwrap().contains(&until.to_string()));
}

#[test]
fn rules_that_changed_while_nobody_was_there_reach_every_port() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let on_both = |rules: &str| {
        let ports = rig.configuration("").replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"");
        let ports = ports.replace("device = \"h2\"", "device = \"h2\"\nfilter = \"edge\"");
        format!("{ports}[filter.edge]\n{rules}")
    };
    let other = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"icmp\"\n";
    let (before, after) = (on_both(FLOOD), on_both(other));
    rig.start(&before);
    rig.pin_neighbours();
    rig.until_reachable(1, 3);
    rig.until_reachable(2, 3);
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    rig.start(&after);
    for from in [0, 1] {
        assert!(!rig.hosts[from].reaches(&rig.hosts[2]), "h{}: {}", from + 1, rig.ok(&["show", "filters"]));
        // The old rule's packets pass now.
        let flow = UdpFlow::start(&rig.hosts[from], &rig.hosts[2], 1_000).unwrap();
        flow.wait_for(100, PATIENCE).unwrap();
        flow.stop().unwrap();
    }
}

#[test]
fn an_upgrade_without_its_block_list_is_refused_and_traffic_goes_on() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let list = rig.write("list.txt", "192.0.2.0/24\n");
    rig.start(&with_filter(&rig, &format!("blocklist = {list:?}\n{BLOCKED}")));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    std::fs::remove_file(&list).unwrap();
    let refused = rig.trivium(&["upgrade", "--binary", TRIVIUM]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("list.txt"), "{said}");
    flow.wait_for(300, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
    // With the file the upgrade succeeds, and the file is read once.
    std::fs::write(&list, "192.0.2.0/24\n").unwrap();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    rig.until_reachable(1, 2);
}

#[test]
fn what_the_hook_cannot_have_is_found_by_check() {
    let rig = Rig::new(0);
    let place = |place: u32| {
        let pattern = format!("pattern = {{ at = \"payload\", offset = {}, bytes = \"00\" }}", place * 16);
        format!("[[filter.edge.rule]]\nname = \"p{place}\"\naction = \"drop\"\n{pattern}\n")
    };
    for (places, fine) in [(8, true), (9, false)] {
        let rules: String = (0..places).map(place).collect();
        let file = rig.write("check.toml", &format!("[filter.edge]\n{rules}"));
        let output = rig.trivium(&["check", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), fine, "{said}");
        assert_eq!(said.contains("filter.edge") && said.contains("9th place"), !fine, "{said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).contains("1 filter: fine"), fine);
    }
}

const SAMPLED: &str =
    "[[filter.edge.rule]]\nname = \"some\"\naction = \"sample\"\none_in = 1\nprotocol = \"udp\"\n";

/// Frames that filter rules sample are delivered immediately to the terminal or to a file. The client names the filter,
/// or a port whose samples it wants. Samples are also delivered after the daemon was killed and restarted.
#[test]
fn samples_are_followed() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let sampled = with_filter(&rig, &format!("{SAMPLED}{PING}"));
    let both = sampled.replace("device = \"h3\"", "device = \"h3\"\nfilter = \"edge\"");
    rig.start(&both);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    let text = rig.ok(&["xdp", "filter", "samples", "edge", "-n", "5"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    let told = |line: &&str| {
        line.contains(" h1 in  ") && line.contains("UDP 10.8.0.1:") && line.ends_with(" bytes [rule: some]")
    };
    assert!(lines.iter().all(told), "{text}");
    let file = rig.path("samples.pcapng");
    let path = file.to_str().unwrap();
    // The preceding client releases the samples after a short time.
    let patient = |rig: &Rig, arguments: &[&str]| {
        eventually("nobody else follows", PATIENCE, || {
            let output = rig.trivium(&[&["xdp", "filter", "samples"], arguments].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() { Ok(said) } else { Err(said) }
        })
        .unwrap()
    };
    let followed = |rig: &Rig| patient(rig, &["h1", "-n", "3", "-w", path, "ip_dst=10.8.0.2"]);
    let read = || {
        let mut reader = Reader::new(std::fs::File::open(&file).unwrap()).unwrap();
        let mut all = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            assert_eq!(reader.interface_name(record.interface), Some("h1"));
            all.push(record);
        }
        all
    };
    followed(&rig);
    let records = read();
    assert_eq!(records.len(), 3);
    for record in &records {
        assert_eq!(record.comment.as_deref(), Some("rule: some"));
        assert!(record.received == Some(true) && record.data.len() <= 128);
        assert_eq!((&record.data[12..14], record.data[23]), (&[8, 0][..], 17));
    }
    for pair in records.windows(2) {
        assert!(pair[0].timestamp <= pair[1].timestamp);
    }

    // A client that follows a port without samples waits, and blocks other clients meanwhile.
    let follow = || {
        let mut command = Command::new(TRIVIUM);
        command.env("TRIVIUM_SOCKET", rig.socket()).args(["xdp", "filter", "samples", "h3"]);
        Process::start(command).unwrap()
    };
    let mut other = follow();
    eventually("a second one is refused", PATIENCE, || {
        // The client itself was refused if the preceding one had not released the samples yet.
        if !other.is_running() {
            other = follow();
        }
        let output = rig.trivium(&["xdp", "filter", "samples", "edge", "-n", "1"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("another client reads its samples") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    drop(other);
    patient(&rig, &["edge", "-n", "1"]);
    for (name, word) in [("h2", "no port of this name with a filter"), ("nobody", "there is no filter")] {
        let output = rig.trivium(&["xdp", "filter", "samples", name]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(word), "{name}: {said}");
    }

    // More samples arrive than the client reads. Lost samples are counted and reported.
    let mut command =
        rig.hosts[0].command([TRIVIUM, "xdp", "gen", "eth0", "--seconds", "4", "--rate", "300000"]);
    command.args(["--source", "10.8.0.1", "--destination", "10.8.0.2"]);
    let flood = Process::start(command).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let said = patient(&rig, &["edge", "-n", "5000"]);
    assert!(said.contains("more matched and were left out"), "{said}");
    drop(flood);

    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    rig.start(&both);
    rig.until_reachable(1, 2);
    followed(&rig);
    assert_eq!(read().len(), 3);

    // Without a sampling rule the command is refused.
    applied(&rig, &with_filter(&rig, PING));
    let output = rig.trivium(&["xdp", "filter", "samples", "edge"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("none of its rules samples"), "{said}");
}

/// Adds the port h1 and its filter `edge` through the API. Both are restored after a restart.
fn with_api_port(rig: &Rig) {
    let port = r#"{"kind":"af_xdp","device":"h1","filter":"edge"}"#;
    for (path, body) in [("/v1/ports/h1", port), ("/v1/bridges/br0/ports/h1", r#"{"access":10}"#)] {
        let answer = rig.put(&format!("{path}?persist=true"), body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// Adds a rule to the filter `edge`.
fn add(rig: &Rig, rule: &[&str]) -> String {
    rig.ok(&[&["xdp", "filter", "add", "edge", "--name"], rule].concat())
}

/// Runs a command that must exit with the code of a refused configuration, and returns its error output.
fn refused(rig: &Rig, arguments: &[&str]) -> String {
    let output = rig.trivium(&[&["xdp", "filter"], arguments].concat());
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the names of the rules of `edge` in order, without the implicit last rule.
fn names(rig: &Rig) -> Vec<String> {
    let shown: serde_json::Value =
        serde_json::from_str(&rig.ok(&["xdp", "filter", "show", "edge", "--json"])).unwrap();
    let rules = shown[0]["rules"].as_array().unwrap();
    let names = rules.iter().map(|rule| rule["name"].as_str().unwrap().to_owned());
    names.filter(|name| name != "(unreadable)").collect()
}

#[test]
fn rules_come_and_go_by_command_under_traffic() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let own = "[filter.own]\n[[filter.own.rule]]\nname = \"a\"\naction = \"drop\"\n";
    let configuration = format!("{}{own}", rig.configuration_with("", &[0, 10]));
    rig.start(&configuration);
    // The first rule creates its filter.
    let said = add(&rig, &["ping", "--action", "count", "--protocol", "icmp", "--persist"]);
    assert_eq!(said, "+ filter.edge: 1 rules\n");
    with_api_port(&rig);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    let pings = packets(&rig, "ping");
    assert!(pings > 0);

    // Packets that the rule drops no longer arrive, and the other rule continues to count.
    let drops = |rig: &Rig| {
        let flood = packets(rig, "flood");
        packets_until(rig, "flood", flood + 100);
        let (received, flood) = (flow.received(), packets(rig, "flood"));
        packets_until(rig, "flood", flood + 500);
        assert_eq!(flow.received(), received, "{}", rig.ok(&["show", "filters"]));
    };
    let said = add(&rig, &["flood", "--action", "drop", "--protocol", "udp", "--source", "10.8.0.1"]);
    assert_eq!(said, "~ filter.edge: rule.flood none -> drop\n");
    drops(&rig);
    assert!(rig.hosts[0].ping(rig.hosts[1].ip(), 3).is_ok());
    assert!(packets(&rig, "ping") >= pings + 3);
    let (pings, flood) = (packets(&rig, "ping"), packets(&rig, "flood"));

    // A rule after `flood` sees no packet of the flood, and a rule before `flood` lets the flood pass.
    add(&rig, &["behind", "--action", "pass", "--protocol", "udp", "--after", "flood"]);
    drops(&rig);
    add(&rig, &["exempt", "--action", "pass", "--protocol", "udp", "--before", "flood"]);
    flow.wait_for(300, PATIENCE).unwrap();
    add(&rig, &["top", "--action", "count", "--first"]);
    assert_eq!(names(&rig), ["top", "ping", "exempt", "flood", "behind"]);
    assert_eq!(packets(&rig, "behind"), 0);
    assert!(packets(&rig, "ping") >= pings && packets(&rig, "flood") >= flood);

    // A refused change has no effect.
    let nine: Vec<String> = (0..9)
        .flat_map(|at| ["--pattern".into(), format!("at=payload,offset={},bytes=00", at * 16)])
        .collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    let bad =
        |rule: &[&str]| refused(&rig, &[&["add", "edge", "--name", "x", "--action", "drop"], rule].concat());
    assert!(bad(&["--source", "10.8.0.1/33"]).contains("filter.edge.rule[5].source[0]"));
    assert!(bad(&["--before", "nobody"]).contains("there is no rule `nobody`"));
    let output =
        rig.trivium(&[&["xdp", "filter", "add", "edge", "--name=x", "--action=drop"], &nine[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("9th place"), "{said}");
    let twice = refused(&rig, &["add", "edge", "--name", "flood", "--action", "drop"]);
    assert!(twice.contains("rule flood stands here twice"), "{twice}");
    assert!(refused(&rig, &["remove", "edge", "nobody"]).contains("there is no rule `nobody`"));
    for line in [&["add", "own", "--name", "b", "--action", "drop"][..], &["remove", "own", "a"]] {
        let said = refused(&rig, line);
        assert!(said.contains("filter.own: it belongs to file"), "{said}");
        assert!(said.contains("change it in the file and apply that"), "{said}");
    }
    assert_eq!(names(&rig), ["top", "ping", "exempt", "flood", "behind"]);
    flow.wait_for(300, PATIENCE).unwrap();

    let said = rig.ok(&["xdp", "filter", "remove", "edge", "exempt"]);
    assert_eq!(said, "~ filter.edge: rule.exempt pass -> removed\n");
    drops(&rig);

    // The rules belong to the API, so they survive applied files and a restart. The hook works meanwhile.
    applied(&rig, &configuration);
    let flood = packets(&rig, "flood");
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    rig.start(&configuration);
    assert_eq!(names(&rig), ["top", "ping", "flood", "behind"]);
    assert!(packets(&rig, "flood") >= flood + 500, "counted while nobody was there");
    drops(&rig);
    rig.ok(&["xdp", "filter", "remove", "edge", "flood"]);
    flow.wait_for(300, PATIENCE).unwrap();
}

#[test]
fn rules_that_are_added_at_once_all_stand_and_one_ends() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    rig.start(&rig.configuration_with("", &[0, 10]));
    add(&rig, &["all", "--action", "count"]);
    with_api_port(&rig);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let all = packets(&rig, "all");
    let adding: Vec<Process> = (0..6)
        .map(|at| {
            let (name, vlan) = (format!("r{at}"), (100 + at).to_string());
            let mut command = Command::new(TRIVIUM);
            command.env("TRIVIUM_SOCKET", rig.socket()).args(["xdp", "filter", "add", "edge"]);
            command.args(["--name", &name, "--action", "drop", "--vlan", &vlan, "--first"]);
            Process::start(command).unwrap()
        })
        .collect();
    for added in adding {
        let (status, said) = added.finish(PATIENCE).unwrap();
        assert!(status.success() && said.starts_with("~ filter.edge: rule.r"), "{said}");
    }
    let mut now = names(&rig);
    assert_eq!(now.pop().as_deref(), Some("all"));
    now.sort();
    assert_eq!(now, ["r0", "r1", "r2", "r3", "r4", "r5"]);
    rig.until_reachable(1, 2);
    assert!(packets(&rig, "all") > all);

    add(&rig, &["short", "--action", "drop", "--source", "10.8.0.1", "--expires", "6"]);
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    rig.until_reachable(1, 2);
}

/// Checks that a million prefixes are read from a file within seconds, and that hosts' packets are looked up in them.
#[test]
fn a_million_prefixes_are_read_from_a_file_within_seconds() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let list = rig.write("list.txt", "192.0.2.0/24\n");
    rig.start(&with_filter(&rig, &format!("blocklist = {list:?}\n{BLOCKED}")));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    // No prefix is in the hosts' network, except for the last line but one.
    let mut text = String::with_capacity(20 << 20);
    for number in 0..1_000_000_u32 {
        let [a, b, c, d] = (0x1400_0000 + number.wrapping_mul(0x9e37_79b1) % 0x9000_0000).to_be_bytes();
        text.push_str(&format!("{a}.{b}.{c}.{d}\n"));
    }
    text.push_str("10.8.0.1\n2001:db8::/32\n");
    std::fs::write(&list, text).unwrap();
    let start = Instant::now();
    rig.ok(&["xdp", "filter", "reload", "edge"]);
    let took = start.elapsed();
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]), "{}", rig.ok(&["show", "filters"]));
    // An optimised build needs one second, and a busy machine needs more.
    assert!(took < Duration::from_secs(15), "{took:?}");
    let shown: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
    let listed = shown[0]["listed"].as_u64().unwrap();
    assert!((990_000..=1_000_002).contains(&listed), "{listed}: some of them are the same");
    let said = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.0.1,udp"]);
    assert!(said.contains("rule blocked of the port's filter matched and acted"), "{said}");
    let said = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.0.2,udp"]);
    assert!(!said.contains("rule blocked"), "{said}");
    rig.ok(&["xdp", "filter", "unblock", "10.8.0.1"]);
    rig.until_reachable(1, 2);
}

#[test]
fn rates_hold_live_for_all_and_for_each_source_and_a_dry_run_drops_nothing() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let rule = |fields: &str| {
        format!(
            "[[filter.edge.rule]]\nname = \"rate\"\naction = \"limit\"\nprotocol = \"udp\"\nrate = 100\nburst = 10\n{fields}\n"
        )
    };
    let acted = |rig: &Rig| -> u64 {
        let shown: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
        shown[0]["rules"][0]["acted_packets"].as_u64().unwrap()
    };
    rig.start(&with_filter(&rig, &rule("dry_run = true")));
    rig.pin_neighbours();
    rig.until_reachable(1, 3);
    rig.until_reachable(2, 3);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[2], 1_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    assert!(acted(&rig) > 100, "what it would have dropped is counted");
    let report = flow.stop().unwrap();
    assert_eq!(report.lost(), 0, "{report:?}");
    for fields in ["", "per_source = { ipv4 = 32, ipv6 = 64 }"] {
        applied(&rig, &with_filter(&rig, &rule(fields)));
        let before = acted(&rig);
        let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[2], 1_000).unwrap();
        let start = Instant::now();
        flow.wait_for(150, PATIENCE).unwrap();
        // The limits are 100 per second with a burst of 10. The flow sends 1,000 per second.
        let most = 10.0 + 100.0 * (start.elapsed().as_secs_f64() + 0.5);
        let report = flow.stop().unwrap();
        let received = report.received;
        assert!((received as f64) <= most && report.lost() > 100, "{fields}: {report:?}, at most {most}");
        assert!(acted(&rig) >= before + report.lost(), "{fields}");
        let limited = rig.ok(&["show", "drops", "h1"]);
        assert!(limited.contains("filter-limited"), "{limited}");
    }
    // Another source has another bucket, and the rule applies to h1 only.
    let other = UdpFlow::start(&rig.hosts[1], &rig.hosts[2], 1_000).unwrap();
    other.wait_for(500, PATIENCE).unwrap();
    assert_eq!(other.stop().unwrap().lost(), 0);
}

#[test]
fn a_change_that_fails_keeps_the_counters_of_rules_that_it_took_out() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let both = with_filter(&rig, PING);
    rig.start(&both);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let counted = packets_until(&rig, "ping", 1);
    // The filter is changed before the daemon opens the port, whose device does not exist.
    let without = with_filter(&rig, &PING.replace("\"ping\"", "\"other\""));
    let file =
        rig.write("fails.toml", &format!("{without}[port.none]\nkind = \"af_xdp\"\ndevice = \"nosuch\"\n"));
    let output = rig.trivium(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("nosuch"), "{said}");
    assert!(packets(&rig, "ping") >= counted, "{}", rig.ok(&["show", "filters"]));
}
