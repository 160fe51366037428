//! Tests custom XDP programs that run before the ports' hooks, with the real binary between real hosts. The program of
//! the example answers echo requests in the driver. The program is loaded, replaced and unloaded under traffic. It also
//! outlives configuration changes, kills, upgrades and the removal of its device.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use serde_json::Value;
use testbed::{LabError, UdpFlow, eventually, require};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/xdp");

/// Compiles a source file with the command that the example's documentation gives.
fn compile(source: &Path, object: PathBuf) -> String {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let output = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf"])
        .args([format!("-I{EXAMPLES}"), format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH)])
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object.to_str().unwrap().to_owned()
}

fn reflector(rig: &Rig) -> String {
    compile(&Path::new(EXAMPLES).join("reflector.bpf.c"), rig.path("reflector.o"))
}

/// Compiles an object file with one XDP program that has this section name, program name and function body.
fn object(rig: &Rig, section: &str, name: &str, body: &str) -> String {
    let source = format!(
        "#include \"trivium.h\"\nSEC(\"{section}\") int {name}(struct xdp_md *ctx) {{ {body} }}\n\
         char _license[] SEC(\"license\") = \"GPL\";\n"
    );
    compile(&rig.write(&format!("{name}.bpf.c"), &source), rig.path(&format!("{name}.o")))
}

/// Creates hosts whose devices accept frames that a hook transmits back (XDP_TX).
fn rig() -> Rig {
    let rig = Rig::new(2);
    receives_what_is_sent_back(&rig);
    rig
}

/// Returns the number of packets that workers have processed.
fn by_workers(rig: &Rig) -> u64 {
    let workers: Value = serde_json::from_str(&rig.ok(&["show", "workers", "--json"])).unwrap();
    workers.as_array().unwrap().iter().map(|worker| worker["packets"].as_u64().unwrap()).sum()
}

/// Attaches XDP programs to the hosts' devices. A veth device without an XDP program does not receive the frames that
/// the program of its peer transmits back.
fn receives_what_is_sent_back(rig: &Rig) {
    let pass = object(rig, "xdp", "pass", "return ctx ? XDP_PASS : XDP_DROP;");
    for host in &rig.hosts {
        host.run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
        host.run(["ip", "link", "set", "dev", "eth0", "xdp", "object", &pass, "section", "xdp"]).unwrap();
    }
}

fn start(rig: &mut Rig, configuration: &str) {
    rig.start(configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
}

/// Returns whether an echo request from the first host to the second host is answered with an equal payload.
fn answered(rig: &Rig) -> bool {
    let ask = || {
        let failed = |source| LabError::System { what: "echo".to_owned(), source };
        let socket = UdpSocket::bind("10.8.0.1:0").map_err(failed)?;
        socket.set_read_timeout(Some(Duration::from_millis(300))).map_err(failed)?;
        socket.send_to(b"who is there", "10.8.0.2:7").map_err(failed)?;
        let mut answer = [0; 64];
        match socket.recv_from(&mut answer) {
            Ok((length, from)) => {
                Ok(&answer[..length] == b"who is there" && from.to_string() == "10.8.0.2:7")
            }
            Err(_) => Ok(false),
        }
    };
    rig.hosts[0].inside(ask).unwrap()
}

#[track_caller]
fn until_answered(rig: &Rig, wanted: bool) {
    let what = if wanted { "echo is answered" } else { "echo is not answered" };
    eventually(what, PATIENCE, || if answered(rig) == wanted { Ok(()) } else { Err(String::new()) }).unwrap();
}

fn hook(rig: &Rig, port: &str) -> Value {
    let text = rig.ok(&["xdp", "status", port, "--seconds", "0", "--json"]);
    serde_json::from_str::<Value>(&text).unwrap()[0].clone()
}

/// Returns the name of the custom program that runs before a port's program.
fn in_front(rig: &Rig, port: &str) -> Option<String> {
    hook(rig, port)["user_program"]["program"]["name"].as_str().map(str::to_owned)
}

/// Returns the name of the program on a device of the hub, according to the kernel.
fn on_device(rig: &Rig, device: &str) -> String {
    let text = rig.lab.hub().run(["ip", "-d", "-j", "link", "show", "dev", device]).unwrap();
    let link = serde_json::from_str::<Value>(&text).unwrap();
    link[0]["xdp"]["prog"]["name"].as_str().unwrap_or_default().to_owned()
}

fn refused(rig: &Rig, arguments: &[&str]) -> String {
    let output = rig.trivium(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_reflector_answers_and_the_bridge_goes_on() {
    require!("ip", "ping", "ethtool", "clang", "bpftool");
    let mut rig = rig();
    let configuration = rig.configuration("");
    start(&mut rig, &configuration);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    assert!(!answered(&rig), "nobody listens there");
    let file = reflector(&rig);
    let said = rig.ok(&["xdp", "load", &file, "--port", "h1"]);
    assert!(
        said.starts_with("h1: reflector ") && said.contains("/user/maps; it outlives the daemon"),
        "{said}"
    );
    until_answered(&rig, true);
    assert_eq!(
        (in_front(&rig, "h1").as_deref(), on_device(&rig, "h1").as_str()),
        (Some("reflector"), "reflector")
    );
    // The program's map can be read and contains the count.
    let shown = hook(&rig, "h1");
    let map = format!("{}/reflected", shown["user_program"]["pins"].as_str().unwrap());
    let dumped = Command::new("bpftool").args(["map", "dump", "pinned", &map]).output().unwrap();
    let dumped = String::from_utf8_lossy(&dumped.stdout).into_owned();
    assert!(dumped.contains("\"value\": 1") || dumped.contains("\"value\": 2"), "{dumped}");
    let maps = shown["user_program"]["maps"].as_array().unwrap();
    assert!(maps.iter().any(|map| map["name"] == "reflected" && map["kind"] == "percpu_array"), "{shown}");
    assert!(maps.iter().any(|map| map["name"] == "trivium_next" && map["kind"] == "prog_array"), "{shown}");
    assert_eq!(shown["program"]["name"], "trivium_port");
    let text = rig.ok(&["xdp", "status", "h1", "--seconds", "0.5"]);
    assert!(text.contains("  in front  reflector ") && text.contains("ns each"), "{text}");
    let told = rig.ok(&["explain", "--in", "h1", "ip_dst=10.8.0.2,udp,dst_port=7"]);
    assert!(told.contains("reflector meets it first and is not run here"), "{told}");
    assert!(rig.ok(&["doctor"]).contains("trivium xdp unload --port h1"));
    // A capture contains the frames that continue with the port's program.
    let dumped = rig.ok(&["xdp", "dump", "h1", "--at", "entry", "-n", "3", "udp"]);
    assert!(dumped.lines().all(|line| !line.contains(":7,")), "{dumped}");
    // The port changes, and the program in front stays.
    let filter = "[filter.edge]\n[[filter.edge.rule]]\nname = \"a\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination_port = 99\n";
    let changed = configuration.replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"") + filter;
    let after = rig.write("after.toml", &changed);
    let said = rig.ok(&["apply", after.to_str().unwrap()]);
    assert!(said.contains("the user's program reflector stays in front of its hook"), "{said}");
    assert_eq!(hook(&rig, "h1")["stages"][0], "filter");
    until_answered(&rig, true);
    // Another program replaces it, and is replaced again.
    let other = object(&rig, "xdp.frags", "other", "trivium_continue(ctx); return XDP_DROP;");
    let said = rig.ok(&["xdp", "load", &other, "--port", "h1"]);
    assert!(said.contains("before: reflector"), "{said}");
    until_answered(&rig, false);
    rig.ok(&["xdp", "load", &file, "--port", "h1", "--program", "reflector"]);
    until_answered(&rig, true);
    let said = rig.ok(&["xdp", "unload", "--port", "h1"]);
    assert_eq!(said, "h1: no more in front: reflector\n");
    assert!(!Path::new(&map).exists() && in_front(&rig, "h1").is_none());
    assert_eq!(on_device(&rig, "h1"), "trivium_port");
    until_answered(&rig, false);
    flow.wait_for(100, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
}

/// A custom program that writes metadata in front of frames does not prevent flows from moving to the hook. The hook
/// also writes metadata, the sequence numbers by which frames of a moving flow are kept in order. The numbers must
/// reach the workers together with the custom program's metadata.
#[test]
fn metadata_of_its_own_keeps_no_flow_from_the_hook() {
    require!("ip", "ping", "ethtool", "clang");
    let mut rig = rig();
    let configuration = rig.configuration("");
    start(&mut rig, &configuration);
    let body =
        "if (bpf_xdp_adjust_meta(ctx, -12)) return XDP_DROP; trivium_continue(ctx); return XDP_ABORTED;";
    let file = object(&rig, "xdp.frags", "noting", body);
    for port in ["h1", "h2"] {
        rig.ok(&["xdp", "load", &file, "--port", port]);
    }
    // All packets pass the workers for some time, and return to the hook.
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    for _ in 0..2 {
        rig.ok(&["flush"]);
        flow.wait_for(100, PATIENCE).unwrap();
        // The receiver's address is unknown until it sends.
        rig.until_reachable(2, 1);
        eventually("the flow is in the hook", PATIENCE, || {
            let before = (rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap(), by_workers(&rig));
            flow.wait_for(200, PATIENCE).unwrap();
            let came = rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap() - before.0;
            let worked = by_workers(&rig) - before.1;
            if came >= 200 && worked * 10 < came { Ok(()) } else { Err(format!("{worked} of {came}")) }
        })
        .unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
}

#[test]
fn what_cannot_stand_there_is_refused() {
    require!("ip", "ping", "ethtool", "clang");
    let mut rig = rig();
    let configuration = rig.configuration("") + "[port.none]\nkind = \"null\"\n";
    start(&mut rig, &configuration);
    let file = reflector(&rig);
    rig.ok(&["xdp", "load", &file, "--port", "h1"]);
    let id = hook(&rig, "h1")["user_program"]["program"]["id"].clone();
    let junk = rig.write("junk.o", "junk");
    let wild = object(&rig, "xdp.frags", "wild", "return *(int *)(long)ctx->data;");
    let linear = object(&rig, "xdp", "linear", "return XDP_DROP;");
    let elsewhere = object(&rig, "tc", "elsewhere", "return 0;");
    for (file, said) in [
        (junk.to_str().unwrap(), "no BPF object"),
        (&wild, "invalid access to packet"),
        (&linear, "build it with SEC(\"xdp.frags\")"),
        (&elsewhere, "elsewhere in section \"tc\""),
        ("/dev/null", "no BPF object"),
        ("/nobody/here.o", "No such file"),
    ] {
        let error = refused(&rig, &["xdp", "load", file, "--port", "h1"]);
        assert!(error.contains(said), "{file}: {error}");
    }
    assert_eq!(hook(&rig, "h1")["user_program"]["program"]["id"], id, "it stands there all the while");
    assert!(
        refused(&rig, &["xdp", "load", &file, "--port", "h1", "--program", "nobody"]).contains("\"nobody\"")
    );
    assert!(refused(&rig, &["xdp", "load", &file, "--port", "h9"]).contains("port.h9"));
    assert!(refused(&rig, &["xdp", "load", &file, "--port", "none"]).contains("port.none"));
    assert!(refused(&rig, &["xdp", "unload", "--port", "h2"]).contains("no user's program"));
    // The program never continues, so the port receives nothing, which is reported.
    let ends = object(&rig, "xdp.frags", "ends", "return XDP_DROP;");
    let said = rig.ok(&["xdp", "load", &ends, "--port", "h1"]);
    assert!(said.contains("the port receives nothing"), "{said}");
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    assert!(rig.ok(&["explain", "--in", "h1", "ip_dst=10.8.0.2,udp"]).contains("never goes on"));
    rig.ok(&["xdp", "unload", "--port", "h1"]);
    rig.until_reachable(1, 2);
}

/// When the daemon is killed, a persistent hook stays attached with its custom program. The hook of a port that is not
/// persistent is removed together with its custom program.
#[test]
fn a_kill_and_a_restart_leave_it_where_the_hook_stays() {
    require!("ip", "ping", "ethtool", "clang");
    let mut rig = rig();
    let configuration = rig.configuration("").replace("device = \"h2\"", "device = \"h2\"\npersist = false");
    start(&mut rig, &configuration);
    let file = reflector(&rig);
    rig.ok(&["xdp", "load", &file, "--port", "h1"]);
    let said = rig.ok(&["xdp", "load", &file, "--port", "h2"]);
    assert!(said.contains("it goes with the daemon"), "{said}");
    until_answered(&rig, true);
    assert_eq!(
        (on_device(&rig, "h1"), on_device(&rig, "h2")),
        ("reflector".to_owned(), "reflector".to_owned())
    );
    let id = hook(&rig, "h1")["user_program"]["program"]["id"].clone();
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    assert!(answered(&rig), "nobody is needed for that");
    eventually("the other's hook is gone", PATIENCE, || match on_device(&rig, "h2") {
        name if name.is_empty() => Ok(()),
        name => Err(name),
    })
    .unwrap();
    assert_eq!(rig.pins().len(), 1, "{:?}", rig.pins());
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    assert!(answered(&rig));
    assert_eq!(hook(&rig, "h1")["user_program"]["program"]["id"], id);
    assert_eq!(in_front(&rig, "h2"), None);
    // The hook and the custom program also survive a stop. A later daemon removes the parts that it does not need
    // completely.
    rig.ok(&["stop"]);
    rig.daemon = None;
    eventually("the daemon has ended", PATIENCE, || {
        if rig.socket().exists() { Err(String::new()) } else { Ok(()) }
    })
    .unwrap();
    assert!(answered(&rig));
    let released = rig.lab.hub().run([TRIVIUM, "release"]).unwrap();
    assert!(released.contains("h1"), "{released}");
    assert!(rig.pins().is_empty() && on_device(&rig, "h1").is_empty());
}

#[test]
fn an_upgrade_takes_it_along() {
    require!("ip", "ping", "ethtool", "clang");
    let mut rig = rig();
    let configuration = rig.configuration("").replace("device = \"h2\"", "device = \"h2\"\npersist = false");
    start(&mut rig, &configuration);
    let file = reflector(&rig);
    let ids = |rig: &Rig| ["h1", "h2"].map(|port| hook(rig, port)["user_program"]["program"]["id"].clone());
    for port in ["h1", "h2"] {
        rig.ok(&["xdp", "load", &file, "--port", port]);
    }
    let before = ids(&rig);
    assert!(before.iter().all(Value::is_u64), "{before:?}");
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert_eq!(ids(&rig), before);
    until_answered(&rig, true);
    flow.wait_for(100, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
    rig.until_reachable(2, 1);
    for port in ["h1", "h2"] {
        rig.ok(&["xdp", "unload", "--port", port]);
    }
    rig.until_reachable(1, 2);
    until_answered(&rig, false);
}

/// The custom program stays with its port when the port's device is deleted and created again, and when the port is
/// opened again after a change of its settings. When the port is removed, the custom program is removed as well.
#[test]
fn it_follows_its_port() {
    require!("ip", "ping", "ethtool", "clang");
    let mut rig = rig();
    let configuration = rig.configuration("");
    start(&mut rig, &configuration);
    let file = reflector(&rig);
    rig.ok(&["xdp", "load", &file, "--port", "h1"]);
    let id = hook(&rig, "h1")["user_program"]["program"]["id"].clone();
    let mac = rig.hosts[0].mac().unwrap();
    rig.lab.hub().run(["ip", "link", "del", "h1"]).unwrap();
    rig.port_until("h1", "down", |port| port["link_up"] == false);
    rig.hosts[0].plug_again(rig.lab.hub(), &mac, &[]).unwrap();
    rig.hosts[0]
        .run([
            "ip",
            "link",
            "set",
            "dev",
            "eth0",
            "xdp",
            "object",
            rig.path("pass.o").to_str().unwrap(),
            "section",
            "xdp",
        ])
        .unwrap();
    rig.port_until("h1", "up", |port| port["link_up"] == true);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    assert_eq!(hook(&rig, "h1")["user_program"]["program"]["id"], id, "the same, with what it has counted");
    until_answered(&rig, true);
    // A hook that changes between pinned and not pinned is replaced.
    let unpinned = configuration.replace("device = \"h1\"", "device = \"h1\"\npersist = false");
    let unpinned = rig.write("unpinned.toml", &unpinned);
    let said = rig.ok(&["apply", unpinned.to_str().unwrap()]);
    assert!(said.contains("reflector stands in front of its new hook, with its maps"), "{said}");
    assert!(hook(&rig, "h1")["user_program"]["pins"].is_null());
    until_answered(&rig, true);
    // A failed change is undone, including the program in front.
    let broken = configuration.clone() + "[port.h9]\nkind = \"af_xdp\"\ndevice = \"h9\"\n";
    let broken = rig.write("broken.toml", &broken);
    assert!(!rig.trivium(&["apply", broken.to_str().unwrap()]).status.success());
    assert_eq!(hook(&rig, "h1")["user_program"]["program"]["id"], id);
    until_answered(&rig, true);
    let without = rig.write("without.toml", &rig.configuration_with("", &[0, 10]));
    let said = rig.ok(&["apply", without.to_str().unwrap()]);
    assert!(said.contains("the user's program reflector went with the port"), "{said}");
    assert!(on_device(&rig, "h1").is_empty());
    assert!(rig.pins().iter().all(|pin| pin.starts_with("h2")), "{:?}", rig.pins());
}
