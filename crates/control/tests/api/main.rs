//! Tests of the API over its Unix socket, with a real client.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod access;
mod description;
#[path = "../memory/mod.rs"]
mod memory;
mod routers;
mod streams;

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

const FIFTY: &str = include_str!("../../../model/tests/fifty.toml");

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

/// A rule is added to a filter at the requested position. If the position or the rule is invalid, nothing changes.
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
    let outcome: Outcome = daemon.json("PUT", "/v1/steering/spread", &body).await;
    assert!(outcome.applied && outcome.plan.lines[0].object == "steering.spread", "{outcome:?}");
    let shown: Vec<SteeringState> = daemon.json("GET", "/v1/steering", "").await;
    assert_eq!((shown[0].name.as_str(), shown[0].owner, shown[0].flows), ("spread", Owner::Api, 1));
    let one: SteeringState = daemon.json("GET", "/v1/steering/spread", "").await;
    assert_eq!(one, shown[0]);
    let flows: Vec<SteeringEntry> = daemon.json("GET", "/v1/steering/spread/flows", "").await;
    assert_eq!((flows[0].source_port, flows[0].protocol, flows[0].to), (Some(7), 17, SteeringTarget::Kernel));
    // Returned flows can be sent back.
    let request = SteeringRequest { remove: false, flows };
    let request = serde_json::to_string(&request).unwrap();
    let done: SteeringDone = daemon.json("POST", "/v1/steering/spread/flows", &request).await;
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
        let error = daemon.refused("POST", "/v1/steering/spread/flows", &bad, 400).await;
        assert!(error.cause.contains(what), "{what}: {error:?}");
    }
    daemon.refused("POST", "/v1/steering/none/flows", r#"{"flows":[]}"#, 404).await;
    let table: SteeringTable = daemon.json("GET", "/v1/steering/spread/table", "").await;
    assert_eq!(table.buckets, [SteeringTarget::Kernel]);
    daemon.json::<SteeringTable>("PUT", "/v1/steering/spread/table", r#"{"buckets":["cpu 0"]}"#).await;
    daemon.refused("PUT", "/v1/steering/spread/table", r#"{"buckets":["elsewhere"]}"#, 400).await;
    let error = daemon.refused("PUT", "/v1/steering/spread", &body.replace("cpu 1", "cpu x"), 422).await;
    assert_eq!(error.object, "steering.spread.table[1]");
    // A steering policy that a port uses cannot be deleted.
    daemon.json::<Outcome>("PUT", "/v1/ports/a", r#"{"kind":"af_xdp","steering":"spread"}"#).await;
    let error = daemon.refused("DELETE", "/v1/steering/spread", "", 422).await;
    assert_eq!(error.object, "port.a.steering");
    let (_, metrics) = daemon.ask("GET", "/metrics", "").await;
    for line in [
        "trivium_steering_packets_total{steering=\"spread\",to=\"cpu 1\"} 9",
        "trivium_steering_flows{steering=\"spread\"} 1",
        "trivium_steering_unmarked_total{steering=\"spread\"} 3",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{metrics}");
    }
    // The old paths lead to the same objects, with names, queries and methods.
    for rest in ["", "/spread", "/spread/flows?limit=1", "/spread/table"] {
        let (old, new) = (format!("/v1/steers{rest}"), format!("/v1/steering{rest}"));
        assert_eq!(daemon.ask("GET", &old, "").await, daemon.ask("GET", &new, "").await, "{old}");
    }
    daemon.refused("GET", "/v1/steersman", "", 404).await;
    daemon.json::<Outcome>("DELETE", "/v1/ports/a", "").await;
    daemon.json::<Outcome>("DELETE", "/v1/steers/spread", "").await;
    daemon.refused("GET", "/v1/steering/spread", "", 404).await;
}

/// `GET /v1/hooks` returns the states of all hooks. The states contain a measurement of program runs only if the
/// request asks for one.
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

/// The API receives an object file with an XDP program completely, up to a maximum length, and passes it to the data
/// plane together with the name of the program.
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
        control::Lists::workers(self)
    }
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

/// During a hand-over, no request is processed. Requests of clients that connected before the hand-over are answered
/// first, and clients that connect during the hand-over wait. Changes by SIGHUP and OVSDB do not pass the admission
/// gate. They also wait until the hand-over has ended.
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

/// A second upgrade is refused while an upgrade is in progress. The admission gate stays closed until the first upgrade
/// has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_upgrade_is_refused_while_one_runs() {
    let daemon = Daemon::serving("upgrade-twice");
    let tac = r#"{"binary": "/bin/tac"}"#;
    let first = daemon.refused("POST", "/v1/upgrade", tac, 422);
    let second = async {
        // The second client connects before the gate is closed, and sends its request later.
        let early = UnixStream::connect(&daemon.place.settings().daemon.api).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        memory::send(early, "POST", "/v1/upgrade", tac, None).await.unwrap()
    };
    let started = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.await
    };
    let (_, second) = tokio::join!(started, second);
    assert_eq!(second.status(), StatusCode::CONFLICT);
    let body = second.into_body().collect().await.unwrap().to_bytes();
    let error: control::ErrorBody = serde_json::from_slice(&body).unwrap();
    assert_eq!(error.cause, "another upgrade is in progress");
    // After the end of the first upgrade, the gate is open.
    daemon.refused("POST", "/v1/upgrade", r#"{"binary": "/bin/false"}"#, 422).await;
}

/// An upgrade waits for a permit of its client's quota before it closes the admission gate. Otherwise, slow requests of
/// this client would block all other clients.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_waits_for_its_permit_leaves_the_gate_open() {
    let daemon = Daemon::serving("upgrade-permit");
    daemon.plane.hold_workers.store(true, Ordering::Relaxed);
    // Root has four permits.
    let slow = || daemon.ask("GET", "/v1/workers", "");
    let held = async { tokio::join!(slow(), slow(), slow(), slow()) };
    let upgrade = async {
        while daemon.plane.asking_workers.load(Ordering::Relaxed) < 4 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        daemon.refused("POST", "/v1/upgrade", r#"{"binary": "/bin/false"}"#, 422).await
    };
    let other = async {
        while daemon.plane.asking_workers.load(Ordering::Relaxed) < 4 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let asked = daemon.ask("GET", "/healthz", "");
        let answered = tokio::time::timeout(Duration::from_secs(10), asked).await;
        daemon.plane.hold_workers.store(false, Ordering::Relaxed);
        answered.is_ok_and(|(status, _)| status == StatusCode::OK)
    };
    let (_, _, is_answered) = tokio::join!(held, upgrade, other);
    assert!(is_answered, "the gate was closed for a client that came later");
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

/// When the server ends, requests in progress are answered, streaming responses are ended, and the socket is closed.
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
    // The streaming response ends after any remaining data.
    tokio::time::timeout(Duration::from_secs(10), async { while let Some(Ok(_)) = live.frame().await {} })
        .await
        .unwrap();
    assert!(UnixStream::connect(daemon.place.settings().daemon.api).await.is_err());
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
