//! Tests that all problems of a configuration text are reported together, each with its position, object, cause and
//! remedy.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

use std::collections::BTreeSet;

use model::{Cause, Format, Machine, Problem, Severity, load, load_on};

const FIFTY: &str = include_str!("fifty.toml");
const EXPECTED: &str = include_str!("fifty.expected");

/// Checks the messages about a configuration with fifty mistakes against `fifty.expected`. With `BLESS=1`, the test
/// first writes the current messages to this file, so that changes can be reviewed before a commit.
#[test]
fn fifty_mistakes_give_fifty_clear_messages() {
    let problems = load(FIFTY, "fifty.toml").unwrap_err();
    let text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fifty.expected"), &text).unwrap();
    }
    for (line, expected) in text.lines().zip(EXPECTED.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(text.len(), EXPECTED.len(), "there are more or fewer messages than expected");
    let kinds: BTreeSet<_> =
        problems.iter().map(|problem| (&problem.object, problem.cause.to_string())).collect();
    assert_eq!(kinds.len(), problems.len(), "something is said twice");
    assert!(problems.len() >= 50, "{} problems", problems.len());
    for problem in &problems {
        assert!(problem.line > 0 && problem.column > 0, "no place: {problem}");
        assert!(!problem.fix().is_empty() && !problem.fix().contains("docs/config.md"), "no fix: {problem}");
        assert!(!problem.object.is_empty() || matches!(problem.cause, Cause::UnknownKey { .. }), "{problem}");
    }
}

fn problems(text: &str) -> Vec<Problem> {
    load(text, "t").unwrap_err()
}

#[test]
fn log_levels_that_vlog_does_not_know_are_told() {
    let text = "[daemon]\nlog_file = \"x.log\"\nlog_levels = [\"file:dbg\", \"loud\", 3]\n";
    let said: Vec<String> = problems(text).iter().map(Problem::to_string).collect();
    assert_eq!(
        said,
        [
            "t:2:12: daemon.log_file: \"x.log\" is not a path from the root; write \"/x.log\" or the directory that is meant",
            "t:3:27: daemon.log_levels[1]: \"loud\" is not what `ovs-appctl vlog/set` takes; write it as \"file:info\"",
            "t:3:35: daemon.log_levels[2]: a text in quotes is expected here, and a number was found; write a text in quotes",
        ]
    );
}

#[test]
fn keys_of_a_port_whose_kind_is_misspelt_are_checked() {
    let text = "[port.a]\nkind = \"vth\"\nqueues = -1\nmtu = 1\n[port.b]\nkind = \"submarine\"\nmtu = 1\n";
    let said: Vec<String> = problems(text).iter().map(Problem::to_string).collect();
    assert_eq!(said.len(), 6, "{said:#?}");
    for (line, part) in [
        (1, "`peer` is missing"),
        (2, "did you mean \"veth\"?"),
        (3, "port.a.queues"),
        (4, "port.a.mtu"),
        (6, "use one of"),
        (7, "port.b.mtu"),
    ] {
        assert!(
            said.iter().any(|problem| problem.starts_with(&format!("t:{line}:")) && problem.contains(part)),
            "{part}: {said:#?}"
        );
    }
}

#[test]
fn two_members_with_one_number_are_told() {
    let text = "\
[port.a]
kind = \"null\"
[port.b]
kind = \"null\"
[bridge.br0.openflow]
[bridge.br0.port.a]
number = 7
[bridge.br0.port.b]
number = 7
[bridge.br1.openflow]
";
    let said: Vec<String> = problems(text).iter().map(Problem::to_string).collect();
    assert_eq!(
        said,
        [
            "t:9:10: bridge.br0.port.b.number: member `a` of the same bridge has the OpenFlow number 7 already; choose another, or leave \
          one of the two out: it gets the lowest that is free"
        ]
    );
    assert!(load(&text.replacen("number = 7", "number = 8", 1), "t").is_ok());
}

#[test]
fn a_native_vlan_that_comes_without_a_tag_alone_is_one() {
    let member = |text: &str| format!("[port.a]\nkind = \"null\"\n[bridge.br0.port.a]\n{text}");
    let told =
        |text: &str| -> Vec<String> { problems(&member(text)).iter().map(ToString::to_string).collect() };
    assert!(load(&member("trunk = \"all\"\nnative = 1\nnative_untagged_only = true\n"), "t").is_ok());
    let lacking = told("trunk = \"all\"\nnative_untagged_only = true\n");
    assert!(
        lacking[0].contains("`native_untagged_only` has a meaning only together with `native`"),
        "{lacking:?}"
    );
    let both = told("trunk = \"all\"\nnative = 1\nnative_tagged = true\nnative_untagged_only = true\n");
    assert!(both[0].contains("native_tagged") && both[0].contains("native_untagged_only"), "{both:?}");
}

#[test]
fn several_syntax_errors_come_at_once_and_without_echoes() {
    let text = "[engine]\nspin_us = \nmode = \"busy\n[memory]\nframes = 100\nframes = 5000\n";
    let problems = problems(text);
    let syntax: Vec<_> =
        problems.iter().filter(|p| matches!(p.cause, Cause::Syntax { .. })).map(|p| p.line).collect();
    assert!(syntax.contains(&2) && syntax.contains(&3) && syntax.contains(&6), "{problems:#?}");
    // The out-of-range value on a separate line is still found, and no other problems are reported.
    let others: Vec<_> = problems.iter().filter(|p| !matches!(p.cause, Cause::Syntax { .. })).collect();
    assert!(others.iter().all(|p| matches!(p.cause, Cause::OutOfRange { value: 100, .. })), "{others:#?}");
}

#[test]
fn a_port_is_not_routed_by_the_kernel_and_bridged() {
    let said = |text: &str| problems(text).iter().map(|problem| format!("{problem}\n")).collect::<String>();
    let bridged = "[port.a]\nkind = \"af_xdp\"\nrouting = \"kernel\"\n[bridge.br0.port.a]\n";
    assert_eq!(
        said(bridged),
        "t:3:11: port.a.routing: bridge `br0` has the port, and what a bridge has is not routed by the kernel; \
         remove `routing`, or take the port out of `br0`\n"
    );
    let other =
        "[port.a]\nkind = \"af_xdp\"\nrouting = \"kernal\"\n[port.b]\nkind = \"tap\"\nrouting = \"kernel\"\n";
    assert_eq!(
        said(other),
        "t:3:11: port.a.routing: \"kernal\" is none of the possible words; did you mean \"kernel\"?\n\
         t:6:1: port.b: `routing` does not belong to a port of kind tap; remove it, or make the port one of kind af_xdp or veth\n"
    );
}

#[test]
fn mistakes_of_interfaces_vlans_are_told() {
    let text = r#"
[port.a]
kind = "af_xdp"
device = "uplink-slot3"
[port.b]
kind = "af_xdp"
device = "b"
[port.c]
kind = "af_xdp"
device = "b.7"
[router.edge.port.a]
vlans = [12, 123]
[router.edge.port.b]
vlans = ["5-8", 0, "9-8"]
[router.edge.port.c]
vlans = []
[router.many]
namespace = "red"
[port.d]
kind = "af_xdp"
namespace = "red"
[router.many.port.d]
vlans = "all"
"#;
    let expected = "\
t:12:9: router.edge.port.a.vlans: the device of VLAN 123 would be called `uplink-slot3.123`, which is longer than the kernel's 15 characters; give the port's device a shorter name
t:14:9: router.edge.port.b.vlans: the device of VLAN 7 would be called `b.7`, and that one is port `c`'s; rename one of the two devices
t:14:17: router.edge.port.b.vlans[1]: 0 is outside of 1..=4094; choose a value from 1 to 4094
t:14:20: router.edge.port.b.vlans[2]: the range 9-8 runs backwards; write \"8-9\"
t:16:1: router.edge.port.c.vlans: `a VLAN` is missing; add `vlans = [10, 20]`
t:17:9: router.many: its ports have 4094 VLANs together, and 256 of a router can be interfaces; spread them over several routers
";
    let said: String = problems(text).iter().map(|problem| format!("{problem}\n")).collect();
    assert_eq!(said, expected);
}

/// Checks that a problem is reported if the peer of a patch port is not another patch port, or if that patch port has a
/// different peer.
#[test]
fn mistakes_of_patch_ports_are_told() {
    let text = r#"
[port.own]
kind = "patch"
peer = "own"
[port.a]
kind = "patch"
peer = "b"
[port.b]
kind = "patch"
peer = "a"
software_rss = true
[port.c]
kind = "patch"
peer = "a"
[port.d]
kind = "patch"
peer = "sink"
[port.sink]
kind = "null"
[port.waits]
kind = "patch"
peer = "later"
[port.none]
kind = "patch"
"#;
    let expected = "\
t:4:8: port.own.peer: a patch port cannot be its own peer; name the port at the other end
t:11:16: port.b.software_rss: software RSS acts where packets come in, and the packets of a patch port come from another port; remove `software_rss`, or set it on the ports that packets come in by
t:14:8: port.c.peer: patch port `a` has another peer, `b`; make this port the peer of `a`, or name another
t:17:8: port.d.peer: port `sink` is of kind null, and a patch port's peer is another patch port; make `sink` one of kind patch, or name another
t:23:1: port.none: `peer` is missing; add `peer = \"patch1\"`
";
    let said: String = problems(text).iter().map(|problem| format!("{problem}\n")).collect();
    assert_eq!(said, expected);
}

/// Checks that old spellings of keys are accepted, and that one warning for each old spelling names the new one.
#[test]
fn old_spellings_of_keys_mean_the_same_and_are_reported_once() {
    let new = r#"
[port.a]
kind = "af_xdp"
software_rss = true
steering = "s"
[port.b]
kind = "veth"
peer = { name = "eth0" }
software_rss = true
steering = "s"
[steering.s]
table = ["kernel", "worker"]
[[steering.s.flow]]
source = "10.0.0.1"
destination = "10.0.0.2"
protocol = "gre"
to = "kernel"
"#;
    let old = new.replace("software_rss", "spread").replace("steering", "steer");
    let read = |text: &str| load_on(text, "t", Format::Toml, None).unwrap();
    let (present, former) = (read(new), read(&old));
    assert_eq!(present.warnings, []);
    assert_eq!(former.config, present.config);
    let warnings: Vec<_> = former.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "t:4:1: warning: port.a: `spread` is the old spelling of `software_rss`; write `software_rss`",
            "t:5:1: warning: port.a: `steer` is the old spelling of `steering`; write `steering`",
            "t:11:2: warning: steer: `steer` is the old spelling of `steering`; write `steering`",
        ]
    );
    // A table that contains both spellings of a key is refused. A key in its old spelling is checked like the key in
    // its new spelling.
    let text = "[port.a]\nkind='null'\nspread=true\nsoftware_rss=false\nsteer='s'\n[port.b]\nkind='ring'\nspread=7\n";
    let said: Vec<_> = problems(text).iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "t:3:1: port.a: `software_rss` and `spread` exclude each other; keep `software_rss` or `spread`",
            "t:5:1: warning: port.a: `steer` is the old spelling of `steering`; write `steering`",
            "t:5:1: port.a: `steering` does not belong to a port of kind null; remove it, or make the port one of kind af_xdp or veth",
            "t:8:1: warning: port.b: `spread` is the old spelling of `software_rss`; write `software_rss`",
            "t:8:8: port.b.spread: true or false is expected here, and a number was found; write true or false",
        ]
    );
    // An object of the API is read in both spellings, too.
    let (object, body) =
        (model::ObjectKey::Port("a".parse().unwrap()), r#"{"kind":"af_xdp","spread":true,"steer":"s"}"#);
    let change = model::load_change(&object, body).unwrap();
    let body = body.replace("spread", "software_rss").replace("steer", "steering");
    assert_eq!(change, model::load_change(&object, &body).unwrap());
    // State files contain the old spelling after an update.
    let stored =
        |key: &str| model::Fragment::from_json(&format!(r#"[{{"{key}":"s","value":{{}}}}]"#)).unwrap();
    assert_eq!(stored("steer"), stored("steering"));
    assert_eq!(stored("steering").steering.len(), 1);
}

/// Checks that a problem is reported if the mirror device of a router port cannot have the name of the port. The daemon
/// creates a mirror device for a router port without a kernel device. The name must be a valid device name that no
/// other device has.
#[test]
fn mistakes_of_mirrors_are_told() {
    let text = r#"
[port.a-name-of-nineteen-]
kind = "null"
[port.fine]
kind = "tap"
device = "eth0"
namespace = "guest"
[port.kernel]
kind = "af_xdp"
device = "beside"
[port.beside]
kind = "null"
[router.edge.port.a-name-of-nineteen-]
[router.edge.port.fine]
vlans = [7]
[router.edge.port.beside]
"#;
    let expected = "\
t:13:19: router.edge.port.a-name-of-nineteen-: port `a-name-of-nineteen-` is of kind null, so a device stands for it that is called like it, and the kernel would not: it has 19 bytes, and at most 15 are possible; give the port a name that devices can have
t:16:19: router.edge.port.beside: port `beside` is of kind null, so a device stands for it that is called like it, and that one is port `kernel`'s; rename the port, or give that device another name or namespace
";
    let said: String = problems(text).iter().map(|problem| format!("{problem}\n")).collect();
    assert_eq!(said, expected);
}

/// Checks that each problem of a router is reported with a position and an object. A value that cannot be read causes
/// no further problems.
#[test]
fn mistakes_of_routers_come_at_once() {
    let text = r#"
[port.a]
kind = "af_xdp"
routing = "kernel"
[port.b]
kind = "tap"
[port.c]
kind = "veth"
namespace = "red"
peer = { name = "eth0", namespace = "web" }
[port.d]
kind = "af_xdp"
[bridge.br0.port.d]
[router.edge]
routes = 0
neighbours = 1000001
punts = "many"
metric = 1
[router.edge.port.a]
miss = "punts"
[router.edge.port.b]
colour = 1
[router.edge.port.c]
[router.edge.port.d]
[router.edge.port.aa]
[router.core]
routes = 16000001
[router.core.port.a]
[router.red]
namespace = "red"
[router.red.port.c]
[router.also]
namespace = "/run/netns/red"
[router.lost]
namespace = "a b"
[router.lost.port.c]
[router."x/y"]
namespace = "green"
[router.told]
namespace = "blue"
fpm = "2620"
fpm_settle = 0
punt_limits = { ospf = 0, bfd = 100, dhpc = 5 }
[router.told.port.c]
qinq = ["100.20", 7, "100", "1.4095", "100.20"]
qinq_outer = "802.1w"
"#;
    let expected = "\
t:4:11: port.a.routing: router `core` has the port, and what a router has is not routed in the hook besides; remove `routing`, or take the port out of `core`
t:14:9: router.edge.namespace: the daemon's namespace is already that of router `core`, and each has the kernel's tables of its own; give one of the two another `namespace`, or make these ports `core`'s
t:15:10: router.edge.routes: 0 is outside of 1..=16000000 routes; choose a value from 1 to 16000000
t:16:14: router.edge.neighbours: 1000001 is outside of 1..=1000000 neighbours; choose a value from 1 to 1000000
t:17:9: router.edge.punts: a whole number is expected here, and a text was found; write a whole number
t:18:1: router.edge: `metric` is not known here; use one of namespace, fpm, fpm_remote, fpm_users, routes, neighbours, punts, fpm_settle, hook, punt_limits, port
t:19:19: router.edge.port.a: port `a` already belongs to router `core`, and a port has one function; remove it from one of the two
t:20:8: router.edge.port.a.miss: \"punts\" is none of the possible words; did you mean \"punt\"?
t:21:19: router.edge.port.b: port `b` is of kind tap, so a device stands for it that is called like it, and that one is port `b`'s; rename the port, or give that device another name or namespace
t:22:1: router.edge.port.b: `colour` is not known here; use one of miss, vlans, qinq, qinq_outer, rpf, vrrp, dhcp_relay, dhcp_relay_agents
t:23:19: router.edge.port.c: the device of port `c` is in namespace `red`, and the router in the daemon's namespace; give the port and the router the same `namespace`
t:24:19: router.edge.port.d: port `d` already belongs to bridge `br0`, and a port has one function; remove it from one of the two
t:25:19: router.edge.port.aa: there is no port `aa`; add [port.aa], or remove this
t:27:10: router.core.routes: 16000001 is outside of 1..=16000000 routes; choose a value from 1 to 16000000
t:30:13: router.red.namespace: namespace `red` is already that of router `also`, and each has the kernel's tables of its own; give one of the two another `namespace`, or make these ports `also`'s
t:31:18: router.red.port.c: port `c` already belongs to router `edge`, and a port has one function; remove it from one of the two
t:35:13: router.lost.namespace: \"a b\" cannot be the name of a namespace: it contains ' '; use a name of `ip netns` or the path of a file
t:37:9: router.x/y: \"x/y\" cannot be the name of a router: it contains '/'; use letters, digits, `_`, `-` and `.`, at most 32
t:41:7: router.told.fpm: \"2620\" is not an address with a port; write it as \"127.0.0.1:2620\"
t:42:14: router.told.fpm_settle: 0 is outside of 1..=3600 seconds; choose a value from 1 to 3600
t:43:24: router.told.punt_limits.ospf: 0 is outside of 1..=10000000 packets per second; choose a value from 1 to 10000000
t:43:38: router.told.punt_limits: `dhpc` is not known here; did you mean `dhcp`?
t:44:19: router.told.port.c: port `c` already belongs to router `red`, and a port has one function; remove it from one of the two
t:44:19: router.told.port.c: the device of port `c` is in namespace `red`, and the router in namespace `blue`; give the port and the router the same `namespace`
t:45:19: router.told.port.c.qinq[1]: a text in quotes is expected here, and a number was found; write a text in quotes
t:45:22: router.told.port.c.qinq[2]: \"100\" is not an outer and an inner VLAN, 1 to 4094 each; write it as \"100.20\"
t:45:29: router.told.port.c.qinq[3]: \"1.4095\" is not an outer and an inner VLAN, 1 to 4094 each; write it as \"100.20\"
t:45:39: router.told.port.c.qinq[4]: pair of VLANs 100.20 stands here twice; remove one of the two
t:46:14: router.told.port.c.qinq_outer: \"802.1w\" is none of the possible words; did you mean \"802.1q\"?
";
    let problems = problems(text);
    let said: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    assert_eq!(said, expected);
}

/// Checks that each problem of a steering policy is reported with a position and an object.
#[test]
fn mistakes_of_steerings_come_at_once() {
    let text = r#"
[port.a]
kind = "tap"
steering = "spread"
[port.b]
kind = "af_xdp"
steering = "sprad"
[steering.spread]
table = ["worker", "cpu 1", "elsewhere"]
cpu_queue = 0
[[steering.spread.flow]]
source = "10.0.0.1"
destination = "fd00::1"
protocol = "udp"
source_port = 1
destination_port = 2
to = "kernel"
[[steering.spread.flow]]
source = "10.0.0.1"
destination = "10.0.0.2"
protocol = "udp"
to = "cpu"
[[steering.spread.flow]]
source = "10.0.0.1"
destination = "10.0.0.2"
protocol = "icmp"
source_port = 1
to = "kernel"
[[steering.spread.flow]]
source = "10.0.0.300"
destination = "10.0.0.2"
protocol = "udpp"
vlan = 4095
[[steering.spread.flow]]
source = "10.0.0.1"
destination = "10.0.0.2"
protocol = 47
to = "kernel"
[[steering.spread.flow]]
source = "10.0.0.1"
destination = "10.0.0.2"
protocol = "gre"
to = "worker"
colour = 1
[steering.bare]
metadata = false
capacity = 1
flow = [{ source = "10.0.0.1", destination = "10.0.0.2", protocol = 1, to = "worker", mark = 1 }, {}]
"#;
    let said = problems(text).iter().map(|problem| format!("{problem}\n")).collect::<String>();
    for expected in [
        "t:4:1: port.a: `steering` does not belong to a port of kind tap;",
        "t:7:12: port.b.steering: there is no steering `sprad`; did you mean `spread`?",
        "t:9:1: steering.spread.table: 3 is not a power of two; use 4, for example",
        "t:9:29: steering.spread.table[2]: \"elsewhere\" is not a target; write it as \"worker\", \"kernel\" or \"cpu 1\"",
        "t:10:13: steering.spread.cpu_queue: 0 is outside of 1..=16384 packets;",
        "steering.spread.flow[0]: its addresses are of different families; give two of one family",
        "steering.spread.flow[1].to: \"cpu\" is not a target;",
        "steering.spread.flow[1]: flows of TCP, UDP and SCTP have ports; add `source_port = 49152`",
        "steering.spread.flow[2].source_port: `source_port` has a meaning only together with `destination_port`;",
        "steering.spread.flow[3].source: \"10.0.0.300\" is not an address;",
        "steering.spread.flow[3].protocol: \"udpp\" is not a protocol;",
        "steering.spread.flow[3].vlan: 4095 is outside of 1..=4094;",
        "steering.spread.flow[3]: `to` is missing; add `to = \"kernel\"`",
        "steering.spread.flow[5]: flow gre 10.0.0.1 > 10.0.0.2 stands here twice;",
        "steering.spread.flow[5]: `colour` is not known here;",
        "steering.bare.flow[0].mark: `mark` has a meaning only together with `metadata = true`;",
        "steering.bare.flow: there are 2 flows, and at most 1 are possible;",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
}

#[test]
fn mistakes_of_services_are_named() {
    let said = |more: &str| {
        let text = format!("[[filter.edge.rule]]\nname = \"web\"\naction = \"syncookie\"\n{more}");
        problems(&text).iter().map(|problem| format!("{problem}\n")).collect::<String>()
    };
    let at = "destination = \"10.0.0.1\"\ndestination_port = 80\n";
    let object = "filter.edge.rule[0]";
    for (more, expected) in [
        (
            String::new(),
            format!("t:1:1: {object}: it names no service; give it `destination` and `destination_port`\n"),
        ),
        (
            format!("{at}protocol = \"udp\""),
            format!("t:1:1: {object}: cookies are TCP's alone; leave `protocol` out\n"),
        ),
        (
            format!("{at}length = 60"),
            format!(
                "t:1:1: {object}: only some segments of a connection would match; \
                 leave `tcp_flags`, `length`, `pattern` and `fragment` out\n"
            ),
        ),
        (
            format!("{at}wscale = 7"),
            format!(
                "t:6:1: {object}: `wscale` has a meaning only together with `scheme = \"cookie\"`; \
                 add `scheme = \"cookie\"`, or remove `wscale`\n"
            ),
        ),
        (
            format!("{at}mode = \"always\"\nabove = 7"),
            format!(
                "t:7:1: {object}: `above` has a meaning only together with `mode = \"auto\"`; \
                 add `mode = \"auto\"`, or remove `above`\n"
            ),
        ),
        (
            format!("{at}scheme = \"cookie\"\nwscale = 15\nremember = 0"),
            format!(
                "t:7:10: {object}.wscale: 15 is outside of 0..=14; choose a value from 0 to 14\n\
                 t:8:1: {object}: `remember` has a meaning only together with `scheme = \"retry\"`; \
                 add `scheme = \"retry\"`, or remove `remember`\n\
                 t:8:12: {object}.remember: 0 is outside of 1..=86400 seconds; choose a value from 1 to 86400\n"
            ),
        ),
    ] {
        assert_eq!(said(&more), expected);
    }
    let other = "[[filter.edge.rule]]\nname = \"web\"\naction = \"drop\"\nmss = 1000\n";
    let said: String = problems(other).iter().map(ToString::to_string).collect();
    assert!(said.contains("`mss` has a meaning only together with `action = \"syncookie\"`"), "{said}");
}

/// Checks that a filter with an action that needs a hook is refused for a port without a hook. The message names the
/// rule.
#[test]
fn filters_of_ports_without_a_hook_do_without_its_actions() {
    let text = r#"
[port.a]
kind = "tap"
filter = "edge"
[port.b]
kind = "af_xdp"
filter = "edge"
[filter.edge]
[[filter.edge.rule]]
name = "some"
action = "sample"
one_in = 10
"#;
    let expected = "t:4:10: port.a.filter: a port of kind tap has no driver hook, and rule `some` of filter `edge` \
                    (`action = \"sample\"`) needs one; name a filter without `some` here\n";
    let said: String = problems(text).iter().map(|problem| format!("{problem}\n")).collect();
    assert_eq!(said, expected);
    load(&text.replace("sample", "count").replace("one_in = 10", ""), "t").unwrap();
}

/// Checks that each problem of a filter is reported with a position and an object.
#[test]
fn mistakes_of_filters_come_at_once() {
    let text = r#"
[port.a]
kind = "null"
filter = "edge"
[port.b]
kind = "af_xdp"
filter = "egde"
[filter.edge]
blocklist = "list.txt"
unreadable = "dropp"
[[filter.edge.rule]]
name = "one"
action = "dorp"
source = ["10.0.0.0/33", "10.0.0.0/8"]
[[filter.edge.rule]]
name = "one"
action = "drop"
destination_port = ["90-80", 70000, "x"]
rate = 10
[[filter.edge.rule]]
name = "two two"
action = "limit"
protocol = ["tpc", 256]
tcp_flags = ["syn", "!syn"]
vlan = ["4096"]
expires = "tomorrow"
[[filter.edge.rule]]
name = "three"
action = "drop"
protocol = "icmp"
source_port = 53
family = []
pattern = { bytes = "abc" }
[[filter.edge.rule]]
action = "sample"
pattern = { bytes = "ff", mask = "0f" }
"#;
    let expected = "\
t:4:1: port.a: `filter` does not belong to a port of kind null; remove it, or make the port one of kind af_xdp or veth or tap or internal or pcap or patch or ring
t:7:10: port.b.filter: there is no filter `egde`; did you mean `edge`?
t:9:13: filter.edge.blocklist: \"list.txt\" is not a path from the root; write \"/list.txt\" or the directory that is meant
t:10:14: filter.edge.unreadable: \"dropp\" is none of the possible words; did you mean \"drop\"?
t:13:10: filter.edge.rule[0].action: \"dorp\" is none of the possible words; did you mean \"drop\"?
t:14:11: filter.edge.rule[0].source[0]: \"10.0.0.0/33\" is not an address or a prefix; write it as \"192.0.2.0/24\" or \"2001:db8::/32\"
t:18:21: filter.edge.rule[1].destination_port[0]: the range 90-80 runs backwards; write \"80-90\"
t:18:30: filter.edge.rule[1].destination_port[1]: 70000 is outside of 0..=65535; choose a value from 0 to 65535
t:18:37: filter.edge.rule[1].destination_port[2]: \"x\" is not a number or a range; write it as 1024 or \"1024-2047\"
t:19:1: filter.edge.rule[1]: `rate` has a meaning only together with `action = \"limit\"`; add `action = \"limit\"`, or remove `rate`
";
    let problems = problems(text);
    let said: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    for line in expected.lines() {
        assert!(said.lines().any(|other| other == line), "{line}\n-- is not in\n{said}");
    }
    let objects: BTreeSet<&str> = problems.iter().map(|problem| problem.object.as_str()).collect();
    for object in [
        "filter.edge.rule[2].name",
        "filter.edge.rule[2].protocol[0]",
        "filter.edge.rule[2].protocol[1]",
        "filter.edge.rule[2].tcp_flags",
        "filter.edge.rule[2].vlan[0]",
        "filter.edge.rule[2].expires",
        "filter.edge.rule[3]",
        "filter.edge.rule[3].family",
        "filter.edge.rule[3].pattern.bytes",
        "filter.edge.rule[4]",
        "filter.edge.rule[4].pattern",
    ] {
        assert!(objects.contains(object), "{object}\n-- is not in\n{said}");
    }
    assert!(
        problems.iter().all(|problem| problem.line > 0 && !problem.fix().contains("docs/config.md")),
        "{said}"
    );
}

#[test]
fn two_rules_of_a_name_are_one_too_many() {
    let rule = "[[filter.f.rule]]\nname = 'a'\naction = 'drop'\n";
    let problems = problems(&format!("{rule}{rule}"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(
        problems[0].to_string(),
        "t:5:1: filter.f.rule[1]: rule a stands here twice; remove one of the two"
    );
}

#[test]
fn columns_count_characters() {
    let problems =
        problems("[port.a]\nkind = \"ring\" \nsize = 64\nmtu = 12 # ä\n[port.b]\nx = { \"ä\" = 1 }\n");
    let mtu = problems.iter().find(|p| p.object == "port.a.mtu").unwrap();
    assert_eq!((mtu.line, mtu.column), (4, 7));
    assert_eq!(
        mtu.to_string(),
        "t:4:7: port.a.mtu: 12 is outside of 68..=9000 bytes; choose a value from 68 to 9000"
    );
}

#[test]
fn a_port_that_could_not_be_read_still_exists() {
    let problems = problems(
        "[port.a]\nkind = \"rnig\"\n[bridge.b.port.a]\n[[bridge.b.static]]\nmac='2:0:0:0:0:1'\nport='a'\n",
    );
    assert_eq!(problems.len(), 1, "{problems:#?}");
}

#[test]
fn a_huge_text_is_refused_unread() {
    let text = "# comment\n".repeat(model::LIMIT_BYTES / 10 + 1);
    assert!(matches!(problems(&text)[0].cause, Cause::TooLarge { .. }));
}

/// Checks that one megabyte of invalid text is refused in a short time, and that at most a thousand problems are
/// reported.
#[test]
fn long_nonsense_is_refused_in_time() {
    let long = |head: &str, line: &dyn Fn(usize) -> String, tail: &str| {
        let mut text = head.to_owned();
        for number in 0.. {
            let line = line(number);
            if text.len() + line.len() + tail.len() > model::LIMIT_BYTES {
                return text + tail;
            }
            text += &line;
        }
        text
    };
    let ports: String = (0..4000).map(|number| format!("[port.p{number}]\nkind='null'\n")).collect();
    for text in [
        long("", &|number| format!("k{number}=1\n"), ""),
        long("", &|_| "k=1\n".to_owned(), ""),
        long("", &|_| "=\n".to_owned(), ""),
        long("a=[", &|_| "{},".to_owned(), "]"),
        long("[engine]\nworkers=[", &|_| "1,".to_owned(), "]"),
        long("[engine]\nworkers=[", &|_| "'x',".to_owned(), "]"),
        long(
            "[port.a]\nkind='tap'\naddress=[",
            &|number| format!("'fd00::{:x}:{:x}/64',", number >> 16, number & 0xffff),
            "]",
        ),
        long("[bridge.b.port.a]\ntrunk=[", &|number| format!("{},", number * 2 % 4094), "]"),
        long(&ports, &|number| format!("[bridge.b.port.q{number}]\n"), ""),
        long("", &|number| format!("[port.p{number}]\nkind='null'\n"), ""),
        long(&ports, &|number| format!("[router.r.port.q{number}]\n"), ""),
        long("", &|number| format!("[router.r{number}]\nnamespace='n'\n"), ""),
        long(&"[a.".repeat(100), &|_| "b.".to_owned(), ""),
    ] {
        let start = std::time::Instant::now();
        let problems = problems(&text);
        let head: String = text.chars().take(60).collect();
        assert!(!problems.is_empty() && problems.len() <= 1001, "{head}: {} problems", problems.len());
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{head}: {:?}", start.elapsed());
        eprintln!("{:>6} problems in {:?}: {head:?}", problems.len(), start.elapsed());
    }
}

#[test]
fn cores_that_the_machine_lacks_are_a_warning() {
    let loaded =
        load_on("[engine]\nworkers = [1, 7]\n", "t", Format::Toml, Some(&Machine { cores: 2, frames: None }))
            .unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(loaded.warnings[0].severity, Severity::Warning);
    assert_eq!(
        loaded.warnings[0].to_string(),
        "t:2:11: warning: engine.workers: this machine has no core 7: it has 2; use 0 to 1"
    );
}

#[test]
fn json_has_the_same_rules() {
    let json = r#"{"port": {"a": {"kind": "ring", "size": 100}}, "bridge": {"b": {"port": {"c": {}}}}}"#;
    let problems = load_on(json, "body", Format::Json, None).unwrap_err();
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:#?}");
    assert!(
        texts.iter().any(|t| t == "body: port.a.size: 100 is not a power of two; use 128, for example"),
        "{texts:#?}"
    );
    let broken = load_on("{\n \"port\": }", "body", Format::Json, None).unwrap_err();
    assert!(broken[0].to_string().starts_with("body:2:10: the text is not JSON"), "{}", broken[0]);
}

#[test]
fn tcp_needs_all_of_tls_and_token() {
    for missing in ["cert", "key", "token_file"] {
        let all = ["cert = '/c'", "key = '/k'", "token_file = '/t'"];
        let kept: Vec<_> = all.iter().filter(|line| !line.starts_with(missing)).copied().collect();
        let text = format!("[daemon.tcp]\nlisten = '127.0.0.1:8443'\n{}\n", kept.join("\n"));
        let problems = problems(&text);
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(matches!(problems[0].cause, Cause::TcpUnprotected { missing: m } if m == missing));
    }
}

/// Checks that the servers of a DHCP relay must be unicast addresses of other hosts. Duplicates and too many servers
/// are refused.
#[test]
fn servers_of_a_dhcp_relay_are_hosts() {
    let text =
        |servers: &str| format!("[port.a]\nkind = \"null\"\n[router.edge.port.a]\ndhcp_relay = {servers}\n");
    let with = |servers: &str| {
        problems(&text(servers)).iter().map(|problem| format!("{problem}\n")).collect::<String>()
    };
    for right in ["\"10.0.0.53\"", "[\"10.0.0.53\", \"fd00::53\"]"] {
        load(&text(right), "t").unwrap();
    }
    for wrong in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "fe80::1",
        "ff05::1:3",
        "::ffff:10.0.0.53",
        "server",
    ] {
        let said = with(&format!("[\"10.0.0.53\", \"{wrong}\"]"));
        let expected = format!(
            "t:4:28: router.edge.port.a.dhcp_relay[1]: {wrong:?} is not the address of a DHCP server; write it as \"10.0.0.53\"\n"
        );
        assert_eq!(said, expected);
    }
    assert!(with("[\"10.0.0.53\", \"10.0.0.53\"]").contains("dhcp_relay[1]: "));
    assert!(with("[53]").contains("dhcp_relay[0]: a text in quotes is expected here"));
    let many: Vec<String> = (1..=9).map(|last| format!("\"10.0.0.{last}\"")).collect();
    assert!(with(&format!("[{}]", many.join(", "))).contains("remove all but 8"));
}
