//! Cases that test actions and instructions. The features are named like the rows of `docs/switch-matrix.md`.

use super::Feature::{Action, Match};
use super::frames::{self, tagged, with};
use super::{PacketCase, Step};

/// Returns a case that tests one action with one input frame on port 1.
fn one(name: &'static str, flows: &[&str], frame: &[u8], leaves: &[(u8, &[u8])]) -> PacketCase {
    PacketCase::new(&[Action(name)], flows, vec![Step::new(1, frame, leaves)])
}

/// Returns the case with `version` as the OpenFlow version of the client.
fn spoken(version: &'static str, case: PacketCase) -> PacketCase {
    PacketCase { version, ..case }
}

/// Returns a TCP frame whose source address is 02:00:00:00:00:xx, where xx is `last`.
fn from(last: u128) -> Vec<u8> {
    with(&frames::tcp(), 48, 48, 0x0200_0000_0000 + last)
}

/// Returns a TCP frame whose destination address is 02:00:00:00:00:xx, where xx is `last`.
fn to(last: u128) -> Vec<u8> {
    with(&frames::tcp(), 0, 48, 0x0200_0000_0000 + last)
}

fn ttl(value: u128) -> Vec<u8> {
    with(&frames::tcp(), 22 * 8, 8, value)
}

fn outputs() -> Vec<PacketCase> {
    let tcp = &frames::tcp()[..];
    let learnt = with(&from(0xb2), 0, 48, 0xffff_ffff_ffff);
    let learnt = &learnt[..];
    let known = &to(0xb2)[..];
    let punted = |case: PacketCase, text: String| {
        let steps = case.steps.into_iter();
        let steps = steps.map(|step| Step { packet_in: Some(text.clone()), ..step }).collect();
        PacketCase { version: "OpenFlow13", steps, ..case }
    };
    let length = tcp.len();
    vec![
        one("output", &["actions=output:2,output:3"], tcp, &[(2, tcp), (3, tcp)]),
        one("IN_PORT", &["actions=IN_PORT"], tcp, &[(1, tcp)]),
        PacketCase::new(
            &[Action("NORMAL")],
            &["actions=NORMAL"],
            vec![
                Step::new(2, learnt, &[(1, learnt), (3, learnt), (4, learnt)]),
                Step::new(1, known, &[(2, known)]),
            ],
        ),
        one("FLOOD", &["actions=FLOOD"], tcp, &[(2, tcp), (3, tcp), (4, tcp)]),
        one("ALL", &["actions=ALL"], tcp, &[(2, tcp), (3, tcp), (4, tcp)]),
        punted(
            one("CONTROLLER", &["cookie=0xc1,actions=output:2,CONTROLLER:64"], tcp, &[(2, tcp)]),
            format!("cookie=0xc1 total_len={length} in_port=1 (via action)"),
        ),
        punted(
            one(
                "controller(...)",
                &["cookie=0xc2,actions=output:2,controller(max_len=48,reason=no_match)"],
                tcp,
                &[(2, tcp)],
            ),
            format!("cookie=0xc2 total_len={length} in_port=1 (via no_match)"),
        ),
        one(
            "output:FIELD",
            &["actions=load:3->NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..15]"],
            tcp,
            &[(3, tcp)],
        ),
        one("enqueue", &["actions=enqueue:2:7"], tcp, &[(2, tcp)]),
        one(
            "set_queue, pop_queue",
            &["actions=set_queue:7,output:2,pop_queue,output:3"],
            tcp,
            &[(2, tcp), (3, tcp)],
        ),
        PacketCase {
            setup: vec![("add-group", "group_id=5,type=all,bucket=output:2,bucket=output:3".into())],
            ..one("group", &["actions=group:5"], tcp, &[(2, tcp), (3, tcp)])
        },
        // The meter passes one packet per second, so the first of five packets passes.
        PacketCase {
            version: "OpenFlow13",
            setup: vec![("add-meter", "meter=6,pktps,burst,band=type=drop,rate=1,burst_size=1".into())],
            steps: vec![Step { times: 5, ..Step::new(1, tcp, &[(2, tcp)]) }],
            ..one("meter", &["actions=meter:6,output:2"], tcp, &[])
        },
        one("exit", &["actions=output:2,exit,output:3"], tcp, &[(2, tcp)]),
        one("note", &["actions=note:01.02.03.04.05.06,output:2"], tcp, &[(2, tcp)]),
        one(
            "clone",
            &["actions=clone(set_field:02:00:00:00:00:0c->eth_dst,output:2),output:3"],
            tcp,
            &[(2, &to(0xc)), (3, tcp)],
        ),
        one("bundle", &["actions=bundle(eth_src,0,active_backup,ofport,members:2)"], tcp, &[(2, tcp)]),
        one(
            "bundle_load",
            &[
                "actions=bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG0[],members:2),output:NXM_NX_REG0[0..15]",
            ],
            tcp,
            &[(2, tcp)],
        ),
        // With one link, its number 0 overwrites the register.
        one(
            "multipath",
            &[
                "actions=load:7->NXM_NX_REG0[],multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[]),resubmit(,1)",
                "table=1,priority=2,reg0=0,actions=output:2",
                "table=1,priority=1,actions=output:3",
            ],
            tcp,
            &[(2, tcp)],
        ),
    ]
}

fn headers() -> Vec<PacketCase> {
    let tcp = &frames::tcp()[..];
    let vlan = |tci: u16| tagged(tcp, tci);
    let mpls = |ttl: u128| with(&frames::mpls(), 17 * 8, 8, ttl);
    let rewritten = |name: &'static str, action: &str, before: &[u8], after: &[u8]| {
        one(name, &[&format!("{action},output:2")], before, &[(2, after)])
    };
    vec![
        spoken(
            "OpenFlow10",
            rewritten("mod_vlan_vid", "actions=mod_vlan_vid:5", &vlan(0x2006), &vlan(0x2005)),
        ),
        spoken(
            "OpenFlow10",
            rewritten("mod_vlan_pcp", "actions=mod_vlan_pcp:5", &vlan(0x2006), &vlan(0xa006)),
        ),
        rewritten("strip_vlan, pop_vlan", "vlan_tci=0x1000/0x1000,actions=strip_vlan", &vlan(0x2006), tcp),
        rewritten("push_vlan", "actions=push_vlan:0x8100,set_field:4101->vlan_vid", tcp, &vlan(5)),
        rewritten("push_mpls", "ip,actions=push_mpls:0x8847,set_field:18->mpls_label", tcp, &frames::mpls()),
        rewritten("pop_mpls", "mpls,actions=pop_mpls:0x0800", &frames::mpls(), tcp),
        rewritten("set_mpls_ttl", "mpls,actions=set_mpls_ttl(5)", &mpls(64), &mpls(5)),
        rewritten("dec_mpls_ttl", "mpls,actions=dec_mpls_ttl", &mpls(64), &mpls(63)),
        PacketCase::new(
            &[Action("dec_ttl")],
            &["ip,actions=output:3,dec_ttl,output:2"],
            vec![
                Step::new(1, tcp, &[(3, tcp), (2, &ttl(63))]),
                // The processing of a packet whose TTL expires ends at the action.
                Step::new(1, &ttl(1), &[(3, &ttl(1))]),
            ],
        ),
        rewritten("dec_ttl(ids)", "ip,actions=dec_ttl(1,2)", tcp, &ttl(63)),
        spoken("OpenFlow10", rewritten("mod_nw_ttl", "ip,actions=mod_nw_ttl:5", tcp, &ttl(5))),
        rewritten("set_field", "actions=set_field:02:00:00:00:00:0d->eth_src", tcp, &from(0xd)),
        rewritten("load", "actions=load:0xe->NXM_OF_ETH_DST[0..7]", tcp, &to(0xe)),
        rewritten("move", "actions=move:NXM_OF_ETH_SRC[0..7]->NXM_OF_ETH_DST[0..7]", tcp, &to(1)),
    ]
}

fn tables() -> Vec<PacketCase> {
    let tcp = &frames::tcp()[..];
    let other = &with(tcp, 36 * 8, 16, 81)[..];
    let fin = with(tcp, 47 * 8, 8, 0x11);
    let short = frames::arp();
    let learnt = from(0xb3);
    vec![
        PacketCase::new(
            &[Action("push"), Action("pop")],
            &[
                "actions=push:NXM_OF_ETH_DST[],set_field:02:00:00:00:00:0f->eth_dst,output:2,pop:NXM_OF_ETH_DST[],output:3",
            ],
            vec![Step::new(1, tcp, &[(2, &to(0xf)), (3, tcp)])],
        ),
        one(
            "resubmit(PORT,TABLE)",
            &[
                "actions=resubmit(2,3)",
                "table=3,priority=2,in_port=2,actions=output:3",
                "table=3,priority=1,actions=output:4",
            ],
            tcp,
            &[(3, tcp)],
        ),
        PacketCase::new(
            &[Action("learn")],
            &[
                "in_port=2,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:3",
                "in_port=1,actions=resubmit(,1)",
                "table=1,priority=0,actions=output:4",
            ],
            vec![
                Step {
                    shown: Some(("table=1", "dl_dst=02:00:00:00:00:b3 actions=output:2")),
                    ..Step::new(2, &learnt, &[(3, &learnt)])
                },
                Step::new(1, &to(0xb3), &[(2, &to(0xb3))]),
                Step::new(1, &to(0xb4), &[(4, &to(0xb4))]),
            ],
        ),
        PacketCase::new(
            &[Action("conjunction"), Match("conj_id")],
            &[
                "priority=5,ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)",
                "priority=5,tcp,tp_dst=80,actions=conjunction(7,2/2)",
                "priority=5,ip,conj_id=7,actions=output:2",
                "priority=1,actions=output:3",
            ],
            vec![Step::new(1, tcp, &[(2, tcp)]), Step::new(1, other, &[(3, other)])],
        ),
        PacketCase::new(
            &[Action("check_pkt_larger")],
            &[
                "actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,1)",
                "table=1,priority=2,reg0=1,actions=output:2",
                "table=1,priority=1,actions=output:3",
            ],
            vec![Step::new(1, tcp, &[(2, tcp)]), Step::new(1, &short, &[(3, &short)])],
        ),
        PacketCase::new(
            &[Action("fin_timeout")],
            &["tcp,idle_timeout=100,actions=fin_timeout(idle_timeout=5),output:2"],
            vec![Step { shown: Some(("tcp", "idle_timeout=5,")), ..Step::new(1, &fin, &[(2, &fin)]) }],
        ),
        one("goto_table", &["actions=goto_table:5", "table=5,actions=output:2"], tcp, &[(2, tcp)]),
        PacketCase::new(
            &[Action("write_metadata")],
            &[
                "priority=2,tcp,tp_dst=80,actions=write_metadata:5/0xff,goto_table:1",
                "priority=1,actions=write_metadata:4/0xff,goto_table:1",
                "table=1,priority=2,metadata=5,actions=output:2",
                "table=1,priority=1,actions=output:3",
            ],
            vec![Step::new(1, tcp, &[(2, tcp)]), Step::new(1, other, &[(3, other)])],
        ),
        // Both write_actions instructions are executed at the end. For each kind of action the last one
        // applies.
        one(
            "write_actions",
            &[
                "actions=write_actions(set_field:02:00:00:00:00:0e->eth_dst,output:4),goto_table:1",
                "table=1,actions=output:3,write_actions(output:2)",
            ],
            tcp,
            &[(3, tcp), (2, &to(0xe))],
        ),
        one(
            "clear_actions",
            &["actions=write_actions(output:2),goto_table:1", "table=1,actions=output:3,clear_actions"],
            tcp,
            &[(3, tcp)],
        ),
    ]
}

pub fn cases() -> Vec<PacketCase> {
    let mut cases = outputs();
    cases.extend(headers());
    cases.extend(tables());
    cases
}
