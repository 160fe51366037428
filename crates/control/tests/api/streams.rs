//! Tests of API routes whose responses are endless streams.

use super::*;

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
