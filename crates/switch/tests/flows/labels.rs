//! Tests of MPLS labels in OpenFlow actions.

use super::*;

#[test]
fn labels_go_on_and_come_off() {
    let mut pipeline = pipeline();
    let ip = Match::ANY.with(Field::EthType, 0x0800);
    add(&mut pipeline, 0, 1, ip, vec![Action::PushMpls(0x8847), set(Field::MplsLabel, 100), out(2)]);
    let mpls = Match::ANY.with(Field::EthType, 0x8847).with(Field::MplsLabel, 100);
    let back = vec![Action::PopMpls(0x0800), Action::Resubmit { port: None, table: Some(1) }];
    add(&mut pipeline, 0, 1, mpls, back);
    let to = Match::ANY.with(Field::EthType, 0x0800).with(Field::Ipv4Dst, 0x0a00_0002);
    add(&mut pipeline, 1, 1, to, vec![set(Field::Ipv4Dst, 0x0b00_0003), out(3)]);
    let frame = tcp(Some(9), [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let labelled = run(&pipeline, &frame, 1);
    let flow = read(&labelled[0].1, 1);
    assert_eq!(
        (flow.get(Field::MplsLabel), flow.get(Field::MplsTtl), flow.get(Field::MplsBos)),
        (100, 60, 1)
    );
    assert_eq!(flow.get(Field::VlanTci), 0x1000 | 9, "the label stands behind the tag");
    let bare = run(&pipeline, &labelled[0].1, 2);
    assert_eq!(bare.len(), 1, "the rule behind the label was met");
    assert_eq!(read(&bare[0].1, 1).get(Field::Ipv4Dst), 0x0b00_0003);
    assert!(is_sound(&bare[0].1));
    let translated = pipeline.translate(asked(&flow, Some(&labelled[0].1)));
    assert!(
        translated.is_own && translated.megaflow(&flow).is_none(),
        "what was behind the label is no part of the mask"
    );
}

/// The TTL is copied into the IPv4 header (and the checksum is updated) or the IPv6 header after the last label. If
/// there are several labels, the action copies the TTL only after all other labels have been removed. The TTL is not
/// copied into any other header.
#[test]
fn a_ttl_is_copied_into_the_header_behind_the_last_label() {
    let mut pipeline = pipeline();
    let ttl = |value| set(Field::MplsTtl, value);
    add(&mut pipeline, 0, 1, from(1), vec![Action::PushMpls(0x8847), ttl(33), Action::CopyTtlIn, out(2)]);
    add(&mut pipeline, 0, 1, from(2), vec![Action::CopyTtlIn, out(3)]);
    add(&mut pipeline, 0, 1, from(3), vec![Action::CopyTtlIn, Action::PopMpls(0x0800), out(4)]);
    let frame = tcp(Some(9), [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let labelled = run(&pipeline, &frame, 1).remove(0).1;
    let bare = run(&pipeline, &labelled, 3).remove(0).1;
    assert_eq!(read(&bare, 1).get(Field::NwTtl), 33);
    assert!(is_sound(&bare));
    // Only the label in the key decides about the result, so that the megaflow is cached.
    let flow = read(&labelled, 2);
    let translated = pipeline.translate(asked(&flow, Some(&labelled)));
    assert!(
        translated.is_cacheable()
            && translated.mask.get(Field::MplsTtl) == 0xff
            && translated.mask.get(Field::MplsBos) == 1
    );

    let behind = |labels: &[u8], ip: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47];
        frame.extend(labels);
        frame.extend(ip);
        frame
    };
    let last = [0, 0, 0x11, 77];
    let mut v6 = vec![0x60, 0, 0, 0, 0, 4, 253, 9];
    v6.extend([1; 36]);
    let left = run(&pipeline, &behind(&last, &v6), 2).remove(0).1;
    v6[7] = 77;
    assert_eq!(left, behind(&last, &v6));
    // The TTL is copied into the next label if there is one.
    let two = run(&pipeline, &behind(&[0, 0, 0x10, 50, 0, 0, 0x11, 7], &v6), 2).remove(0).1;
    assert_eq!(two, behind(&[0, 0, 0x10, 50, 0, 0, 0x11, 50], &v6));
    for other in [&[0x55; 40][..], &[0x45; 19], &[0x60; 39], &[]] {
        let frame = behind(&last, other);
        assert_eq!(run(&pipeline, &frame, 2), [(PortId(3), frame)]);
    }
}

#[test]
fn a_first_label_takes_class_and_ttl_from_the_packet() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::PushMpls(0x8847), out(2)]);
    for (ttl, wanted) in [(60, 60), (1, 1), (0, 64)] {
        let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), ttl);
        // Expedited forwarding is DSCP 46, of which the lowest three bits count.
        frame[15] = 46 << 2;
        let flow = read(&run(&pipeline, &frame, 1)[0].1, 1);
        assert_eq!((flow.get(Field::MplsTtl), flow.get(Field::MplsTc)), (wanted, 6), "{ttl}");
    }
}

#[test]
fn what_was_set_before_a_label_came_off_is_kept() {
    let mut pipeline = pipeline();
    let mpls = Match::ANY.with(Field::EthType, 0x8847);
    let actions =
        vec![Action::PopMpls(0x0800), set(Field::EthDst, 0x0200_0000_0042), Action::DecTtl(vec![]), out(3)];
    add(&mut pipeline, 0, 1, mpls, actions);
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    frame.splice(12..14, [0x88, 0x47, 0, 0x06, 0x41, 60]);
    let left = run(&pipeline, &frame, 1);
    let flow = read(&left[0].1, 1);
    assert_eq!((flow.get(Field::EthDst), flow.get(Field::NwTtl)), (0x0200_0000_0042, 59));
    assert!(is_sound(&left[0].1));
}

#[test]
fn the_bottom_of_stack_bit_can_be_set() {
    let mut pipeline = pipeline();
    let mpls = Match::ANY.with(Field::EthType, 0x8847);
    add(&mut pipeline, 0, 1, mpls, vec![set(Field::MplsBos, 1), out(2), set(Field::MplsBos, 0), out(3)]);
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47, 0, 6, 0x46, 64, 0, 0, 0x11, 64];
    frame.extend([0; 20]);
    let left = run(&pipeline, &frame, 1);
    assert_eq!((&left[0].1[14..18], &left[1].1[14..18]), (&[0, 6, 0x47, 64][..], &[0, 6, 0x46, 64][..]));
    assert_eq!(left[0].1[18..], frame[18..]);
}

/// A packet is parsed again after the removal of each MPLS label. The total time must be linear in the number of
/// labels, not quadratic.
#[test]
fn labels_are_taken_off_one_by_one_in_time() {
    const LABELS: usize = 4000;
    let mut pipeline = pipeline();
    let mpls = Match::ANY.with(Field::EthType, 0x8847);
    add(&mut pipeline, 0, 1, mpls, [vec![Action::PopMpls(0x8847); LABELS], vec![out(2)]].concat());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47];
    for label in 0..=LABELS {
        let bottom = u32::from(label == LABELS);
        let entry = u32::try_from(label).unwrap() << 12 | bottom << 8 | 64;
        frame.extend(entry.to_be_bytes());
    }
    #[allow(clippy::disallowed_methods, reason = "bounds by far what would take minutes")]
    let begin = std::time::Instant::now();
    let left = run(&pipeline, &frame, 1);
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].1.len(), 14 + 4, "the last label is left");
    assert_eq!(left[0].1[14..], frame[frame.len() - 4..]);
    // Actions on a copy do not change the packet.
    let mut pipeline = rules::pipeline();
    let pop = || Action::PopMpls(0x8847);
    let ttl = |value| Action::SetMplsTtl(value);
    let copy = Action::Clone(vec![pop(), ttl(7), out(3), pop(), ttl(8), out(3)]);
    add(&mut pipeline, 0, 1, mpls, vec![pop(), ttl(5), copy.clone(), out(2), pop(), ttl(6), copy, out(2)]);
    let labels = |frame: &[u8]| (frame[14 + 1] as usize) << 4 | usize::from(frame[14 + 2] >> 4);
    let left: Vec<_> = run(&pipeline, &frame[..14 + 4 * 20], 1)
        .iter()
        .map(|(port, frame)| (port.0, labels(frame), frame[17]))
        .collect();
    assert_eq!(left, [(3, 2, 7), (3, 3, 8), (2, 1, 5), (3, 3, 7), (3, 4, 8), (2, 2, 6)]);
}
