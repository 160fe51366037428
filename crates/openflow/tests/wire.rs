//! Tests that encoded values are decoded to equal values, and that no input causes a panic.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::wire::error::{Code, Error};
use openflow::wire::{Reader, Version, action, flow, matching};
use proptest::prelude::*;
use switch::flow::{
    Action, BundleMode, Conjunction, Ct, CtNat, Field, FlowCommand, FlowFlags, FlowMod, HashFields,
    Instructions, Learn, LearnPart, LearnSource, Match, NatEnd, NatRange, NatSelection, SubField, ZoneSource,
};

fn versions() -> impl Strategy<Value = Version> {
    proptest::sample::select(Version::ALL.to_vec())
}

/// Generates a valid match: a packet type, with values and masks for fields that packets of this type have.
fn matches() -> impl Strategy<Value = Match> {
    let kinds = proptest::sample::select(vec![
        vec![],
        vec![(Field::EthType, 0x0800_u128)],
        vec![(Field::EthType, 0x0800), (Field::IpProto, 6)],
        vec![(Field::EthType, 0x0800), (Field::IpProto, 1)],
        vec![(Field::EthType, 0x86dd), (Field::IpProto, 17)],
        vec![(Field::EthType, 0x86dd), (Field::IpProto, 132)],
        vec![(Field::EthType, 0x86dd), (Field::IpProto, 58), (Field::Icmpv6Type, 135)],
        vec![(Field::EthType, 0x86dd), (Field::IpProto, 58), (Field::Icmpv6Type, 136)],
        vec![(Field::EthType, 0x0806)],
        vec![(Field::EthType, 0x8847)],
        vec![(Field::EthType, 0x88e7)],
    ]);
    let wishes = proptest::collection::vec(
        (proptest::sample::select(Field::ALL.to_vec()), any::<u128>(), any::<u128>(), any::<bool>()),
        0..12,
    );
    (kinds, wishes).prop_map(|(kind, wishes)| {
        let mut out = Match::ANY;
        for (field, value) in kind {
            out.add(field, value, None).unwrap();
        }
        for (field, value, mask, whole) in wishes {
            let all = field.all_ones();
            let mask = if whole || !field.is_maskable() { all } else { mask & all };
            // A missing tag has no priority, and OpenFlow 1.0 has 16-bit port numbers.
            let value = match field {
                Field::VlanTci | Field::VlanVid => value | 0x1000,
                Field::InPort => value & 0x7fff,
                // Later fragments have no ports, which the match may already contain.
                Field::IpFrag => value & 1,
                _ => value,
            };
            let mask = if field == Field::VlanTci { mask | 0x1000 } else { mask };
            let _ = out.add(field, value & mask & all, Some(mask));
        }
        out
    })
}

fn subfields(writable: bool) -> impl Strategy<Value = SubField> {
    // The port and the ARP operation have another width on the wire. Separate tests cover them.
    let fields: Vec<Field> = Field::ALL
        .into_iter()
        .filter(|field| (field.is_writable() || !writable) && !matches!(field, Field::InPort | Field::ArpOp))
        .collect();
    (proptest::sample::select(fields), any::<u16>(), any::<u16>()).prop_map(|(field, first, bits)| {
        let width = u16::try_from(field.bits()).unwrap();
        let first = first % width;
        SubField { field, first, bits: 1 + bits % (width - first).min(64) }
    })
}

fn sets(load: bool) -> impl Strategy<Value = Action> {
    subfields(true).prop_flat_map(move |part| {
        any::<u128>().prop_map(move |value| {
            let (mask, field) = (if load { part.mask() } else { part.field.all_ones() }, part.field);
            Action::Set { field, value: value & mask, mask, load }
        })
    })
}

fn hashes() -> impl Strategy<Value = HashFields> {
    proptest::sample::select(vec![HashFields::EthSrc, HashFields::SymmetricL3L4Udp, HashFields::SymmetricL3])
}

fn learns() -> impl Strategy<Value = Action> {
    let part = (subfields(true), any::<u128>(), 0..3_u8).prop_map(|(to, value, kind)| match kind {
        0 => LearnPart::Match(
            LearnSource::Constant { value: value & (u128::MAX >> (128 - u32::from(to.bits))), bits: to.bits },
            to,
        ),
        1 => LearnPart::Load(LearnSource::Field(to), to),
        _ => LearnPart::Output(to),
    });
    (proptest::collection::vec(part, 0..5), any::<[u16; 5]>(), any::<u64>(), 0..255_u8, 0..3_u32).prop_map(
        |(
            parts,
            [idle_timeout, hard_timeout, fin_idle_timeout, fin_hard_timeout, priority],
            cookie,
            table,
            limit,
        )| {
            let result = (limit == 2).then_some(SubField { field: Field::Reg3, first: 4, bits: 1 });
            Action::Learn(Box::new(Learn {
                idle_timeout,
                hard_timeout,
                fin_idle_timeout,
                fin_hard_timeout,
                priority,
                cookie,
                flags: if result.is_some() { 4 } else { 1 },
                table,
                limit,
                result,
                parts,
            }))
        },
    )
}

/// Generates translations of a `ct` action that commits the connection.
fn nats() -> impl Strategy<Value = CtNat> {
    let pair = |first: u128, last: u128| (first.min(last).max(1), first.max(last).max(1));
    let ipv4 = any::<[u32; 2]>().prop_map(move |[first, last]| {
        let (first, last) = pair(first.into(), last.into());
        let address = |value: u128| IpAddr::from(Ipv4Addr::from(u32::try_from(value).unwrap()));
        (address(first), address(last))
    });
    let ipv6 = any::<[u128; 2]>().prop_map(move |[first, last]| {
        let (first, last) = pair(first, last);
        (IpAddr::from(Ipv6Addr::from(first)), IpAddr::from(Ipv6Addr::from(last)))
    });
    let addresses = proptest::option::of(prop_oneof![ipv4, ipv6]);
    let ports = proptest::option::of(any::<[u16; 2]>());
    (addresses, ports, any::<[bool; 3]>(), 0..3_u8).prop_map(
        |(addresses, ports, [is_existing, is_source, persistent], selection)| {
            let ports = ports.filter(|_| addresses.is_some());
            let ports = ports.map(|[first, last]| (first.min(last).max(1), first.max(last).max(1)));
            let selection =
                [NatSelection::Any, NatSelection::Hash, NatSelection::Random][usize::from(selection)];
            let end = if is_source { NatEnd::Source } else { NatEnd::Destination };
            let range = NatRange { end, addresses, ports, persistent, selection };
            if is_existing { CtNat::Existing } else { CtNat::New(range) }
        },
    )
}

fn cts() -> impl Strategy<Value = Action> {
    let connection = |to: &SubField| matches!(to.field, Field::CtMark | Field::CtLabel);
    let setting =
        (subfields(true).prop_filter("exec", connection), subfields(false), any::<u128>(), any::<bool>())
            .prop_map(|(to, from, value, moves)| {
                let (field, mask, bits) = (to.field, to.field.all_ones(), from.bits.min(to.bits));
                let constant = Action::Set { field, value: value & mask, mask, load: false };
                let copy = Action::Move { from: SubField { bits, ..from }, to: SubField { bits, ..to } };
                if moves { copy } else { constant }
            });
    let exec = proptest::collection::vec(setting, 0..3);
    let zone = prop_oneof![
        any::<u16>().prop_map(ZoneSource::Number),
        (0..17_u16).prop_map(|first| ZoneSource::Field(SubField { field: Field::Reg3, first, bits: 16 })),
    ];
    let table = proptest::option::of(0..255_u8);
    (any::<[bool; 2]>(), zone, table, any::<u16>(), proptest::option::of(nats()), exec).prop_map(
        |([commit, force], zone, table, alg, nat, exec)| {
            let (exec, nat) = match (commit, nat) {
                (false, Some(CtNat::New(_))) => (Vec::new(), None),
                (false, nat) => (Vec::new(), nat),
                (true, nat) => (exec, nat),
            };
            Action::Ct(Box::new(Ct { commit, force: force && commit, zone, table, alg, nat, exec }))
        },
    )
}

/// Generates actions that can be encoded unchanged in every OpenFlow version.
fn actions() -> impl Strategy<Value = Action> {
    let ports = 1..0xff00_u32;
    let leaf = prop_oneof![
        (ports.clone(), any::<u16>()).prop_map(|(port, max_len)| Action::Output { port, max_len }),
        (subfields(false), any::<u16>()).prop_map(|(source, max_len)| Action::OutputReg { source, max_len }),
        (any::<u16>(), any::<u16>(), 0..6_u8, proptest::collection::vec(any::<u8>(), 0..20), any::<bool>())
            .prop_map(|(max_len, id, reason, userdata, pause)| Action::Controller {
                max_len,
                id,
                reason,
                userdata,
                pause,
                meter: pause.then_some(7),
            }),
        any::<u32>().prop_map(Action::SetQueue),
        Just(Action::PopQueue),
        any::<u32>().prop_map(Action::Group),
        sets(false),
        (subfields(false), subfields(true)).prop_map(|(from, to)| {
            let bits = from.bits.min(to.bits);
            Action::Move { from: SubField { bits, ..from }, to: SubField { bits, ..to } }
        }),
        subfields(false).prop_map(Action::Push),
        subfields(true).prop_map(Action::Pop),
        Just(Action::PopVlan),
        Just(Action::PushMpls(0x8847)),
        any::<u16>().prop_map(Action::PopMpls),
        any::<u8>().prop_map(Action::SetMplsTtl),
        Just(Action::DecMplsTtl),
        proptest::collection::vec(any::<u16>(), 0..5).prop_map(Action::DecTtl),
        (proptest::option::of(ports.clone()), proptest::option::of(0..255_u8))
            .prop_map(|(port, table)| Action::Resubmit { port, table }),
        learns(),
        (any::<u32>(), 0..4_u8, 4..64_u8)
            .prop_map(|(id, clause, clauses)| Action::Conjunction(Conjunction { id, clause, clauses })),
        proptest::collection::vec(any::<u8>(), 6..=6).prop_map(Action::Note),
        (hashes(), any::<u16>(), any::<u32>(), 0..4_u8).prop_map(|(fields, basis, argument, mode)| {
            let modes =
                [BundleMode::Modulo, BundleMode::Threshold, BundleMode::Weight, BundleMode::Iterative];
            let to = SubField::whole(Field::Reg1);
            Action::Multipath { fields, basis, mode: modes[usize::from(mode)], max_link: 9, argument, to }
        }),
        (hashes(), any::<u16>(), proptest::collection::vec(ports, 0..6), any::<bool>()).prop_map(
            |(fields, basis, ports, load)| Action::Bundle {
                fields,
                basis,
                mode: if load { BundleMode::ActiveBackup } else { BundleMode::Weight },
                ports,
                to: load.then_some(SubField { field: Field::Reg2, first: 3, bits: 9 }),
            }
        ),
        any::<u16>().prop_map(|len| {
            Action::CheckPktLarger { len, to: SubField { field: Field::Reg0, first: 5, bits: 1 } }
        }),
        (any::<u16>(), any::<u16>()).prop_map(|(idle, hard)| Action::FinTimeout { idle, hard }),
        Just(Action::Exit),
        cts(),
        Just(Action::CtClear),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| proptest::collection::vec(inner, 0..4).prop_map(Action::Clone))
}

/// Returns the actions in the form that the OpenFlow version uses: actions that load fields in OpenFlow 1.0, and
/// `set_field` actions in later versions.
fn suited(actions: Vec<Action>, version: Version) -> Vec<Action> {
    let load = version <= Version::V11;
    let suit = |action| match action {
        Action::Set { field, value, mask, .. } => Action::Set { field, value, mask, load },
        Action::Clone(actions) => Action::Clone(suited(actions, version)),
        Action::Ct(ct) => Action::Ct(Box::new(Ct { exec: suited(ct.exec.clone(), version), ..*ct })),
        other => other,
    };
    actions.into_iter().map(suit).collect()
}

/// Returns the match as it results from encoding and decoding in this OpenFlow version.
fn as_said_by(version: Version, matching: Match) -> Match {
    if version != Version::V11 {
        return matching;
    }
    let mut octets = Vec::new();
    matching::put_oxm(&mut octets, &matching, version);
    assert_eq!(octets.len(), 88);
    matching::get_oxm(&mut Reader::new(&octets, Error::BadLength)).unwrap().matching
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn matches_are_read_as_they_were_written(matching in matches(), version in versions()) {
        let mut octets = Vec::new();
        if version == Version::V10 {
            let length = matching::put_nxm(&mut octets, &matching, Some((5, 7)));
            let read = matching::get_nxm(&mut Reader::new(&octets, Error::BadLength), length.into()).unwrap();
            prop_assert_eq!(read.matching, matching);
            prop_assert_eq!(read.cookie, (5, 7));
        } else {
            matching::put_oxm(&mut octets, &matching, version);
            prop_assert_eq!(octets.len() % 8, 0);
            let read = matching::get_oxm(&mut Reader::new(&octets, Error::BadLength)).unwrap();
            prop_assert_eq!(read.matching, as_said_by(version, matching));
            // Fields that the version cannot express are wildcarded.
            prop_assert!(matching.is_within(&read.matching));
        }
    }

    #[test]
    fn actions_are_read_as_they_were_written(
        actions in proptest::collection::vec(actions(), 0..6),
        version in versions(),
    ) {
        let actions = suited(actions, version);
        let mut octets = Vec::new();
        action::put_actions(&mut octets, version, &actions);
        let read = action::get_actions(Reader::new(&octets, Error::ActionLength), version, &Match::ANY);
        prop_assert_eq!(read, Ok(actions));
    }

    #[test]
    fn loads_are_read_as_they_were_written(
        action in sets(true),
        version in versions().prop_filter("NXAST_REG_LOAD", |version| *version < Version::V15),
    ) {
        let mut octets = Vec::new();
        action::put_actions(&mut octets, version, std::slice::from_ref(&action));
        let read = action::get_actions(Reader::new(&octets, Error::ActionLength), version, &Match::ANY);
        prop_assert_eq!(read, Ok(vec![action]));
    }

    #[test]
    fn flow_mods_are_read_as_they_were_written(
        matching in matches(),
        actions in proptest::collection::vec(actions(), 0..6),
        write in proptest::collection::vec(actions(), 0..3),
        numbers in any::<[u16; 4]>(),
        version in versions().prop_filter("OFPT_FLOW_MOD", |version| *version > Version::V10),
        table in 0..255_u8,
        goto in proptest::option::of(any::<u8>()),
        metadata in proptest::option::of((any::<u64>(), any::<u64>())),
        meter in proptest::option::of(any::<u32>()),
        clear in any::<bool>(),
    ) {
        let [priority, idle_timeout, hard_timeout, importance] = numbers;
        let change = FlowMod {
            command: FlowCommand::Add,
            cookie: Some(u64::from(priority) << 20),
            idle_timeout,
            hard_timeout,
            importance: if version < Version::V14 { 0 } else { importance },
            flags: FlowFlags { send_removed: clear, reset_counts: !clear || version == Version::V11, ..FlowFlags::default() },
            instructions: Instructions {
                meter: meter.filter(|_| matches!(version, Version::V13 | Version::V14)),
                apply: suited(actions, version),
                clear,
                write: suited(write, version),
                metadata: metadata.map(|(value, mask)| (value & mask, mask)),
                goto,
            },
            ..FlowMod::add(table, priority, as_said_by(version, matching), Instructions::default())
        };
        let mut octets = Vec::new();
        flow::put_mod(&mut octets, version, 9, &change).unwrap();
        let read = flow::get_mod(Reader::new(&octets[8..], Error::BadLength), version, false);
        prop_assert_eq!(read, Ok(change));
    }

    #[test]
    fn no_octets_panic(mut octets in proptest::collection::vec(any::<u8>(), 8..300), version in versions()) {
        octets[0] = version.number();
        openflow::fuzz::message(&octets);
    }

    #[test]
    fn no_broken_message_panics(
        matching in matches(),
        actions in proptest::collection::vec(actions(), 0..6),
        version in versions(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let change = FlowMod::add(1, 2, matching, Instructions::apply(actions));
        let mut octets = Vec::new();
        flow::put_mod(&mut octets, version, 9, &change).unwrap();
        if version == Version::V10 {
            // The data after the experimenter header is decoded as a body.
            octets.drain(8..16);
        }
        openflow::fuzz::message(&octets);
        for (at, value) in changes {
            let at = at.index(octets.len());
            octets[at] = value;
        }
        octets.truncate(cut.index(octets.len() * 2));
        openflow::fuzz::message(&octets);
    }
}

#[test]
fn every_error_has_a_number_in_every_version_and_names_its_request() {
    for error in Error::ALL {
        for version in Version::ALL {
            let mut octets = Vec::new();
            error.write(&mut octets, version, 7, &[9; 1000]);
            let head = match error.code(version) {
                Code::Standard(..) => 12,
                Code::Vendor(..) => 20,
                Code::Experimenter(..) => 16,
            };
            assert_eq!(octets.len(), head + 1000, "{error} {version}");
            assert_eq!(usize::from(u16::from_be_bytes([octets[2], octets[3]])), octets.len());
            // A request of the maximum length is truncated, because the error has a maximum length as well.
            octets.clear();
            error.write(&mut octets, version, 7, &[9; 0xffff]);
            assert_eq!(octets.len(), 0xffff);
            assert_eq!(octets[2..4], [0xff, 0xff]);
        }
        assert!(error.to_string().starts_with("OFP") || error.to_string().starts_with("NX"));
    }
    assert_eq!(Error::IsSlave.code(Version::V10), Code::Standard(1, 5));
    assert_eq!(Error::TableFull.code(Version::V10), Code::Standard(3, 0));
    assert_eq!(Error::TableFull.code(Version::V13), Code::Standard(5, 1));
    assert_eq!(Error::BundleFailed.code(Version::V13), Code::Experimenter(0x4f4e_4600, 2313));
    assert_eq!(Error::MatchPrerequisite.code(Version::V10), Code::Vendor(1, 260));
}

#[test]
fn clones_within_clones_have_an_end() {
    let nested = |depth: usize| {
        let action = (0..depth).fold(Action::Exit, |inner, _| Action::Clone(vec![inner]));
        let mut octets = Vec::new();
        action::put_actions(&mut octets, Version::V13, &[action]);
        action::get_actions(Reader::new(&octets, Error::ActionLength), Version::V13, &Match::ANY)
    };
    assert!(nested(60).is_ok());
    assert_eq!(nested(3000), Err(Error::ActionTooMany));
}

/// Returns an OpenFlow 1.0 match for IPv4 packets with the wildcard bits `wild`. The VLAN, the protocol and the
/// transport ports are parameters, and the other fields have fixed values.
fn match_10(wild: u32, vlan: u16, proto: u8, ports: (u16, u16)) -> Vec<u8> {
    let mut octets = wild.to_be_bytes().to_vec();
    octets.extend([0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    octets.extend(vlan.to_be_bytes());
    octets.extend([0, 0, 8, 0, 0, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    octets.extend(ports.0.to_be_bytes());
    octets.extend(ports.1.to_be_bytes());
    octets
}

#[test]
fn a_match_of_openflow_1_0_comes_back_as_it_was_sent() {
    let back = |octets: &[u8]| {
        let read = matching::get_10(&mut Reader::new(octets, Error::BadLength)).unwrap();
        let mut out = Vec::new();
        matching::put_10(&mut out, &read);
        (read, out)
    };
    // A missing tag with an exact priority, and an ICMP type and code that no packet can have and that differ
    // from their lower octets.
    for octets in
        [match_10(0, 0xffff, 17, (53, 9)), match_10(0, 5, 1, (55_503, 300)), match_10(0, 5, 1, (8, 0))]
    {
        assert_eq!(back(&octets).1, octets);
    }
    let plain = back(&match_10(0, 5, 1, (207, 44))).0;
    let wide = back(&match_10(0, 5, 1, (55_503, 300))).0;
    assert!(plain.matches(&plain.value) && !wide.matches(&plain.value), "no packet meets a type over 255");
    let by_nxm = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 1).with(Field::Icmpv4Type, 207);
    assert!(plain.is_within(&by_nxm), "others mean the same bits by it");
}

/// Returns the body of an OpenFlow 1.0 flow-mod that adds a flow entry of priority 7.
fn add_10(matching: &[u8], actions: &[u8]) -> Vec<u8> {
    let mut body = matching.to_vec();
    body.extend([0; 8]);
    body.extend([0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    body.extend(actions);
    body
}

#[test]
fn rules_of_openflow_1_0_without_wildcards_outrank_all_others() {
    let read =
        |octets: &[u8]| flow::get_mod(Reader::new(octets, Error::BadLength), Version::V10, false).unwrap();
    assert_eq!(read(&add_10(&match_10(0, 5, 17, (53, 9)), &[])).priority, 0xffff);
    assert_eq!(read(&add_10(&match_10(1 << 21, 5, 17, (53, 9)), &[])).priority, 7);
    assert_eq!(read(&add_10(&match_10(1 << 8, 5, 17, (53, 9)), &[])).priority, 7);
}

#[test]
fn transport_ports_of_openflow_1_0_are_those_of_each_packets_protocol() {
    let actions = [0, 9, 0, 8, 0x10, 0xe1, 0, 0, 0, 10, 0, 8, 0, 80, 0, 0];
    let all = 0x003f_ffff;
    for (wild, proto, count) in [(all, 0, 6), (0, 17, 2), (0, 132, 2), (0, 6, 2)] {
        let body = add_10(&match_10(wild, 5, proto, (1, 2)), &actions);
        let rule = flow::get_mod(Reader::new(&body, Error::BadLength), Version::V10, false).unwrap();
        assert_eq!(rule.instructions.apply.len(), count, "{proto}");
        let mut out = Vec::new();
        action::put_plain(&mut out, Version::V10, &rule.instructions);
        assert_eq!(out, actions, "{proto}: it is shown as it was given");
    }
    let body = add_10(&match_10(all, 0, 0, (0, 0)), &actions);
    let rule = flow::get_mod(Reader::new(&body, Error::BadLength), Version::V10, false).unwrap();
    let set = |field| Action::Set { field, value: 4321, mask: 0xffff, load: false };
    assert_eq!(rule.instructions.apply[..3], [set(Field::TcpSrc), set(Field::UdpSrc), set(Field::SctpSrc)]);
}

/// Checks that a select group that names a field twice is refused. A message has space for thousands of fields, and the
/// bridge would hash each of these fields for each packet.
#[test]
fn a_select_group_hashes_each_field_once() {
    use openflow::wire::group;
    use switch::flow::{Group, GroupKind, GroupMod, SelectMethod};
    let message = |fields: Vec<(Field, u128)>| {
        let method = SelectMethod::Hash { fields, parameter: 0 };
        let mut out = Vec::new();
        group::put_mod(
            &mut out,
            Version::V15,
            &Group { id: 1, kind: GroupKind::Select, method, buckets: Vec::new() },
        );
        out
    };
    let read = |message: &[u8]| group::get_mod(Reader::new(message, Error::BadLength), Version::V15);
    let fields = vec![(Field::Ipv4Src, 0xffff_ffff), (Field::TcpDst, 0xffff)];
    assert!(matches!(read(&message(fields)), Ok(GroupMod::Add(_))));
    let twice = vec![(Field::IpProto, 0xff); 2];
    assert_eq!(read(&message(twice)), Err(Error::MatchTwice));
}
