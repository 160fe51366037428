//! Random configurations that pass all checks. The configurations are small, so that two random configurations often
//! have objects in common.

#![allow(dead_code, reason = "each test uses a part")]

use model::{Config, Format, load_on};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const PORTS: usize = 6;
const BRIDGES: usize = 3;

fn port(index: usize) -> impl Strategy<Value = Option<Value>> {
    let device = format!("dev{index}");
    let (d1, d2, d3) = (device.clone(), device.clone(), device);
    let address = format!("10.0.{index}.1/24");
    let mtu = prop_oneof![Just(1500), Just(1400), Just(1280)];
    let up = prop_oneof![Just("up"), Just("down")];
    prop_oneof![
        Just(None),
        (mtu.clone(), up, any::<bool>(), any::<bool>()).prop_map(move |(mtu, up, spread, red)| Some(
            json!({"kind": "af_xdp", "device": d1, "mtu": mtu, "admin": up, "software_rss": spread, "ring_size": 256,
                   "namespace": null_or(red, "red"), "filter": null_or(spread, "f0"), "steering": null_or(up == "up", "s0")})
        )),
        (1..3u16, any::<bool>(), any::<bool>()).prop_map(move |(queues, drop, red)| Some(
            json!({"kind": "veth", "device": d2, "queues": queues, "ring_size": 128, "when_down": null_or(drop, "drop"),
                   "namespace": null_or(red, "red"), "persist": true, "peer": {"name": "eth0", "namespace": format!("ns{index}"), "address": [&address]}})
        )),
        (mtu, 1..4u16, any::<bool>()).prop_map(move |(mtu, queues, judged)| Some(
            json!({"kind": "tap", "device": d3, "mtu": mtu, "queues": queues, "mac": "02:00:00:00:00:01",
                   "filter": null_or(judged, "w0")})
        )),
        Just(Some(json!({"kind": "patch", "peer": format!("elsewhere{index}"), "filter": "w0"}))),
        (prop_oneof![Just(64), Just(128)], any::<bool>()).prop_map(|(size, judged)| Some(
            json!({"kind": "ring", "size": size, "filter": null_or(judged, "w0")})
        )),
        Just(Some(json!({"kind": "pcap", "write": "/tmp/out.pcap"}))),
        any::<bool>().prop_map(|repeat| Some(json!({"kind": "pcap", "read": "/tmp/in.pcap", "loop": repeat}))),
    ]
}

fn null_or(some: bool, text: &str) -> Value {
    if some { Value::from(text) } else { Value::Null }
}

fn member() -> impl Strategy<Value = Value> {
    prop_oneof![
        (1..4u16, any::<bool>())
            .prop_map(|(vlan, protected)| json!({"access": vlan, "protected": protected, "multicast_router": if vlan > 1 { "auto" } else { "off" }})),
        (1..20u16, any::<bool>()).prop_map(|(vlan, learning)| {
            json!({"trunk": [vlan, "30-40"], "native": vlan, "native_tagged": learning, "learning": learning,
                   "native_untagged_only": !learning && vlan < 10})
        }),
        (1..1000u32).prop_map(|rate| json!({"trunk": "all", "storm": {"broadcast": rate}, "mac_limit": 10})),
    ]
}

/// Generates the fields of a filter rule, except its name. The rule can be applied by a worker, without a hook.
fn workers_rule() -> impl Strategy<Value = Value> {
    prop_oneof![
        (any::<bool>(), 0..3u32).prop_map(|(dry, priority)| {
            json!({"action": "drop", "source": ["10.1.2.3/8", "2001:db8::1"], "dry_run": dry, "priority": priority})
        }),
        (1..300u16, 0..300u16).prop_map(|(from, more)| {
            json!({"action": "pass", "protocol": ["tcp", 99], "destination_port": [7, format!("{from}-{}", from + more)],
                   "tcp_flags": ["syn", "!ack"], "vlan": ["untagged", 0, "10-20"], "fragment": "whole"})
        }),
        (1..100u32, any::<bool>()).prop_map(|(rate, source)| {
            let unit = if source { "bytes" } else { "packets" };
            let mut limit = json!({"action": "limit", "rate": rate, "unit": unit, "length": ["64-1500"]});
            if source {
                limit["per_source"] = json!({"ipv4": rate % 33});
            }
            limit
        }),
        Just(json!({"action": "count", "listed": true})),
    ]
}

/// Generates the fields of a filter rule, except its name.
fn rule() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => workers_rule(),
        1 => (1..255u8, any::<bool>(), any::<bool>()).prop_map(|(ttl, retry, always)| {
            let mut rule = json!({"action": "syncookie", "ttl": ttl, "destination": ["10.0.0.1", "2001:db8::1"],
                                  "destination_port": [80, "8000-8080"]});
            if retry {
                rule["remember"] = json!(u32::from(ttl) * 60);
            } else {
                rule["scheme"] = json!("cookie");
                rule["wscale"] = json!(ttl % 15);
                rule["mss"] = json!(1000 + u16::from(ttl));
            }
            if always {
                rule["mode"] = json!("always");
            } else {
                rule["above"] = json!(u32::from(ttl) * 10);
            }
            rule
        }),
        1 => (0..64u16).prop_map(|offset| {
            json!({"action": "sample", "one_in": 10, "family": ["ipv4", "other"], "expires": "2030-01-31T23:59:59Z",
                   "pattern": [{"at": "payload", "offset": offset, "bytes": "0aF0", "mask": "0fff"}]})
        }),
    ]
}

/// Generates filters. The filters `f0`, for ports with a hook, and `w0`, for ports without a hook, always exist, so
/// that ports can refer to them. The filter `f.1` may be absent.
fn filters() -> impl Strategy<Value = Value> {
    let rules = || prop::collection::vec(rule(), 0..4).prop_map(named);
    let of_workers = prop::collection::vec(workers_rule(), 0..4).prop_map(named);
    (rules(), of_workers, prop::option::of(rules()), any::<bool>()).prop_map(
        |(first, of_workers, second, list)| {
            let mut all = json!({"f0": {"rule": first}, "w0": {"rule": of_workers}});
            if list {
                all["f0"]["blocklist"] = "/tmp/list".into();
                all["f0"]["unreadable"] = "pass".into();
            }
            if let Some(second) = second {
                all["f.1"] = json!({"rule": second});
            }
            all
        },
    )
}

/// Generates two steering policies. The first policy always exists, so that ports can refer to it.
fn steering() -> impl Strategy<Value = Value> {
    let targets = || prop_oneof![Just("worker"), Just("kernel"), Just("cpu 0"), Just("cpu 3")];
    let flow = (0..3u16, targets(), 0..2u32, any::<bool>()).prop_map(|(port, to, mark, tagged)| {
        let mut flow = json!({"source": "10.0.0.1", "destination": "10.0.0.2", "protocol": "udp", "to": to,
                              "source_port": port, "destination_port": 9, "mark": mark});
        if tagged {
            flow["vlan"] = json!(port + 1);
        }
        flow
    });
    let flows = prop::collection::vec(flow, 0..4).prop_map(|flows| {
        let mut seen = std::collections::BTreeSet::new();
        let key = |flow: &Value| (flow["source_port"].to_string(), flow["vlan"].to_string());
        flows.into_iter().filter(|flow| seen.insert(key(flow))).collect::<Vec<_>>()
    });
    let table = prop::option::of((targets(), targets()).prop_map(|(a, b)| json!([a, b, a, a])));
    let one = (flows, table, 4..7u32).prop_map(|(flows, table, capacity)| {
        let mut steering = json!({"flow": flows, "capacity": capacity, "cpu_queue": 64});
        if let Some(table) = table {
            steering["table"] = table;
        }
        steering
    });
    let other = prop_oneof![Just(None), Just(Some(json!({"metadata": true})))];
    (one, other).prop_map(|(first, second)| match second {
        Some(second) => json!({"s0": first, "s.1": second}),
        None => json!({"s0": first}),
    })
}

fn named(rules: Vec<Value>) -> Value {
    let name = |(index, mut rule): (usize, Value)| {
        rule["name"] = format!("r{index}").into();
        rule
    };
    rules.into_iter().enumerate().map(name).collect()
}

/// Placement of a port: the index of its bridge (if any), the settings of its bridge membership, whether the bridge has
/// a static MAC table entry for the port, and the settings as a router interface (if the port can be one).
type Place = (Option<usize>, Value, bool, Option<&'static str>);

/// Generates two routers in different namespaces, either of which may be absent.
fn routers() -> impl Strategy<Value = Map<String, Value>> {
    let one = || prop::option::of((any::<bool>(), 1..3u32));
    let router = |(limited, punts): (bool, u32), namespace: Option<&str>| {
        let mut router = json!({"punts": punts, "port": {}});
        if limited {
            router["routes"] = json!(1000);
            router["fpm"] = json!("127.0.0.1:2620");
            router["fpm_settle"] = json!(punts);
            router["punt_limits"] = json!({"bfd": punts, "no-route": 7});
            router["hook"] = json!(false);
        }
        if let Some(namespace) = namespace {
            router["namespace"] = json!(namespace);
        }
        router
    };
    (one(), one(), any::<bool>()).prop_map(move |(first, second, turned)| {
        let mut namespaces = [None, Some("red")];
        if turned {
            namespaces.reverse();
        }
        let both = [("r0", first, namespaces[0]), ("r.1", second, namespaces[1])];
        let some = both
            .into_iter()
            .filter_map(|(name, values, namespace)| Some((name.to_owned(), router(values?, namespace))));
        some.collect()
    })
}

fn tree(
    ports: Vec<Option<Value>>,
    places: Vec<Place>,
    ageing: Vec<u32>,
    spin: u32,
    (filters, policies, mut routers): (Value, Value, Map<String, Value>),
) -> Value {
    let mut bridges = Map::new();
    for (index, ageing) in ageing.into_iter().enumerate().filter(|(_, ageing)| *ageing >= 10) {
        bridges.insert(format!("br{index}"), json!({"ageing": ageing, "port": {}, "static": []}));
    }
    let mut all = Map::new();
    for (index, (port, (bridge, member, entry, miss))) in ports.into_iter().zip(places).enumerate() {
        let Some(Value::Object(mut port)) = port else { continue };
        port.retain(|_, value| !value.is_null());
        let name = format!("p{index}");
        let namespace = port.get("namespace").cloned();
        let routable = port["kind"] == "af_xdp" || port["kind"] == "veth";
        all.insert(name.clone(), port.into());
        if let Some(miss) = miss.filter(|_| routable) {
            let beside = |router: &&mut Value| router.get("namespace") == namespace.as_ref();
            if let Some(router) = routers.values_mut().find(beside) {
                router["port"][&name] = json!({"miss": miss});
                continue;
            }
        }
        let Some(bridge) = bridge.and_then(|bridge| bridges.get_mut(&format!("br{bridge}"))) else {
            continue;
        };
        bridge["port"][&name] = member.clone();
        if entry {
            let vlan = member.get("access").or(member.get("native")).cloned().unwrap_or(json!(9));
            let entries = bridge["static"].as_array_mut().unwrap();
            // All ports of a VLAN share one address, so that static entries move between ports.
            if !entries.iter().any(|entry| entry["vlan"] == vlan) {
                entries.push(json!({"mac": "02:00:00:00:00:0a", "vlan": vlan, "port": name}));
            }
        }
    }
    json!({"filter": filters, "steering": policies, "port": all, "bridge": bridges, "router": routers,
           "engine": {"spin_us": spin}})
}

/// Generates a configuration without errors.
pub fn config() -> impl Strategy<Value = Config> {
    let ports: Vec<_> = (0..PORTS).map(|index| port(index).boxed()).collect();
    let miss = prop::option::of(prop_oneof![Just("unreachable"), Just("punt")]);
    let place = (prop::option::of(0..BRIDGES), member(), any::<bool>(), miss);
    let places = prop::collection::vec(place, PORTS);
    let ageing = prop::collection::vec(prop_oneof![Just(0), Just(10), Just(300)], BRIDGES);
    let spin = prop_oneof![Just(50u32), Just(32)];
    let others = (filters(), steering(), routers());
    (ports, places, ageing, spin, others).prop_map(|(ports, places, ageing, spin, others)| {
        let tree = tree(ports, places, ageing, spin, others).to_string();
        match load_on(&tree, "generated", Format::Json, None) {
            Ok(loaded) => loaded.config,
            Err(problems) => {
                panic!("{tree}\n{}", problems.iter().map(|p| format!("{p}\n")).collect::<String>())
            }
        }
    })
}
