//! Tests of rules for IP fragments.

use super::*;

#[test]
fn to_rules_a_fragment_has_no_ports() {
    let mut pipeline = pipeline();
    let tcp_packet = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 6);
    add(&mut pipeline, 0, 9, tcp_packet.with(Field::TcpDst, 80), vec![out(2)]);
    add(&mut pipeline, 0, 8, tcp_packet.with(Field::TcpDst, 0), vec![set(Field::TcpDst, 8080), out(3)]);
    let whole = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let mut first = whole.clone();
    first[20] = 0x20;
    assert_eq!(run(&pipeline, &whole, 1)[0].0, PortId(2));
    let left = run(&pipeline, &first, 1);
    assert_eq!(left[0].0, PortId(3));
    assert_eq!(left[0].1[36..38], 8080_u16.to_be_bytes(), "actions see the port that is there");
    // The fragment bit distinguishes the two, and fragments have no ports.
    let mask = |frame: &[u8]| pipeline.translate(asked(&read(frame, 1), Some(frame))).mask;
    assert_eq!(mask(&whole).get(Field::IpFrag) & 1, 1);
    assert_eq!((mask(&first).get(Field::IpFrag) & 1, mask(&first).get(Field::TcpSrc)), (1, 0));
}

/// In a fragment other than the first, the ICMP type counts as 0, like the L4 ports.
#[test]
fn to_rules_a_fragment_has_no_type_of_icmp() {
    let mut pipeline = pipeline();
    let icmp = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 1);
    let later = icmp.with(Field::IpFrag, 3).with(Field::Icmpv4Type, 0);
    assert!(later.meets(Prerequisite::Icmpv4), "clients may ask for it");
    add(&mut pipeline, 0, 9, later, vec![out(2)]);
    add(&mut pipeline, 0, 8, icmp, vec![out(3)]);
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (0x0800, 80), 60);
    frame[23] = 1;
    assert_eq!(run(&pipeline, &frame, 1)[0].0, PortId(3));
    frame[21] = 7;
    assert_eq!(run(&pipeline, &frame, 1)[0].0, PortId(2));
}

#[test]
fn fragments_have_ports_or_go_nowhere_as_configured() {
    use switch::flow::Fragments;
    let mut pipeline = pipeline();
    let tcp80 = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 6).with(Field::TcpDst, 80);
    add(&mut pipeline, 0, 2, tcp80, vec![out(2)]);
    add(&mut pipeline, 0, 1, Match::ANY, vec![out(3)]);
    let whole = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 80), 60);
    let mut first = whole.clone();
    first[20] = 0x20;
    let mut later = whole.clone();
    later[21] = 9;
    let to = |pipeline: &switch::flow::Pipeline| {
        [&whole, &first, &later].map(|frame| run(pipeline, frame, 1).first().map(|left| left.0.0))
    };
    assert_eq!(to(&pipeline), [Some(2), Some(3), Some(3)]);
    assert!(pipeline.set_fragments(Fragments::NxMatch));
    assert_eq!(to(&pipeline), [Some(2), Some(2), Some(3)]);
    assert!(pipeline.set_fragments(Fragments::Drop));
    assert_eq!(to(&pipeline), [Some(2), None, None]);
    let flow = read(&whole, 1);
    assert_eq!(
        pipeline.translate(asked(&flow, None)).mask.get(Field::IpFrag) & 1,
        1,
        "others are no fragments"
    );
    assert!(!pipeline.set_fragments(Fragments::Reassemble));
    assert_eq!(pipeline.fragments(), Fragments::Drop);
}
