//! Commands `ofproto/trace` and `ofproto/trace-packet-out` of `ovs-appctl`, which show the path of
//! a packet through the flow tables. The commands accept all forms of arguments that `ovs-vswitchd`
//! accepts.

use std::sync::Arc;

use control::{Plane, Store};
use model::{TracePacket, TraceRequest};

use super::{Commands, known_bridge};

/// Maximum length of the payload of a generated packet in bytes.
const PAYLOAD: u32 = 64_000;

/// Names of the connection tracking flags (ovs-fields(7), `ct_state`), starting with the lowest bit.
const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Adds the `ofproto/trace*` commands to the registry.
pub fn add(commands: &mut Commands, store: &Arc<Store>) {
    let plane = Arc::clone(store.plane());
    let usage = "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]";
    commands.add("ofproto/trace", usage, 1..=64, move |arguments| {
        let request = read(&*plane, arguments)?;
        plane.trace_rules(&request).map_err(|error| error.cause)
    });
    let plane = Arc::clone(store.plane());
    let usage = "[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet] actions";
    commands.add("ofproto/trace-packet-out", usage, 2..=64, move |arguments| {
        let (actions, arguments) = arguments.split_last().ok_or("Syntax error")?;
        // The option has no effect: actions that only one OpenFlow version refuses are not distinguished.
        let is_consistent = |word: &&String| matches!(word.as_str(), "-consistent" | "--consistent");
        let arguments: Vec<String> = arguments.iter().filter(|word| !is_consistent(word)).cloned().collect();
        let request = TraceRequest { actions: Some(actions.clone()), ..read(&*plane, &arguments)? };
        plane.trace_rules(&request).map_err(|error| error.cause)
    });
}

/// Parses the arguments of a trace command. Options may be at any position. Besides options, the command requires one
/// to three arguments.
fn read(plane: &dyn Plane, arguments: &[String]) -> Result<TraceRequest, String> {
    let mut request = TraceRequest::default();
    let mut words: Vec<&str> = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("Missing argument for option {argument}"));
        match argument {
            "-generate" | "--generate" => request.packet = TracePacket::Generated,
            "-names" | "--names" => request.names = true,
            "--why" => request.why = true,
            "--l7" => {
                let is_digit = |octet: u8| octet.is_ascii_hexdigit() || octet == b' ';
                if !value()?.bytes().all(is_digit) {
                    return Err("Trailing garbage in packet data".to_owned());
                }
            }
            "--l7-len" => {
                let length = value()?;
                if length.parse::<u32>().unwrap_or_default() > PAYLOAD {
                    return Err(format!("{length}: too much L7 data"));
                }
            }
            // The value is checked and ignored, because no rule uses connection tracking.
            "--ct-next" => known_states(value()?)?,
            option if option.starts_with('-') => return Err(format!("{option}: unknown option")),
            word if words.len() < 3 => words.push(word),
            _ => return Err("too many arguments".to_owned()),
        }
    }
    if request.packet == TracePacket::None
        && words.len() > 1
        && let Some(last) = words.last()
    {
        let is_packet = last.len() >= 28 && last.bytes().all(|octet| octet.is_ascii_hexdigit());
        if is_packet {
            request.packet = TracePacket::Digits((*last).to_owned());
            words.pop();
        } else if words.len() > 2 {
            return Err("Trailing garbage in packet data".to_owned());
        }
    }
    let (place, flow) = match words[..] {
        [flow] => (None, flow),
        [place, flow] => (Some(place), flow),
        _ => return Err("Syntax error".to_owned()),
    };
    request.flow = flow.to_owned();
    // A datapath flow is given alone or after the datapath's name.
    if flow.contains('(') {
        let is_ours = |name: &str| matches!(name, "netdev@trivium" | "trivium" | "ovs-netdev" | "netdev");
        return match place {
            Some(name) if !is_ours(name) => Err("Cannot find the datapath".to_owned()),
            _ => Ok(request),
        };
    }
    if let Some(bridge) = place {
        known_bridge(plane, bridge, &format!("{bridge}: unknown bridge"))?;
    }
    request.bridge = place.map(str::to_owned);
    Ok(request)
}

fn known_states(text: &str) -> Result<(), String> {
    let unknown = text.split(['|', ',']).find(|state| !CT_STATES.contains(state));
    unknown.map_or(Ok(()), |state| Err(format!("{state}: unknown connection tracking state flag")))
}
