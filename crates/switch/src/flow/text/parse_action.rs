//! Parsing of actions in the syntax of ovs-actions(7), for `ovs-appctl ofproto/trace-packet-out`. Actions for
//! flow entries only (`learn`, `conjunction`, `fin_timeout`) and selections (`multipath`, `bundle`) are not
//! supported.

use super::value::{find, number, read_value, special, sub_field};
use crate::flow::action::port as reserved;
use crate::flow::{Action, Flow};

/// Maximum nesting depth of `clone` actions, as in OpenFlow messages.
const MAX_CLONES: usize = 64;

/// Parses a list of actions for a packet with this flow. The protocol of the flow determines the field that
/// `mod_tp_dst` sets. `port` returns the OpenFlow number of the port with a name.
///
/// # Errors
/// Returns a message that names the action that cannot be parsed, or the limit of nested `clone` actions.
pub fn read_actions(
    text: &str,
    flow: &Flow,
    port: &impl Fn(&str) -> Option<u32>,
) -> Result<Vec<Action>, String> {
    read_nested(text, flow, port, 0)
}

/// Parses a list of actions inside `depth` nested `clone` actions.
fn read_nested(
    text: &str,
    flow: &Flow,
    port: &impl Fn(&str) -> Option<u32>,
    depth: usize,
) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    for word in split(text) {
        if let Some(("clone", inner)) = parts(word).as_ref().map(|(name, argument)| (&**name, *argument)) {
            if depth == MAX_CLONES {
                return Err(format!("clone: more than {MAX_CLONES} clone actions are nested"));
            }
            actions.push(Action::Clone(read_nested(inner, flow, port, depth + 1)?));
            continue;
        }
        match one(word, flow, port) {
            Some(Some(action)) => actions.push(action),
            // `drop` is not an action.
            Some(None) => {}
            None => return Err(format!("{word}: unknown or invalid action")),
        }
    }
    Ok(actions)
}

/// Splits a text at commas and blanks outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let parts = text.split(move |letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0 && matches!(letter, ',' | ' ' | '\t')
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Returns the name of an action in lower case, and its argument, which follows a colon or stands in parentheses.
fn parts(word: &str) -> Option<(String, &str)> {
    let (name, argument) = match word.find([':', '(']) {
        Some(at) if word.get(at..=at) == Some(":") => (word.get(..at)?, word.get(at + 1..)?),
        Some(at) => (word.get(..at)?, word.get(at + 1..)?.strip_suffix(')')?),
        None => (word, ""),
    };
    Some((name.to_ascii_lowercase(), argument))
}

/// Parses an action other than `clone`. Returns `Some(None)` for `drop`, which is not an action.
fn one(word: &str, flow: &Flow, port: &impl Fn(&str) -> Option<u32>) -> Option<Option<Action>> {
    let (name, argument) = parts(word)?;
    let small = |text: &str| number(text).and_then(|value| u16::try_from(value).ok());
    let wide = |text: &str| number(text).and_then(|value| u32::try_from(value).ok());
    let named = |text: &str| {
        wide(text).or_else(|| reserved_port(text)).or_else(|| special(text)).or_else(|| port(text))
    };
    let output = |port: u32, max_len: u16| Action::Output { port, max_len };
    let set = |field: &str, value: &str| {
        let field = find(flow, field)?;
        Some(Action::Set {
            field,
            value: read_value(field, value, port).ok()?,
            mask: field.all_ones(),
            load: false,
        })
    };
    Some(Some(match &*name {
        "drop" => return Some(None),
        "output" => match sub_field(argument).filter(|_| named(argument).is_none()) {
            Some(source) => Action::OutputReg { source, max_len: 0 },
            None => output(named(argument)?, 0),
        },
        "controller" => {
            output(reserved::CONTROLLER, if argument.is_empty() { u16::MAX } else { small(argument)? })
        }
        "resubmit" => {
            let (from, table) = argument.split_once(',').unwrap_or((argument, ""));
            let port = if from.is_empty() { None } else { Some(named(from)?) };
            let table = if table.is_empty() { None } else { Some(u8::try_from(small(table)?).ok()?) };
            Action::Resubmit { port, table: table.or(Some(0)) }
        }
        "group" => Action::Group(wide(argument)?),
        "meter" => Action::Meter(wide(argument)?),
        "set_queue" => Action::SetQueue(wide(argument)?),
        "pop_queue" => Action::PopQueue,
        "enqueue" => {
            let (to, queue) = argument.split_once([':', ','])?;
            Action::Enqueue { port: named(to)?, queue: wide(queue)? }
        }
        "set_field" => {
            let (value, field) = argument.split_once("->")?;
            let field = find(flow, field)?;
            let (value, mask) =
                value.split_once('/').map_or((value, None), |(value, mask)| (value, Some(mask)));
            let mask = mask.map_or(Some(field.all_ones()), |mask| read_value(field, mask, port).ok())?;
            Action::Set { field, value: read_value(field, value, port).ok()? & mask, mask, load: false }
        }
        "load" => {
            let (value, to) = argument.split_once("->")?;
            let to = sub_field(to)?;
            Action::Set { field: to.field, value: number(value)? << to.first, mask: to.mask(), load: true }
        }
        "move" => {
            let (from, to) = argument.split_once("->")?;
            Action::Move { from: sub_field(from)?, to: sub_field(to)? }
        }
        "push" => Action::Push(sub_field(argument)?),
        "pop" => Action::Pop(sub_field(argument)?),
        "mod_dl_src" => set("dl_src", argument)?,
        "mod_dl_dst" => set("dl_dst", argument)?,
        "mod_nw_src" => set("nw_src", argument)?,
        "mod_nw_dst" => set("nw_dst", argument)?,
        "mod_nw_tos" => set("ip_dscp", &(number(argument)? >> 2).to_string())?,
        "mod_nw_ecn" => set("ip_ecn", argument)?,
        "mod_tp_src" => set("tp_src", argument)?,
        "mod_tp_dst" => set("tp_dst", argument)?,
        "mod_nw_ttl" => Action::SetTtl(u8::try_from(small(argument)?).ok()?),
        "mod_vlan_vid" => Action::SetVlanVid(small(argument).filter(|vid| *vid < 0x1000)?),
        "mod_vlan_pcp" => Action::SetVlanPcp(u8::try_from(small(argument)?).ok().filter(|pcp| *pcp < 8)?),
        "push_vlan" => Action::PushVlan(small(argument)?),
        "pop_vlan" | "strip_vlan" => Action::PopVlan,
        "push_mpls" => Action::PushMpls(small(argument)?),
        "pop_mpls" => Action::PopMpls(small(argument)?),
        "dec_mpls_ttl" => Action::DecMplsTtl,
        "set_mpls_ttl" => Action::SetMplsTtl(u8::try_from(small(argument)?).ok()?),
        "dec_ttl" if argument.is_empty() => Action::DecTtl(vec![0]),
        "dec_ttl" => Action::DecTtl(argument.split(',').map(small).collect::<Option<_>>()?),
        "exit" => Action::Exit,
        _ if argument.is_empty() => output(named(&name).or_else(|| port(word))?, 0),
        _ => return None,
    }))
}

fn reserved_port(text: &str) -> Option<u32> {
    Some(match text.to_ascii_uppercase().as_str() {
        "IN_PORT" => reserved::IN_PORT,
        "TABLE" => reserved::TABLE,
        "NORMAL" => reserved::NORMAL,
        "FLOOD" => reserved::FLOOD,
        "ALL" => reserved::ALL,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::text;

    #[test]
    fn what_is_read_is_written_the_same() {
        let flow = text::parse("tcp", |_| None).unwrap();
        let port = |name: &str| (name == "eth1").then_some(7);
        for (given, written) in [
            ("normal", "NORMAL"),
            ("output:2,3", "output:2,output:3"),
            ("eth1,in_port,local", "output:7,IN_PORT,LOCAL"),
            ("resubmit(,3),resubmit(1,3)", "resubmit(,3),resubmit(1,3)"),
            ("controller:64", "CONTROLLER:64"),
            ("set_field:10.0.0.9->ip_src,dec_ttl,output:1", "set_field:10.0.0.9->ip_src,dec_ttl,output:1"),
            (
                "clone(push_vlan:0x8100,set_field:4101->vlan_vid,output:1),drop",
                "clone(push_vlan:0x8100,set_field:4101->vlan_vid,output:1)",
            ),
            (
                "load:0x5->NXM_NX_REG0[0..3],move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
                "load:0x5->NXM_NX_REG0[0..3],move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
            ),
            ("mod_vlan_vid:5,strip_vlan,group:4", "mod_vlan_vid:5,pop_vlan,group:4"),
        ] {
            let read = read_actions(given, &flow, &port).unwrap();
            let shown = text::actions(&read).replace("strip_vlan", "pop_vlan");
            assert_eq!(shown, written, "{given}");
        }
        assert_eq!(read_actions("drop", &flow, &port), Ok(Vec::new()));
        for bad in [
            "output:eth9",
            "teleport",
            "set_field:x->ip_src",
            "mod_vlan_vid:4096",
            "clone(teleport)",
            "output:(",
        ] {
            assert!(read_actions(bad, &flow, &port).is_err(), "{bad}");
        }
    }

    /// Clones that are nested deeper than the limit are refused with the limit, whatever the depth. A depth
    /// without limit exhausts the stack.
    #[test]
    fn clones_nested_too_deep_are_refused_by_name_of_the_limit() {
        let flow = text::parse("tcp", |_| None).unwrap();
        let nested = |depth: usize| format!("{}output:1{}", "clone(".repeat(depth), ")".repeat(depth));
        let read = |depth| read_actions(&nested(depth), &flow, &|_| None);
        assert_eq!(text::actions(&read(64).unwrap()), nested(64));
        for depth in [65, 200_000] {
            assert_eq!(read(depth), Err("clone: more than 64 clone actions are nested".to_owned()));
        }
        let unknown = read_actions("clone(clone(teleport))", &flow, &|_| None);
        assert_eq!(unknown, Err("teleport: unknown or invalid action".to_owned()));
    }
}
