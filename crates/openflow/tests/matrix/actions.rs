//! Tests of actions and instructions: the stock client sends them in flow entries, and the bridge decodes them.

use switch::flow::{Action, Instructions};
use testbed::packet_cases::Feature;

use super::{Lab, Proven, VERSIONS, row};

/// Test cases. Each case contains the name of an action, a flow entry with the action, and the name of the decoded
/// action.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("output", "actions=output:1", "Output"),
    ("IN_PORT", "actions=IN_PORT", "Output"),
    ("NORMAL", "actions=NORMAL", "Output"),
    ("FLOOD", "actions=FLOOD", "Output"),
    ("ALL", "actions=ALL", "Output"),
    ("LOCAL", "actions=LOCAL", "Output"),
    ("CONTROLLER", "actions=CONTROLLER:128", "Output"),
    ("output:FIELD", "actions=output:NXM_NX_REG0[0..15]", "OutputReg"),
    ("controller(...)", "actions=controller(max_len=9,id=3,reason=no_match)", "Controller"),
    ("enqueue", "actions=enqueue:1:7", ""),
    ("set_queue, pop_queue", "actions=set_queue:7,output:1,pop_queue", "SetQueue"),
    ("group", "actions=group:5", "Group"),
    ("meter", "actions=meter:6", ""),
    ("mod_vlan_vid", "actions=mod_vlan_vid:5", ""),
    ("mod_vlan_pcp", "actions=mod_vlan_pcp:5", ""),
    ("strip_vlan, pop_vlan", "vlan_tci=0x1000/0x1000,actions=strip_vlan", "PopVlan"),
    ("push_vlan", "actions=push_vlan:0x8100", "PushVlan"),
    ("push_mpls", "actions=push_mpls:0x8847", "PushMpls"),
    ("pop_mpls", "mpls,actions=pop_mpls:0x0800", "PopMpls"),
    ("set_mpls_ttl", "mpls,actions=set_mpls_ttl(5)", ""),
    ("dec_mpls_ttl", "mpls,actions=dec_mpls_ttl", "DecMplsTtl"),
    ("dec_ttl", "ip,actions=dec_ttl", "DecTtl"),
    ("dec_ttl(ids)", "ip,actions=dec_ttl(1,2)", "DecTtl"),
    ("mod_nw_ttl", "ip,actions=mod_nw_ttl:5", ""),
    ("set_field", "actions=set_field:02:00:00:00:00:01->eth_src", "Set"),
    ("load", "actions=load:5->NXM_NX_REG0[0..15]", "Set"),
    ("move", "actions=move:NXM_NX_REG1[]->NXM_NX_REG0[]", "Move"),
    ("push", "actions=push:NXM_NX_REG0[]", "Push"),
    ("pop", "actions=pop:NXM_NX_REG0[]", "Pop"),
    ("resubmit(PORT,TABLE)", "actions=resubmit(2,3)", "Resubmit"),
    ("learn", "actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])", "Learn"),
    ("conjunction", "actions=conjunction(5,1/3)", "Conjunction"),
    ("note", "actions=note:01.02.03.04.05.06", "Note"),
    ("clone", "actions=clone(output:1)", "Clone"),
    ("multipath", "actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[])", "Multipath"),
    ("bundle", "actions=bundle(eth_src,0,hrw,ofport,members:4,8)", "Bundle"),
    ("bundle_load", "actions=bundle_load(eth_src,0,hrw,ofport,NXM_NX_REG0[],members:4,8)", "Bundle"),
    ("check_pkt_larger", "actions=check_pkt_larger(100)->NXM_NX_REG0[0]", "CheckPktLarger"),
    ("fin_timeout", "tcp,actions=fin_timeout(idle_timeout=5)", "FinTimeout"),
    (
        "ct(commit,nat,exec)",
        "ip,actions=ct(commit,zone=5,nat(src=10.0.0.1),exec(set_field:1->ct_mark))",
        "Ct",
    ),
    ("ct(table)", "ip,actions=ct(table=1,zone=NXM_NX_REG0[0..15],nat)", "Ct"),
    ("ct_clear", "actions=ct_clear", "CtClear"),
    ("exit", "actions=exit", "Exit"),
];

/// A test case: the name of an instruction, a flow entry with the instruction, and a function that checks the decoded
/// instruction.
type Instruction = (&'static str, &'static str, fn(&Instructions) -> bool);

const INSTRUCTIONS: &[Instruction] = &[
    ("goto_table", "actions=goto_table:5", |it| it.goto == Some(5)),
    ("write_metadata", "actions=write_metadata:5/0xff", |it| it.metadata == Some((5, 0xff))),
    ("write_actions", "actions=write_actions(output:1)", |it| it.write.len() == 1),
    ("clear_actions", "actions=clear_actions", |it| it.clear),
];

fn variant(action: &Action) -> String {
    let text = format!("{action:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

pub async fn table(lab: &Lab, proven: &mut Proven, text: &mut String) {
    text.push_str("\n## Actions and instructions\n\n| action | 1.0 | 1.1 | 1.2 | 1.3 | 1.4 | 1.5 | packets |\n|---|---|---|---|---|---|---|---|\n");
    let group = lab.client("OpenFlow13", &["add-group", "group_id=5,type=all,bucket=output:1"]).await;
    let meter = lab.client("OpenFlow13", &["add-meter", "meter=6,kbps,band=type=drop,rate=9"]).await;
    assert!(group.status.success() && meter.status.success());
    for (name, rule, wanted) in ACTIONS {
        let mut cells = vec![format!("`{name}`")];
        for (_, version) in VERSIONS {
            let taken = lab.takes(version, rule).await;
            let is_so = taken && {
                let tables = lab.bridge.lock();
                let it = &tables.flows[0].instructions;
                // Some actions are decoded as equivalent actions of the version. An empty name accepts any
                // action.
                wanted.is_empty() || it.apply.iter().any(|action| variant(action) == *wanted)
            };
            assert!(is_so || !taken, "{version} {rule}: {:?}", lab.bridge.lock().flows[0].instructions);
            cells.push(if is_so { "+".into() } else { String::new() });
        }
        cells.push(proven.cell(&[(Feature::Action(name), "+")]));
        row(text, &cells);
    }
    for (name, rule, is_read) in INSTRUCTIONS {
        let mut cells = vec![format!("`{name}`")];
        for (_, version) in VERSIONS {
            let taken = lab.takes(version, rule).await;
            let is_so = taken && is_read(&lab.bridge.lock().flows[0].instructions);
            cells.push(if is_so { "+".into() } else { String::new() });
        }
        cells.push(proven.cell(&[(Feature::Action(name), "+")]));
        row(text, &cells);
    }
}
