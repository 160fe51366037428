//! Helpers of tests of filters: configurations with a filter, and the counters of its rules.

use testbed::eventually;

use super::{PATIENCE, Rig};

/// Returns the usual configuration of the test lab, with a filter on h1 that has the rules `rules`.
pub fn with_filter(rig: &Rig, rules: &str) -> String {
    let ports = rig.configuration("").replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"");
    format!("{ports}[filter.edge]\n{rules}")
}

/// Rule that drops the UDP packets of the first host.
pub const FLOOD: &str = "[[filter.edge.rule]]\nname = \"flood\"\naction = \"drop\"\nprotocol = \"udp\"\n\
                     source = \"10.8.0.1\"\n";
/// Applies a configuration. Returns what the command prints.
pub fn applied(rig: &Rig, text: &str) -> String {
    let file = rig.write("applied.toml", text);
    rig.ok(&["apply", file.to_str().unwrap()])
}

/// Returns the number of packets that a rule has matched.
pub fn packets(rig: &Rig, rule: &str) -> u64 {
    let shown: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "filters", "--json"])).unwrap();
    let rules = shown[0]["rules"].as_array().unwrap();
    let rule = rules.iter().find(|other| other["name"] == rule).unwrap_or_else(|| panic!("{rule}: {shown}"));
    rule["packets"].as_u64().unwrap()
}

/// Waits until a rule has matched `least` packets. Returns the number of packets.
pub fn packets_until(rig: &Rig, rule: &str, least: u64) -> u64 {
    eventually(&format!("{least} packets of {rule}"), PATIENCE, || match packets(rig, rule) {
        packets if packets >= least => Ok(packets),
        packets => Err(packets.to_string()),
    })
    .unwrap()
}
