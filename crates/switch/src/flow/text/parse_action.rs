//! Parsing of actions in the syntax of ovs-actions(7), for `ovs-appctl ofproto/trace-packet-out`. Actions for
//! flow entries only (`learn`, `conjunction`, `fin_timeout`) and selections (`multipath`, `bundle`) are not
//! supported.

use crate::flow::action::{ActionParser, name_and_argument, split};
use crate::flow::{Action, Flow};

/// Maximum nesting depth of `clone` actions, as in OpenFlow messages.
const MAX_CLONES: usize = 64;

/// Parses a list of actions for packets of the flow `flow`. The protocol of the flow determines the field that
/// `mod_tp_dst` sets. `port` converts a port name into an OpenFlow port number.
///
/// # Errors
/// Returns a message that names the action that cannot be parsed, or the limit of nested `clone` actions.
pub fn read_actions(
    text: &str,
    flow: &Flow,
    port: &impl Fn(&str) -> Option<u32>,
) -> Result<Vec<Action>, String> {
    read_nested(text, &ActionParser { flow, port }, 0)
}

/// Parses a list of actions inside `depth` nested `clone` actions.
fn read_nested(
    text: &str,
    parser: &ActionParser<'_, impl Fn(&str) -> Option<u32>>,
    depth: usize,
) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    for word in split(text) {
        match name_and_argument(word).as_ref().map(|(name, argument)| (&**name, *argument)) {
            // `drop` is not an action.
            Some(("drop", _)) => {}
            Some(("clone", _)) if depth == MAX_CLONES => {
                return Err(format!("clone: more than {MAX_CLONES} clone actions are nested"));
            }
            Some(("clone", inner)) => actions.push(Action::Clone(read_nested(inner, parser, depth + 1)?)),
            _ => {
                let action = Action::parse(word, parser);
                actions.push(action.ok_or_else(|| format!("{word}: unknown or invalid action"))?);
            }
        }
    }
    Ok(actions)
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
            ("ct,ct(),ct_clear,ct(nat)", "ct(),ct(),ct_clear,ct(nat)"),
            (
                "ct(alg=ftp,exec(set_field:0x1->ct_mark,load:0x1->NXM_NX_CT_LABEL[0..3],\
                 move:NXM_NX_REG0[]->NXM_NX_CT_MARK[]),nat(src=10.0.0.1-10.0.0.9:1000-2000,random),zone=5,table=1,\
                 force,commit)",
                "ct(commit,force,table=1,zone=5,nat(src=10.0.0.1-10.0.0.9:1000-2000,random),\
                 exec(set_field:0x1->ct_mark,load:0x1->NXM_NX_CT_LABEL[0..3],move:NXM_NX_REG0[]->NXM_NX_CT_MARK[]),\
                 alg=ftp)",
            ),
            (
                "ct(commit,zone=NXM_NX_REG0[0..15],nat(dst=[2001:db8::1]:80-90,hash,persistent),alg=tftp)",
                "ct(commit,zone=NXM_NX_REG0[0..15],nat(dst=[2001:db8::1]:80-90,persistent,hash),alg=tftp)",
            ),
            (
                "ct(commit,nat(dst=2001:db8::1-2001:db8::5)),ct(commit,nat(src=[::1]-[::2]:7))",
                "ct(commit,nat(dst=2001:db8::1-2001:db8::5)),ct(commit,nat(src=[::1]-[::2]:7))",
            ),
            ("ct(commit,nat(src)),ct(commit,nat(dst,hash))", "ct(commit,nat(src)),ct(commit,nat(dst))"),
            ("ct(commit,exec(set_field:0x1/0x3->ct_label))", "ct(commit,exec(set_field:0x1/0x3->ct_label))"),
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
            "ct(force)",
            "ct(nat(src=1.2.3.4))",
            "ct(exec(set_field:1->ct_mark))",
            "ct(commit,exec(ct_clear))",
            "ct(commit,exec(set_field:1->reg0))",
            "ct(commit,exec(ct(commit)))",
            "ct(commit,nat(src=1.2.3.9-1.2.3.4))",
            "ct(commit,nat(src=1.2.3.4:80-70))",
            "ct(commit,nat(src=1.2.3.4-::1))",
            "ct(commit,nat(dst=:80))",
            "ct(commit,nat(src=1.2.3.4,hash,random))",
            "ct(commit,nat(both))",
            "ct(table=255)",
            "ct(zone=70000)",
            "ct(zone=NXM_NX_REG0[])",
            "ct(alg=21)",
        ] {
            assert!(read_actions(bad, &flow, &port).is_err(), "{bad}");
        }
    }

    /// Actions with `clone` nested deeper than the limit are refused, regardless of the depth, and the error names the
    /// limit. Without the limit, deep nesting would exhaust the stack.
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
