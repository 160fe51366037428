//! Tests `trivium show`: the requested API paths, and the output of commands that have their own text form.

use model::table::Listed;
use model::{
    DhcpRelayState, DriftState, InterfaceState, PuntState, RouteEntry, RouteNextHop, RouteWhy, RouterState,
};

use super::*;
use crate::event_loop::block_on;
use router_parts::parts;

fn route() -> RouteEntry {
    RouteEntry {
        prefix: "10.1.0.0/16".parse().unwrap(),
        table: model::TableId::MAIN,
        kind: "unicast".to_owned(),
        protocol: model::RouteProtocol(186),
        metric: 20,
        only: None,
        next_hops: vec![
            RouteNextHop {
                gateway: "10.0.0.2".parse().ok(),
                device: Some("eth0".to_owned()),
                weight: 1,
                dead: false,
            },
            RouteNextHop {
                device: Some("eth1".to_owned()),
                weight: 2,
                dead: true,
                ..RouteNextHop::default()
            },
        ],
        next_hop: None,
    }
}

#[test]
fn why_tells_rule_route_and_reasons() {
    let mut told = RouteWhy {
        of: "10.1.2.3".parse().unwrap(),
        rule: Some("32766: from all lookup main".to_owned()),
        route: Some(route()),
        chosen: vec!["10.1.0.0/16 is the longest that covers it".to_owned()],
    };
    assert_eq!(
        why::text(&told),
        "\
10.1.2.3/32
  rule   32766: from all lookup main
  route  unicast 10.1.0.0/16 in table main, protocol bgp, metric 20: via 10.0.0.2 dev eth0, dev eth1 weight 2 dead
  - 10.1.0.0/16 is the longest that covers it
"
    );
    (told.rule, told.route) = (None, None);
    assert!(why::text(&told).contains("route  none"));
}

#[test]
fn drift_is_told_with_its_end() {
    let changes = vec!["route 10.0.0.0/8".to_owned()];
    let found = DriftState { checked: 9, drifted: 3, changes, busy: 1 };
    assert_eq!(
        drift::text(&found),
        "9 objects compared: 3 differed and are repaired, 1 were changing, and are left to the next time\n  \
         route 10.0.0.0/8\n  and 2 more\n"
    );
}

#[test]
fn routers_and_their_interfaces_are_told() {
    let interface = InterfaceState {
        port: "left".to_owned(),
        device: "eth1".to_owned(),
        index: 3,
        mtu: 1500,
        addresses: vec!["10.0.0.1/24".to_owned(), "fd00::1/64".to_owned()],
        dhcp_relay: Some(DhcpRelayState {
            listens: true,
            requests: 3,
            replies: 2,
            looping: 1,
            ..DhcpRelayState::default()
        }),
        dhcp6_relay: Some(DhcpRelayState::default()),
        ..InterfaceState::default()
    };
    let router = RouterState {
        name: "edge".to_owned(),
        namespace: Some("red".to_owned()),
        routes4: 2,
        routes6: 1,
        routes_limit: 10,
        trouble: Some("its namespace is gone".to_owned()),
        interfaces: vec![interface],
        punts: vec![PuntState { class: "arp".to_owned(), limit: 100, packets: 1500, refused: 2 }],
        ..RouterState::default()
    };
    let routers_told = RouterState::text(std::slice::from_ref(&router));
    assert!(
        routers_told.starts_with("edge: in red, behind the kernel, owner file\n  its namespace is gone\n")
    );
    assert!(routers_told.contains("3 of 10 (2 IPv4, 1 IPv6)"), "{routers_told}");
    let all = [router];
    let told = interfaces::text(&parts(&all, |router| &router.interfaces).collect::<Vec<_>>());
    assert!(told.lines().nth(1).unwrap().ends_with("unreachable  file   10.0.0.1/24 fd00::1/64"), "{told}");
    assert!(
        told.ends_with(
            "\nDHCP relay of eth1: 3 requests, 2 replies; dropped: 1 looping\n\
             DHCPv6 relay of eth1 (without a device or an IPv6 address now): 0 requests, 0 replies\n"
        ),
        "{told}"
    );
    let told = punts::text(&parts(&all, |router| &router.punts).collect::<Vec<_>>());
    assert_eq!(told.lines().nth(1), Some("edge    arp      100    1.50k               2"));
}

/// A fake daemon. Its answers contain the given routers and otherwise only empty lists. It records the requested paths.
struct Daemon {
    client: Client,
    socket: std::path::PathBuf,
    asked: std::sync::mpsc::Receiver<String>,
}

impl Daemon {
    fn new(name: &str, routers: &[&str]) -> Daemon {
        use std::io::{Read, Write};
        let socket = std::env::temp_dir().join(format!("trivium-show-{}-{name}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let state = |name: &&str| RouterState { name: (*name).to_owned(), ..RouterState::default() };
        let all: Vec<RouterState> = routers.iter().map(state).collect();
        let (note, asked) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let mut head = [0; 4096];
                let read = client.read(&mut head).unwrap_or(0);
                let text = String::from_utf8_lossy(&head[..read]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                let of = "10.0.0.1".parse().unwrap();
                let why = RouteWhy { of, rule: None, route: None, chosen: Vec::new() };
                let body = match path.split('?').next().unwrap_or_default().rsplit('/').next() {
                    Some("routers") => serde_json::to_string(&all),
                    Some("edge") => serde_json::to_string(&RouterState::default()),
                    Some("why") => serde_json::to_string(&why),
                    Some("drift") => serde_json::to_string(&DriftState::default()),
                    _ => Ok("[]".to_owned()),
                };
                let body = body.unwrap();
                let length = body.len();
                let _ = note.send(path);
                let _ = write!(client, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            }
        });
        Daemon { client: Client::new(&socket), socket, asked }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[test]
fn the_only_router_need_not_be_named() {
    let unnamed = OfRouter { router: None };
    for (name, routers, expected) in [
        ("none", &[][..], Err("router: none runs; add [router.NAME] to the configuration")),
        ("one", &["edge"][..], Ok("/v1/routers/edge/drift")),
        ("two", &["core", "edge"][..], Err("router: there are several: core, edge; name one with --router")),
    ] {
        let daemon = Daemon::new(name, routers);
        let asked = block_on(unnamed.path(&daemon.client, "drift"));
        let asked = asked.map_err(|failure| failure.to_string());
        assert_eq!(asked, expected.map(str::to_owned).map_err(str::to_owned));
        let named = OfRouter { router: Some("a b".to_owned()) };
        assert_eq!(block_on(named.path(&daemon.client, "drift")).unwrap(), "/v1/routers/a%20b/drift");
    }
}

#[test]
fn what_is_typed_is_what_is_asked() {
    use clap::Parser;
    let daemon = Daemon::new("asked", &["edge"]);
    for (line, path) in [
        ("ports", "/v1/ports"),
        ("workers", "/v1/workers"),
        ("groups br0 --limit 3", "/v1/groups?limit=3&bridge=br0"),
        ("flows --table 7", "/v1/flows?limit=1000&table=7"),
        ("routers", "/v1/routers"),
        ("routes", "/v1/routers/edge/routes?limit=1000"),
        (
            "routes 10.1.2.3/8 --table main --limit 7",
            "/v1/routers/edge/routes?limit=7&prefix=10.0.0.0/8&table=main",
        ),
        (
            "routes 2001:db8::1 --table 100",
            "/v1/routers/edge/routes?limit=1000&prefix=2001:db8::1/128&table=100",
        ),
        ("why 10.0.0.1", "/v1/routers/edge/why?of=10.0.0.1/32"),
        ("neighbours --limit 3", "/v1/routers/edge/neighbours?limit=3"),
        ("nexthops", "/v1/routers/edge/nexthops?limit=1000"),
        ("drift", "/v1/routers/edge/drift"),
        ("interfaces", "/v1/routers"),
        ("punts --router edge", "/v1/routers/edge"),
    ] {
        let words = ["trivium", "show"].into_iter().chain(line.split(' '));
        let crate::args::Command::Show(args) = crate::args::Cli::parse_from(words).command else {
            panic!("{line}")
        };
        block_on(show(&daemon.client, &args)).unwrap();
        // If no router is named, an earlier request determines the router.
        let asked: Vec<String> = daemon.asked.try_iter().collect();
        assert_eq!(asked.last().map(String::as_str), Some(path), "{line}");
    }
}

#[test]
fn each_list_with_arguments_of_its_own_has_a_command() {
    let own = Own::augment_subcommands(Command::new("show"));
    let names = own.get_subcommands().map(Command::get_name);
    let expected = LISTS.iter().filter(|list| list.arguments == Arguments::Own).map(|list| list.name);
    assert_eq!(names.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}
