//! The command `dpctl/dump-conntrack` of `ovs-appctl`: tracked connections, in the output format of `ovs-vswitchd`.

use std::fmt::Write as _;
use std::sync::Arc;

use control::{Plane, Store};
use model::{ConnectionQuery, ConnectionState, ConnectionTuple};

use super::datapath::known_datapath;
use super::{Answer, Commands};

/// Maximum number of connections that the command prints.
const CONNECTIONS: usize = 1_000_000;

/// Adds the command to the registry.
pub fn add(commands: &mut Commands, store: &Arc<Store>) {
    let plane = Arc::clone(store.plane());
    let usage = "[-m] [-s] [dp] [zone=N]";
    commands.add("dpctl/dump-conntrack", usage, 0..=4, move |arguments| dump(&*plane, arguments));
}

/// Prints the tracked connections. The option `-s` adds the time-outs. `zone=N` selects the connections of a zone.
fn dump(plane: &dyn Plane, arguments: &[String]) -> Answer {
    let mut query = ConnectionQuery { zone: None, limit: CONNECTIONS };
    let mut has_times = false;
    for argument in arguments {
        match argument.as_str() {
            "-s" | "--statistics" => has_times = true,
            "-m" | "--more" => {}
            other => match other.strip_prefix("zone=") {
                Some(zone) => query.zone = Some(zone.parse().map_err(|_| "failed to parse zone".to_owned())?),
                None => known_datapath(other)?,
            },
        }
    }
    let mut text = String::new();
    for connection in plane.connections(&query) {
        line(&mut text, &connection, has_times);
    }
    Ok(text)
}

fn line(text: &mut String, own: &ConnectionState, has_times: bool) {
    let types = own.icmp.map(|icmp| [icmp.request, icmp.reply]);
    let identifiers = own.icmp.map(|icmp| [icmp.original_id, icmp.reply_id]);
    let tuple = |of: &ConnectionTuple, index: usize| {
        let ConnectionTuple { source, destination, source_port, destination_port } = of;
        let addresses = format!("src={source},dst={destination}");
        match (types, identifiers) {
            (Some(types), Some(ids)) => {
                format!("{addresses},id={},type={},code=0", ids[index], types[index])
            }
            _ if matches!(own.protocol, 6 | 17 | 132) => {
                format!("{addresses},sport={source_port},dport={destination_port}")
            }
            _ => addresses,
        }
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{},orig=({}),reply=({})",
        own.protocol_name(),
        tuple(&own.original, 0),
        tuple(&own.reply, 1)
    );
    if own.zone != 0 {
        let _ = write!(text, ",zone={}", own.zone);
    }
    if has_times {
        let _ = write!(text, ",timeout={}", own.timeout_secs);
    }
    if own.mark != 0 {
        let _ = write!(text, ",mark={}", own.mark);
    }
    if own.label != "0x0" {
        let _ = write!(text, ",labels={}", own.label);
    }
    if own.protocol == 6 {
        let _ = write!(text, ",protoinfo=(state={})", own.state);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use model::IcmpQueryState;

    use super::*;

    fn tuple(source: &str, destination: &str, ports: [u16; 2]) -> ConnectionTuple {
        ConnectionTuple {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: ports[0],
            destination_port: ports[1],
        }
    }

    #[test]
    fn connections_are_printed_as_open_vswitch_prints_them() {
        let mut own = ConnectionState {
            zone: 1,
            protocol: 6,
            original: tuple("10.1.1.1", "10.1.1.2", [3000, 80]),
            reply: tuple("10.1.1.2", "10.1.1.240", [80, 3000]),
            icmp: None,
            state: "ESTABLISHED".to_owned(),
            mark: 2,
            label: "0x0".to_owned(),
            timeout_secs: 60,
        };
        let mut text = String::new();
        line(&mut text, &own, true);
        assert_eq!(
            text,
            "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=3000,dport=80),\
             reply=(src=10.1.1.2,dst=10.1.1.240,sport=80,dport=3000),\
             zone=1,timeout=60,mark=2,protoinfo=(state=ESTABLISHED)\n"
        );
        (own.protocol, own.zone, own.mark) = (1, 0, 0);
        own.icmp = Some(IcmpQueryState { request: 8, reply: 0, original_id: 7, reply_id: 9 });
        let mut text = String::new();
        line(&mut text, &own, false);
        assert_eq!(
            text,
            "icmp,orig=(src=10.1.1.1,dst=10.1.1.2,id=7,type=8,code=0),\
             reply=(src=10.1.1.2,dst=10.1.1.240,id=9,type=0,code=0)\n"
        );
    }
}
