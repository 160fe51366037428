//! Tests of connection tracking by OpenFlow rules: `ct` actions, further look-ups of tracked packets, and NAT, with a
//! worker and a slow path.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::net::{IpAddr, Ipv4Addr};

use common::rules::{Switch, from, out};
use packet::{PortId, checksum, spec};
use switch::flow::{
    Action, Ct, CtNat, Field, Match, NatEnd, NatRange, NatSelection, Prerequisite, ZoneSource,
};

const INSIDE: u16 = 0;
const OUTSIDE: u16 = 1;
const NEW: u128 = 0x21;
const ESTABLISHED: u128 = 0x22;
const REPLY: u128 = 0x2a;

fn tracked(table: Option<u8>) -> Ct {
    Ct { zone: ZoneSource::Number(5), table, ..Ct::default() }
}

fn ct(ct: Ct) -> Action {
    Action::Ct(Box::new(ct))
}

fn ip() -> Match {
    let ip = Match::ANY.with(Field::EthType, 0x0800);
    assert!(ip.meets(Prerequisite::Ip));
    ip
}

/// Returns the match of IP packets from a port with all of these state bits.
fn state(port: u32, bits: u128) -> Match {
    let mut matching = ip().with(Field::InPort, u128::from(port));
    matching.put(Field::CtState, bits, bits);
    matching
}

/// Returns a switch whose rules let port 1 open connections to port 2, and nothing else.
fn firewall() -> Switch {
    let switch = Switch::new(2);
    switch.add(0, 10, ip(), vec![ct(tracked(Some(1)))]);
    let commit = ct(Ct { commit: true, ..tracked(None) });
    switch.add(1, 20, state(1, NEW), vec![commit, out(2)]);
    switch.add(1, 20, state(1, ESTABLISHED), vec![out(2)]);
    switch.add(1, 20, state(2, REPLY), vec![out(1)]);
    switch
}

fn tcp(from: &str, to: &str, ports: (u16, u16), flags: &str) -> Vec<u8> {
    let text =
        format!("ip_src={from},ip_dst={to},tcp,src_port={},dst_port={},flags={flags}", ports.0, ports.1);
    spec::parse(&text).unwrap()
}

/// Returns a TCP segment with these sequence and acknowledgement numbers.
fn numbered(mut frame: Vec<u8>, seq: u32, ack: u32) -> Vec<u8> {
    frame[38..42].copy_from_slice(&seq.to_be_bytes());
    frame[42..46].copy_from_slice(&ack.to_be_bytes());
    let checksum = u16::from_be_bytes([frame[50], frame[51]]);
    let checksum = checksum::update32(checksum::update32(checksum, 0, seq), 0, ack);
    frame[50..52].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Sends a frame, and returns the frames that the switch has sent.
fn sent(switch: &mut Switch, port: u16, frame: &[u8]) -> Vec<(PortId, Vec<u8>)> {
    switch.rig.send(port, frame);
    switch.settle();
    switch.outputs()
}

#[test]
fn a_firewall_passes_replies_and_nothing_else() {
    let mut switch = firewall();
    let (client, server) = ("10.0.0.1", "10.0.0.2");
    let syn = tcp(client, server, (1000, 80), "syn");
    let answer = numbered(tcp(server, client, (80, 1000), "syn+ack"), 0, 1);
    let stranger = tcp(server, client, (81, 1000), "syn");
    assert_eq!(sent(&mut switch, OUTSIDE, &answer), [], "no connection yet");
    for round in 0..3 {
        assert_eq!(sent(&mut switch, INSIDE, &syn), [(PortId(OUTSIDE), syn.clone())], "{round}");
        assert_eq!(sent(&mut switch, OUTSIDE, &answer), [(PortId(INSIDE), answer.clone())], "{round}");
        assert_eq!(sent(&mut switch, OUTSIDE, &stranger), [], "{round}");
    }
    let ack = numbered(tcp(client, server, (1000, 80), "ack"), 1, 1);
    assert_eq!(sent(&mut switch, INSIDE, &ack), [(PortId(OUTSIDE), ack.clone())]);
    switch.rig.assert_accounted();
}

#[test]
fn tracked_packets_hit_cached_flows() {
    let mut switch = firewall();
    let syn = tcp("10.0.0.1", "10.0.0.2", (1000, 80), "syn");
    let answer = numbered(tcp("10.0.0.2", "10.0.0.1", (80, 1000), "syn+ack"), 0, 1);
    sent(&mut switch, INSIDE, &syn);
    sent(&mut switch, OUTSIDE, &answer);
    let before = switch.tables.upcalls();
    // Another connection needs no upcall, because no rule looks at addresses or ports.
    let syn = tcp("10.0.0.7", "10.0.0.8", (2000, 90), "syn");
    let answer = numbered(tcp("10.0.0.8", "10.0.0.7", (90, 2000), "syn+ack"), 0, 1);
    assert_eq!(sent(&mut switch, INSIDE, &syn).len(), 1);
    assert_eq!(sent(&mut switch, OUTSIDE, &answer).len(), 1);
    assert_eq!(switch.tables.upcalls(), before);
}

#[test]
fn source_nat_is_undone_for_replies() {
    let mut switch = Switch::new(2);
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let range = NatRange {
        end: NatEnd::Source,
        addresses: Some((address, address)),
        ports: Some((5000, 5009)),
        persistent: false,
        selection: NatSelection::Any,
    };
    let commit = Ct { commit: true, nat: Some(CtNat::New(range)), ..tracked(Some(1)) };
    switch.add(0, 10, ip().with(Field::InPort, 1), vec![ct(commit)]);
    let undo = Ct { nat: Some(CtNat::Existing), ..tracked(Some(2)) };
    switch.add(0, 10, ip().with(Field::InPort, 2), vec![ct(undo)]);
    switch.add(1, 20, state(1, NEW), vec![out(2)]);
    switch.add(1, 20, state(1, ESTABLISHED), vec![out(2)]);
    switch.add(2, 20, state(2, REPLY), vec![out(1)]);
    let syn = tcp("10.0.0.1", "10.0.0.2", (1000, 80), "syn");
    let [(port, translated)] = &sent(&mut switch, INSIDE, &syn)[..] else { panic!("one frame") };
    assert_eq!((*port, &translated[26..30]), (PortId(OUTSIDE), &[192, 0, 2, 1][..]));
    let source = u16::from_be_bytes([translated[34], translated[35]]);
    assert!((5000..5010).contains(&source), "{source}");
    let answer = numbered(tcp("10.0.0.2", "192.0.2.1", (80, source), "syn+ack"), 0, 1);
    let restored = numbered(tcp("10.0.0.2", "10.0.0.1", (80, 1000), "syn+ack"), 0, 1);
    for _ in 0..2 {
        assert_eq!(sent(&mut switch, OUTSIDE, &answer), [(PortId(INSIDE), restored.clone())]);
    }
    let stranger = numbered(tcp("10.0.0.3", "192.0.2.1", (80, source), "syn+ack"), 0, 1);
    assert_eq!(sent(&mut switch, OUTSIDE, &stranger), []);
}

#[test]
fn marks_are_set_and_matched() {
    let mut switch = Switch::new(2);
    let set = Action::Set { field: Field::CtMark, value: 7, mask: 0xff, load: false };
    let commit = Ct { commit: true, exec: vec![set], ..tracked(Some(1)) };
    switch.add(0, 10, from(1), vec![ct(commit)]);
    switch.add(0, 10, from(2), vec![ct(tracked(Some(1)))]);
    let mut marked = ip().with(Field::InPort, 2);
    marked.put(Field::CtMark, 7, 0xff);
    switch.add(1, 20, marked, vec![out(1)]);
    switch.add(1, 10, from(1), vec![out(2)]);
    let question = spec::parse("ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,src_port=1000,dst_port=53").unwrap();
    let answer = spec::parse("ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,src_port=53,dst_port=1000").unwrap();
    assert_eq!(sent(&mut switch, OUTSIDE, &answer), []);
    assert_eq!(sent(&mut switch, INSIDE, &question).len(), 1);
    assert_eq!(sent(&mut switch, OUTSIDE, &answer), [(PortId(INSIDE), answer.clone())]);
}

#[test]
fn a_packet_with_a_wrong_checksum_is_invalid() {
    let mut switch = Switch::new(2);
    switch.add(0, 10, ip(), vec![ct(tracked(Some(1)))]);
    switch.add(1, 20, state(1, 0x30), vec![out(2)]);
    let sound = tcp("10.0.0.1", "10.0.0.2", (1000, 80), "syn");
    assert_eq!(sent(&mut switch, INSIDE, &sound), []);
    let mut broken = sound.clone();
    broken[51] ^= 1;
    assert_eq!(sent(&mut switch, INSIDE, &broken), [(PortId(OUTSIDE), broken.clone())]);
}

#[test]
fn a_loop_of_ct_actions_ends() {
    let mut switch = Switch::new(2);
    switch.add(0, 10, ip(), vec![ct(tracked(Some(0)))]);
    let syn = tcp("10.0.0.1", "10.0.0.2", (1000, 80), "syn");
    for _ in 0..3 {
        assert_eq!(sent(&mut switch, INSIDE, &syn), []);
    }
    switch.rig.assert_accounted();
}

#[test]
fn removed_rules_change_tracked_packets_too() {
    let mut switch = firewall();
    let syn = tcp("10.0.0.1", "10.0.0.2", (1000, 80), "syn");
    assert_eq!(sent(&mut switch, INSIDE, &syn).len(), 1);
    switch.add(1, 30, state(1, NEW), vec![]);
    switch.barrier();
    let other = tcp("10.0.0.1", "10.0.0.2", (1001, 80), "syn");
    assert_eq!(sent(&mut switch, INSIDE, &other), []);
}
