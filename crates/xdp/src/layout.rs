//! Tests that compare Rust types and constants with their C counterparts in `bpf/include/*_layout.h`: names,
//! order, offsets and sizes. The C side is read from the BTF type information of the embedded objects.

use libbpf_rs::ObjectBuilder;
use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize};

use crate::config::{CONF_SIZE, OWNER_ROUTER, Owner};
use crate::filter::CONF_WORDS;
use crate::live::{replay, template};
use crate::object::{port_object, services_object};
use crate::program::LOCAL_CAPACITY;
use crate::watch::LossEvent;
use crate::{Constants, Counter, WhenDown, dump};

const PORT: &str = concat!(env!("OUT_DIR"), "/trivium.bpf.o");
const SERVICES: &str = concat!(env!("OUT_DIR"), "/services.bpf.o");
const REPLAY: &str = concat!(env!("OUT_DIR"), "/replay.bpf.o");
const WATCH: &str = concat!(env!("OUT_DIR"), "/watch.bpf.o");
const DUMP: &str = concat!(env!("OUT_DIR"), "/dump.bpf.o");
const GENERATOR: &str = concat!(env!("OUT_DIR"), "/livegen.bpf.o");

fn enumerators(object: &str, name: &str) -> Vec<(String, i64)> {
    let btf = Btf::from_path(object).unwrap();
    let found: Enum<'_> = btf.type_by_name(name).unwrap();
    found.iter().map(|member| (text(member.name), member.value)).collect()
}

/// Returns the names and byte offsets of a struct's members, and the size of the struct.
fn members(object: &str, name: &str) -> (Vec<(String, u32)>, usize) {
    let btf = Btf::from_path(object).unwrap();
    let found: Struct<'_> = btf.type_by_name(name).unwrap();
    let list = found.iter().map(|member| match member.attr {
        MemberAttr::Normal { offset } => (text(member.name), offset / 8),
        MemberAttr::BitField { .. } => panic!("{name} has a bit field"),
    });
    (list.collect(), found.size())
}

fn text(name: Option<&std::ffi::OsStr>) -> String {
    name.unwrap().to_str().unwrap().to_owned()
}

fn at<'a>(fields: impl IntoIterator<Item = (&'a str, u32)>) -> Vec<(String, u32)> {
    fields.into_iter().map(|(name, offset)| (name.to_owned(), offset)).collect()
}

#[test]
fn counters_are_the_kernels_side() {
    let mut expected: Vec<(String, i64)> = Counter::ALL
        .into_iter()
        .zip(0..)
        .map(|(counter, value)| (format!("TRIVIUM_COUNT_{}", counter.name().to_uppercase()), value))
        .collect();
    expected.push(("TRIVIUM_COUNTERS".to_owned(), i64::try_from(Counter::ALL.len()).unwrap()));
    assert_eq!(enumerators(PORT, "trivium_counter"), expected);
}

#[test]
fn owners_are_the_kernels_side() {
    let expected = [
        ("TRIVIUM_OWNER_BRIDGED", Owner::Bridged.code()),
        ("TRIVIUM_OWNER_ROUTED", Owner::Routed.code()),
        ("TRIVIUM_OWNER_ROUTER", OWNER_ROUTER),
        ("TRIVIUM_OWNER_CLOSED", Owner::Closed.code()),
    ];
    let expected = expected.map(|(name, code)| (name.to_owned(), i64::from(code)));
    assert_eq!(enumerators(PORT, "trivium_owner"), expected);
}

#[test]
fn constants_of_a_port_are_the_kernels_side() {
    let (fields, size) = members(PORT, "trivium_conf");
    assert_eq!(size, CONF_SIZE);
    assert_eq!(fields, at([("owner", 0), ("when_down", 4), ("queues", 8), ("counters", 12)]));
    let constants = Constants { owner: Owner::Routed, when_down: WhenDown::Pass, queues: 3 };
    for (router, owner) in [(false, 1), (true, 2)] {
        let bytes = constants.to_bytes(10, router);
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [owner, libbpf_rs::libbpf_sys::XDP_PASS, 3, 10]);
    }
}

#[test]
fn maps_have_the_declared_sizes() {
    let open = ObjectBuilder::default().open_memory(port_object().bytes).unwrap();
    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
    assert_eq!(usize::try_from(entries("local4")).unwrap(), LOCAL_CAPACITY);
    assert_eq!(usize::try_from(entries("local6")).unwrap(), LOCAL_CAPACITY);
    assert_eq!(usize::try_from(entries("counters")).unwrap(), Counter::ALL.len());
}

#[test]
fn filters_constants_are_the_kernels_side() {
    let (fields, size) = members(PORT, "filter_conf");
    assert_eq!(size, 4 * CONF_WORDS);
    let words = ["rules", "words", "stride", "transport", "uses", "scratch"];
    let expected = words.into_iter().zip((0..).step_by(4)).chain([("field", 24), ("probe", 168)]);
    assert_eq!(fields, at(expected));
    let (fields, size) = members(PORT, "filter_field_conf");
    assert_eq!((fields, size), (at([("present", 0), ("rows", 4), ("table", 8), ("table6", 12)]), 16));
    let (fields, size) = members(PORT, "filter_probe");
    let expected = [("mask", 0), ("length", 8), ("base", 12), ("offset", 16), ("rows", 20)];
    assert_eq!((fields, size), (at(expected), 24));
}

#[test]
fn filters_rules_are_the_kernels_side() {
    let (fields, size) = members(PORT, "filter_rule");
    let words = [("action", 0), ("flags", 4), ("slot", 8), ("sample", 12)];
    let longs = [("expires", 16), ("cost", 24), ("burst", 32)];
    let others = [("source4", 40), ("answer", 44), ("source6", 48), ("name", 64)];
    let expected = words.into_iter().chain(longs).chain(others);
    assert_eq!((fields, size), (at(expected), 128));
    let (fields, size) = members(PORT, "filter_count");
    let expected = [("packets", 0), ("bytes", 8), ("acted", 16), ("acted_bytes", 24)];
    assert_eq!((fields, size), (at(expected), 32));
    let (fields, size) = members(PORT, "filter_probe_key");
    assert_eq!((fields, size), (at([("value", 0), ("probe", 8), ("reserved", 12)]), 16));
    assert_eq!(members(PORT, "filter_source").1, 24);
}

fn values(name: &str) -> Vec<i64> {
    enumerators(PORT, name).into_iter().map(|(_, value)| value).collect()
}

#[test]
fn filters_numbers_are_the_kernels_side() {
    let names = |name| enumerators(PORT, name).into_iter().map(|(n, _)| n).collect::<Vec<_>>();
    let actions =
        ["FILTER_DROP", "FILTER_PASS", "FILTER_COUNT", "FILTER_SAMPLE", "FILTER_LIMIT", "FILTER_COOKIE"];
    assert_eq!(
        (names("filter_action"), values("filter_action")),
        (actions.map(str::to_owned).into(), (0..6).collect())
    );
    let families = ["FILTER_OTHER", "FILTER_IPV4", "FILTER_IPV6", "FILTER_MALFORMED"];
    assert_eq!(names("filter_family"), families);
    let bases = ["FILTER_BASE_FRAME", "FILTER_BASE_NETWORK", "FILTER_BASE_TRANSPORT", "FILTER_BASE_PAYLOAD"];
    assert_eq!(names("filter_base"), bases);
}

#[test]
fn services_of_filters_are_the_kernels_side() {
    use crate::filter::{ANSWER_WORDS, CLIENT_SIZE, SERVICES_CAPACITY, SERVICES_MAX};
    let (fields, size) = members(SERVICES, "filter_service");
    assert_eq!((fields, size), (at([("until", 0), ("since", 8)]), 16));
    let (fields, size) = members(SERVICES, "filter_answer");
    let words = ["answered", "valid", "invalid", "refused", "through"];
    assert_eq!((fields, size), (at(words.into_iter().zip((0..).step_by(8))), 8 * ANSWER_WORDS));
    assert_eq!(u32::try_from(members(SERVICES, "filter_client").1).unwrap(), CLIENT_SIZE);
    let open = ObjectBuilder::default().open_memory(services_object().bytes).unwrap();
    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
    assert_eq!(
        [entries("filter_services"), entries("filter_answers"), entries("filter_kept")],
        [SERVICES_CAPACITY; 3]
    );
    assert_eq!(SERVICES_CAPACITY, u32::try_from(2 * SERVICES_MAX).unwrap());
}

#[test]
fn generators_constants_are_the_kernels_side() {
    let (fields, size) = members(GENERATOR, "livegen_conf");
    assert_eq!(size, template::CONF_SIZE);
    let words = [
        "header_tail",
        "ifindex",
        "flow_mask",
        "vary",
        "random",
        "tagged",
        "destination",
        "destination_shift",
        "ip_sum",
        "destination_port",
        "source",
        "reserved",
    ];
    let expected = [("header", 0)].into_iter().chain(words.into_iter().zip((56..).step_by(4)));
    assert_eq!(fields, at(expected));
}

#[test]
fn generators_state_is_the_kernels_side() {
    let (fields, size) = members(GENERATOR, "livegen_state");
    assert_eq!(size, 16);
    assert_eq!(fields, at([("sent", 0), ("position", 8), ("reserved", 12)]));
}

#[test]
fn bridges_constants_are_the_kernels_side() {
    use crate::bridge::{
        BRIDGE_WORDS, FOR_FLOWS, LENGTH_HIGH, LENGTH_LOW, PORT as PORT_BITS, PROTECTED, REACHED, STAGE,
        STATIC, TAGGED,
    };
    let (fields, size) = members(PORT, "bridge_conf");
    assert_eq!(size, 4 * BRIDGE_WORDS);
    let words =
        ["present", "port", "untagged", "tagged", "protect", "learning", "partial", "shift", "factor"];
    assert_eq!(fields, at(words.into_iter().zip((0..).step_by(4))));
    assert_eq!(values("bridge_presence"), [STAGE, FOR_FLOWS].map(i64::from));
    let bits = [PORT_BITS, TAGGED, PROTECTED, STATIC, REACHED, LENGTH_LOW, LENGTH_HIGH];
    assert_eq!(values("bridge_where"), bits.map(i64::from));
    let (fields, size) = members(PORT, "bridge_station");
    assert_eq!((fields, size), (at([("key", 0), ("where", 8), ("used", 12)]), 16));
    let (fields, size) = members(PORT, "bridge_count");
    let expected = [("rx_packets", 0), ("rx_bytes", 8), ("tx_packets", 16), ("tx_bytes", 24)];
    assert_eq!((fields, size), (at(expected), 32));
}

#[test]
fn bridges_order_is_the_kernels_side() {
    let (fields, size) = members(PORT, "bridge_order");
    let expected = [
        ("sent", 0),
        ("waiting", 4),
        ("partial", 8),
        ("reserved0", 12),
        ("done", 64),
        ("now", 72),
        ("hold", 80),
        ("bypass", 88),
        ("reserved1", 96),
    ];
    assert_eq!((fields, size), (at(expected), 128));
    assert_eq!(members(PORT, "bridge_line").1, 64);
    assert_eq!(members(PORT, "bridge_flows").1, 64);
    let open = ObjectBuilder::default().open_memory(port_object().bytes).unwrap();
    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
    assert_eq!(entries("bridge_devices"), crate::bridge::BRIDGE_PORTS);
    assert_eq!(entries("bridge_counts"), crate::bridge::BRIDGE_PORTS);
}

#[test]
fn replays_are_the_kernels_side() {
    let (fields, size) = members(REPLAY, "replay_conf");
    assert_eq!((fields, size), (at([("ifindex", 0), ("frames", 4), ("random", 8), ("reserved", 12)]), 16));
    let (fields, size) = members(REPLAY, "replay_frame");
    assert_eq!(size, replay::VALUE_SIZE);
    let end = u32::try_from(4 + replay::FRAME_MAX).unwrap();
    assert_eq!(fields, at([("length", 0), ("bytes", 4), ("reserved", end)]));
    assert_eq!(members(REPLAY, "livegen_state"), members(GENERATOR, "livegen_state"));
}

#[test]
fn losses_are_the_kernels_side() {
    let (fields, size) = members(WATCH, "watch_key");
    assert_eq!((fields, size), (at([("netns", 0), ("ifindex", 4), ("event", 8), ("code", 12)]), 16));
    assert_eq!(members(WATCH, "watch_conf"), (at([("each", 0)]), 4));
    let names: Vec<String> = enumerators(WATCH, "watch_event").into_iter().map(|(name, _)| name).collect();
    let expected = LossEvent::ALL.map(|event| format!("WATCH_{event:?}").to_uppercase());
    assert_eq!(names, expected);
}

#[test]
fn dumps_are_the_kernels_side() {
    let (fields, size) = members(DUMP, "dump_conf");
    assert_eq!((fields, size), (at([("snap", 0), ("verdicts", 4), ("entry", 8), ("exit", 12)]), 16));
    let (fields, size) = members(DUMP, "dump_record");
    assert_eq!(size, dump::RECORD_SIZE);
    let words = [
        "ifindex",
        "queue",
        "verdict",
        "entry_length",
        "exit_length",
        "entry_bytes",
        "exit_bytes",
        "way",
        "rule",
        "reserved",
    ];
    assert_eq!(fields, at([("at", 0)].into_iter().chain(words.into_iter().zip((8..).step_by(4)))));
    assert_eq!(members(DUMP, "dump_frame").1, usize::try_from(dump::FRAME_SIZE).unwrap());
    assert_eq!(enumerators(DUMP, "trivium_counter"), enumerators(PORT, "trivium_counter"));
    // The capture object has the same port constants as the port object.
    assert_eq!(members(DUMP, "trivium_conf"), members(PORT, "trivium_conf"));
}

#[test]
fn steerings_are_the_kernels_side() {
    use crate::steer::{STEER_BUCKETS, STEER_WORDS};
    let (fields, size) = members(PORT, "steer_conf");
    assert_eq!(size, 4 * STEER_WORDS);
    assert_eq!(fields, at(["present", "flows", "table", "metadata"].into_iter().zip((0..).step_by(4))));
    let (fields, size) = members(PORT, "steer_key");
    let addresses = [("source", 0), ("destination", 16), ("source_port", 32), ("destination_port", 34)];
    let others = [("vlan", 36), ("protocol", 38), ("kind", 39)];
    assert_eq!((fields, size), (at(addresses.into_iter().chain(others)), 40));
    let (fields, size) = members(PORT, "steer_flow");
    let expected = [("to", 0), ("mark", 4), ("slot", 8), ("live", 12), ("expires", 16)];
    assert_eq!((fields, size), (at(expected), 24));
    let (fields, size) = members(PORT, "steer_count");
    assert_eq!((fields, size), (at([("packets", 0), ("bytes", 8)]), 16));
    let (fields, size) = members(PORT, "steer_table");
    let buckets = u32::try_from(4 * STEER_BUCKETS).unwrap();
    let expected = [("to", 0), ("live", buckets), ("reserved", buckets + 4)];
    assert_eq!((fields, size), (at(expected), 4 * STEER_BUCKETS + 8));
}

#[test]
fn fibs_constants_are_the_kernels_side() {
    use crate::fib::{FIB_DEVICES, FIB_WORDS};
    let (fields, size) = members(PORT, "fib_conf");
    assert_eq!(size, 4 * FIB_WORDS);
    let words = ["present", "sources", "partial", "reserved", "mac"];
    assert_eq!(fields, at(words.into_iter().zip((0..).step_by(4))));
    let (fields, size) = members(PORT, "fib_count");
    assert_eq!((fields, size), (at([("packets", 0), ("bytes", 8)]), 16));
    let open = ObjectBuilder::default().open_memory(port_object().bytes).unwrap();
    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
    let sizes = [entries("fib_devices"), entries("fib_near_counts"), entries("fib_counts")];
    assert_eq!(sizes, [2 * FIB_DEVICES, FIB_DEVICES, FIB_DEVICES]);
}

#[test]
fn routes_constants_are_the_kernels_side() {
    use crate::route::{OWN_CAPACITY, OWN_WORDS, ROUTE_WORDS, VLAN_WORDS};
    let (fields, size) = members(PORT, "route_conf");
    let answers = [
        "answers",
        "partial",
        "port",
        "seed",
        "words4",
        "words6",
        "lines",
        "neighbours",
        "interface",
        "sources",
    ];
    let all = [("present", 0), ("vrrp", 4), ("mac", 8)]
        .into_iter()
        .chain(answers.into_iter().zip((16..).step_by(4)));
    assert_eq!((fields, size), (at(all), 4 * ROUTE_WORDS));
    let open = ObjectBuilder::default().open_memory(port_object().bytes).unwrap();
    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
    let vlans = open.maps().find(|map| map.name() == crate::object::ROUTE_VLANS).unwrap();
    assert_eq!(vlans.value_size() as usize, 4 * VLAN_WORDS);
    let links = open.maps().find(|map| map.name() == crate::object::ROUTE_LINKS).unwrap();
    assert_eq!(links.value_size() as usize, 8 * crate::route::LINK_SECRETS);
    for map in ["route_own4", "route_own6"] {
        assert_eq!(usize::try_from(entries(map)).unwrap(), OWN_CAPACITY);
    }
    let bits = open.maps().find(|map| map.name() == "route_own_bits").unwrap();
    assert_eq!((bits.value_size() as usize, bits.max_entries()), (8 * OWN_WORDS, 2));
}

#[test]
fn routes_tables_are_the_kernels_side() {
    use crate::route::{
        AnswerMaps, COUNT_SIZE, FRAME_SIZE, GROUP_SIZE, INTERFACE_SIZE, LINE_SIZE, NEIGHBOUR_SIZE,
        ROUTE_INTERFACES, ROUTE_PORTS, SENT_SIZE,
    };
    let (fields, _) = members(PORT, "route_neighbour");
    assert_eq!(fields, at([("to", 0), ("place", 8), ("high", 16), ("low", 24)]));
    let (fields, _) = members(PORT, "route_interface");
    assert_eq!(fields, at([("from", 0), ("where", 8)]));
    let (fields, _) = members(PORT, "route_sent");
    assert_eq!(fields, at([("packets", 0), ("bytes", 8)]));
    let (fields, _) = members(PORT, "route_count");
    let words = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"];
    assert_eq!(fields, at(words.into_iter().zip((0..).step_by(8))));
    for (name, size) in [
        ("route_neighbour", NEIGHBOUR_SIZE),
        ("route_interface", INTERFACE_SIZE),
        ("route_sent", SENT_SIZE),
        ("route_count", COUNT_SIZE),
        ("route_group", GROUP_SIZE),
        ("route_line", LINE_SIZE),
        ("route_switch", 8),
        ("steer_frame", FRAME_SIZE),
    ] {
        assert_eq!(members(PORT, name).1, usize::try_from(size).unwrap(), "{name}");
    }
    let open = ObjectBuilder::default().open_memory(port_object().bytes).unwrap();
    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
    assert_eq!(entries("route_outputs"), ROUTE_INTERFACES);
    assert_eq!((entries("route_devices"), entries("route_counts")), (ROUTE_PORTS, ROUTE_PORTS));
    assert!(AnswerMaps::NAMES.iter().all(|name| open.maps().any(|map| map.name() == *name)));
}

#[test]
fn limits_of_punts_are_the_kernels_side() {
    use crate::route::{
        PEER_SIZE, PUNT_CLASSES, PUNT_COUNT_SIZE, PUNT_FRAME_SIZE, PUNT_PEERS, PuntMaps, STATE_WORDS,
    };
    let (fields, _) = members(PORT, "punt_rate");
    assert_eq!(fields, at([("interval", 0), ("burst", 8), ("open", 16)]));
    let (fields, size) = members(PORT, "punt_state");
    let rates = u32::try_from(24 * PUNT_CLASSES).unwrap();
    let classes = u32::try_from(8 * PUNT_CLASSES).unwrap();
    let buckets = rates + 32;
    let interfaces = buckets + classes;
    let places = [("rates", 0), ("secrets", rates), ("buckets", buckets), ("interfaces", interfaces)];
    let last = [("sources", interfaces + 256 * classes)];
    assert_eq!((fields, size), (at(places.into_iter().chain(last)), 8 * STATE_WORDS));
    let (fields, size) = members(PORT, "punt_peer");
    let numbers = [("kind", 0), ("interface", 2), ("here_port", 4), ("far_port", 6)];
    let addresses = [("here", 8), ("far", 24)];
    assert_eq!((fields, size), (at(numbers.into_iter().chain(addresses)), PEER_SIZE));
    let (fields, size) = members(PORT, "punt_count");
    assert_eq!((fields, size), (at([("passed", 0), ("dropped", 8)]), PUNT_COUNT_SIZE as usize));
    assert_eq!(members(PORT, "punt_frame").1, PUNT_FRAME_SIZE as usize);
    let classes = packet::PuntClass::ALL.into_iter().take(PUNT_CLASSES).map(|class| {
        (format!("PUNT_{}", class.name().to_uppercase().replace('-', "_")), i64::from(class as u8))
    });
    let end = ("PUNT_CLASSES".to_owned(), i64::try_from(PUNT_CLASSES).unwrap());
    assert_eq!(enumerators(PORT, "punt_class"), classes.chain([end]).collect::<Vec<_>>());
    let open = ObjectBuilder::default().open_memory(port_object().bytes).unwrap();
    let peers = open.maps().find(|map| map.name() == "punt_peers").unwrap();
    assert_eq!(usize::try_from(peers.max_entries()).unwrap(), PUNT_PEERS);
    assert!(PuntMaps::NAMES.iter().all(|name| open.maps().any(|map| map.name() == *name)));
}

#[test]
fn cached_flows_are_the_kernels_side() {
    use crate::flows::{
        COUNT_BYTES, DROPS, ENTRY_BYTES, FLOWS_WORDS, FRAME_BYTES, HINTS, MASKS, NORMAL, PLACES, POPS,
        PUSHES, SETS_IP,
    };
    let (fields, size) = members(PORT, "flows_conf");
    assert_eq!(size, 4 * FLOWS_WORDS);
    let words = ["present", "port", "partial", "lines", "factors"];
    assert_eq!(fields, at(words.into_iter().zip((0..).step_by(4))));
    assert_eq!(values("flow_does"), [DROPS, POPS, PUSHES, SETS_IP, NORMAL].map(i64::from));
    let (fields, size) = members(PORT, "flow_entry");
    let whole = [("key", 0), ("mask", 64), ("does", 68), ("port", 72), ("tci_mask", 76), ("tci", 78)];
    let ethernet = [("eth_mask", 80), ("eth", 96), ("tag", 112), ("ports_mask", 116), ("ports", 120)];
    let octets = [("tos_mask", 124), ("tos", 125), ("ttl_mask", 126), ("ttl", 127)];
    let addresses = [("src_mask", 128), ("src", 144), ("dst_mask", 160), ("dst", 176)];
    let rest = [("reserved", 192)];
    let all = whole.into_iter().chain(ethernet).chain(octets).chain(addresses).chain(rest);
    assert_eq!((fields, size), (at(all), ENTRY_BYTES));
    let (fields, size) = members(PORT, "flow_count");
    let all = [("packets", 0), ("bytes", 8), ("used", 16), ("reserved", 24)];
    assert_eq!((fields, size), (at(all), COUNT_BYTES));
    assert_eq!(members(PORT, "flow_frame").1, usize::try_from(FRAME_BYTES).unwrap());
    assert_eq!(members(PORT, "flow_key").1, 64);
    assert_eq!(members(PORT, "flow_line").1, 8 * usize::try_from(PLACES).unwrap());
    for (name, size) in [("flow_mask", 64), ("flow_port", 8), ("flow_state", 8), ("flow_hint", 8)] {
        assert_eq!(members(PORT, name).1, size, "{name}");
    }
    let open = ObjectBuilder::default().open_memory(port_object().bytes).unwrap();
    let entries = |name: &str| open.maps().find(|map| map.name() == name).unwrap().max_entries();
    assert_eq!((entries("flow_masks"), entries("flow_hints")), (MASKS, HINTS));
    assert_eq!(entries("flow_ports"), crate::bridge::BRIDGE_PORTS);
}
