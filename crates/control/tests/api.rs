//! Tests of the API over its Unix socket, with a real client.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod memory;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use control::{ApplyOptions, ConfigReport, ExplainRequest, Outcome, PendingReport};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use memory::{Daemon, OBJECTS};
use model::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const FIFTY: &str = include_str!("../../model/tests/fifty.toml");

/// Filters can be put, shown and deleted like ports, and have counters and a block list.
#[tokio::test]
async fn filters_are_put_shown_and_fed_with_blocks() {
    let daemon = Daemon::serving("filters");
    let body = r#"{"rule":[{"name":"ntp","action":"drop","protocol":"udp","source_port":123}]}"#;
    let outcome: Outcome = daemon.json("PUT", "/v1/filters/edge", body).await;
    assert!(outcome.applied && outcome.plan.lines[0].object == "filter.edge", "{outcome:?}");
    let shown: Vec<FilterState> = daemon.json("GET", "/v1/filters", "").await;
    assert_eq!((shown[0].name.as_str(), shown[0].owner, shown[0].rules[0].packets), ("edge", Owner::Api, 9));
    let one: FilterState = daemon.json("GET", "/v1/filters/edge", "").await;
    assert_eq!(one, shown[0]);
    let blocked: Blocked = daemon
        .json("POST", "/v1/filters/edge/block", r#"{"prefixes":["192.0.2.7","2001:db8::/32"],"expires_s":5}"#)
        .await;
    assert_eq!(blocked.changed, 2);
    let error =
        daemon.refused("POST", "/v1/filters/edge/block", r#"{"prefixes":["192.0.2.0/33"]}"#, 400).await;
    assert!(error.cause.contains("192.0.2.0/33"), "{error:?}");
    daemon.refused("POST", "/v1/filters/edge/block", r#"{"prefixes":[],"expires_s":0}"#, 400).await;
    daemon.refused("POST", "/v1/filters/none/block", r#"{"prefixes":[]}"#, 404).await;
    let error = daemon.refused("PUT", "/v1/filters/edge", &body.replace("123", "70000"), 422).await;
    assert_eq!(error.object, "filter.edge.rule[0].source_port");
    // A filter that a port uses cannot be deleted.
    let port = r#"{"kind":"af_xdp","filter":"edge"}"#;
    daemon.json::<Outcome>("PUT", "/v1/ports/a", port).await;
    let error = daemon.refused("DELETE", "/v1/filters/edge", "", 422).await;
    assert_eq!(error.object, "port.a.filter");
    let (_, metrics) = daemon.ask("GET", "/metrics", "").await;
    let line = "trivium_filter_packets_total{filter=\"edge\",rule=\"ntp\",action=\"drop\"} 9";
    assert!(metrics.lines().any(|other| other == line), "{metrics}");
    daemon.json::<Outcome>("DELETE", "/v1/ports/a", "").await;
    daemon.json::<Outcome>("DELETE", "/v1/filters/edge", "").await;
    daemon.refused("GET", "/v1/filters/edge", "", 404).await;
}

/// Returns the rules of a filter in order, with their priorities.
fn order(daemon: &Daemon, filter: &str) -> Vec<(String, u32)> {
    let running = daemon.plane.running();
    running.filters[filter].rules.iter().map(|rule| (rule.name.to_string(), rule.priority)).collect()
}

/// A rule is added at the requested position, or nothing changes.
#[tokio::test]
async fn rules_of_a_filter_come_and_go_one_by_one() {
    let daemon = Daemon::serving("rules");
    let rule = |name: &str| format!(r#"{{"name":"{name}","action":"drop","source_port":[123,"1900-1999"]}}"#);
    // The first rule creates the filter.
    let first = r#"{"name":"b","action":"drop","priority":7}"#;
    let outcome: Outcome = daemon.json("POST", "/v1/filters/edge/rules", first).await;
    assert_eq!((outcome.applied, outcome.plan.lines[0].sign), (true, '+'), "{outcome:?}");
    let outcome: Outcome = daemon.json("POST", "/v1/filters/edge/rules", &rule("z")).await;
    assert_eq!(outcome.plan.to_string(), "~ filter.edge: rule.z none -> drop\n");
    for (place, name) in [("before=b", "a"), ("after=b", "c"), ("before=z", "y"), ("first=true", "top")] {
        daemon.json::<Outcome>("POST", &format!("/v1/filters/edge/rules?{place}"), &rule(name)).await;
    }
    let named =
        |all: &[(&str, u32)]| all.iter().map(|(name, p)| ((*name).to_owned(), *p)).collect::<Vec<_>>();
    let all = named(&[("top", 7), ("a", 7), ("b", 7), ("c", 7), ("y", 0), ("z", 0)]);
    assert_eq!(order(&daemon, "edge"), all, "each has the priority of its place");

    // Problems are reported like those of a complete filter.
    let object = ObjectKey::Filter("edge".parse().unwrap());
    for (path, body, status, object, cause) in [
        ("rules", rule("x").replace("123", "70000"), 422, "filter.edge.rule[6].source_port[0]", "70000"),
        ("rules?after=b", rule("x").replace("drop", "drip"), 422, "filter.edge.rule[3].action", "drip"),
        ("rules?before=b", rule("top"), 422, "filter.edge.rule[2]", "rule top stands here twice"),
        ("rules", r#"{"action":"drop"}"#.to_owned(), 422, "filter.edge.rule[6]", "`name`"),
        ("rules", "[]".to_owned(), 422, "filter.edge.rule[6]", "a list"),
        ("rules", "{".to_owned(), 400, "body", "EOF"),
        ("rules?before=nobody", rule("x"), 404, "filter.edge", "there is no rule `nobody`"),
        ("rules?first=true&after=b", rule("x"), 400, "query", "one place"),
        ("rules?before=a%20b", rule("x"), 400, "rule.a b", "' '"),
        ("rules?first=true", first.replace("\"b\"", "\"x\""), 400, "body.priority", "priority"),
    ] {
        let error = daemon.refused("POST", &format!("/v1/filters/edge/{path}"), &body, status).await;
        assert!(error.object == object && error.cause.contains(cause), "{path} {body}: {error:?}");
    }
    let error = daemon.refused("DELETE", "/v1/filters/edge/rules/nobody", "", 404).await;
    assert!(error.cause.contains("no rule `nobody`") && error.fix.contains("show filters"), "{error:?}");
    daemon.refused("DELETE", "/v1/filters/none/rules/a", "", 404).await;
    assert_eq!(order(&daemon, "edge"), all);
    assert_eq!(daemon.store.merged().config, daemon.plane.running());

    // Dry runs change nothing.
    let outcome: Outcome = daemon.json("POST", "/v1/filters/edge/rules?dry_run=true", &rule("x")).await;
    assert!(!outcome.applied && outcome.plan.lines.len() == 1, "{outcome:?}");
    daemon.json::<Outcome>("DELETE", "/v1/filters/edge/rules/a?dry_run=true", "").await;
    assert_eq!(order(&daemon, "edge"), all);

    for name in ["top", "b", "a", "c", "z"] {
        daemon.json::<Outcome>("DELETE", &format!("/v1/filters/edge/rules/{name}"), "").await;
    }
    assert_eq!(order(&daemon, "edge"), named(&[("y", 0)]));
    daemon.json::<Outcome>("DELETE", "/v1/filters/edge/rules/y", "").await;
    assert!(order(&daemon, "edge").is_empty(), "it stays, also without rules");
    assert_eq!(daemon.store.merged().owners[&object], Owner::Api);
}

/// Steering policies can be put and shown like filters. Their flows and tables change at run time.
#[tokio::test]
async fn steerings_are_put_shown_and_changed() {
    let daemon = Daemon::serving("steerings");
    let flow = r#"{"source":"192.0.2.1","destination":"192.0.2.2","protocol":"udp","source_port":7,"destination_port":9,"to":"kernel"}"#;
    let body = format!(r#"{{"table":["worker","cpu 1"],"flow":[{flow}]}}"#);
    let outcome: Outcome = daemon.json("PUT", "/v1/steers/spread", &body).await;
    assert!(outcome.applied && outcome.plan.lines[0].object == "steer.spread", "{outcome:?}");
    let shown: Vec<SteerState> = daemon.json("GET", "/v1/steers", "").await;
    assert_eq!((shown[0].name.as_str(), shown[0].owner, shown[0].flows), ("spread", Owner::Api, 1));
    let one: SteerState = daemon.json("GET", "/v1/steers/spread", "").await;
    assert_eq!(one, shown[0]);
    let flows: Vec<SteerEntry> = daemon.json("GET", "/v1/steers/spread/flows", "").await;
    assert_eq!((flows[0].source_port, flows[0].protocol, flows[0].to), (Some(7), 17, SteerTarget::Kernel));
    // Returned flows can be sent back.
    let request = SteerRequest { remove: false, flows };
    let request = serde_json::to_string(&request).unwrap();
    let done: SteerDone = daemon.json("POST", "/v1/steers/spread/flows", &request).await;
    assert_eq!((done.changed, done.flows), (1, 2));
    for (bad, what) in [
        (request.replace("192.0.2.2", "2001:db8::1"), "families"),
        (request.replace("\"source_port\":7,", ""), "ports"),
        (request.replace("\"protocol\":17", "\"protocol\":1"), "no ports"),
        (request.replace("\"kernel\"", "\"cpu\""), "cpu"),
        (request.replace("\"mark\":0", "\"mark\":0,\"vlan\":4095"), "VLAN"),
        (request.replace("\"mark\":0", "\"mark\":0,\"expires_s\":0"), "seconds"),
        (request.replace("\"mark\":0", "\"mark\":0,\"colour\":1"), "colour"),
    ] {
        assert_ne!(bad, request);
        let error = daemon.refused("POST", "/v1/steers/spread/flows", &bad, 400).await;
        assert!(error.cause.contains(what), "{what}: {error:?}");
    }
    daemon.refused("POST", "/v1/steers/none/flows", r#"{"flows":[]}"#, 404).await;
    let table: SteerTable = daemon.json("GET", "/v1/steers/spread/table", "").await;
    assert_eq!(table.buckets, [SteerTarget::Kernel]);
    daemon.json::<SteerTable>("PUT", "/v1/steers/spread/table", r#"{"buckets":["cpu 0"]}"#).await;
    daemon.refused("PUT", "/v1/steers/spread/table", r#"{"buckets":["elsewhere"]}"#, 400).await;
    let error = daemon.refused("PUT", "/v1/steers/spread", &body.replace("cpu 1", "cpu x"), 422).await;
    assert_eq!(error.object, "steer.spread.table[1]");
    // A steering policy that a port uses cannot be deleted.
    daemon.json::<Outcome>("PUT", "/v1/ports/a", r#"{"kind":"af_xdp","steer":"spread"}"#).await;
    let error = daemon.refused("DELETE", "/v1/steers/spread", "", 422).await;
    assert_eq!(error.object, "port.a.steer");
    let (_, metrics) = daemon.ask("GET", "/metrics", "").await;
    for line in [
        "trivium_steering_packets_total{steer=\"spread\",to=\"cpu 1\"} 9",
        "trivium_steering_flows{steer=\"spread\"} 1",
        "trivium_steering_unmarked_total{steer=\"spread\"} 3",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{metrics}");
    }
    daemon.json::<Outcome>("DELETE", "/v1/ports/a", "").await;
    daemon.json::<Outcome>("DELETE", "/v1/steers/spread", "").await;
    daemon.refused("GET", "/v1/steers/spread", "", 404).await;
}

/// States of hooks contain a measurement if one was requested.
#[tokio::test]
async fn hooks_are_shown_and_measured() {
    let daemon = Daemon::serving("hooks");
    daemon.json::<Outcome>("PUT", "/v1/ports/a", r#"{"kind":"af_xdp"}"#).await;
    let shown: Vec<HookState> = daemon.json("GET", "/v1/hooks", "").await;
    assert_eq!((shown[0].port.as_str(), shown[0].counters["steered"], shown[0].measured), ("a", 7, None));
    let one: HookState = daemon.json("GET", "/v1/hooks/a?measure_ms=5", "").await;
    let measured = one.measured.unwrap();
    assert!(measured.elapsed_ns >= 5_000_000);
    assert_eq!((measured.runs, measured.run_time_ns), (3, 30));
    assert_eq!(daemon.plane.counting.load(std::sync::atomic::Ordering::Relaxed), 0);
    for wrong in ["0", "60001", "x"] {
        daemon.refused("GET", &format!("/v1/hooks?measure_ms={wrong}"), "", 400).await;
    }
    let error = daemon.refused("GET", "/v1/hooks/none", "", 404).await;
    assert_eq!(error.object, "port.none");
    let mut response = daemon.open("GET", "/v1/hooks/a/dump?verdicts=drop,pass&entry=false", "").await;
    assert_eq!(response.headers()["content-type"], "application/x-pcapng");
    let mut file = Vec::new();
    while file.len() < 300 {
        file.extend(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap());
    }
    let has = |text: &[u8]| file.windows(text.len()).any(|bytes| bytes == text);
    // The direction is outbound for a frame after the program.
    assert!(has(b"verdict: drop+pass, steered") && has(&[2, 0, 4, 0, 2, 0, 0, 0]), "{file:?}");
    for (wrong, status) in
        [("none/dump", 404), ("a/dump?entry=false&exit=false", 400), ("a/dump?filter=x", 400)]
    {
        daemon.refused("GET", &format!("/v1/hooks/{wrong}"), "", status).await;
    }
}

/// Object files are received completely, within a limit, with the name of the program.
#[tokio::test]
async fn programs_are_loaded_and_unloaded() {
    let daemon = Daemon::serving("programs");
    daemon.json::<Outcome>("PUT", "/v1/ports/a", r#"{"kind":"af_xdp"}"#).await;
    let object = "x".repeat(OBJECT_LIMIT);
    let loaded: ProgramChange = daemon.json("PUT", "/v1/hooks/a/program?program=mine", &object).await;
    assert_eq!(loaded.now.unwrap().program.name, format!("mine of {OBJECT_LIMIT} bytes"));
    let loaded: ProgramChange = daemon.json("PUT", "/v1/hooks/a/program", "object").await;
    assert_eq!(loaded.now.unwrap().program.name, "the only one of 6 bytes");
    let unloaded: ProgramChange = daemon.json("DELETE", "/v1/hooks/a/program", "").await;
    assert_eq!((unloaded.now, unloaded.before.as_deref()), (None, Some("mine")));
    daemon.refused("PUT", "/v1/hooks/a/program", &format!("{object}x"), 413).await;
    daemon.refused("PUT", "/v1/hooks/a/program?name=mine", "object", 400).await;
    for method in ["PUT", "DELETE"] {
        let error = daemon.refused(method, "/v1/hooks/none/program", "object", 404).await;
        assert_eq!(error.object, "port.none");
    }
}

#[tokio::test]
async fn samples_are_a_file_without_end() {
    let daemon = Daemon::serving("samples");
    let rule = r#"{"rule":[{"name":"some","action":"sample","one_in":10}]}"#;
    daemon.json::<Outcome>("PUT", "/v1/filters/edge", rule).await;
    let mut response = daemon.open("GET", "/v1/filters/edge/samples?port=a&filter=udp", "").await;
    assert_eq!(response.headers()["content-type"], "application/x-pcapng");
    let mut file = Vec::new();
    while file.len() < 300 {
        file.extend(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap());
    }
    let has = |text: &[u8]| file.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(b"rule: some") && has(&[4, 0, 8, 0, 3, 0, 0, 0]), "{file:?}");
    for (wrong, status) in [("none/samples", 404), ("edge/samples?filter=x", 400), ("edge/samples?n=1", 400)]
    {
        daemon.refused("GET", &format!("/v1/filters/{wrong}"), "", status).await;
    }
}

#[tokio::test]
async fn the_socket_is_for_owner_and_group() {
    let daemon = Daemon::serving("mode");
    let mode = std::fs::metadata(daemon.place.settings().daemon.api).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let left: Vec<_> =
        std::fs::read_dir(daemon.place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["api.sock"], "something was left beside the socket");
    let error = control::Listeners::bind(&daemon.place.settings().daemon).unwrap_err();
    assert!(error.to_string().contains("another daemon listens"), "{error}");
    assert_eq!(daemon.ask("GET", "/healthz", "").await, (StatusCode::OK, "ok\n".to_owned()));
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_file_is_not() {
    let place = memory::Place::new("stale");
    let settings = place.settings().daemon;
    drop(std::os::unix::net::UnixListener::bind(&settings.api).unwrap());
    drop(control::Listeners::bind(&settings).unwrap());
    std::fs::remove_file(&settings.api).unwrap();
    std::fs::write(&settings.api, "precious").unwrap();
    let error = control::Listeners::bind(&settings).unwrap_err();
    assert!(error.to_string().contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&settings.api).unwrap(), "precious");
}

#[tokio::test]
async fn a_file_is_applied_and_seen() {
    let daemon = Daemon::serving("file");
    let text = daemon.file(OBJECTS);
    let dry: Outcome = daemon.json("PUT", "/v1/config?dry_run=true", &text).await;
    assert!(!dry.applied && daemon.plane.running().ports.is_empty());
    let done: Outcome = daemon.json("PUT", "/v1/config", &text).await;
    assert!(done.applied);
    assert_eq!(done.plan, dry.plan);
    assert_eq!(
        done.plan.to_string(),
        "+ port.a: ring\n+ port.b: null\n+ bridge.br0\n+ bridge.br0.port.a: access 10\n"
    );
    assert_eq!(done.notices[0].finding, "fell back");
    let ports: Vec<PortState> = daemon.json("GET", "/v1/ports", "").await;
    assert_eq!(
        ports.iter().map(|port| (port.name.as_str(), port.owner)).collect::<Vec<_>>(),
        [("a", Owner::File), ("b", Owner::File)]
    );
    let report: ConfigReport = daemon.json("GET", "/v1/config", "").await;
    assert_eq!(report.owners.get("bridge.br0.port.a"), Some(&Owner::File));
    let config: Config = serde_json::from_value(report.config).unwrap();
    assert_eq!(config, daemon.plane.running());
    let (_, shown) = daemon.ask("GET", "/v1/config?format=toml", "").await;
    assert_eq!(load(&shown, "shown").unwrap(), config);
    let again: Outcome = daemon.json("PUT", "/v1/config", &shown).await;
    assert!(again.plan.lines.is_empty(), "{}", again.plan);
}

#[tokio::test]
async fn fifty_mistakes_come_back_and_nothing_changes() {
    let daemon = Daemon::serving("fifty");
    let _: Outcome = daemon.json("PUT", "/v1/config", &daemon.file(OBJECTS)).await;
    let before = daemon.plane.running();
    let expected: Vec<_> = load(FIFTY, "fifty.toml").unwrap_err().iter().map(Problem::report).collect();
    for (method, path) in
        [("PUT", "/v1/config?file=fifty.toml"), ("POST", "/v1/config/check?file=fifty.toml")]
    {
        let error = daemon.refused(method, path, FIFTY, 422).await;
        assert!(error.problems.len() >= 50);
        assert_eq!(error.problems, expected);
    }
    assert_eq!(daemon.plane.running(), before);
}

#[tokio::test]
async fn objects_of_the_api_come_and_go() {
    let daemon = Daemon::serving("objects");
    let text = daemon.file(OBJECTS);
    let _: Outcome = daemon.json("PUT", "/v1/config", &text).await;
    let _: Outcome = daemon.json("PUT", "/v1/ports/c", r#"{"kind": "ring"}"#).await;
    let _: Outcome = daemon.json("PUT", "/v1/bridges/br0/ports/c", r#"{"trunk": "all"}"#).await;
    let _: Outcome =
        daemon.json("PUT", "/v1/bridges/br0/static/20/02:00:00:00:00:09", r#"{"port": "c"}"#).await;
    let port: PortState = daemon.json("GET", "/v1/ports/c", "").await;
    assert_eq!(port.owner, Owner::Api);
    let running = daemon.plane.running();
    assert_eq!(running.bridges["br0"].statics.len(), 1);

    // Objects of the API are kept when a file does not contain them.
    let again: Outcome = daemon.json("PUT", "/v1/config", &text).await;
    assert!(again.plan.lines.is_empty(), "{}", again.plan);
    // The API cannot change objects of the file, and the file cannot change objects of the API.
    let error = daemon.refused("PUT", "/v1/ports/a", r#"{"kind": "null"}"#, 409).await;
    assert_eq!((error.object.as_str(), error.cause.contains("file")), ("port.a", true), "{error:?}");
    daemon.refused("DELETE", "/v1/bridges/br0", "", 409).await;
    let error = daemon.refused("PUT", "/v1/config", &format!("{text}[port.c]\nkind='null'\n"), 409).await;
    assert_eq!((error.object.as_str(), error.cause.contains("api")), ("port.c", true), "{error:?}");
    // A port that is a member of a bridge cannot be removed.
    let error = daemon.refused("DELETE", "/v1/ports/c", "", 422).await;
    assert_eq!(
        (error.object.as_str(), error.fix.contains("/v1/bridges/br0/ports/c")),
        ("port.c", true),
        "{error:?}"
    );

    let _: Outcome = daemon.json("DELETE", "/v1/bridges/br0/static/20/02:00:00:00:00:09", "").await;
    let _: Outcome = daemon.json("DELETE", "/v1/bridges/br0/ports/c", "").await;
    let _: Outcome = daemon.json("DELETE", "/v1/ports/c", "").await;
    assert_eq!(daemon.plane.running(), load(&text, "t").unwrap());
    daemon.refused("DELETE", "/v1/ports/c", "", 404).await;
}

/// Routers and their interfaces have owners like bridges and members, and are changed separately.
#[tokio::test]
async fn routers_of_the_api_come_and_go() {
    let daemon = Daemon::serving("routers");
    let text = daemon.file("[port.a]\nkind='af_xdp'\n[port.b]\nkind='af_xdp'\n[router.edge.port.a]\n");
    let done: Outcome = daemon.json("PUT", "/v1/config", &text).await;
    assert!(done.plan.to_string().ends_with("+ router.edge\n+ router.edge.port.a: miss unreachable\n"));
    let done: Outcome = daemon.json("PUT", "/v1/routers/edge/ports/b", r#"{"miss": "punt"}"#).await;
    assert_eq!(done.plan.to_string(), "+ router.edge.port.b: miss punt\n");
    let running = daemon.plane.running();
    assert_eq!(running.router_of("b").unwrap().1.miss, Miss::Punt);
    let report: ConfigReport = daemon.json("GET", "/v1/config", "").await;
    assert_eq!(report.owners.get("router.edge"), Some(&Owner::File));
    assert_eq!(report.owners.get("router.edge.port.b"), Some(&Owner::Api));
    // Interfaces of the API are kept when a file does not contain them. The API cannot change objects of the
    // file.
    let again: Outcome = daemon.json("PUT", "/v1/config", &text).await;
    assert!(again.plan.lines.is_empty(), "{}", again.plan);
    daemon.refused("PUT", "/v1/routers/edge", "{}", 409).await;
    daemon.refused("DELETE", "/v1/routers/edge/ports/a", "", 409).await;
    // A port that is an interface of a router cannot be added to another router or bridge.
    let error = daemon.refused("PUT", "/v1/routers/core", r#"{"punts": 1}"#, 422).await;
    assert_eq!(error.object, "router.edge.namespace", "{error:?}");
    let _: Outcome = daemon.json("PUT", "/v1/routers/core", r#"{"punts": 1, "namespace": "red"}"#).await;
    let error = daemon.refused("PUT", "/v1/routers/core/ports/b", "{}", 422).await;
    assert_eq!(error.object, "router.core.port.b", "{error:?}");
    let _: Outcome = daemon.json("PUT", "/v1/bridges/br0", "{}").await;
    let error = daemon.refused("PUT", "/v1/bridges/br0/ports/b", "{}", 422).await;
    assert_eq!(error.object, "router.edge.port.b", "{error:?}");
    // After a refused change, the store and the data plane are unchanged.
    assert_eq!(daemon.store.merged().config, daemon.plane.running());
    let other = r#"{"punts": 2, "namespace": "blue"}"#;
    let dry: Outcome = daemon.json("PUT", "/v1/routers/core?dry_run=true", other).await;
    assert_eq!(
        dry.plan.to_string(),
        "~ router.core: namespace \"red\" -> \"blue\", punts 1 -> 2 (made anew)\n"
    );
    for path in ["routers/core", "routers/edge/ports/b", "bridges/br0"] {
        let _: Outcome = daemon.json("DELETE", &format!("/v1/{path}"), "").await;
        daemon.refused("DELETE", &format!("/v1/{path}"), "", 404).await;
    }
    assert_eq!(daemon.plane.running(), load(&text, "t").unwrap());
}

/// Contents of a router are returned by several routes, with limited answers.
#[tokio::test]
async fn routers_are_looked_into() {
    let daemon = Daemon::serving("look");
    let text = daemon
        .file("[port.a]\nkind='af_xdp'\n[router.edge]\nroutes=5000\nfpm='127.0.0.1:2620'\n[router.edge.port.a]\nmiss='punt'\n");
    let _: Outcome = daemon.json("PUT", "/v1/config", &text).await;
    let shown: Vec<RouterState> = daemon.json("GET", "/v1/routers", "").await;
    let edge: RouterState = daemon.json("GET", "/v1/routers/edge", "").await;
    assert_eq!((shown.len(), &shown[0]), (1, &edge));
    assert_eq!((edge.owner, edge.interfaces[0].owner), (Owner::File, Owner::File));
    assert_eq!((edge.interfaces[0].miss, edge.routes_limit), (Miss::Punt, 5000));

    let routes = async |query: &str| -> Vec<RouteEntry> {
        daemon.json("GET", &format!("/v1/routers/edge/routes{query}"), "").await
    };
    assert_eq!(routes("").await.len(), 1000, "a thousand unless more are asked for");
    assert_eq!(routes("?limit=1000000").await.len(), 2003);
    assert_eq!(routes("?limit=3").await.len(), 3);
    let within = routes("?prefix=10.1.0.0/16&table=main").await;
    assert_eq!((within.len(), within[0].prefix.to_string()), (256, "10.1.0.0/24".to_owned()));
    let other = routes("?table=100").await;
    assert_eq!((other.len(), other[0].table, other[0].protocol), (1, TableId(100), RouteProtocol(186)));
    assert_eq!(routes("?prefix=2001:db8::1").await.len(), 0);
    let (_, raw) = daemon.ask("GET", "/v1/routers/edge/routes?prefix=2001:db8::/32", "").await;
    assert_eq!(
        raw,
        r#"[{"prefix":"2001:db8::/32","table":254,"kind":"unicast","protocol":"bgp","metric":20,"ways":[{"gateway":"fe80::1","weight":1,"dead":false}]}]"#
    );

    let why: RouteWhy = daemon.json("GET", "/v1/routers/edge/why?of=10.0.7.9", "").await;
    assert_eq!((why.of.length(), why.route.unwrap().prefix.to_string()), (32, "10.0.7.0/24".to_owned()));
    let why: RouteWhy = daemon.json("GET", "/v1/routers/edge/why?of=10.0.0.0/9", "").await;
    assert_eq!(why.route.unwrap().prefix.to_string(), "0.0.0.0/0");
    let why: RouteWhy = daemon.json("GET", "/v1/routers/edge/why?of=2001:db9::1", "").await;
    assert_eq!((why.route, why.chosen), (None, vec!["no route covers it".to_owned()]));

    let neighbours: Vec<NeighbourEntry> = daemon.json("GET", "/v1/routers/edge/neighbours?limit=7", "").await;
    assert_eq!((neighbours.len(), neighbours[0].permanent), (7, true));
    let most: Vec<NeighbourEntry> =
        daemon.json("GET", "/v1/routers/edge/neighbours?limit=4000000000", "").await;
    assert_eq!(most.len(), 100_000, "and never more than that");
    let hops: Vec<NextHopEntry> = daemon.json("GET", "/v1/routers/edge/nexthops", "").await;
    assert_eq!(hops[1].group, [NextHopMember { id: 1, weight: 2 }]);
    let drift: DriftState = daemon.json("GET", "/v1/routers/edge/drift", "").await;
    assert_eq!((drift.drifted, drift.changes.len(), drift.busy), (2000, DriftState::TOLD, 1));

    for what in ["routes", "why?of=10.0.0.1", "neighbours", "nexthops", "drift"] {
        let error = daemon.refused("GET", &format!("/v1/routers/none/{what}"), "", 404).await;
        assert_eq!(error.object, "router.none", "{what}");
    }
    daemon.refused("GET", "/v1/routers/none", "", 404).await;
    for (wrong, object) in [
        ("routes?prefix=10.0.0.0/33", "query.prefix"),
        ("routes?table=0", "query.table"),
        ("routes?table=mian", "query.table"),
        ("routes?limit=-1", "query"),
        ("routes?colour=blue", "query"),
        ("why", "query"),
        ("why?of=here", "query.of"),
        ("neighbours?limit=x", "query"),
    ] {
        let error = daemon.refused("GET", &format!("/v1/routers/edge/{wrong}"), "", 400).await;
        assert_eq!(error.object, object, "{wrong}: {error:?}");
    }
    let (_, metrics) = daemon.ask("GET", "/metrics", "").await;
    for line in [
        "trivium_router_routes{router=\"edge\",family=\"ipv4\"} 2002",
        "trivium_router_routes{router=\"edge\",family=\"ipv6\"} 1",
        "trivium_router_routes_limit{router=\"edge\"} 5000",
        "trivium_router_neighbours{router=\"edge\"} 2",
        "trivium_router_in_step{router=\"edge\"} 1",
        "trivium_router_events_total{router=\"edge\"} 3",
        "trivium_router_overruns_total{router=\"edge\"} 4",
        "trivium_router_resyncs_total{router=\"edge\"} 5",
        "trivium_router_resync_milliseconds{router=\"edge\"} 6",
        "trivium_router_drifted_total{router=\"edge\"} 7",
        "trivium_router_refused_routes_total{router=\"edge\"} 8",
        "trivium_router_fpm_connected{router=\"edge\"} 0",
        "trivium_router_fpm_routes{router=\"edge\"} 11",
        "trivium_router_punts_total{router=\"edge\",class=\"arp\"} 9",
        "trivium_router_punts_refused_total{router=\"edge\",class=\"arp\"} 10",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
}

#[tokio::test]
async fn wrong_requests_say_what_is_wrong() {
    let daemon = Daemon::serving("wrong");
    for (method, path, body, status) in [
        ("GET", "/v1/nothing", "", 404),
        ("DELETE", "/v1/workers", "", 405),
        ("GET", "/v1/ports/nobody", "", 404),
        ("GET", "/v1/bridges/nobody", "", 404),
        ("GET", "/v1/flows?bridge=nobody", "", 404),
        ("GET", "/v1/megaflows?bridge=nobody", "", 404),
        ("GET", "/v1/flows?table=256", "", 400),
        ("GET", "/v1/fdb?vlan=5000", "", 400),
        ("GET", "/v1/fdb?vlan=x", "", 400),
        ("GET", "/v1/fdb?mac=zz", "", 400),
        ("GET", "/v1/fdb?colour=blue", "", 400),
        ("GET", "/v1/config?format=xml", "", 400),
        ("PUT", "/v1/config?confirm=0", "", 400),
        ("PUT", "/v1/config?confirm=99999999", "", 400),
        ("PUT", "/v1/ports/a%20b", "{}", 400),
        ("PUT", "/v1/ports/a", "{", 422),
        ("PUT", "/v1/ports/a", "[]", 422),
        ("PUT", "/v1/ports/a", "{}", 422),
        ("PUT", "/v1/ports/a", r#"{"kind": "ring", "size": 3}"#, 422),
        ("PUT", "/v1/bridges/no/ports/a", "{}", 404),
        ("PUT", "/v1/routers/no/ports/a", "{}", 404),
        ("PUT", "/v1/routers/a%20b", "{}", 400),
        ("PUT", "/v1/routers/a", r#"{"routes": 0}"#, 422),
        ("PUT", "/v1/routers/a", r#"{"namespace": "a/b"}"#, 422),
        ("PUT", "/v1/bridges/no/static/0/02:00:00:00:00:01", "{}", 400),
        ("PUT", "/v1/bridges/no/static/1/01:00:5e:00:00:01", "{}", 400),
        ("POST", "/v1/explain", r#"{"in_port": "a", "frame": "0"}"#, 400),
        ("POST", "/v1/explain", r#"{"in_port": "a", "frame": "00"}"#, 404),
        ("POST", "/v1/explain", "x", 400),
        ("PUT", "/v1/rss/a", r#"{"buckets": [0, 1, 0]}"#, 422),
        ("GET", "/v1/rss/a", "", 404),
        ("POST", "/v1/upgrade", r#"{"binary": "trivium"}"#, 422),
        ("POST", "/v1/upgrade", r#"{"binary": "/bin/false"}"#, 422),
        ("GET", "/v1/trace?port=nobody", "", 404),
        ("GET", "/v1/trace?ip=1.2.3", "", 400),
        ("GET", "/v1/trace?filter=colour%3Dred", "", 400),
        ("GET", "/v1/capture/a?filter=colour%3Dred", "", 400),
        ("GET", "/v1/capture/nobody", "", 404),
        ("POST", "/v1/config/confirm", "", 409),
        ("DELETE", "/v1/config/pending", "", 409),
    ] {
        daemon.refused(method, path, body, status).await;
    }
    assert_eq!(daemon.plane.running(), Config::default());
}

#[tokio::test]
async fn states_explanations_and_metrics_come_through() {
    let daemon = Daemon::serving("states");
    let _: Outcome = daemon.json("PUT", "/v1/config", &daemon.file(OBJECTS)).await;
    let workers: Vec<WorkerState> = daemon.json("GET", "/v1/workers", "").await;
    assert_eq!(workers, memory::Memory::default().workers_seen());
    let stages: Vec<StageState> = daemon.json("GET", "/v1/stages", "").await;
    assert!((stages[0].ns_per_packet() - 10.0).abs() < f64::EPSILON);
    let drops: Vec<DropState> = daemon.json("GET", "/v1/drops", "").await;
    assert_eq!(drops[0].packets, 4);
    let some: Vec<FdbEntry> = daemon.json("GET", "/v1/fdb?bridge=br0&limit=3", "").await;
    assert_eq!(some.len(), 3);
    let one: Vec<FdbEntry> = daemon.json("GET", "/v1/fdb?mac=02:00:00:00:00:05&vlan=10", "").await;
    assert_eq!(one.len(), 1);
    let asked = serde_json::to_string(&ExplainRequest::new("a", &[1, 2, 3])).unwrap();
    let explained: Explanation = daemon.json("POST", "/v1/explain", &asked).await;
    assert_eq!(explained.packet, "3 bytes");
    let (_, metrics) = daemon.ask("GET", "/metrics", "").await;
    for line in [
        "# TYPE trivium_port_receive_packets_total counter",
        "trivium_port_receive_packets_total{port=\"a\"} 7",
        "trivium_drops_total{port=\"a\",reason=\"truncated\"} 4",
        "trivium_stage_nanoseconds_total{stage=\"parse\"} 100",
        "trivium_worker_busy_ratio{worker=\"0\",core=\"1\"} 0.5",
        "trivium_bridge_macs{bridge=\"br0\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
}

impl memory::Memory {
    fn workers_seen(&self) -> Vec<WorkerState> {
        control::Plane::workers(self)
    }
}

/// Every route that answers is described, and every described route answers.
#[tokio::test]
async fn the_description_has_every_route() {
    let daemon = Daemon::serving("openapi");
    let document: serde_json::Value = daemon.json("GET", "/openapi.json", "").await;
    assert_eq!(document, serde_json::from_str::<serde_json::Value>(&control::openapi()).unwrap());
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let expected = "GET /v1/ports, GET /v1/ports/{port}, PUT /v1/ports/{port}, DELETE /v1/ports/{port}, \
        GET /v1/filters, GET /v1/filters/{filter}, PUT /v1/filters/{filter}, DELETE /v1/filters/{filter}, \
        POST /v1/filters/{filter}/rules, DELETE /v1/filters/{filter}/rules/{rule}, \
        POST /v1/filters/{filter}/block, POST /v1/filters/{filter}/reload, GET /v1/filters/{filter}/samples, \
         GET /v1/steers, GET /v1/steers/{steer}, PUT /v1/steers/{steer}, DELETE /v1/steers/{steer}, \
         GET /v1/steers/{steer}/flows, POST /v1/steers/{steer}/flows, \
         GET /v1/steers/{steer}/table, PUT /v1/steers/{steer}/table, \
         GET /v1/hooks, GET /v1/hooks/{port}, GET /v1/hooks/{port}/dump, \
         PUT /v1/hooks/{port}/program, DELETE /v1/hooks/{port}/program, \
        GET /v1/bridges, GET /v1/bridges/{bridge}, PUT /v1/bridges/{bridge}, DELETE /v1/bridges/{bridge}, \
        PUT /v1/bridges/{bridge}/ports/{port}, DELETE /v1/bridges/{bridge}/ports/{port}, \
        PUT /v1/bridges/{bridge}/static/{vlan}/{mac}, DELETE /v1/bridges/{bridge}/static/{vlan}/{mac}, \
        GET /v1/routers, GET /v1/routers/{router}, PUT /v1/routers/{router}, DELETE /v1/routers/{router}, \
        GET /v1/routers/{router}/routes, GET /v1/routers/{router}/why, GET /v1/routers/{router}/neighbours, \
        GET /v1/routers/{router}/nexthops, GET /v1/routers/{router}/drift, \
        PUT /v1/routers/{router}/ports/{port}, DELETE /v1/routers/{router}/ports/{port}, \
        GET /v1/flows, GET /v1/groups, GET /v1/meters, GET /v1/megaflows, GET /v1/caches, \
        GET /v1/fdb, POST /v1/fdb/flush, GET /v1/workers, GET /v1/stages, GET /v1/drops, \
        GET /v1/config, PUT /v1/config, POST /v1/config/check, POST /v1/config/confirm, GET /v1/config/pending, \
        DELETE /v1/config/pending, POST /v1/explain, GET /v1/doctor, GET /v1/rss/{port}, PUT /v1/rss/{port}, \
        POST /v1/upgrade, POST /v1/stop, GET /v1/events, GET /v1/trace, GET /v1/capture/{port}, GET /metrics, GET /healthz";
    assert_eq!(described, expected.split(", ").map(str::to_owned).collect());
    for route in &described {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace("{vlan}", "1").replace("{mac}", "02:00:00:00:00:01").replace(['{', '}'], "");
        let status = daemon.open(method, &path, "{}").await.status();
        assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{route}");
        assert!(status.as_u16() < 500, "{route}: {status}");
    }
    // Every referenced schema exists.
    let text = document.to_string();
    for (at, start) in text.match_indices("#/components/schemas/") {
        let name = text[at + start.len()..].split('"').next().unwrap();
        assert!(!document["components"]["schemas"][name].is_null(), "no schema {name}");
    }
}

async fn text_until(response: &mut Response<Incoming>, enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut all = Vec::new();
    while !enough(&all) {
        let frame = tokio::time::timeout(Duration::from_secs(10), response.frame()).await.unwrap();
        let Some(frame) = frame else { break };
        all.extend(frame.unwrap().into_data().unwrap_or_default());
    }
    all
}

#[tokio::test]
async fn live_counters_come_again_and_again() {
    let daemon = Daemon::serving("events");
    let mut response = daemon.open("GET", "/v1/events?interval_ms=100", "").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let events = |text: &[u8]| String::from_utf8_lossy(text).matches("event: counters").count();
    let text = text_until(&mut response, |text| events(text) >= 3).await;
    let text = String::from_utf8(text).unwrap();
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    assert_eq!(serde_json::from_str::<Counters>(data).unwrap().at_ns, 1);
}

#[tokio::test]
async fn traces_end_and_captures_go_on() {
    let daemon = Daemon::serving("streams");
    let _: Outcome = daemon.json("PUT", "/v1/config", &daemon.file(OBJECTS)).await;
    let (status, text) = daemon.ask("GET", "/v1/trace?count=3&port=a", "").await;
    assert_eq!(status, StatusCode::OK);
    let numbers: Vec<u64> =
        text.lines().map(|line| serde_json::from_str::<TraceEvent>(line).unwrap().number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let mut response = daemon.open("GET", "/v1/capture/a?drops=true", "").await;
    let bytes = text_until(&mut response, |bytes| bytes.len() > 100_000).await;
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(bytes.windows(18).any(|bytes| bytes == b"dropped: truncated"));
}

#[tokio::test]
async fn streams_are_limited_and_come_free_again() {
    let daemon = Daemon::serving("limited");
    let mut open = Vec::new();
    for _ in 0..16 {
        let response = daemon.open("GET", "/v1/events", "").await;
        assert_eq!(response.status(), StatusCode::OK);
        open.push(response);
    }
    daemon.refused("GET", "/v1/events", "", 503).await;
    drop(open);
    // The server detects closed connections after a delay.
    tokio::time::timeout(Duration::from_secs(10), async {
        while daemon.open("GET", "/v1/events", "").await.status() != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn long_bodies_and_heads_are_refused() {
    let daemon = Daemon::serving("long");
    daemon.refused("PUT", "/v1/ports/a", &" ".repeat(300 << 10), 413).await;
    daemon.refused("PUT", "/v1/config", &"#".repeat(LIMIT_BYTES + 1), 413).await;
    let mut stream = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    let head = format!("GET /v1/ports HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(daemon.ask("GET", "/healthz", "").await.0, StatusCode::OK);
}

/// Clients without requests are disconnected after ten seconds, and idle clients as well.
#[tokio::test(start_paused = true)]
async fn silent_clients_are_cut_off() {
    let daemon = Daemon::serving("silent");
    let mut silent = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    let mut slow = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nho").await.unwrap();
    let mut text = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), silent.read_to_end(&mut text)).await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(30), slow.read_to_end(&mut text)).await.unwrap().unwrap();
    let mut idle = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), idle.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_pending_change_is_shown_and_confirmed() {
    let daemon = Daemon::serving("pending");
    let text = daemon.file(OBJECTS);
    let done: Outcome = daemon.json("PUT", "/v1/config?confirm=60", &text).await;
    assert_eq!(done.confirm_within_s, Some(60));
    let pending: PendingReport = daemon.json("GET", "/v1/config/pending", "").await;
    assert!(pending.pending && pending.left_s >= 50);
    let error = daemon.refused("PUT", "/v1/config", &text, 409).await;
    assert!(error.cause.contains("waits"), "{error:?}");
    let confirmed: PendingReport = daemon.json("POST", "/v1/config/confirm", "").await;
    assert!(!confirmed.pending);
    let _: Outcome = daemon.json("PUT", "/v1/config", &text).await;
}

#[tokio::test]
async fn an_upgrade_waits_for_the_confirmation() {
    let daemon = Daemon::serving("upgrade");
    let _: Outcome = daemon.json("PUT", "/v1/config?confirm=60", &daemon.file(OBJECTS)).await;
    let error = daemon.refused("POST", "/v1/upgrade", r#"{"binary": "/bin/false"}"#, 409).await;
    assert!(error.cause.contains("confirmation"), "{error:?}");
    let _: Outcome = daemon.json("DELETE", "/v1/config/pending", "").await;
    daemon.refused("POST", "/v1/upgrade", r#"{"binary": "/bin/false"}"#, 422).await;
}

/// Clients that connected before a hand-over are answered first, and clients that connect during it wait. No
/// client is answered without a data plane. SIGHUP and OVSDB change the configuration without passing the
/// admission gate.
#[tokio::test(flavor = "multi_thread")]
async fn no_change_is_made_while_a_successor_takes_over() {
    let daemon = Daemon::serving("upgrade-hold");
    let _: Outcome = daemon.json("PUT", "/v1/config", &daemon.file(OBJECTS)).await;
    let upgrade = daemon.refused("POST", "/v1/upgrade", r#"{"binary": "/bin/tac"}"#, 422);
    let change = async {
        while !daemon.plane.upgrading.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        let text = daemon.file(OBJECTS) + "[port.later]\nkind='null'\n";
        let config = model::load(&text, "later.toml").unwrap();
        daemon.store.apply(Owner::File, config, ApplyOptions::default()).await.unwrap();
        daemon.plane.upgrading.load(Ordering::Relaxed)
    };
    let (_, during) = tokio::join!(upgrade, change);
    assert!(!during, "the successor would not have it");
    assert!(daemon.plane.running().ports.contains_key("later"), "there is no successor: it is made");
}

#[tokio::test]
async fn an_upgrade_leaves_no_client_without_an_answer() {
    let daemon = Daemon::serving("door");
    let socket = daemon.place.settings().daemon.api;
    let upgrading = || daemon.plane.upgrading.load(std::sync::atomic::Ordering::Relaxed);
    let upgrade = daemon.refused("POST", "/v1/upgrade", r#"{"binary": "/bin/tac"}"#, 422);
    let others = async {
        // A client that connects in time, and sends its request late.
        let early = UnixStream::connect(&socket).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!upgrading(), "somebody is inside");
        let asked = std::time::Instant::now();
        assert_eq!(memory::send(early, "GET", "/v1/ports", "", None).await.unwrap().status(), StatusCode::OK);
        while !upgrading() {
            assert!(asked.elapsed() < Duration::from_millis(500), "it was answered and is waited for still");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (status, _) = daemon.ask("GET", "/v1/ports", "").await;
        assert!(status == StatusCode::OK && !upgrading(), "the door opens again when nobody takes over");
    };
    let started = async {
        // The early client is accepted before the upgrade is requested.
        tokio::time::sleep(Duration::from_millis(50)).await;
        upgrade.await
    };
    tokio::join!(started, others);
    // A client without a request delays the upgrade for a short time only.
    let silent = UnixStream::connect(&socket).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begin = std::time::Instant::now();
    daemon.refused("POST", "/v1/upgrade", r#"{"binary": "/bin/false"}"#, 422).await;
    let waited = begin.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
    drop(silent);
}

/// Requests in progress are answered, live views are ended, and the socket is closed with the server.
#[tokio::test]
async fn serving_ends_in_time() {
    let daemon = Daemon::new("ends");
    daemon.plane.slow.store(true, std::sync::atomic::Ordering::Relaxed);
    let listeners = control::Listeners::bind(&daemon.place.settings().daemon).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(control::serve(listeners, daemon.store.clone(), async {
        let _ = stopped.await;
    }));
    let mut live = daemon.open("GET", "/v1/events?interval_ms=100", "").await;
    let text = daemon.file(OBJECTS);
    let slow = daemon.ask("PUT", "/v1/config", &text);
    let end = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(stop);
    };
    let ((status, text), ()) = tokio::join!(slow, end);
    assert_eq!(status, StatusCode::OK, "{text}");
    tokio::time::timeout(Duration::from_secs(10), served).await.unwrap().unwrap().unwrap();
    // The live view ends after any remaining data.
    tokio::time::timeout(Duration::from_secs(10), async { while let Some(Ok(_)) = live.frame().await {} })
        .await
        .unwrap();
    assert!(UnixStream::connect(daemon.place.settings().daemon.api).await.is_err());
}

/// Code generators require a unique name for each operation, and a description of every error answer.
#[test]
fn operations_have_names_of_their_own_and_describe_their_refusals() {
    let document: serde_json::Value = serde_json::from_str(&control::openapi()).unwrap();
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{method} {path}: {name} is another's, too");
            let statuses: BTreeSet<&str> =
                operation["responses"].as_object().unwrap().keys().map(String::as_str).collect();
            for status in ["401", "403", "500"] {
                assert!(statuses.contains(status), "{method} {path}: {statuses:?}");
            }
            assert!(!path.contains('{') || statuses.contains("404"), "{method} {path}: {statuses:?}");
            assert!(operation["requestBody"].is_null() || statuses.contains("422"), "{method} {path}");
        }
    }
}

/// Sends a request to the socket as another local user. Returns `None` if this process cannot change its
/// user.
fn as_user(user: u32, daemon: &Daemon, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    use std::io::{Read, Write};
    let socket = daemon.place.settings().daemon.api;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: trivium\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let asked = std::thread::spawn(move || {
        let uid = rustix::process::Uid::from_raw(user);
        rustix::thread::set_thread_uid(uid).ok()?;
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1)?.parse().unwrap();
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    });
    asked.join().unwrap()
}

/// A member of the socket's group can change objects, but can neither name files nor start or load programs.
#[tokio::test(flavor = "multi_thread")]
async fn the_group_configures_and_only_root_names_files_and_programs() {
    if !rustix::process::geteuid().is_root() {
        testbed::skip("only root speaks as another user");
        return;
    }
    let daemon = Daemon::serving("group");
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(daemon.place.path(), 0o755);
    // The mode has the effect of a membership in the group.
    open(&daemon.place.settings().daemon.api, 0o666);
    let ask = |method: &str, path: &str, body: &str| {
        tokio::task::block_in_place(|| as_user(4711, &daemon, method, path, body)).unwrap()
    };
    assert_eq!(ask("PUT", "/v1/ports/a", r#"{"kind":"null"}"#).0, 200);
    assert_eq!(ask("GET", "/v1/ports", "").0, 200);
    for (method, path, body, what) in [
        ("POST", "/v1/upgrade", r#"{"binary":"/bin/true"}"#, "not the daemon's own program"),
        ("PUT", "/v1/hooks/a/program", "x", "uid 4711"),
        ("DELETE", "/v1/hooks/a/program", "", "uid 4711"),
        ("PUT", "/v1/ports/p", r#"{"kind":"pcap","write":"/etc/cron.d/x"}"#, "/etc/cron.d/x"),
        ("PUT", "/v1/ports/p", r#"{"kind":"pcap","read":"/var/lib/trivium/x"}"#, "/var/lib/trivium/x"),
        ("PUT", "/v1/filters/f", r#"{"blocklist":"/etc/shadow"}"#, "/etc/shadow"),
        ("PUT", "/v1/config", "[filter.f]\nblocklist='/etc/shadow'\n", "[daemon]"),
    ] {
        let (status, text) = ask(method, path, body);
        let error: control::ErrorBody = serde_json::from_str(&text).unwrap();
        assert_eq!(status, 403, "{method} {path}: {error:?}");
        assert!(error.cause.contains("`root`"), "{error:?}");
        // The settings of the file differ from the running ones, and are reported first.
        assert!(what == "[daemon]" || error.cause.contains(what), "{what}: {error:?}");
        assert!(error.fix.contains("root"), "{error:?}");
    }
    // The daemon's own user has the scope `root`. Single objects name files in the configured directories,
    // and a complete file names any file.
    let pcap = |path: &str| format!(r#"{{"kind":"pcap","write":"{path}"}}"#);
    let error = daemon.refused("PUT", "/v1/ports/p", &pcap("/etc/cron.d/x"), 422).await;
    assert!(error.fix.contains("/var/lib/trivium") && error.fix.contains("daemon.files"), "{error:?}");
    daemon.refused("PUT", "/v1/ports/p", &pcap("/var/lib/trivium/../x"), 422).await;
    daemon.json::<Outcome>("PUT", "/v1/ports/p", &pcap("/var/lib/trivium/x")).await;
    let file = daemon.file("[port.q]\nkind='pcap'\nwrite='/srv/x'\n");
    daemon.json::<Outcome>("PUT", "/v1/config", &file).await;
    // Files that root has named are kept when another client applies the file again or removes an object.
    assert_eq!(ask("PUT", "/v1/config", &file).0, 200);
    assert_eq!(ask("DELETE", "/v1/ports/p", "").0, 200);
    // A missing program is an error of the client, for root as well.
    let error = daemon.refused("POST", "/v1/upgrade", r#"{"binary":"/nothing"}"#, 422).await;
    assert!(error.object == "upgrade" && error.cause.contains("No such file"), "{error:?}");
}

/// A file that removes most objects of the previous file requires `force`.
#[tokio::test]
async fn a_file_that_removes_everything_needs_force() {
    let daemon = Daemon::serving("force");
    daemon.json::<Outcome>("PUT", "/v1/config", &daemon.file(OBJECTS)).await;
    let empty = daemon.file("");
    let error = daemon.refused("PUT", "/v1/config", &empty, 409).await;
    assert!(error.cause.contains("3 of the 3") && error.fix.contains("--force"), "{error:?}");
    let outcome: Outcome = daemon.json("PUT", "/v1/config?dry_run=true", &empty).await;
    assert!(!outcome.applied && !outcome.plan.lines.is_empty());
    let ports = |count: usize| (0..count).map(|n| format!("[port.p{n}]\nkind='null'\n")).collect::<String>();
    daemon.json::<Outcome>("PUT", "/v1/config?force=true", &daemon.file(&ports(8))).await;
    daemon.refused("PUT", "/v1/config", &daemon.file(&ports(3)), 409).await;
    daemon.json::<Outcome>("PUT", "/v1/config", &daemon.file(&ports(4))).await;
    daemon.json::<Outcome>("PUT", "/v1/config?force=true", &empty).await;
}

/// The reference validator accepts the API description.
#[test]
fn the_description_is_valid() {
    use std::process::Command;
    let python = std::env::var("OPENAPI_PYTHON").unwrap_or_else(|_| "python3".into());
    let known = Command::new(&python).args(["-c", "import openapi_spec_validator"]).output();
    if !known.is_ok_and(|output| output.status.success()) {
        testbed::skip(
            "no openapi-spec-validator: run `make setup`, or name a python that has it in OPENAPI_PYTHON",
        );
        return;
    }
    let file = std::env::temp_dir().join(format!("trivium-openapi-{}.json", std::process::id()));
    std::fs::write(&file, control::openapi()).unwrap();
    let output = Command::new(&python).args(["-m", "openapi_spec_validator"]).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}
