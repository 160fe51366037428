//! Tests of the description of the API (OpenAPI).

use super::*;

/// The API description contains exactly the routes that the API serves.
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
         GET /v1/steering, GET /v1/steering/{steering}, PUT /v1/steering/{steering}, DELETE /v1/steering/{steering}, \
         GET /v1/steering/{steering}/flows, POST /v1/steering/{steering}/flows, \
         GET /v1/steering/{steering}/table, PUT /v1/steering/{steering}/table, \
         GET /v1/hooks, GET /v1/hooks/{port}, GET /v1/hooks/{port}/dump, \
         PUT /v1/hooks/{port}/program, DELETE /v1/hooks/{port}/program, \
        GET /v1/bridges, GET /v1/bridges/{bridge}, PUT /v1/bridges/{bridge}, DELETE /v1/bridges/{bridge}, \
        PUT /v1/bridges/{bridge}/ports/{port}, DELETE /v1/bridges/{bridge}/ports/{port}, \
        PUT /v1/bridges/{bridge}/static/{vlan}/{mac}, DELETE /v1/bridges/{bridge}/static/{vlan}/{mac}, \
        GET /v1/routers, GET /v1/routers/{router}, PUT /v1/routers/{router}, DELETE /v1/routers/{router}, \
        GET /v1/routers/{router}/routes, GET /v1/routers/{router}/why, GET /v1/routers/{router}/neighbours, \
        GET /v1/routers/{router}/nexthops, GET /v1/routers/{router}/drift, \
        PUT /v1/routers/{router}/ports/{port}, DELETE /v1/routers/{router}/ports/{port}, \
        GET /v1/flows, GET /v1/groups, GET /v1/meters, GET /v1/megaflows, GET /v1/connections, GET /v1/caches, \
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

/// Each operation has a unique name, and each of its error responses is described. Code generators require this.
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
