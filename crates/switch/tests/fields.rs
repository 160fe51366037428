//! Tests every field with packets: a rule matches the field, an action sets it, and the test reads it from the
//! transmitted frame.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use packet::{FlowKey, MacAddr, PortId, checksum};
use switch::flow::{
    Action, Ct, ExtendedKey, Field, Flow, FlowError, FlowMod, FlowPort, Instructions, Learn, LearnPart,
    LearnSource, Match, Mod, Op, OptionsMod, Pipeline, PortDesc, Prerequisite, STAGES, SubField,
    TUN_METADATA, TranslationInput, TunnelOption, ZoneSource, rewrite,
};

fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new();
    for number in 1..=4_u16 {
        let desc = PortDesc {
            number: number.into(),
            name: format!("p{number}"),
            mac: MacAddr([2; 6]),
            config: 0,
            state: 4,
            speed: 0,
        };
        let port =
            FlowPort { id: PortId(number), desc, floods: true, forwards: true, receives: true, live: true };
        pipeline.set_port(number.into(), Some(port));
    }
    let option = |place| TunnelOption { class: place, kind: 0, octets: 8, place };
    let options = (0..TUN_METADATA).map(option).collect();
    pipeline.change_tunnel_options(&OptionsMod::Add(options)).unwrap();
    pipeline
}

fn add(pipeline: &mut Pipeline, table: u8, priority: u16, matching: Match, instructions: Instructions) {
    let change = FlowMod::add(table, priority, matching, instructions);
    pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
}

fn out(port: u32) -> Action {
    Action::Output { port, max_len: 0 }
}

fn read(frame: &[u8]) -> Flow {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(1), &mut key).unwrap();
    Flow::new(&key, &ExtendedKey::extract(frame, &key, &layers), 1)
}

/// Executes the datapath actions for `frame`. Returns the transmitted frames, each with its output port.
fn run(pipeline: &Pipeline, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let translated =
        pipeline.translate(TranslationInput { flow: &read(frame), frame: Some(frame), trace: false });
    let (mut frame, mut left) = (frame.to_vec(), Vec::new());
    for op in &translated.program.ops {
        match op {
            Op::Output(port) => left.push((port.0, frame.clone())),
            op => rewrite(&mut frame, op).unwrap(),
        }
    }
    left
}

fn ethernet(eth_type: u16, behind: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(eth_type.to_be_bytes());
    frame.extend(behind);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ipv4(protocol: u8, message: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + message.len()).unwrap().to_be_bytes();
    let mut head =
        vec![0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = checksum::finish(checksum::sum(&head));
    checksum::store(&mut head, 10, sum);
    ethernet(0x0800, &[head, message.to_vec()].concat())
}

fn ipv6(next: u8, message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    let mut head = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
    head.extend(
        [
            [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        ]
        .concat(),
    );
    ethernet(0x86dd, &[head, message.to_vec()].concat())
}

fn discovery(kind: u8, option: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    message.extend([option, 1, 2, 0, 0, 0, 0, 9]);
    ipv6(58, &message)
}

/// Returns a frame that fulfils a field's prerequisite.
fn frame_for(field: Field) -> Vec<u8> {
    let tcp = [3, 232, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 1, 0, 0, 0, 0, 0];
    match field.prerequisite() {
        Prerequisite::Vlan => ethernet(0x8100, &[0x20, 9, 0x12, 0x34]),
        Prerequisite::Arp => ethernet(
            0x0806,
            &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2],
        ),
        Prerequisite::Mpls => ethernet(0x8847, &[0, 1, 0x21, 64]),
        Prerequisite::Pbb => ethernet(0x88e7, &[0, 0, 0, 7]),
        // An IPv6 packet with hop-by-hop options.
        Prerequisite::Ipv6 => ipv6(0, &[[17, 0, 1, 4, 0, 0, 0, 0], [0, 53, 0, 53, 0, 8, 1, 1]].concat()),
        Prerequisite::Udp => ipv4(17, &[0, 53, 3, 232, 0, 12, 1, 1, 0, 0, 0, 0]),
        Prerequisite::Sctp => ipv4(132, &[0, 9, 0, 10, 0, 0, 0, 1, 0, 0, 0, 0]),
        Prerequisite::Icmpv4 => ipv4(1, &[8, 0, 0, 0, 0, 1, 0, 1]),
        Prerequisite::Icmpv6 => ipv6(58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        Prerequisite::Nd | Prerequisite::NdSolicit => discovery(135, 1),
        Prerequisite::NdAdvert => discovery(136, 2),
        _ => ipv4(6, &tcp),
    }
}

/// Returns a match on the fields that decide whether a field's prerequisite is fulfilled, with the values of the frame.
fn needs_of(field: Field, flow: &Flow) -> Match {
    let fields: &[Field] = match field.prerequisite() {
        Prerequisite::None => &[],
        Prerequisite::Connection => &[Field::CtState],
        Prerequisite::Vlan => &[Field::VlanTci],
        Prerequisite::Ip
        | Prerequisite::Ipv4
        | Prerequisite::Ipv6
        | Prerequisite::Arp
        | Prerequisite::Mpls
        | Prerequisite::Pbb => &[Field::EthType],
        Prerequisite::Nd | Prerequisite::NdSolicit | Prerequisite::NdAdvert => {
            &[Field::EthType, Field::IpProto, Field::Icmpv6Type]
        }
        _ => &[Field::EthType, Field::IpProto],
    };
    fields.iter().fold(Match::ANY, |matching, need| matching.with(*need, flow.get(*need)))
}

#[test]
fn every_field_is_matched_in_whole_and_where_it_may_be_in_part() {
    // A frame has no connection before `ct`.
    let is_of_frame =
        |field: &Field| field.place().0 >= STAGES[0] * 64 && field.prerequisite() != Prerequisite::Connection;
    for field in Field::ALL.into_iter().filter(is_of_frame) {
        let frame = frame_for(field);
        let flow = read(&frame);
        let value = flow.get(field);
        let bit = 1 << field.defined_bits().ilog2();
        let mut cases = vec![(value, None, true), (value ^ 1, None, false)];
        if field.is_maskable() {
            cases.extend([(value & bit, Some(bit), true), (!value & bit, Some(bit), false)]);
        }
        for (wanted, mask, is_met) in cases {
            let mut pipeline = pipeline();
            let mut matching = needs_of(field, &flow);
            if matching.mask.get(field) != 0 {
                continue;
            }
            matching.add(field, wanted, mask).unwrap();
            add(&mut pipeline, 0, 1, matching, Instructions::apply(vec![out(2)]));
            let left = run(&pipeline, &frame);
            assert_eq!(left.len(), usize::from(is_met), "{field:?} {wanted:#x}/{mask:x?} of {value:#x}");
        }
    }
}

#[test]
fn every_field_that_can_be_set_is_met_as_it_was_set_and_leaves_so() {
    let is_settable =
        |field: &Field| field.is_writable() && !field.belongs_to_connection() && *field != Field::InPort;
    for field in Field::ALL.into_iter().filter(is_settable) {
        let frame = frame_for(field);
        let flow = read(&frame);
        let wanted = match field {
            Field::VlanVid => 0x1155,
            Field::VlanTci => 0x7155,
            // A neighbour solicitation changed to another type would lack these fields.
            _ => (flow.get(field) ^ 0x5555_5555_5555_5555_5555_5555_5555_5555) & field.all_ones(),
        };
        let mut pipeline = pipeline();
        let needs = needs_of(field, &flow);
        let set = Action::Set { field, value: wanted, mask: field.all_ones(), load: false };
        let again = Action::Resubmit { port: None, table: Some(1) };
        add(&mut pipeline, 0, 1, needs, Instructions::apply(vec![set, again, out(2)]));
        let mut met = if field == Field::Icmpv6Type || field == Field::VlanTci { Match::ANY } else { needs };
        met.put(field, wanted, field.all_ones());
        add(&mut pipeline, 1, 2, met, Instructions::apply(vec![out(3)]));
        add(&mut pipeline, 1, 1, Match::ANY, Instructions::apply(vec![out(4)]));
        let left = run(&pipeline, &frame);
        assert_eq!(left.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [3, 2], "{field:?}");
        if field.place().0 >= STAGES[0] * 64 {
            assert_eq!(read(&left[1].1).get(field), wanted, "{field:?} in {:02x?}", left[1].1);
        }
    }
}

/// The mark and the label of a connection are set inside of `ct` only, and `ct` has valid arguments only.
#[test]
fn fields_of_connections_are_set_inside_of_ct_only() {
    let mut pipeline = pipeline();
    let mut try_to = |action: &Action| {
        let change = FlowMod::add(0, 1, Match::ANY, Instructions::apply(vec![action.clone()]));
        pipeline.modify(&[Mod::Flow(Box::new(change))], 0).map_err(|(_, error)| error)
    };
    let set = |field: Field| Action::Set { field, value: 1, mask: field.all_ones(), load: false };
    let (mark, label) =
        (SubField::whole(Field::CtMark), SubField { field: Field::CtLabel, first: 0, bits: 32 });
    let copy = Action::Move { from: SubField::whole(Field::Reg0), to: label };
    for outside in [
        set(Field::CtMark),
        set(Field::CtLabel),
        copy.clone(),
        Action::Pop(mark),
        Action::Clone(vec![set(Field::CtMark)]),
    ] {
        assert_eq!(try_to(&outside), Err(FlowError::BadSetArgument), "{outside:?}");
    }
    assert_eq!(try_to(&set(Field::CtState)), Err(FlowError::BadSetType));
    let constant = LearnSource::Constant { value: 1, bits: 32 };
    let learn = Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 1,
        cookie: 0,
        flags: 0,
        table: 1,
        limit: 0,
        result: None,
        parts: vec![LearnPart::Load(constant, mark)],
    };
    assert_eq!(try_to(&Action::Learn(Box::new(learn))), Err(FlowError::BadArgument));
    let plain = Ct {
        commit: true,
        force: false,
        zone: ZoneSource::Number(5),
        table: Some(1),
        alg: 21,
        nat: None,
        exec: vec![set(Field::CtMark), copy],
    };
    let ct = |ct: Ct| Action::Ct(Box::new(ct));
    assert_eq!(try_to(&ct(plain.clone())), Ok(()));
    assert_eq!(try_to(&Action::CtClear), Ok(()));
    let wide = ZoneSource::Field(SubField::whole(Field::Reg0));
    let foreign = Action::Move { from: SubField { field: Field::Reg0, first: 20, bits: 32 }, to: label };
    for bad in [
        Ct { commit: false, ..plain.clone() },
        Ct { zone: wide, ..plain.clone() },
        Ct { alg: 5, ..plain.clone() },
        Ct { table: Some(255), ..plain.clone() },
        Ct { exec: vec![set(Field::Reg0)], ..plain.clone() },
        Ct { exec: vec![foreign], ..plain.clone() },
        Ct { exec: vec![ct(plain.clone())], ..plain.clone() },
        Ct { force: true, commit: false, exec: Vec::new(), ..plain },
    ] {
        assert_eq!(try_to(&ct(bad.clone())), Err(FlowError::BadArgument), "{bad:?}");
    }
}

#[test]
fn where_the_action_set_sends_is_matched() {
    let mut pipeline = pipeline();
    let write = Instructions { write: vec![out(2)], goto: Some(1), ..Instructions::default() };
    add(&mut pipeline, 0, 1, Match::ANY, write);
    add(&mut pipeline, 1, 2, Match::ANY.with(Field::ActsetOutput, 2), Instructions::apply(vec![out(3)]));
    let left = run(&pipeline, &frame_for(Field::TcpSrc));
    assert_eq!(left.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [3, 2]);
}
