//! `trivium show` for virtual routers: routes, next hops, neighbours, interfaces and punted packets.

use model::{
    DhcpRelayState, DriftState, FpmPhase, FpmState, InterfaceState, NeighbourEntry, NextHopEntry, PuntState,
    RouteEntry, RouteNextHop, RouteWhy, RouterState,
};
use serde::Serialize;

use super::output::print;
use crate::args::{OfRouter, Routes, Several, Why};
use crate::client::Client;
use crate::cmd::apply::quoted;
use crate::failure::Failure;
use crate::table::{Table, short};

pub async fn show_routes(client: &Client, args: &Routes, json: bool) -> Result<(), Failure> {
    let limit = args.several.limit;
    let mut query = format!("routes?limit={limit}");
    if let Some(prefix) = args.prefix {
        query += &format!("&prefix={prefix}");
    }
    if let Some(table) = args.table {
        query += &format!("&table={table}");
    }
    let found: Vec<RouteEntry> = client.get(&path(client, &args.several.of, &query).await?).await?;
    print(json, &found, routes);
    tell_more(found.len(), limit, json);
    Ok(())
}

pub async fn show_why(client: &Client, args: &Why, json: bool) -> Result<(), Failure> {
    let told: RouteWhy = client.get(&path(client, &args.of, &format!("why?of={}", args.what)).await?).await?;
    match json {
        true => println!("{}", serde_json::to_string_pretty(&told).unwrap_or_default()),
        false => print!("{}", why(&told)),
    }
    Ok(())
}

pub async fn show_neighbours(client: &Client, args: &Several, json: bool) -> Result<(), Failure> {
    let asked = format!("neighbours?limit={}", args.limit);
    let found: Vec<NeighbourEntry> = client.get(&path(client, &args.of, &asked).await?).await?;
    print(json, &found, neighbours);
    tell_more(found.len(), args.limit, json);
    Ok(())
}

pub async fn show_next_hops(client: &Client, args: &Several, json: bool) -> Result<(), Failure> {
    let asked = format!("nexthops?limit={}", args.limit);
    let found: Vec<NextHopEntry> = client.get(&path(client, &args.of, &asked).await?).await?;
    print(json, &found, next_hops);
    tell_more(found.len(), args.limit, json);
    Ok(())
}

pub async fn show_drift(client: &Client, args: &OfRouter, json: bool) -> Result<(), Failure> {
    let found: DriftState = client.get(&path(client, args, "drift").await?).await?;
    match json {
        true => println!("{}", serde_json::to_string_pretty(&found).unwrap_or_default()),
        false => print!("{}", drift(&found)),
    }
    Ok(())
}

pub async fn show_interfaces(client: &Client, router: Option<&str>, json: bool) -> Result<(), Failure> {
    let routers = some_routers(client, router).await?;
    let all: Vec<_> = parts(&routers, |router| &router.interfaces).collect();
    print(json, &all, interfaces);
    Ok(())
}

pub async fn show_punts(client: &Client, router: Option<&str>, json: bool) -> Result<(), Failure> {
    let routers = some_routers(client, router).await?;
    let all: Vec<_> = parts(&routers, |router| &router.punts).collect();
    print(json, &all, punts);
    Ok(())
}

/// One entry (for example an interface) of a router's state, with the name of the router.
#[derive(Serialize)]
struct Part<'a, T> {
    router: &'a str,
    #[serde(flatten)]
    value: &'a T,
}

fn parts<'a, T: 'a>(
    routers: &'a [RouterState],
    of: impl Fn(&'a RouterState) -> &'a Vec<T>,
) -> impl Iterator<Item = Part<'a, T>> {
    let of_one = move |router: &'a RouterState| {
        of(router).iter().map(move |value| Part { router: router.name.as_str(), value })
    };
    routers.iter().flat_map(of_one)
}

/// Requests the state of all routers from the daemon, or only of the named router.
async fn some_routers(client: &Client, router: Option<&str>) -> Result<Vec<RouterState>, Failure> {
    match router {
        None => client.get("/v1/routers").await,
        Some(name) => Ok(vec![client.get(&format!("/v1/routers/{}", quoted(name))).await?]),
    }
}

/// Returns the API path of the resource `asked` (such as `routes`) of the router that the arguments name.
/// Without a name, the daemon must have only one router. Several routers without a name are an error.
async fn path(client: &Client, args: &OfRouter, asked: &str) -> Result<String, Failure> {
    if let Some(name) = &args.router {
        return Ok(format!("/v1/routers/{}/{asked}", quoted(name)));
    }
    let routers: Vec<RouterState> = client.get("/v1/routers").await?;
    let names: Vec<&str> = routers.iter().map(|router| router.name.as_str()).collect();
    match names.as_slice() {
        [only] => Ok(format!("/v1/routers/{}/{asked}", quoted(only))),
        [] => Err(Failure::new("router", "none runs", "add [router.NAME] to the configuration")),
        several => {
            let cause = format!("there are several: {}", several.join(", "));
            Err(Failure::new("router", cause, "name one with --router"))
        }
    }
}

/// Prints a note that a list may be incomplete, if the number of entries has reached the requested limit.
fn tell_more(count: usize, limit: u64, json: bool) {
    if !json && u64::try_from(count).is_ok_and(|count| count >= limit) {
        println!("these are the first {limit}; --limit asks for more");
    }
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

pub fn routers(routers: &[RouterState]) -> String {
    if routers.is_empty() {
        return "no router runs\n".to_owned();
    }
    let mut text = String::new();
    for router in routers {
        let namespace = router.namespace.as_deref().unwrap_or("the daemon's namespace");
        let step = if router.in_step { "in step with the kernel" } else { "behind the kernel" };
        text.push_str(&format!("{}: in {namespace}, {step}, owner {}\n", router.name, router.owner));
        if let Some(trouble) = &router.trouble {
            text.push_str(&format!("  {trouble}\n"));
        }
        let (held, room) = (router.routes4 + router.routes6, router.routes_limit);
        text.push_str(&format!(
            "  routes      {held} of {room} ({} IPv4, {} IPv6) in {} tables, {} rules, {} refused\n",
            router.routes4, router.routes6, router.tables, router.rules, router.refused
        ));
        text.push_str(&format!("  neighbours  {} of {}\n", router.neighbours, router.neighbours_limit));
        text.push_str(&format!(
            "  kernel      {} messages, {} overruns, {} times read anew (the last in {} ms), {} drifted\n",
            router.events, router.overruns, router.resyncs, router.resync_ms, router.drifted
        ));
        if let Some(state) = &router.fpm {
            text.push_str(&fpm(state));
        }
        let names: Vec<&str> = router.interfaces.iter().map(|interface| interface.port.as_str()).collect();
        text.push_str(&format!("  interfaces  {}\n", or_dash(names.join(" "))));
    }
    text
}

fn fpm(fpm: &FpmState) -> String {
    let peer = fpm.peer.as_ref().map(|peer| format!(" from {peer}")).unwrap_or_default();
    let since = fpm.seconds.map(|seconds| format!(" for {seconds} s")).unwrap_or_default();
    let mut text = format!(
        "  fpm         {}{peer}{since} at {}, session {}: {} routes, {} messages ({} left), {} answers, {} refused, {} swept\n",
        fpm.state,
        fpm.listen,
        fpm.sessions,
        fpm.routes,
        fpm.messages,
        fpm.left,
        fpm.answers,
        fpm.refused,
        fpm.swept
    );
    if let Some(trouble) = &fpm.trouble {
        text.push_str(&format!("              {trouble}\n"));
    } else if let (Some(ended), FpmPhase::Waiting) = (&fpm.ended, fpm.state) {
        text.push_str(&format!("              the last session ended: {ended}\n"));
    }
    text
}

fn next_hop_list(hops: &[RouteNextHop]) -> String {
    or_dash(hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn routes(routes: &[RouteEntry]) -> String {
    if routes.is_empty() {
        return "there is no such route\n".to_owned();
    }
    let mut table = Table::new(&["PREFIX", "TABLE", "KIND", "PROTOCOL", ">METRIC", "WAYS"]);
    for route in routes {
        table.row([
            destination(route),
            route.table.to_string(),
            route.kind.clone(),
            route.protocol.to_string(),
            route.metric.to_string(),
            leads_to(route),
        ]);
    }
    table.render()
}

fn destination(route: &RouteEntry) -> String {
    match &route.only {
        Some(only) => format!("{} {only}", route.prefix),
        None => route.prefix.to_string(),
    }
}

fn leads_to(route: &RouteEntry) -> String {
    match route.next_hop {
        Some(id) => format!("nexthop {id}: {}", next_hop_list(&route.next_hops)),
        None => next_hop_list(&route.next_hops),
    }
}

fn why(told: &RouteWhy) -> String {
    let mut text = format!("{}\n", told.of);
    if let Some(rule) = &told.rule {
        text.push_str(&format!("  rule   {rule}\n"));
    }
    match &told.route {
        Some(route) => text.push_str(&format!(
            "  route  {} {} in table {}, protocol {}, metric {}: {}\n",
            route.kind,
            destination(route),
            route.table,
            route.protocol,
            route.metric,
            leads_to(route)
        )),
        None => text.push_str("  route  none\n"),
    }
    for line in &told.chosen {
        text.push_str(&format!("  - {line}\n"));
    }
    text
}

fn neighbours(neighbours: &[NeighbourEntry]) -> String {
    let mut table = Table::new(&["ADDRESS", "DEVICE", "ETHERNET", "PERMANENT", ">PACKETS", ">BYTES"]);
    for neighbour in neighbours {
        table.row([
            neighbour.address.to_string(),
            neighbour.device.clone(),
            neighbour.mac.map_or_else(|| "-".to_owned(), |mac| mac.to_string()),
            if neighbour.permanent { "yes" } else { "-" }.to_owned(),
            neighbour.packets.to_string(),
            neighbour.bytes.to_string(),
        ]);
    }
    table.render()
}

fn next_hops(hops: &[NextHopEntry]) -> String {
    let mut table = Table::new(&[">ID", "PROTOCOL", "LEADS TO", ">PACKETS", ">BYTES"]);
    for hop in hops {
        let members: Vec<String> =
            hop.group.iter().map(|member| format!("{} weight {}", member.id, member.weight)).collect();
        let leads_to = match (&hop.hop, hop.blackhole, hop.buckets) {
            (_, true, _) => "blackhole".to_owned(),
            (Some(hop), ..) => hop.to_string(),
            (None, false, Some(buckets)) => format!("group {}, {buckets} buckets", members.join(", ")),
            (None, false, None) => format!("group {}", members.join(", ")),
        };
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        table.row([
            hop.id.to_string(),
            hop.protocol.to_string(),
            leads_to,
            count(hop.packets),
            count(hop.bytes),
        ]);
    }
    table.render()
}

fn interfaces(interfaces: &[Part<'_, InterfaceState>]) -> String {
    let mut table = Table::new(&[
        "ROUTER",
        "PORT",
        "DEVICE",
        ">INDEX",
        "ETHERNET",
        ">MTU",
        "STATE",
        "MISS",
        "OWNER",
        "ADDRESSES",
    ]);
    for Part { router, value } in interfaces {
        table.row([
            (*router).to_owned(),
            value.port.clone(),
            or_dash(value.device.clone()),
            value.index.to_string(),
            value.mac.map_or_else(|| "-".to_owned(), |mac| mac.to_string()),
            value.mtu.to_string(),
            if value.up { "up" } else { "down" }.to_owned(),
            value.miss.to_string(),
            value.owner.to_string(),
            or_dash(value.addresses.join(" ")),
        ]);
    }
    let relays = interfaces.iter().flat_map(|Part { value, .. }| {
        let four = value.dhcp_relay.map(|relay| dhcp_relay("DHCP", "IPv4", &value.device, &relay));
        let six = value.dhcp6_relay.map(|relay| dhcp_relay("DHCPv6", "IPv6", &value.device, &relay));
        four.into_iter().chain(six)
    });
    table.render() + &relays.collect::<String>()
}

/// Formats the DHCP relay settings and counters of an interface as one line.
fn dhcp_relay(what: &str, family: &str, device: &str, relay: &DhcpRelayState) -> String {
    let missing = format!(" (without a device or an {family} address now)");
    let listens = if relay.listens { "" } else { &missing };
    let mut line = format!(
        "{what} relay of {device}{listens}: {} requests, {} replies",
        short(relay.requests),
        short(relay.replies)
    );
    let drops = [
        (relay.malformed, "malformed"),
        (relay.looping, "looping"),
        (relay.strangers, "of strangers"),
        (relay.limited, "over 1,000 a second"),
        (relay.unsent, "not sent"),
    ];
    let drops: Vec<String> = drops
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", short(*count)))
        .collect();
    if !drops.is_empty() {
        line.push_str(&format!("; dropped: {}", drops.join(", ")));
    }
    line + "\n"
}

fn punts(punts: &[Part<'_, PuntState>]) -> String {
    let mut table = Table::new(&["ROUTER", "CLASS", ">LIMIT", ">PACKETS", ">OVER ITS LIMIT"]);
    for Part { router, value } in punts {
        let limit = short(value.limit.into());
        table.row([
            (*router).to_owned(),
            value.class.clone(),
            limit,
            short(value.packets),
            short(value.refused),
        ]);
    }
    table.render()
}

fn drift(found: &DriftState) -> String {
    let mut text = format!(
        "{} objects compared: {} differed and are repaired, {} were changing, and are left to the next time\n",
        found.checked, found.drifted, found.busy
    );
    for change in &found.changes {
        text.push_str(&format!("  {change}\n"));
    }
    let told = u64::try_from(found.changes.len()).unwrap_or(u64::MAX);
    if found.drifted > told {
        text.push_str(&format!("  and {} more\n", found.drifted - told));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::block_on;

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
    fn routes_read_as_in_ip_route() {
        let blackhole = RouteEntry {
            prefix: "2001:db8::/32".parse().unwrap(),
            kind: "blackhole".to_owned(),
            table: model::TableId(100),
            only: Some("from 2001:db8:1::/48".to_owned()),
            next_hops: Vec::new(),
            ..route()
        };
        let shared = RouteEntry { next_hop: Some(7), ..route() };
        assert_eq!(
            routes(&[route(), blackhole, shared]),
            "\
PREFIX                              TABLE  KIND       PROTOCOL  METRIC  WAYS
10.1.0.0/16                         main   unicast    bgp           20  via 10.0.0.2 dev eth0, dev eth1 weight 2 dead
2001:db8::/32 from 2001:db8:1::/48  100    blackhole  bgp           20  -
10.1.0.0/16                         main   unicast    bgp           20  nexthop 7: via 10.0.0.2 dev eth0, dev eth1 weight 2 dead
"
        );
        assert_eq!(routes(&[]), "there is no such route\n");
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
            why(&told),
            "\
10.1.2.3/32
  rule   32766: from all lookup main
  route  unicast 10.1.0.0/16 in table main, protocol bgp, metric 20: via 10.0.0.2 dev eth0, dev eth1 weight 2 dead
  - 10.1.0.0/16 is the longest that covers it
"
        );
        (told.rule, told.route) = (None, None);
        assert!(why(&told).contains("route  none"));
    }

    #[test]
    fn next_hops_lead_somewhere() {
        let members =
            vec![model::NextHopMember { id: 1, weight: 1 }, model::NextHopMember { id: 2, weight: 3 }];
        let group = NextHopEntry { id: 7, group: members, buckets: Some(64), ..NextHopEntry::default() };
        let hole = NextHopEntry { id: 8, blackhole: true, ..NextHopEntry::default() };
        let hop = route().next_hops.into_iter().next();
        let hop = NextHopEntry { id: 9, hop, packets: Some(7), bytes: Some(420), ..NextHopEntry::default() };
        assert_eq!(
            next_hops(&[group, hole, hop]),
            "\
ID  PROTOCOL  LEADS TO                                  PACKETS  BYTES
 7  unspec    group 1 weight 1, 2 weight 3, 64 buckets        -      -
 8  unspec    blackhole                                       -      -
 9  unspec    via 10.0.0.2 dev eth0                           7    420
"
        );
    }

    #[test]
    fn drift_is_told_with_its_end() {
        let changes = vec!["route 10.0.0.0/8".to_owned()];
        let found = DriftState { checked: 9, drifted: 3, changes, busy: 1 };
        assert_eq!(
            drift(&found),
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
        let routers_told = routers(std::slice::from_ref(&router));
        assert!(
            routers_told
                .starts_with("edge: in red, behind the kernel, owner file\n  its namespace is gone\n")
        );
        assert!(routers_told.contains("3 of 10 (2 IPv4, 1 IPv6)"), "{routers_told}");
        let all = [router];
        let told = interfaces(&parts(&all, |router| &router.interfaces).collect::<Vec<_>>());
        assert!(
            told.lines().nth(1).unwrap().ends_with("unreachable  file   10.0.0.1/24 fd00::1/64"),
            "{told}"
        );
        assert!(
            told.ends_with(
                "\nDHCP relay of eth1: 3 requests, 2 replies; dropped: 1 looping\n\
                 DHCPv6 relay of eth1 (without a device or an IPv6 address now): 0 requests, 0 replies\n"
            ),
            "{told}"
        );
        let told = punts(&parts(&all, |router| &router.punts).collect::<Vec<_>>());
        assert_eq!(told.lines().nth(1), Some("edge    arp      100    1.50k               2"));
    }

    /// A fake daemon that answers requests with these routers and no entries, and records the requested
    /// paths.
    struct Daemon {
        client: Client,
        socket: std::path::PathBuf,
        asked: std::sync::mpsc::Receiver<String>,
    }

    impl Daemon {
        fn new(name: &str, routers: &[&str]) -> Daemon {
            use std::io::{Read, Write};
            let socket =
                std::env::temp_dir().join(format!("trivium-show-{}-{name}.sock", std::process::id()));
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
            (
                "two",
                &["core", "edge"][..],
                Err("router: there are several: core, edge; name one with --router"),
            ),
        ] {
            let daemon = Daemon::new(name, routers);
            let asked = block_on(path(&daemon.client, &unnamed, "drift"));
            let asked = asked.map_err(|failure| failure.to_string());
            assert_eq!(asked, expected.map(str::to_owned).map_err(str::to_owned));
            let named = OfRouter { router: Some("a b".to_owned()) };
            assert_eq!(block_on(path(&daemon.client, &named, "drift")).unwrap(), "/v1/routers/a%20b/drift");
        }
    }

    #[test]
    fn what_is_typed_is_what_is_asked() {
        use clap::Parser;
        let daemon = Daemon::new("asked", &["edge"]);
        for (line, path) in [
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
            block_on(super::super::show(&daemon.client, &args)).unwrap();
            // An unnamed router is looked up by an earlier request.
            let asked: Vec<String> = daemon.asked.try_iter().collect();
            assert_eq!(asked.last().map(String::as_str), Some(path), "{line}");
        }
    }
}
