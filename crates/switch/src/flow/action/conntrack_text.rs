//! Printing and parsing of the action `ct` in the syntax of ovs-actions(7), in the form in which `ovs-ofctl` prints it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::conntrack::{CtAction, CtNat, FTP, NatEnd, NatRange, NatSelection, TFTP, ZoneSource};
use super::parser::{name_and_argument, split};
use crate::flow::text::field;
use crate::flow::text::value::{integer, sub_field};

/// Prints a `ct` action. `exec` is the text of its nested actions.
pub(super) fn print<A>(ct: &CtAction<A>, exec: &str) -> String {
    let mut parts = Vec::new();
    if ct.commit {
        parts.push("commit".to_owned());
    }
    if ct.force {
        parts.push("force".to_owned());
    }
    parts.extend(ct.table.map(|table| format!("table={table}")));
    match &ct.zone {
        ZoneSource::Number(0) => {}
        ZoneSource::Number(zone) => parts.push(format!("zone={zone}")),
        ZoneSource::Field(part) => parts.push(format!("zone={}", field::sub_field(part))),
    }
    parts.extend(ct.nat.as_ref().map(nat_text));
    if !ct.exec.is_empty() {
        parts.push(format!("exec({exec})"));
    }
    match ct.alg {
        0 => {}
        FTP => parts.push("alg=ftp".to_owned()),
        TFTP => parts.push("alg=tftp".to_owned()),
        alg => parts.push(format!("alg={alg}")),
    }
    format!("ct({})", parts.join(","))
}

/// Prints the translation of a `ct` action.
pub fn nat_text(nat: &CtNat) -> String {
    match nat {
        CtNat::Existing => "nat".to_owned(),
        CtNat::New(range) => print_nat(range),
    }
}

/// Prints the translation of new connections. The options have no effect without addresses, and are then not printed
/// (as in Open vSwitch).
fn print_nat(of: &NatRange) -> String {
    let end = match of.end {
        NatEnd::Source => "src",
        NatEnd::Destination => "dst",
    };
    let Some((first, last)) = of.addresses else { return format!("nat({end})") };
    let address = |address: IpAddr| match address {
        IpAddr::V6(address) if of.ports.is_some() => format!("[{address}]"),
        address => address.to_string(),
    };
    let mut text = format!("nat({end}={}", address(first));
    if last != first {
        text += &format!("-{}", address(last));
    }
    match of.ports {
        Some((first, last)) if first == last => text += &format!(":{first}"),
        Some((first, last)) => text += &format!(":{first}-{last}"),
        None => {}
    }
    if of.persistent {
        text.push_str(",persistent");
    }
    text.push_str(match of.selection {
        NatSelection::Any => "",
        NatSelection::Hash => ",hash",
        NatSelection::Random => ",random",
    });
    text + ")"
}

/// Parses the arguments of a `ct` action. `setting` parses the actions `set_field`, `load` and `move`. Returns `None`
/// if an argument is invalid. The caller checks whether the arguments can be combined.
pub(super) fn parse<A>(text: &str, setting: impl Fn(&str) -> Option<A>) -> Option<CtAction<A>> {
    let mut ct = CtAction::default();
    // Other actions are refused by their name, so that nested actions are not parsed.
    let parse_exec = |word| {
        let (name, _) = name_and_argument(word)?;
        if matches!(&*name, "set_field" | "load" | "move") { setting(word) } else { None }
    };
    for word in split(text) {
        match word {
            "commit" => ct.commit = true,
            "force" => ct.force = true,
            "nat" => ct.nat = Some(CtNat::Existing),
            "alg=ftp" => ct.alg = FTP,
            "alg=tftp" => ct.alg = TFTP,
            _ => {
                if let Some(table) = word.strip_prefix("table=") {
                    ct.table = Some(integer(table).filter(|table| *table != u8::MAX)?);
                } else if let Some(zone) = word.strip_prefix("zone=") {
                    ct.zone = match integer(zone) {
                        Some(zone) => ZoneSource::Number(zone),
                        None => ZoneSource::Field(sub_field(zone)?),
                    };
                } else if let Some(nat) = word.strip_prefix("nat(") {
                    ct.nat = Some(CtNat::New(parse_nat(nat.strip_suffix(')')?)?));
                } else {
                    let exec = word.strip_prefix("exec(")?.strip_suffix(')')?;
                    ct.exec = split(exec).into_iter().map(parse_exec).collect::<Option<_>>()?;
                }
            }
        }
    }
    Some(ct)
}

fn parse_nat(text: &str) -> Option<NatRange> {
    let mut words = text.split(',');
    let first = words.next()?;
    let (end, (addresses, ports)) = match first.split_once('=') {
        Some((end, range)) => (end, parse_range(range)?),
        None => (first, (None, None)),
    };
    let end = match end {
        "src" => NatEnd::Source,
        "dst" => NatEnd::Destination,
        _ => return None,
    };
    let mut nat = NatRange { end, addresses, ports, persistent: false, selection: NatSelection::Any };
    for word in words {
        match word {
            "persistent" => nat.persistent = true,
            "hash" if nat.selection != NatSelection::Random => nat.selection = NatSelection::Hash,
            "random" if nat.selection != NatSelection::Hash => nat.selection = NatSelection::Random,
            _ => return None,
        }
    }
    Some(nat)
}

/// First and last address, and first and last port, of a translation.
type Range = (Option<(IpAddr, IpAddr)>, Option<(u16, u16)>);

/// Parses a range of addresses with an optional range of ports, for example `10.0.0.1-10.0.0.9:1000-2000`.
fn parse_range(text: &str) -> Option<Range> {
    let (first, rest) = parse_address(text)?;
    let (last, rest) = match rest.strip_prefix('-') {
        Some(rest) => parse_address(rest)?,
        None => (first, rest),
    };
    let ports = match rest.strip_prefix(':') {
        Some(ports) => {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            Some((integer(first)?, integer(last)?))
        }
        None if rest.is_empty() => None,
        None => return None,
    };
    Some((Some((first, last)), ports))
}

/// Parses the address at the beginning of a text. Returns the address and the rest of the text. An IPv6 address before
/// a port is in brackets.
fn parse_address(text: &str) -> Option<(IpAddr, &str)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (address, rest) = inner.split_once(']')?;
        return Some((address.parse::<Ipv6Addr>().ok()?.into(), rest));
    }
    let (address, rest) = text.split_at(text.find(['-', ':']).unwrap_or(text.len()));
    if let Ok(address) = address.parse::<Ipv4Addr>() {
        return Some((address.into(), rest));
    }
    let (address, rest) = text.split_at(text.find('-').unwrap_or(text.len()));
    Some((address.parse::<Ipv6Addr>().ok()?.into(), rest))
}
