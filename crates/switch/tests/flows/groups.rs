//! Tests of groups and their buckets.

use super::*;

#[test]
fn buckets_and_clones_leave_the_packet_as_it_was() {
    let mut pipeline = pipeline();
    let bucket = |id, dst, to| Bucket {
        id,
        weight: 1,
        watch_port: None,
        watch_group: None,
        actions: vec![set(Field::EthDst, dst), out(to)],
    };
    let group = Group {
        id: 1,
        kind: GroupKind::All,
        method: SelectMethod::Default,
        buckets: vec![bucket(0, 0x0200_0000_0011, 2), bucket(1, 0x0200_0000_0022, 3)],
    };
    pipeline.modify(&[Mod::Group(GroupMod::Add(group))], 0).unwrap();
    let clone = Action::Clone(vec![Action::PushVlan(0x8100), set(Field::VlanVid, 0x1000 | 5), out(2)]);
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Group(1), clone, out(4)]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let left = run(&pipeline, &frame, 1);
    let ports: Vec<u16> = left.iter().map(|(port, _)| port.0).collect();
    assert_eq!(ports, [2, 3, 2, 4]);
    assert_eq!(read(&left[0].1, 0).get(Field::EthDst), 0x0200_0000_0011);
    assert_eq!(read(&left[2].1, 0).get(Field::VlanTci), 0x1005);
    assert_eq!(left[3].1, frame);
}

/// Fast failover and select groups skip a bucket whose watched port has no link, and use the bucket again when the link
/// is up.
#[test]
fn a_bucket_that_watches_a_port_without_link_is_left_out() {
    let mut pipeline = pipeline();
    let watching =
        |id, to| Bucket { id, weight: 1, watch_port: Some(to), watch_group: None, actions: vec![out(to)] };
    let group = |id, kind| {
        let buckets = vec![watching(0, 2), watching(1, 3)];
        Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets }))
    };
    pipeline.modify(&[group(1, GroupKind::FastFailover), group(2, GroupKind::Select)], 0).unwrap();
    add(&mut pipeline, 0, 1, from(1), vec![Action::Group(1)]);
    add(&mut pipeline, 0, 1, from(4), vec![Action::Group(2)]);
    // The select group distributes these packets by their source.
    let ways = |pipeline: &Pipeline, in_port| -> BTreeSet<u16> {
        let frame = |last| tcp(None, [10, 0, 0, last], [10, 0, 0, 2], (1000 + u16::from(last), 80), 64);
        (0..64).flat_map(|last| run(pipeline, &frame(last), in_port)).map(|(port, _)| port.0).collect()
    };
    let link = |pipeline: &mut Pipeline, number, live| {
        pipeline.set_port(number, Some(FlowPort { live, ..flow_port(number) }));
    };
    let check = |pipeline: &Pipeline, failover: &[u16], select: &[u16]| {
        assert_eq!(ways(pipeline, 1), failover.iter().copied().collect());
        assert_eq!(ways(pipeline, 4), select.iter().copied().collect());
    };
    check(&pipeline, &[2], &[2, 3]);
    link(&mut pipeline, 2, false);
    check(&pipeline, &[3], &[3]);
    link(&mut pipeline, 3, false);
    check(&pipeline, &[], &[]);
    link(&mut pipeline, 2, true);
    check(&pipeline, &[2], &[2]);
}

#[test]
fn hostile_groups_and_lists_come_to_an_end() {
    let mut pipeline = pipeline();
    let group = |id, kind, buckets| {
        Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets }))
    };
    // No bucket that watches a missing group is live, which is found immediately.
    let watching =
        |id| Bucket { id, weight: 1, watch_port: None, watch_group: Some(99), actions: vec![out(2)] };
    let watches = group(1, GroupKind::FastFailover, (0..8).map(watching).collect());
    // A chain of 31 groups. Both buckets of each group refer to the next group.
    let leads = |id, to| Bucket {
        id,
        weight: 1,
        watch_port: None,
        watch_group: None,
        actions: vec![Action::Group(to)],
    };
    let chain = (2..32).map(|id| group(id, GroupKind::All, vec![leads(0, id + 1), leads(1, id + 1)]));
    let mods: Vec<Mod> = std::iter::once(watches).chain(chain).collect();
    pipeline.modify(&mods, 0).unwrap();
    add(&mut pipeline, 0, 1, from(1), vec![Action::Group(1)]);
    add(&mut pipeline, 0, 1, from(2), vec![Action::Group(2)]);
    let tell = Action::Output { port: port::CONTROLLER, max_len: 0 };
    let mut list = vec![tell; 4000];
    list.push(Action::Resubmit { port: None, table: Some(0) });
    add(&mut pipeline, 0, 1, from(3), list);
    let multipath = Action::Multipath {
        fields: switch::flow::HashFields::EthSrc,
        basis: 0,
        mode: switch::flow::BundleMode::Iterative,
        max_link: 0,
        argument: u32::MAX,
        to: SubField::whole(Field::Reg0),
    };
    add(&mut pipeline, 0, 1, from(4), vec![multipath, out(1)]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    for in_port in 1..=4 {
        let flow = read(&frame, in_port);
        let translated = pipeline.translate(asked(&flow, Some(&frame)));
        assert!(translated.to_controller.len() <= 256 && translated.groups.len() <= 65_536);
        assert_eq!(translated.program.ops.is_empty(), in_port != 4, "{in_port}");
    }
    // A loop inside a clone is found.
    let hidden = Bucket { actions: vec![Action::Clone(vec![Action::Group(50)])], ..leads(0, 0) };
    pipeline.modify(&[group(51, GroupKind::All, vec![hidden])], 0).unwrap();
    let back = pipeline.modify(&[group(50, GroupKind::All, vec![leads(0, 51)])], 0);
    assert_eq!(back, Err((0, FlowError::GroupLoop)));
}

/// ARP requests for different hosts are distributed over a group's buckets, and a reply uses the bucket of its request.
#[test]
fn a_select_group_spreads_arp_by_its_addresses() {
    for method in [SelectMethod::Default, SelectMethod::DpHash { parameter: 7 }] {
        let mut pipeline = pipeline();
        let bucket = |id: u32| Bucket {
            id,
            weight: 1,
            watch_port: None,
            watch_group: None,
            actions: vec![out(id + 2)],
        };
        let buckets = (0..3).map(bucket).collect();
        let group = Group { id: 1, kind: GroupKind::Select, method: method.clone(), buckets };
        pipeline.modify(&[Mod::Group(GroupMod::Add(group))], 0).unwrap();
        add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Group(1)]);
        let arp = |op: u8, from: u8, to: u8| {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, op];
            frame.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, from]);
            frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, to]);
            frame
        };
        let mut used = std::collections::BTreeSet::new();
        for host in 2..66 {
            let request = run(&pipeline, &arp(1, 1, host), 1);
            let reply = run(&pipeline, &arp(2, host, 1), 1);
            assert_eq!(request[0].0, reply[0].0, "host {host}");
            used.insert(request[0].0);
        }
        assert_eq!(used.len(), 3, "{method:?}: {used:?}");
    }
}
