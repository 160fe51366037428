//! Compares the text of every list of `trivium show`, for the values in `lists.json`, with `lists.expected`.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

use model::table::Listed;
use model::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns the section about one list in the expected output: the text of the list with all values, and the text of an
/// empty list.
fn section<T: Listed + DeserializeOwned>(values: &Value, name: &str) -> String {
    let all: Vec<T> = serde_json::from_value(values[name].clone()).unwrap();
    format!("== {name}\n{}-- none\n{}", T::text(&all), T::text(&[]))
}

#[test]
fn each_list_has_its_text() {
    let values: Value = serde_json::from_str(include_str!("lists.json")).unwrap();
    let first_port: PortState = serde_json::from_value(values["ports"][0].clone()).unwrap();
    let text = [
        section::<BridgeState>(&values, "bridges"),
        section::<DropState>(&values, "drops"),
        section::<FdbEntry>(&values, "fdb"),
        section::<FilterState>(&values, "filters"),
        section::<FlowRuleState>(&values, "flows"),
        section::<GroupState>(&values, "groups"),
        section::<MegaflowState>(&values, "megaflows"),
        section::<MeterState>(&values, "meters"),
        section::<NeighbourEntry>(&values, "neighbours"),
        section::<NextHopEntry>(&values, "nexthops"),
        section::<PortState>(&values, "ports"),
        section::<RouterState>(&values, "routers"),
        section::<RouteEntry>(&values, "routes"),
        section::<StageState>(&values, "stages"),
        section::<SteeringState>(&values, "steering"),
        section::<WorkerState>(&values, "workers"),
        format!("== one port\n{}-- none\n", PortState::text(&[first_port])),
    ];
    assert_eq!(text.concat(), include_str!("lists.expected"));
}
