//! Tests of the maximum number of VLAN tags in a packet that rules can match: two, or one (like Open vSwitch's
//! `vlan-limit`).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod rules;

use rules::{add, asked, execute, out, pipeline, tcp};
use switch::flow::{Action, Field, Flow, Match, PacketOut, Pipeline};

const TAGGED: u128 = 0x1000;

/// Builds a TCP frame with these tags. Each tag is given by its TPID and its VLAN ID.
fn tagged(tags: &[(u16, u16)]) -> Vec<u8> {
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 80), 64);
    for (tpid, vlan) in tags.iter().rev() {
        let tag = [tpid.to_be_bytes(), vlan.to_be_bytes()].concat();
        frame.splice(12..12, tag);
    }
    frame
}

fn fields(flow: &Flow) -> [u128; 4] {
    [Field::VlanVid, Field::EthType, Field::IpProto, Field::TcpDst].map(|field| flow.get(field))
}

fn leaves(pipeline: &Pipeline, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let flow = pipeline.read(frame, 1).unwrap();
    let mut left = Vec::new();
    execute(&pipeline.translate(asked(&flow, Some(frame))).program.ops, frame.to_vec(), &mut left);
    left.into_iter().map(|(port, frame)| (port.0, frame)).collect()
}

#[test]
fn behind_the_last_tag_that_rules_see_all_is_payload() {
    let mut pipeline = pipeline();
    let two = tagged(&[(0x8100, 5), (0x8100, 6)]);
    assert_eq!(fields(&pipeline.read(&two, 1).unwrap()), [TAGGED | 5, 0x0800, 6, 80]);
    pipeline.set_one_tag(true);
    let flow = pipeline.read(&two, 1).unwrap();
    assert_eq!(fields(&flow), [TAGGED | 5, 0x8100, 0, 0]);
    assert_eq!(flow.get(Field::Ipv4Dst), 0);
    assert_eq!(flow.get(Field::EthSrc), 0x0200_0000_0001);
    let service = tagged(&[(0x88a8, 5), (0x88a8, 6)]);
    assert_eq!(fields(&pipeline.read(&service, 1).unwrap()), [TAGGED | 5, 0x88a8, 0, 0]);
    // Frames with fewer tags do not change, and neither does a packet-out.
    assert_eq!(fields(&pipeline.read(&tagged(&[(0x8100, 7)]), 1).unwrap()), [TAGGED | 7, 0x0800, 6, 80]);
    assert_eq!(fields(&pipeline.read(&tagged(&[]), 1).unwrap()), [0, 0x0800, 6, 80]);
    let metadata = Match::ANY.with(Field::Metadata, 9);
    let packet = PacketOut { in_port: 3, metadata, actions: Vec::new(), frame: two, resumes: None };
    let flow = pipeline.read_packet_out(&packet).unwrap();
    assert_eq!(fields(&flow), [TAGGED | 5, 0x8100, 0, 0]);
    assert_eq!((flow.get(Field::Metadata), flow.get(Field::InPort)), (9, 3));
}

/// With a limit of one tag, as in Open vSwitch, the data after the first tag is payload. If an action removes this tag,
/// the next table therefore sees neither a second tag nor an IP header.
#[test]
fn tables_behind_a_tag_that_was_taken_off_see_payload() {
    let again = Action::Resubmit { port: None, table: Some(1) };
    let ip = Match::ANY.with(Field::EthType, 0x0800);
    let untagged = Match::ANY.with(Field::VlanTci, 0);
    let rules = |one_tag: bool| {
        let mut pipeline = pipeline();
        pipeline.set_one_tag(one_tag);
        add(&mut pipeline, 0, 9, ip, vec![out(4)]);
        add(&mut pipeline, 0, 1, Match::ANY, vec![Action::PopVlan, again.clone()]);
        add(&mut pipeline, 1, 9, untagged.with(Field::EthType, 0x8100), vec![out(2)]);
        add(&mut pipeline, 1, 1, Match::ANY, vec![out(3)]);
        pipeline
    };
    let two = tagged(&[(0x8100, 5), (0x8100, 6)]);
    assert_eq!(leaves(&rules(false), &two), [(4, two.clone())]);
    assert_eq!(leaves(&rules(true), &two), [(2, tagged(&[(0x8100, 6)]))]);
    let one = tagged(&[(0x8100, 5)]);
    assert_eq!(leaves(&rules(true), &one), [(4, one.clone())]);
    // After the removal of a label, the frame is parsed again, still with one tag.
    let mut pipeline = rules(true);
    let mpls = Match::ANY.with(Field::EthType, 0x8847);
    add(
        &mut pipeline,
        0,
        20,
        mpls,
        vec![Action::PopMpls(0x8100), Action::Resubmit { port: None, table: Some(2) }],
    );
    let first = Match::ANY.with(Field::VlanVid, TAGGED | 5).with(Field::EthType, 0x8100);
    add(&mut pipeline, 2, 2, first, vec![out(4)]);
    add(&mut pipeline, 2, 1, Match::ANY, vec![out(2)]);
    let mut labelled = tagged(&[(0x8100, 5)]);
    labelled[16..18].copy_from_slice(&[0x88, 0x47]);
    labelled.splice(18..18, [0, 0, 0x11, 64]);
    let read = pipeline.read(&labelled, 1).unwrap();
    assert_eq!(fields(&read)[..2], [TAGGED | 5, 0x8847]);
    let left = leaves(&pipeline, &labelled);
    assert_eq!(left.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [4]);
}
