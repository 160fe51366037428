//! Tests SIGKILL at arbitrary times: during the start, the adoption of a predecessor's hooks, changes of filters and
//! flow steering under traffic, the reading of a long block list, and a capture in a hook. Persistent hooks are in
//! force the whole time, and the next daemon takes them over.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{UdpFlow, eventually, require};

/// Starts a client command in the background. The command may fail, because its daemon is killed.
fn begin(rig: &Rig, arguments: &[&str]) -> Child {
    let mut command = Command::new(TRIVIUM);
    command.env("TRIVIUM_SOCKET", rig.socket()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns two configurations between which the test changes back and forth. Both drop the flood. Otherwise, they
/// differ so that each change replaces programs and maps.
fn configurations(rig: &Rig, list: &std::path::Path) -> [String; 2] {
    let flood = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\nsource = \"10.8.0.1\"\n";
    let ports = rig.configuration("").replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"");
    let listed = "[[filter.edge.rule]]\nname = \"listed\"\naction = \"drop\"\nlisted = true\n";
    let steered = ports.replace("filter = \"edge\"", "filter = \"edge\"\nsteering = \"s\"");
    [
        format!("{ports}[filter.edge]\nblocklist = {list:?}\n{flood}{listed}"),
        format!("{steered}[filter.edge]\n{flood}[steering.s]\ncapacity = 16\ntable = [\"worker\"]\n"),
    ]
}

fn flood_packets(rig: &Rig) -> u64 {
    let shown: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
    let rules = shown[0]["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["name"] == "flood").unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn whenever_it_is_killed_filters_hold_and_the_next_one_takes_over() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let list: String =
        (0..50_000_u32).map(|number| format!("20.{}.{}.0/24\n", number >> 8, number & 255)).collect();
    let list = rig.write("list.txt", &list);
    let both = configurations(&rig, &list);
    let files = [0, 1].map(|at| rig.write(&format!("change{at}.toml"), &both[at]));
    let files = [0, 1].map(|at: usize| files[at].to_str().unwrap().to_owned());
    rig.start(&both[0]);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    let mut counted = eventually("the flood is seen", PATIENCE, || match flood_packets(&rig) {
        0 => Err(String::new()),
        packets => Ok(packets),
    })
    .unwrap();
    for round in 0..24_usize {
        let now = round % 2;
        let work: Vec<Child> = match round % 4 {
            // The daemon is ready and changes to the other configuration and back.
            0 | 1 => vec![begin(&rig, &["apply", &files[1 - now]]), begin(&rig, &["apply", &files[now]])],
            2 => vec![begin(&rig, &["xdp", "dump", "h1"]), begin(&rig, &["xdp", "filter", "reload"])],
            // The daemon is killed before it is ready, during the adoption of the hooks of its predecessor.
            _ => {
                rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
                rig.launch(&both[now], &[]);
                Vec::new()
            }
        };
        // The delay differs in each round and is equal in every run.
        let moment = Duration::from_millis((round as u64 * 37) % 300);
        std::thread::sleep(moment);
        rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
        for mut child in work {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(flow.received(), 0, "round {round}, killed after {moment:?}");
        let start = Instant::now();
        rig.start(&both[now]);
        assert_eq!(flow.received(), 0, "round {round}, {:?} after the next one was started", start.elapsed());
        let packets = flood_packets(&rig);
        assert!(packets >= counted, "round {round}: {packets} after {counted}");
        counted = packets;
        rig.until_reachable(1, 2);
    }
    assert_eq!(rig.pins().len(), 2, "one for each port, and nothing half-made: {:?}", rig.pins());
    // The last daemon controls all hooks: the rules are removed, and with them the program's filter.
    let plain = rig.write("plain.toml", &rig.configuration(""));
    rig.ok(&["apply", plain.to_str().unwrap()]);
    flow.wait_for(300, PATIENCE).unwrap();
}
