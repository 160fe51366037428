//! Tests that configuration changes are applied completely or not at all, persist across restarts on request, and are
//! rolled back automatically.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod memory;

use std::sync::atomic::Ordering;
use std::time::Duration;

use control::{ApplyOptions, ChangeError, RulePlace, Store, stored_api_objects};
use memory::{Daemon, OBJECTS};
use model::*;

fn confirm() -> ApplyOptions {
    ApplyOptions { confirm: Some(Duration::from_secs(60)), force: true, ..ApplyOptions::default() }
}

fn config(daemon: &Daemon, objects: &str) -> Config {
    load(&daemon.file(objects), "t").unwrap()
}

fn put_port(name: &str, body: &str) -> Change {
    load_change(&ObjectKey::Port(name.parse().unwrap()), body).unwrap()
}

fn remove_port(name: &str) -> Change {
    Change::Remove(ObjectKey::Port(name.parse().unwrap()))
}

#[tokio::test(start_paused = true)]
async fn what_is_not_confirmed_is_rolled_back() {
    let daemon = Daemon::new("rollback");
    let first = config(&daemon, OBJECTS);
    daemon.store.apply(Owner::File, first.clone(), ApplyOptions::default()).await.unwrap();
    let second = config(&daemon, "[port.a]\nkind='ring'\n");
    let outcome = daemon.store.apply(Owner::File, second.clone(), confirm()).await.unwrap();
    assert_eq!(outcome.confirm_within_s, Some(60));
    assert_eq!(daemon.plane.running(), second);
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(daemon.plane.running(), second);
    assert!(daemon.store.pending().await.pending);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // The rollback runs on a thread of the blocking pool, for which tokio's paused clock does not wait.
    while daemon.store.pending().await.pending {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(daemon.plane.running(), first);
    assert_eq!(daemon.store.merged().config, first);
    assert!(daemon.store.pending().await.last.contains("not confirmed"));
    assert!(matches!(daemon.store.confirm().await, Err(ChangeError::NotPending)));
}

/// A failed rollback is repeated until it succeeds. The change stays pending meanwhile, and the failure is
/// reported.
#[tokio::test(start_paused = true)]
async fn a_roll_back_that_fails_is_tried_again() {
    let daemon = Daemon::new("retry");
    let first = config(&daemon, OBJECTS);
    daemon.store.apply(Owner::File, first.clone(), ApplyOptions::default()).await.unwrap();
    let second = config(&daemon, "[port.a]\nkind='ring'\n");
    daemon.store.apply(Owner::File, second.clone(), confirm()).await.unwrap();
    daemon.plane.fail.store(true, Ordering::Relaxed);
    let report = |text: &'static str| {
        let store = daemon.store.clone();
        async move {
            loop {
                let pending = store.pending().await;
                if pending.last.contains(text) {
                    break pending;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    let failed = report("roll-back failed").await;
    assert!(failed.pending && failed.left_s == 0, "{failed:?}");
    assert!(failed.last.contains("Operation not supported") && failed.last.contains("again"), "{failed:?}");
    let found = daemon.store.examine_state().await;
    assert!(
        found.iter().any(|found| found.severity == Finding::Error && found.object == "config"),
        "{found:?}"
    );
    // No other change is accepted, and a requested rollback fails as well.
    let refused = daemon.store.apply(Owner::File, second.clone(), ApplyOptions::default()).await.unwrap_err();
    assert!(matches!(refused, ChangeError::Pending { .. }), "{refused}");
    daemon.store.roll_back().await.unwrap_err();
    assert!(daemon.store.pending().await.pending);
    daemon.plane.fail.store(false, Ordering::Relaxed);
    let done = report("not confirmed in time").await;
    assert!(!done.pending);
    assert_eq!(daemon.plane.running(), first);
    assert_eq!(daemon.store.merged().config, first);
    assert!(daemon.store.examine_state().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_confirmed_stays() {
    let daemon = Daemon::new("confirm");
    let first = config(&daemon, OBJECTS);
    daemon.store.apply(Owner::File, first.clone(), confirm()).await.unwrap();
    let refused = daemon.store.apply(Owner::File, first.clone(), ApplyOptions::default()).await.unwrap_err();
    assert!(matches!(refused, ChangeError::Pending { .. }), "{refused}");
    // A dry run is permitted.
    daemon
        .store
        .apply(Owner::File, first.clone(), ApplyOptions { dry_run: true, ..ApplyOptions::default() })
        .await
        .unwrap();
    daemon.store.confirm().await.unwrap();
    // The deadline of the first change does not affect the second change.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let second = config(&daemon, "");
    daemon.store.apply(Owner::File, second.clone(), confirm()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(daemon.plane.running(), second);
    daemon.store.roll_back().await.unwrap();
    assert_eq!(daemon.plane.running(), first);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(daemon.plane.running(), first);
}

/// A changed setting that takes effect only after a restart is passed to the data plane immediately, because an upgrade
/// passes the configuration of the data plane to the successor. The setting can be changed back.
#[tokio::test]
async fn settings_that_wait_for_a_restart_reach_the_data_plane_and_can_be_taken_back() {
    let daemon = Daemon::new("settings");
    let first = config(&daemon, OBJECTS);
    daemon.store.apply(Owner::File, first.clone(), ApplyOptions::default()).await.unwrap();
    let mut second = first.clone();
    second.engine.workers = vec![1];
    for wanted in [&second, &first] {
        daemon.store.apply(Owner::File, wanted.clone(), ApplyOptions::default()).await.unwrap();
        assert_eq!(daemon.plane.running(), *wanted);
    }
}

#[tokio::test]
async fn a_data_plane_that_fails_changes_nothing() {
    let daemon = Daemon::new("fails");
    let first = config(&daemon, OBJECTS);
    daemon.store.apply(Owner::File, first.clone(), ApplyOptions::default()).await.unwrap();
    daemon.plane.fail.store(true, Ordering::Relaxed);
    let error = daemon
        .store
        .apply(Owner::File, config(&daemon, ""), ApplyOptions { force: true, ..ApplyOptions::default() })
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "port.a: Operation not supported (os error 95); use another kernel");
    assert_eq!(daemon.store.merged().config, first);
    let change = put_port("c", r#"{"kind": "null"}"#);
    daemon.store.change(Owner::Api, change, Some(true), ApplyOptions::default()).await.unwrap_err();
    assert_eq!(stored_api_objects(&first.daemon.state_dir).unwrap(), Fragment::default());
    assert!(!first.daemon.state_dir.join("api-objects.json.new").exists());
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_half_done() {
    let daemon = Daemon::new("abandoned");
    daemon.plane.slow.store(true, Ordering::Relaxed);
    let wanted = config(&daemon, OBJECTS);
    let apply = daemon.store.apply(Owner::File, wanted.clone(), ApplyOptions::default());
    tokio::time::timeout(Duration::from_millis(50), apply).await.unwrap_err();
    // The first change continued, and the next change waits for it.
    let again = daemon.store.apply(Owner::File, wanted.clone(), ApplyOptions::default()).await.unwrap();
    assert!(again.plan.lines.is_empty(), "{}", again.plan);
    assert_eq!(daemon.plane.applied.load(Ordering::Relaxed), 1);
    assert_eq!(daemon.store.merged().config, wanted);
}

#[tokio::test]
async fn objects_survive_a_restart_when_asked_to() {
    let daemon = Daemon::new("persist");
    let file = config(&daemon, OBJECTS);
    daemon.store.start(file.clone(), None).await.unwrap();
    let store = &daemon.store;
    let ring = r#"{"kind": "ring"}"#;
    store.change(Owner::Api, put_port("kept", ring), Some(true), ApplyOptions::default()).await.unwrap();
    store.change(Owner::Api, put_port("lost", ring), None, ApplyOptions::default()).await.unwrap();
    store
        .change(Owner::Api, put_port("kept", r#"{"kind": "null"}"#), None, ApplyOptions::default())
        .await
        .unwrap();

    let next =
        Daemon { plane: Default::default(), store: restarted(&daemon), place: memory::Place::new("unused") };
    next.store.start(file.clone(), None).await.unwrap();
    let running = next.store.merged();
    assert_eq!(running.config.ports.keys().map(PortName::as_str).collect::<Vec<_>>(), ["a", "b", "kept"]);
    assert_eq!(running.config.ports["kept"].kind, PortKind::Null);
    assert_eq!(running.owners[&ObjectKey::Port("kept".parse().unwrap())], Owner::Api);
    // A hand-over passes all objects, persistent or not.
    let successor = restarted(&daemon);
    successor.start(file.clone(), Some(daemon.store.handed_over())).await.unwrap();
    assert!(successor.merged().config.ports.contains_key("lost"));

    next.store.change(Owner::Api, remove_port("kept"), None, ApplyOptions::default()).await.unwrap();
    assert_eq!(stored_api_objects(&file.daemon.state_dir).unwrap(), Fragment::default());
}

/// A persistent router that was created through the API is restored together with its interfaces, and removed together
/// with them.
#[tokio::test]
async fn routers_survive_a_restart_when_asked_to() {
    let daemon = Daemon::new("routers");
    let file = config(&daemon, "[port.a]\nkind='af_xdp'\n[port.b]\nkind='af_xdp'\n");
    daemon.store.start(file.clone(), None).await.unwrap();
    let put = |object, body: &str| load_change(&object, body).unwrap();
    let router = ObjectKey::Router("edge".parse().unwrap());
    let port = |name: &str| ObjectKey::RouterPort("edge".parse().unwrap(), name.parse().unwrap());
    for (change, persist) in [
        (put(router.clone(), r#"{"routes": 7}"#), Some(true)),
        (put(port("a"), r#"{"miss": "punt"}"#), Some(true)),
        (put(port("b"), "{}"), None),
    ] {
        daemon.store.change(Owner::Api, change, persist, ApplyOptions::default()).await.unwrap();
    }
    let next = restarted(&daemon);
    next.start(file.clone(), None).await.unwrap();
    let running = next.merged();
    let edge = &running.config.routers["edge"];
    assert_eq!((edge.settings.routes, edge.ports.len(), edge.ports["a"].miss), (7, 1, Miss::Punt));
    assert_eq!(running.owners[&port("a")], Owner::Api);
    let successor = restarted(&daemon);
    successor.start(file.clone(), Some(daemon.store.handed_over())).await.unwrap();
    assert!(successor.merged().config.router_of("b").is_some());

    next.change(Owner::Api, Change::Remove(router), None, ApplyOptions::default()).await.unwrap();
    assert!(next.merged().config.routers.is_empty());
    assert_eq!(stored_api_objects(&file.daemon.state_dir).unwrap(), Fragment::default());
}

fn restarted(daemon: &Daemon) -> std::sync::Arc<Store> {
    Store::new(std::sync::Arc::new(memory::Memory::default()), &daemon.place.settings())
}

fn drop_rule(name: &str) -> serde_json::Value {
    serde_json::json!({ "name": name, "action": "drop" })
}

fn rules(store: &Store, filter: &str) -> Vec<String> {
    store.merged().config.filters[filter].rules.iter().map(|rule| rule.name.to_string()).collect()
}

#[tokio::test]
async fn rules_that_are_added_at_once_all_stand() {
    let daemon = Daemon::new("at-once");
    // Each change is slow, so that the others arrive during it.
    daemon.plane.slow.store(true, Ordering::Relaxed);
    let edge: FilterName = "edge".parse().unwrap();
    let added: Vec<_> = (0..4)
        .map(|at| {
            let (store, edge) = (daemon.store.clone(), edge.clone());
            let rule = drop_rule(&format!("r{at}"));
            tokio::spawn(async move {
                store.add_rule(edge, rule, RulePlace::First, None, ApplyOptions::default()).await
            })
        })
        .collect();
    for added in added {
        added.await.unwrap().unwrap();
    }
    let mut all = rules(&daemon.store, "edge");
    all.sort();
    assert_eq!(all, ["r0", "r1", "r2", "r3"]);
    let (one, other) = tokio::join!(
        daemon.store.remove_rule(edge.clone(), "r1".parse().unwrap(), None, ApplyOptions::default()),
        daemon.store.remove_rule(edge.clone(), "r2".parse().unwrap(), None, ApplyOptions::default()),
    );
    for removed in [one, other] {
        removed.unwrap();
    }
    assert_eq!(rules(&daemon.store, "edge").len(), 2);
    assert_eq!(daemon.plane.running(), daemon.store.merged().config);
}

#[tokio::test]
async fn rules_are_their_filters_owners_and_as_lasting_as_it() {
    let daemon = Daemon::new("rules");
    let file = config(&daemon, "[filter.own]\n[[filter.own.rule]]\nname='a'\naction='drop'\n");
    let store = &daemon.store;
    store.start(file.clone(), None).await.unwrap();
    let (own, edge): (FilterName, FilterName) = ("own".parse().unwrap(), "edge".parse().unwrap());
    let rule = |name: &str| -> RuleName { name.parse().unwrap() };
    let options = ApplyOptions::default();
    // The owner is checked before the position.
    for place in [RulePlace::Last, RulePlace::Before(rule("nobody"))] {
        let error = store.add_rule(own.clone(), drop_rule("b"), place, None, options).await.unwrap_err();
        let text = "filter.own: it belongs to file, and api wants to change it; change it in the file and apply that";
        assert!(error.to_string().contains(text), "{error}");
    }
    store.remove_rule(own.clone(), rule("a"), None, options).await.unwrap_err();
    assert_eq!(store.merged().config, file);

    let stored = || stored_api_objects(&file.daemon.state_dir).unwrap().filters;
    store.add_rule(edge.clone(), drop_rule("a"), RulePlace::Last, None, options).await.unwrap();
    assert!(stored().is_empty());
    store.add_rule(edge.clone(), drop_rule("b"), RulePlace::Last, Some(true), options).await.unwrap();
    store.add_rule(edge.clone(), drop_rule("c"), RulePlace::Last, None, options).await.unwrap();
    store.remove_rule(edge.clone(), rule("a"), None, options).await.unwrap();
    assert_eq!(stored()["edge"], store.merged().config.filters["edge"]);
    let next = restarted(&daemon);
    next.start(file.clone(), None).await.unwrap();
    assert_eq!(rules(&next, "edge"), ["b", "c"]);
    next.add_rule(edge.clone(), drop_rule("d"), RulePlace::After(rule("b")), None, options).await.unwrap();
    assert_eq!(rules(&next, "edge"), ["b", "d", "c"]);

    // A rollback removes an added rule. If the data plane refuses a change, the store does not contain the added rule.
    next.add_rule(edge.clone(), drop_rule("e"), RulePlace::Last, None, confirm()).await.unwrap();
    let error =
        next.add_rule(edge.clone(), drop_rule("f"), RulePlace::Last, None, options).await.unwrap_err();
    assert!(matches!(error, ChangeError::Pending { .. }), "{error}");
    next.roll_back().await.unwrap();
    assert_eq!(rules(&next, "edge"), ["b", "d", "c"]);
    daemon.plane.fail.store(true, Ordering::Relaxed);
    store.add_rule(edge.clone(), drop_rule("g"), RulePlace::Last, None, options).await.unwrap_err();
    assert_eq!(rules(store, "edge"), ["b", "c"]);
}

/// The maximum number of rules in a filter also applies to rules that are added one by one.
#[tokio::test]
async fn a_filter_takes_no_more_rules_one_by_one_than_at_once() {
    let daemon = Daemon::new("many");
    let edge: FilterName = "edge".parse().unwrap();
    let all: Vec<_> = (0..4096).map(|at| drop_rule(&format!("r{at}"))).collect();
    let whole = serde_json::json!({ "rule": all }).to_string();
    let change = load_change(&ObjectKey::Filter(edge.clone()), &whole).unwrap();
    daemon.store.change(Owner::Api, change, None, ApplyOptions::default()).await.unwrap();
    let more =
        daemon.store.add_rule(edge, drop_rule("more"), RulePlace::First, None, ApplyOptions::default());
    let error = more.await.unwrap_err().to_string();
    assert!(error.contains("filter.edge.rule: there are 4097 rules, and at most 4096"), "{error}");
    assert_eq!(rules(&daemon.store, "edge").len(), 4096);
}

fn many_filters(prefix: &str, count: usize) -> String {
    (0..count).map(|at| format!("[filter.{prefix}{at}]\n")).collect()
}

/// The maximum numbers of objects apply to the objects of all owners together. An object that is added through the API
/// is refused if the limit is exceeded together with the objects of the file.
#[tokio::test]
async fn objects_that_are_put_one_by_one_obey_the_limits_of_a_file() {
    let daemon = Daemon::new("counted");
    let file = config(&daemon, &format!("{OBJECTS}{}", many_filters("f", 255)));
    daemon.store.start(file, None).await.unwrap();
    let put = |name: &str| {
        let change = load_change(&ObjectKey::Filter(name.parse().unwrap()), "{}").unwrap();
        daemon.store.change(Owner::Api, change, Some(true), ApplyOptions::default())
    };
    put("last").await.unwrap();
    let before = daemon.store.merged();
    let error = put("more").await.unwrap_err().to_string();
    let expected = "filter.more: there are 256 filters already, and more are not possible; remove one of the filters first";
    assert!(error.contains(expected), "{error}");
    assert_eq!(daemon.store.merged(), before);
    assert_eq!(daemon.plane.running(), before.config);
    let stored = stored_api_objects(&before.config.daemon.state_dir).unwrap();
    assert_eq!(stored.filters.len(), 1);
    // An object that exists is still replaced.
    put("last").await.unwrap();
}

#[tokio::test]
async fn a_start_is_refused_if_the_file_and_the_stored_objects_together_exceed_a_limit() {
    let daemon = Daemon::new("together");
    daemon.store.start(config(&daemon, OBJECTS), None).await.unwrap();
    let change = load_change(&ObjectKey::Filter("kept".parse().unwrap()), "{}").unwrap();
    daemon.store.change(Owner::Api, change, Some(true), ApplyOptions::default()).await.unwrap();
    let next = restarted(&daemon);
    let file = config(&daemon, &many_filters("f", 256));
    let error = next.start(file, None).await.unwrap_err().to_string();
    assert!(
        error.contains("filter: there are 257 filters of all owners together, and at most 256"),
        "{error}"
    );
    assert!(error.contains("api-objects.json"), "{error}");
}

#[tokio::test]
async fn what_waits_for_confirmation_is_not_stored_yet() {
    let daemon = Daemon::new("later");
    let state = daemon.place.settings().daemon.state_dir;
    let change = put_port("c", r#"{"kind": "null"}"#);
    daemon.store.change(Owner::Api, change, Some(true), confirm()).await.unwrap();
    assert_eq!(stored_api_objects(&state).unwrap(), Fragment::default());
    daemon.store.confirm().await.unwrap();
    assert_eq!(stored_api_objects(&state).unwrap().ports.len(), 1);
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_stops_the_change() {
    let daemon = Daemon::new("nowhere");
    // A file in place of the directory has the effect of a full disk, for root as well.
    std::fs::write(daemon.place.settings().daemon.state_dir, "").unwrap();
    let change = put_port("c", r#"{"kind": "null"}"#);
    let error = daemon
        .store
        .change(Owner::Api, change.clone(), Some(true), ApplyOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ChangeError::Storage(_)), "{error}");
    assert!(daemon.plane.running().ports.is_empty() && daemon.store.merged().config.ports.is_empty());
    assert_eq!(daemon.plane.applied.load(Ordering::Relaxed), 0);
    // A change without persistence is possible.
    daemon.store.change(Owner::Api, change, None, ApplyOptions::default()).await.unwrap();
}

/// A change that can neither be stored nor undone is reported until the next change repairs the data plane
/// and the file.
#[tokio::test]
async fn a_change_that_can_neither_be_stored_nor_undone_is_reported_and_repaired() {
    let daemon = Daemon::new("behind-file");
    let file = config(&daemon, OBJECTS);
    daemon.store.start(file.clone(), None).await.unwrap();
    let store = &daemon.store;
    let path = file.daemon.state_dir.join("api-objects.json");
    // A directory cannot be replaced by a file, so the last step of storing fails.
    std::fs::create_dir_all(&path).unwrap();
    daemon.plane.fail_after.store(daemon.plane.applied.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let put = |name: &str, persist| {
        store.change(Owner::Api, put_port(name, r#"{"kind": "null"}"#), persist, ApplyOptions::default())
    };
    let error = put("first", Some(true)).await.unwrap_err();
    assert!(matches!(error, ChangeError::Storage(_)), "{error}");
    assert_eq!(store.merged().config, file);
    assert!(daemon.plane.running().ports.contains_key("first"));
    let findings = store.examine_state().await;
    let of = |object: &str| findings.iter().any(|f| f.object == object && f.severity == Finding::Error);
    assert!(of("config") && of("daemon.state_dir"), "{findings:?}");

    daemon.plane.fail_after.store(0, Ordering::Relaxed);
    std::fs::remove_dir(&path).unwrap();
    put("second", None).await.unwrap();
    assert_eq!(daemon.plane.running(), store.merged().config);
    assert!(!daemon.plane.running().ports.contains_key("first"));
    assert_eq!(store.examine_state().await, []);
    assert!(path.is_file());
    assert_eq!(stored_api_objects(&file.daemon.state_dir).unwrap(), Fragment::default());
}

/// A change whose persistent objects cannot be written because the disk is full is refused. The test simulates a full
/// disk with /dev/full.
#[tokio::test]
async fn a_full_disk_stops_the_change() {
    let daemon = Daemon::new("full");
    let state = daemon.place.settings().daemon.state_dir;
    std::fs::create_dir_all(&state).unwrap();
    std::os::unix::fs::symlink("/dev/full", state.join("api-objects.json.new")).unwrap();
    let change = put_port("c", r#"{"kind": "null"}"#);
    let error =
        daemon.store.change(Owner::Api, change, Some(true), ApplyOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("make room on its disk"), "{error}");
    assert!(daemon.plane.running().ports.is_empty());
}

/// If more objects are to be stored than a start of the daemon could read again, the change is refused, and the stored
/// objects do not change.
#[tokio::test]
async fn no_more_is_stored_than_is_read() {
    let daemon = Daemon::new("much");
    let rules: Vec<String> = (0..2_000)
        .map(|at| {
            format!(r#"{{"name": "r{at}", "action": "drop", "protocol": "udp", "destination_port": {at}}}"#)
        })
        .collect();
    let body = format!(r#"{{"rule": [{}]}}"#, rules.join(","));
    let mut stored = 0;
    let refused = loop {
        let key = ObjectKey::Filter(format!("f{stored}").parse().unwrap());
        let change = load_change(&key, &body).unwrap();
        match daemon.store.change(Owner::Api, change, Some(true), ApplyOptions::default()).await {
            Ok(_) => stored += 1,
            Err(error) => break error.to_string(),
        }
        assert!(stored < 1_000, "they are never too many");
    };
    assert!(refused.contains("longer than 16 MiB") && refused.contains("nothing was changed"), "{refused}");
    assert_eq!(daemon.store.merged().config.filters.len(), stored);
    let next = control::Store::new(daemon.plane.clone(), &daemon.place.settings());
    next.start(config(&daemon, ""), None).await.unwrap();
    assert_eq!(next.merged().config.filters.len(), stored, "all are there after a restart");
}

#[tokio::test]
async fn settings_wait_for_a_restart_and_are_named_until_then() {
    let daemon = Daemon::new("settings");
    let file = config(&daemon, "[engine]\nspin_us = 64\n");
    for _ in 0..2 {
        let outcome = daemon.store.apply(Owner::File, file.clone(), ApplyOptions::default()).await.unwrap();
        assert_eq!(outcome.plan.to_string(), "! engine.spin_us: 50 -> 64 (needs a restart)\n");
    }
    // A successor would receive the new configuration, because the data plane has it. The second apply changes nothing.
    assert_eq!(daemon.plane.running(), file);
    assert_eq!(daemon.plane.applied.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn cores_that_are_missing_are_warned_of() {
    let daemon = Daemon::new("cores");
    let file = config(&daemon, "[engine]\nworkers = [0, 9]\n");
    let outcome = daemon.store.apply(Owner::File, file, ApplyOptions::default()).await.unwrap();
    assert_eq!(outcome.warnings.len(), 1);
    assert!(outcome.applied);
}

#[tokio::test]
async fn a_file_of_stored_objects_that_is_broken_is_put_aside_and_told() {
    let daemon = Daemon::new("broken");
    let state = daemon.place.settings().daemon.state_dir;
    std::fs::create_dir_all(&state).unwrap();
    let broken = "[{\"port\": \"a\", \"value\": {\"kind\": \"rnig\"}}]";
    std::fs::write(state.join("api-objects.json"), broken).unwrap();
    let outcome = daemon.store.start(config(&daemon, OBJECTS), None).await.unwrap();
    let found = &outcome.notices.last().unwrap().finding;
    assert!(found.contains("did you mean \"ring\"") && found.contains("runs without"), "{found}");
    assert_eq!(daemon.plane.running(), config(&daemon, OBJECTS));
    // The damaged file is kept unchanged when other objects are stored.
    let change = put_port("c", r#"{"kind": "null"}"#);
    daemon.store.change(Owner::Api, change, Some(true), ApplyOptions::default()).await.unwrap();
    assert_eq!(std::fs::read_to_string(state.join("api-objects.json.damaged")).unwrap(), broken);
    assert_eq!(daemon.store.examine_state().await.len(), 1);
}

/// Stored objects are read at the start and not written again, so that a read-only state directory causes no error.
#[tokio::test]
async fn a_state_directory_that_cannot_be_written_does_not_stop_a_start() {
    let daemon = Daemon::new("readonly");
    let state = daemon.place.settings().daemon.state_dir;
    let change = put_port("c", r#"{"kind": "null"}"#);
    daemon.store.change(Owner::Api, change, Some(true), ApplyOptions::default()).await.unwrap();
    assert_eq!(daemon.store.examine_state().await, []);
    for file in ["api-objects.json.new", "write-probe"] {
        std::os::unix::fs::symlink("/dev/full", state.join(file)).unwrap();
    }
    let next = control::Store::new(daemon.plane.clone(), &daemon.place.settings());
    next.start(config(&daemon, OBJECTS), None).await.unwrap();
    assert!(next.merged().config.ports.len() > config(&daemon, OBJECTS).ports.len());
    let found = next.examine_state().await;
    assert!(found.len() == 1 && found[0].finding.contains("state cannot be kept"), "{found:?}");
}

#[tokio::test]
async fn a_successor_whose_data_plane_refuses_goes_on_and_says_so() {
    let daemon = Daemon::new("behind");
    let file = config(&daemon, OBJECTS);
    daemon.plane.fail.store(true, Ordering::Relaxed);
    daemon.store.start(file.clone(), None).await.unwrap_err();
    // The predecessor has ended, so there is no configuration to return to.
    let outcome = daemon.store.start(file.clone(), Some(Default::default())).await.unwrap();
    assert!(!outcome.applied && outcome.notices[0].severity == Finding::Error, "{outcome:?}");
    let told = async || daemon.store.examine_state().await.iter().any(|finding| finding.object == "config");
    assert!(told().await);
    assert_eq!(daemon.store.merged().config, file);
    // The file is applied again although nothing differs.
    daemon.plane.behind.store(true, Ordering::Relaxed);
    daemon.store.apply(Owner::File, file.clone(), ApplyOptions::default()).await.unwrap_err();
    assert!(told().await);
    daemon.plane.fail.store(false, Ordering::Relaxed);
    daemon.store.apply(Owner::File, file.clone(), ApplyOptions::default()).await.unwrap();
    assert!(!told().await);
    assert_eq!(daemon.plane.running(), file);
    // From then on, nothing is applied if nothing differs.
    let applied = daemon.plane.applied.load(Ordering::Relaxed);
    daemon.store.apply(Owner::File, file, ApplyOptions::default()).await.unwrap();
    assert_eq!(daemon.plane.applied.load(Ordering::Relaxed), applied);
}
