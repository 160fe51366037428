//! Tests of the API routes for routers.

use super::*;

/// Routers and their interfaces each have an owner, like bridges and their members. A router and its interfaces can be
/// changed separately through the API.
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

/// The API returns the state, the routes and the neighbours of a router, and explains route lookups. The number of
/// entries in a response is limited.
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
        r#"[{"prefix":"2001:db8::/32","table":254,"kind":"unicast","protocol":"bgp","metric":20,"next_hops":[{"gateway":"fe80::1","weight":1,"dead":false}]}]"#
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
