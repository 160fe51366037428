//! Tests that the differences between two configurations are complete and contain nothing else, and that their order
//! allows each change to be applied.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod generate;

use std::collections::BTreeSet;

use generate::config;
use model::{
    Bridge, Config, ConfigChange, ConfigDiff, FilterName, HookPolicy, How, Port, Router, SteeringName, diff,
    load,
};
use proptest::prelude::*;

/// Applies the changes to the old configuration one by one, and checks the precondition of each change. Returns the
/// resulting configuration.
fn interpret(old: &Config, differences: &ConfigDiff, new: &Config) -> Config {
    let mut now = old.clone();
    for change in &differences.changes {
        step(&mut now, change, new);
    }
    now
}

fn step(now: &mut Config, change: &ConfigChange, new: &Config) {
    match change.clone() {
        ConfigChange::RemoveStatic { bridge, key, port } => {
            assert_eq!(now.bridges.get_mut(&bridge).unwrap().statics.remove(&key), Some(port));
        }
        ConfigChange::RemoveMember { bridge, port } => {
            let bridge = now.bridges.get_mut(&bridge).unwrap();
            assert!(!bridge.statics.values().any(|of| *of == port), "an entry points to a port that leaves");
            assert!(bridge.ports.remove(&port).is_some());
        }
        ConfigChange::RemoveBridge { name } => {
            let bridge = now.bridges.remove(&name).unwrap();
            assert!(bridge.ports.is_empty() && bridge.statics.is_empty());
        }
        ConfigChange::RemovePort { name } => {
            assert!(now.bridge_of(name.as_str()).is_none(), "a member is removed");
            assert!(now.router_of(name.as_str()).is_none(), "an interface is removed");
            assert!(now.ports.remove(&name).is_some());
        }
        ConfigChange::AddFilter { name, filter } => assert!(now.filters.insert(name, *filter).is_none()),
        ConfigChange::ChangeFilter { name, filter, fields } => {
            assert!(!fields.is_empty() && fields.iter().all(|field| field.how == How::Live));
            assert!(now.filters.insert(name, *filter).is_some());
        }
        ConfigChange::RemoveFilter { name } => {
            assert!(!now.ports.values().any(|port| filter_of(port) == Some(&name)), "a port has it still");
            assert!(now.filters.remove(&name).is_some());
        }
        ConfigChange::AddSteering { name, steering } => {
            assert!(now.steering.insert(name, *steering).is_none())
        }
        ConfigChange::ChangeSteering { name, steering, fields } => {
            assert!(!fields.is_empty() && fields.iter().all(|field| field.how == How::Live));
            assert!(now.steering.insert(name, *steering).is_some());
        }
        ConfigChange::RemoveSteering { name } => {
            assert!(!now.ports.values().any(|port| steering_of(port) == Some(&name)), "a port has it still");
            assert!(now.steering.remove(&name).is_some());
        }
        ConfigChange::AddPort { name, port, .. } => {
            assert!(steering_of(&port).is_none_or(|steering| now.steering.contains_key(steering)));
            assert!(filter_of(&port).is_none_or(|filter| now.filters.contains_key(filter)));
            assert!(now.ports.insert(name, *port).is_none());
        }
        ConfigChange::ChangePort { name, port, fields } => {
            assert!(fields.iter().all(|field| field.how == How::Live));
            assert!(now.ports.insert(name, *port).is_some());
        }
        ConfigChange::ChangeHookPolicy { port, policy } => {
            assert_eq!(new.hook_policy(port.as_str()), Some(policy));
        }
        ConfigChange::AddBridge { name, settings } => {
            assert!(now.bridges.insert(name, Bridge { settings, ..Bridge::default() }).is_none());
        }
        ConfigChange::ChangeBridge { name, settings, .. } => {
            now.bridges.get_mut(&name).unwrap().settings = settings
        }
        ConfigChange::AddMember { bridge, port, member } => {
            assert!(now.ports.contains_key(&port) && now.bridge_of(port.as_str()).is_none());
            assert!(now.bridges.get_mut(&bridge).unwrap().ports.insert(port, member).is_none());
        }
        ConfigChange::ChangeMember { bridge, port, member, .. } => {
            assert!(now.bridges.get_mut(&bridge).unwrap().ports.insert(port, member).is_some());
        }
        ConfigChange::SetStatic { bridge, key, port } => {
            let bridge = now.bridges.get_mut(&bridge).unwrap();
            assert!(bridge.ports.contains_key(&port), "an entry points to a port that is no member");
            bridge.statics.insert(key, port);
        }
        ConfigChange::NeedsRestart(change) => match change.field.split('.').next() {
            Some("daemon") => now.daemon = new.daemon.clone(),
            Some("engine") => now.engine = new.engine.clone(),
            Some("memory") => now.memory = new.memory.clone(),
            other => panic!("{other:?}"),
        },
        of_router => step_of_router(now, of_router),
    }
}

/// Applies a change of a router or of a router's port to the configuration `now`.
fn step_of_router(now: &mut Config, change: ConfigChange) {
    match change {
        ConfigChange::RemoveRouterPort { router, port } => {
            assert!(now.routers.get_mut(&router).unwrap().ports.remove(&port).is_some());
        }
        ConfigChange::RemoveRouter { name } => {
            assert!(now.routers.remove(&name).unwrap().ports.is_empty());
        }
        ConfigChange::AddRouter { name, settings, recreated } => {
            assert!(recreated.is_empty() || recreated.iter().any(|field| field.how == How::Recreate));
            let beside = |other: &Router| other.settings.namespace == settings.namespace;
            assert!(!now.routers.values().any(beside), "two routers follow one namespace");
            assert!(now.routers.insert(name, Router { settings, ..Router::default() }).is_none());
        }
        ConfigChange::ChangeRouter { name, settings, fields } => {
            assert!(!fields.is_empty() && fields.iter().all(|field| field.how == How::Live));
            let router = now.routers.get_mut(&name).unwrap();
            assert_eq!(router.settings.namespace, settings.namespace);
            router.settings = settings;
        }
        ConfigChange::AddRouterPort { router, port, settings } => {
            let alone = now.bridge_of(port.as_str()).is_none() && now.router_of(port.as_str()).is_none();
            assert!(alone, "a port has two rooms");
            let (_, namespace) = now.ports[&port].kind.device().unwrap();
            let (namespace, router) = (namespace.cloned(), now.routers.get_mut(&router).unwrap());
            assert_eq!(namespace, router.settings.namespace);
            assert!(router.ports.insert(port, settings).is_none());
        }
        ConfigChange::ChangeRouterPort { router, port, settings, fields } => {
            assert!(!fields.is_empty() && fields.iter().all(|field| field.how == How::Live));
            assert!(now.routers.get_mut(&router).unwrap().ports.insert(port, settings).is_some());
        }
        other => panic!("{other:?}"),
    }
}

fn filter_of(port: &Port) -> Option<&FilterName> {
    port.filter.as_ref()
}

fn steering_of(port: &Port) -> Option<&SteeringName> {
    port.kind.xdp()?.steering.as_ref()
}

fn touched(differences: &ConfigDiff) -> BTreeSet<String> {
    let ports = differences.changes.iter().filter_map(|change| match change {
        ConfigChange::RemovePort { name }
        | ConfigChange::AddPort { name, .. }
        | ConfigChange::ChangePort { name, .. } => Some(name.to_string()),
        ConfigChange::RemoveMember { port, .. }
        | ConfigChange::AddMember { port, .. }
        | ConfigChange::ChangeMember { port, .. }
        | ConfigChange::RemoveRouterPort { port, .. }
        | ConfigChange::AddRouterPort { port, .. }
        | ConfigChange::ChangeRouterPort { port, .. }
        | ConfigChange::ChangeHookPolicy { port, .. } => Some(port.to_string()),
        _ => None,
    });
    ports.collect()
}

proptest! {
    #[test]
    fn the_differences_lead_from_old_to_new(old in config(), new in config()) {
        let differences = diff(&old, &new);
        prop_assert_eq!(interpret(&old, &differences, &new), new);
    }

    #[test]
    fn nothing_is_done_where_nothing_differs(same in config()) {
        prop_assert!(diff(&same, &same.clone()).is_empty());
    }

    #[test]
    fn there_are_no_differences_only_where_nothing_differs(old in config(), new in config()) {
        prop_assert_eq!(diff(&old, &new).is_empty(), old == new);
        prop_assert_eq!(diff(&old, &new).report().lines.is_empty(), old == new);
    }

    #[test]
    fn untouched_ports_never_appear(old in config(), new in config()) {
        let touched = touched(&diff(&old, &new));
        for (name, port) in &old.ports {
            let name_of = name.as_str();
            let rooms = old.bridge_of(name_of) == new.bridge_of(name_of) && old.router_of(name_of) == new.router_of(name_of);
            let same = new.ports.get(name) == Some(port) && rooms;
            // A removed bridge removes its members, so its ports are affected. `bridge_of` covers this case.
            prop_assert!(!same || !touched.contains(name.as_str()), "{} was touched", name);
        }
    }

    #[test]
    fn files_and_json_round_trip(config in config()) {
        let text = config.to_toml();
        prop_assert_eq!(load(&text, "t").map_err(|p| format!("{}\n{}", p[0], text)), Ok(config.clone()));
        let json = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
    }
}

#[test]
fn differences_read_well() {
    let old = load(
        "[port.a]\nkind='af_xdp'\ndevice='eth1'\n[port.b]\nkind='ring'\n[port.d]\nkind='null'\n\
         [bridge.br0.port.a]\naccess=10\n[bridge.br0.port.b]\naccess=10\n[bridge.br0.port.d]",
        "old",
    )
    .unwrap();
    let new = load(
        "[engine]\nspin_us=64\n[port.a]\nkind='af_xdp'\ndevice='eth2'\n[port.b]\nkind='ring'\nmtu=1400\n\
         [port.c]\nkind='tap'\nnamespace='red'\n[bridge.br0]\nageing=60\n[bridge.br0.port.a]\naccess=10\n\
         [bridge.br0.port.b]\naccess=20\n[bridge.br0.port.c]\ntrunk=[1,'5-9']\nnative=1\n\
         [[bridge.br0.static]]\nmac='02:00:00:00:00:01'\nport='c'\n",
        "new",
    )
    .unwrap();
    let expected = "\
- bridge.br0.port.d
- port.d
~ port.a: device \"eth1\" -> \"eth2\" (made anew)
~ port.b: mtu default -> 1400
+ port.c: tap c in red
~ bridge.br0: ageing 300 -> 60
~ bridge.br0.port.a: access 10 (joins again)
~ bridge.br0.port.b: access 10 -> 20
+ bridge.br0.port.c: trunk 1, 5-9, native 1
+ bridge.br0.static.02:00:00:00:00:01,1: port c
! engine.spin_us: 50 -> 64 (needs a restart)
";
    assert_eq!(diff(&old, &new).to_string(), expected);
}

#[test]
fn a_router_changes_in_place_but_for_its_namespace() {
    let with = |routers: &str, ports: &str| {
        let port = |name: &str| format!("[port.{name}]\nkind='af_xdp'\n{ports}\n");
        load(&format!("{}{}{routers}", port("a"), port("b")), "t").unwrap()
    };
    let none = with("", "");
    let old = with("[router.edge.port.a]\n[router.edge.port.b]\nmiss='punt'\n", "");
    let new = with(
        "[router.edge]\nroutes=10\npunts=7\npunt_limits={bfd=9,arp=8}\nfpm='127.0.0.1:2620'\n[router.edge.port.b]\n",
        "",
    );
    assert_eq!(
        diff(&none, &old).to_string(),
        "+ router.edge\n+ router.edge.port.a: miss unreachable\n+ router.edge.port.b: miss punt\n"
    );
    assert_eq!(diff(&old, &none).to_string(), "- router.edge.port.a\n- router.edge.port.b\n- router.edge\n");
    assert_eq!(
        diff(&old, &new).to_string(),
        "- router.edge.port.a\n~ router.edge: fpm default -> \"127.0.0.1:2620\", punt_limits.arp default -> 8, punt_limits.bfd default -> 9, punts 20000 -> 7, routes 2000000 -> 10\n\
         ~ router.edge.port.b: miss \"punt\" -> \"unreachable\"\n"
    );
    let red = with("[router.edge]\nnamespace='red'\n[router.edge.port.a]\n", "namespace='red'");
    assert_eq!(
        diff(&old, &red).to_string(),
        "- router.edge.port.b\n\
         ~ port.a: namespace default -> \"red\" (made anew)\n\
         ~ port.b: namespace default -> \"red\" (made anew)\n\
         ~ router.edge: namespace default -> \"red\" (made anew)\n\
         ~ router.edge.port.a: miss unreachable (joins again)\n"
    );
    // VLANs of a port can be interfaces.
    let tagged = with("[router.edge.port.a]\nvlans=[100,\"20-29\"]\n[router.edge.port.b]\nmiss='punt'\n", "");
    assert_eq!(
        diff(&old, &tagged).to_string(),
        "~ router.edge.port.a: vlans default -> [\"20-29\",\"100-100\"]\n"
    );
    assert!(
        diff(&none, &tagged).to_string().contains("router.edge.port.a: miss unreachable, VLANs 20-29, 100\n")
    );
    // A port that is removed and added leaves its router and joins it again.
    let again = with("[router.edge.port.a]\n[router.edge.port.b]\nmiss='punt'\n", "busy_poll=20");
    let said = diff(&old, &again).to_string();
    assert!(said.ends_with("~ router.edge.port.b: miss punt (joins again)\n"), "{said}");
}

/// Checks that the hook of a router's port is removed when the daemon ends, because the kernel then routes the packets.
#[test]
fn a_hook_of_a_routers_port_goes_with_the_daemon() {
    let port = "[port.a]\nkind='af_xdp'\n";
    let bridged = load(&format!("{port}[bridge.br0.port.a]\n"), "t").unwrap();
    let routed = load(&format!("{port}[router.edge.port.a]\n"), "t").unwrap();
    assert_eq!(
        routed.hook_policy("a"),
        Some(HookPolicy { persist: false, when_down: model::WhenDown::Pass })
    );
    assert_eq!(
        diff(&bridged, &routed).to_string(),
        "- bridge.br0.port.a\n- bridge.br0\n~ port.a: its hook goes with the daemon, when_down pass\n\
         + router.edge\n+ router.edge.port.a: miss unreachable\n"
    );
    let told = load(&format!("{port}persist=true\nwhen_down='drop'\n[router.edge.port.a]\n"), "t").unwrap();
    let policy = told.hook_policy("a").unwrap();
    assert_eq!(policy, HookPolicy { persist: true, when_down: model::WhenDown::Drop });
}

#[test]
fn a_steering_changes_flow_by_flow() {
    let port = "[port.a]\nkind='af_xdp'\n";
    let with = |fields: &str| load(&format!("{port}steering='s'\n[steering.s]\n{fields}\n"), "t").unwrap();
    let (without, empty) = (load(port, "t").unwrap(), with(""));
    let flow = |to: &str| {
        format!(
            "flow=[{{source='10.0.0.1',destination='10.0.0.2',protocol='udp',source_port=7,destination_port=9,{to}}}]"
        )
    };
    let first = with(&flow("to='kernel'"));
    let marked = with(&flow("to='cpu 1',mark=0x10"));
    assert_eq!(
        diff(&without, &first).to_string(),
        "+ steering.s: 1 flows\n~ port.a: steering default -> \"s\"\n"
    );
    assert_eq!(diff(&first, &without).to_string(), "~ port.a: steering \"s\" -> default\n- steering.s\n");
    assert_eq!(
        diff(&empty, &first).to_string(),
        "~ steering.s: flow udp 10.0.0.1:7 > 10.0.0.2:9 none -> kernel\n"
    );
    // A mark enables metadata.
    assert_eq!(
        diff(&first, &marked).to_string(),
        "~ steering.s: metadata false -> true, flow udp 10.0.0.1:7 > 10.0.0.2:9 kernel -> cpu 1 with mark 0x10\n"
    );
    let table = with("table=['cpu 0','kernel']\ncapacity=7");
    assert_eq!(
        diff(&empty, &table).to_string(),
        "~ steering.s: capacity 65536 -> 7, table default -> [\"cpu 0\",\"kernel\"]\n"
    );
}

#[test]
fn a_filter_changes_rule_by_rule() {
    let port = "[port.a]\nkind='af_xdp'\n";
    let with = |rules: &str| load(&format!("{port}filter='f'\n[filter.f]\nrule=[{rules}]\n"), "t").unwrap();
    let (ntp, all) =
        ("{name='ntp',action='drop',protocol='udp',source_port=123}", "{name='all',action='count'}");
    let without = load(port, "t").unwrap();
    let first = with(ntp);
    assert_eq!(
        diff(&without, &first).to_string(),
        "+ filter.f: 1 rules\n~ port.a: filter default -> \"f\"\n"
    );
    assert_eq!(diff(&first, &without).to_string(), "~ port.a: filter \"f\" -> default\n- filter.f\n");
    let both = with(&format!("{ntp},{all}"));
    assert_eq!(diff(&first, &both).to_string(), "~ filter.f: rule.all none -> count\n");
    let turned = with(&format!("{all},{ntp}"));
    assert_eq!(diff(&both, &turned).to_string(), "~ filter.f: the order of rules ntp all -> all ntp\n");
    let limited = with(&ntp.replace("123", "53").replace("'drop'", "'limit',rate=9"));
    let said = diff(&first, &limited).to_string();
    assert!(
        said.contains("rule.ntp.action \"drop\" -> \"limit\"") && said.contains("[123] -> [53]"),
        "{said}"
    );
}

#[test]
fn leaving_a_bridge_changes_what_the_hook_does_alone() {
    let port = "[port.a]\nkind='af_xdp'\n";
    let old = load(&format!("{port}[bridge.br0.port.a]\n"), "old").unwrap();
    let new = load(&format!("{port}[bridge.br0]\n"), "new").unwrap();
    assert_eq!(
        diff(&old, &new).to_string(),
        "- bridge.br0.port.a\n~ port.a: its hook goes with the daemon, when_down pass\n"
    );
}

/// Checks which fields of a port can change while the port runs. A change of any other field is reported as the removal
/// and the addition of the port.
#[test]
fn each_field_of_a_port_says_how_it_changes() {
    let veth = |text: &str| format!("kind='veth'\npeer={{name='eth0'{text}}}");
    let mac = ", mac='02:00:00:00:00:01'";
    let cases = [
        ("kind='null'\nmtu=1400".to_owned(), "kind='null'".to_owned(), true),
        ("kind='null'".to_owned(), "kind='null'\nmtu=1400".to_owned(), false),
        ("kind='tap'\nmtu=1400".to_owned(), "kind='tap'".to_owned(), false),
        ("kind='af_xdp'".to_owned(), "kind='af_xdp'\nbusy_poll=20".to_owned(), true),
        ("kind='af_xdp'".to_owned(), "kind='af_xdp'\ncomplete_checksums='on'".to_owned(), false),
        ("kind='af_xdp'".to_owned(), "kind='af_xdp'\nrouting='kernel'".to_owned(), false),
        ("kind='af_xdp'".to_owned(), "kind='af_xdp'\npersist=true".to_owned(), true),
        (veth(""), veth(mac), false),
        (veth(mac), veth(""), true),
        (veth(""), veth(", mtu=1400"), false),
        (veth(""), veth(", address=['10.0.0.1/24']"), false),
        (veth(""), veth(", namespace='red'"), true),
        ("kind='internal'\nmac='02:00:00:00:00:01'".to_owned(), "kind='internal'".to_owned(), true),
    ];
    for (old, new, anew) in cases {
        let config = |text: &str| load(&format!("[port.a]\n{text}\n"), "t").unwrap();
        let said = diff(&config(&old), &config(&new)).to_string();
        assert_eq!(said.contains("made anew"), anew, "{old} -> {new}: {said}");
    }
}

/// Regression test from fuzzing: serialization wrote `loop` and `timing` for a port that only writes, and loading then
/// refused the written configuration.
#[test]
fn a_port_that_only_writes_round_trips() {
    let config = load("[port.out]\nkind='pcap'\nwrite='/tmp/out.pcap'\n", "t").unwrap();
    assert_eq!(load(&config.to_toml(), "written").as_ref(), Ok(&config));
}
