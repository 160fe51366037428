//! Commands `ofproto/list` and `bridge/*` of `ovs-appctl`: OpenFlow rules and controllers of bridges.

use std::fmt::Write as _;
use std::sync::Arc;

use control::{Plane, Store};
use model::FlowQuery;
use tokio::sync::mpsc::UnboundedSender;

use super::{Answer, Commands, known_bridge};

/// Maximum number of OpenFlow rules that one command prints.
const RULES: usize = 1_000_000;
/// Default priority of OpenFlow rules (`OFP_DEFAULT_PRIORITY`). This priority is not printed.
const USUAL: u16 = 0x8000;

/// Adds the `ofproto/list` and `bridge/*` commands to the registry. `bridge/reconnect` sends to the channel `reconnect`
/// the name of the bridge whose controllers are to be reconnected, or `None` for all bridges.
pub fn add(commands: &mut Commands, store: &Arc<Store>, reconnect: UnboundedSender<Option<String>>) {
    let plane = Arc::clone(store.plane());
    commands.add("ofproto/list", "", 0..=0, move |_| {
        Ok(plane.bridges().into_iter().fold(String::new(), |text, bridge| text + &bridge.name + "\n"))
    });
    let plane = Arc::clone(store.plane());
    commands.add("bridge/dump-flows", "[--offload-stats] bridge", 1..=2, move |arguments| {
        let bridge = arguments.last().map_or("", String::as_str);
        known_bridge(&*plane, bridge, "Unknown bridge")?;
        dump_flows(&*plane, bridge, arguments.first().is_some_and(|word| word == "--offload-stats"))
    });
    let plane = Arc::clone(store.plane());
    commands.add("bridge/reconnect", "[bridge]", 0..=1, move |arguments| {
        if let Some(bridge) = arguments.first() {
            known_bridge(&*plane, bridge, "Unknown bridge")?;
        }
        let gone = |_| "the daemon ends".to_owned();
        reconnect.send(arguments.first().cloned()).map(|()| String::new()).map_err(gone)
    });
}

/// Returns all OpenFlow rules of a bridge as text. Unlike the output of Open vSwitch, the text does not contain the
/// four rules of an internal table that `ovs-ofctl` does not show.
fn dump_flows(plane: &dyn Plane, bridge: &str, offload: bool) -> Answer {
    let query = FlowQuery { bridge: Some(bridge.to_owned()), limit: RULES, ..FlowQuery::default() };
    // A learning bridge has no rules.
    let rules = plane.flow_rules(&query).unwrap_or_default();
    let mut text = String::new();
    for rule in rules {
        // Writing to a string cannot fail.
        if rule.table != 0 {
            let _ = write!(text, "table_id={}, ", rule.table);
        }
        let _ = write!(
            text,
            "duration={}s, n_packets={}, n_bytes={}, ",
            rule.age_ms / 1000,
            rule.packets,
            rule.bytes
        );
        if offload {
            text.push_str("n_offload_packets=0, n_offload_bytes=0, ");
        }
        if rule.priority != USUAL {
            let _ = write!(text, "priority={},", rule.priority);
        }
        if !rule.matches.is_empty() {
            let _ = write!(text, "{},", rule.matches);
        } else if rule.priority == USUAL {
            text.push(',');
        }
        let _ = writeln!(text, "actions={}", rule.actions);
    }
    Ok(text)
}
