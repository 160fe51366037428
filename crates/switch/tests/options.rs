//! Tests of tunnel metadata: options are mapped to fields, rules set and match the fields, and fields in use cannot be
//! unmapped.
#![allow(clippy::unwrap_used, reason = "a test")]

mod rules;

use packet::PortId;
use rules::{add, from, out, pipeline, run, set, tcp};
use switch::flow::{
    Action, Bucket, Field, FlowError, FlowFilter, FlowMod, Group, GroupKind, GroupMod, Instructions, Learn,
    LearnPart, LearnSource, Match, MatchError, Mod, OptionsError, OptionsMod, Pipeline, SelectMethod,
    SubField, TunnelOption,
};

fn option(class: u16, octets: u8, place: u16) -> TunnelOption {
    TunnelOption { class, kind: 0x80, octets, place }
}

/// Returns a pipeline in which an option of four octets is mapped to `tun_metadata0`, and an option of eight octets to
/// `tun_metadata5`.
fn mapped() -> Pipeline {
    let mut pipeline = pipeline();
    let options = vec![option(0x0102, 4, 0), option(0x0103, 8, 5)];
    pipeline.change_tunnel_options(&OptionsMod::Add(options)).unwrap();
    pipeline
}

fn refused(pipeline: &mut Pipeline, matching: Match, actions: Vec<Action>) -> FlowError {
    let change = FlowMod::add(0, 1, matching, Instructions::apply(actions));
    pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap_err().1
}

fn part(field: Field, first: u16, bits: u16) -> SubField {
    SubField { field, first, bits }
}

fn ports(left: &[(PortId, Vec<u8>)]) -> Vec<u16> {
    left.iter().map(|(port, _)| port.0).collect()
}

#[test]
fn what_is_set_is_matched_whole_and_in_part_and_packets_are_the_same_flow() {
    let mut pipeline = mapped();
    let again = |table| Action::Resubmit { port: None, table: Some(table) };
    let id = set(Field::TunMetadata0, 0x0001_002a);
    add(&mut pipeline, 0, 1, from(1), vec![id, set(Field::TunMetadata5, u64::MAX.into()), again(1)]);
    // No packet arrives by a tunnel, so that the fields are zero until they are set.
    add(&mut pipeline, 0, 1, from(2), vec![again(1)]);
    let mut low = Match::ANY;
    low.put(Field::TunMetadata0, 0x2a, 0xffff);
    add(&mut pipeline, 1, 9, low.with(Field::TunMetadata5, u64::MAX.into()), vec![out(3)]);
    add(&mut pipeline, 1, 8, Match::ANY.with(Field::TunMetadata0, 0x2a), vec![out(1)]);
    add(&mut pipeline, 1, 7, Match::ANY.with(Field::TunMetadata0, 0), vec![out(4)]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 64);
    assert_eq!(ports(&run(&pipeline, &frame, 1)), [3]);
    assert_eq!(ports(&run(&pipeline, &frame, 2)), [4]);
    // The result depends on no bit of the packet, so that one megaflow covers all packets of the port.
    let flow = rules::read(&frame, 1);
    let translated = pipeline.translate(rules::asked(&flow, Some(&frame)));
    assert!(
        (Field::TunMetadata0.octet() / 8..Field::TunMetadata7.octet() / 8)
            .all(|word| translated.mask.0[word] == 0)
    );
    // Copies from one field to another, and to a register.
    let there = part(Field::TunMetadata5, 32, 32);
    let copy = Action::Move { from: part(Field::TunMetadata0, 0, 32), to: there };
    add(&mut pipeline, 0, 2, from(1), vec![set(Field::TunMetadata0, 7), copy, again(2)]);
    add(&mut pipeline, 2, 1, Match::ANY.with(Field::TunMetadata5, 7 << 32), vec![out(2)]);
    assert_eq!(ports(&run(&pipeline, &frame, 1)), [2]);
}

#[test]
fn what_has_no_option_is_refused_and_so_is_what_an_option_has_no_room_for() {
    let mut pipeline = mapped();
    let other = Match::ANY.with(Field::TunMetadata1, 1);
    assert_eq!(refused(&mut pipeline, other, vec![out(2)]), FlowError::UnmappedOption);
    assert_eq!(
        refused(&mut pipeline, Match::ANY, vec![set(Field::TunMetadata1, 1)]),
        FlowError::UnmappedOption
    );
    let wide = Match::ANY.with(Field::TunMetadata0, 1 << 32);
    let value = FlowError::Match(MatchError::Value(Field::TunMetadata0));
    assert_eq!(refused(&mut pipeline, wide, vec![out(2)]), value);
    assert_eq!(
        refused(&mut pipeline, Match::ANY, vec![set(Field::TunMetadata0, 1 << 32)]),
        FlowError::BadSetArgument
    );
    let push = |first, bits| Action::Push(part(Field::TunMetadata0, first, bits));
    assert_eq!(refused(&mut pipeline, Match::ANY, vec![push(16, 17)]), FlowError::BadArgument);
    assert_eq!(
        refused(&mut pipeline, Match::ANY, vec![Action::Pop(part(Field::TunMetadata7, 0, 8))]),
        FlowError::UnmappedOption
    );
    add(&mut pipeline, 0, 1, Match::ANY, vec![push(16, 16)]);
}

#[test]
fn a_match_of_all_of_an_option_is_the_same_however_it_is_said() {
    let mut pipeline = mapped();
    let whole = Match::ANY.with(Field::TunMetadata0, 5);
    let mut masked = Match::ANY;
    masked.put(Field::TunMetadata0, 5, 0xffff_ffff);
    add(&mut pipeline, 0, 1, whole, vec![out(2)]);
    add(&mut pipeline, 0, 1, masked, vec![out(3)]);
    let flows = pipeline.flows(&FlowFilter::default(), 0);
    assert_eq!(flows.iter().map(|flow| flow.matching).collect::<Vec<_>>(), [whole]);
    let delete = FlowMod::delete(0, masked);
    pipeline.modify(&[Mod::Flow(Box::new(delete))], 0).unwrap();
    assert_eq!(pipeline.flows(&FlowFilter::default(), 0), []);
}

#[test]
fn fields_that_rules_or_groups_speak_of_keep_their_options() {
    let delete = |place| OptionsMod::Delete(vec![option(0, 0, place)]);
    let load = LearnPart::Load(LearnSource::Constant { value: 1, bits: 8 }, part(Field::TunMetadata5, 0, 8));
    let learn = Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 1,
        cookie: 0,
        flags: 0,
        table: 4,
        limit: 0,
        result: None,
        parts: vec![load],
    };
    let users: [(Match, Action); 5] = [
        (Match::ANY.with(Field::TunMetadata5, 1), out(2)),
        (Match::ANY, set(Field::TunMetadata5, 1)),
        (Match::ANY, Action::Clone(vec![Action::Pop(part(Field::TunMetadata5, 8, 8))])),
        (Match::ANY, Action::Move { from: part(Field::TunMetadata5, 0, 8), to: part(Field::Reg0, 0, 8) }),
        (Match::ANY, Action::Learn(Box::new(learn))),
    ];
    for (matching, action) in users {
        let mut pipeline = mapped();
        add(&mut pipeline, 3, 1, matching, vec![action]);
        assert_eq!(pipeline.change_tunnel_options(&delete(5)), Err(OptionsError::Used));
        assert_eq!(pipeline.change_tunnel_options(&OptionsMod::Clear), Err(OptionsError::Used));
        assert_eq!(pipeline.tunnel_options().iter().count(), 2, "nothing is half done");
        pipeline.change_tunnel_options(&delete(0)).unwrap();
        pipeline.modify(&[Mod::Flow(Box::new(FlowMod::delete(3, Match::ANY)))], 0).unwrap();
        pipeline.change_tunnel_options(&delete(5)).unwrap();
        assert_eq!(pipeline.tunnel_options().iter().count(), 0);
    }
}

/// The pipeline counts the uses of each field. The count must be decremented in every case in which a use ends: changed
/// rules, refused batches, and removed groups.
#[test]
fn a_field_is_free_again_after_modified_and_refused_rules_and_after_groups() {
    let delete = || OptionsMod::Delete(vec![option(0, 0, 5)]);
    let mut pipeline = mapped();
    let uses = || vec![set(Field::TunMetadata5, 1)];
    add(&mut pipeline, 3, 1, Match::ANY, uses());
    // The same rule without the field.
    add(&mut pipeline, 3, 1, Match::ANY, vec![out(1)]);
    // A batch that is reverted: the second change is refused.
    let good = FlowMod::add(3, 1, Match::ANY, Instructions::apply(uses()));
    let bad = FlowMod::add(3, 2, Match::ANY, Instructions::apply(vec![Action::Group(77)]));
    let batch = [good, bad].map(|change| Mod::Flow(Box::new(change)));
    pipeline.modify(&batch, 0).unwrap_err();
    let group = |actions| {
        let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
        let (kind, method) = (GroupKind::All, SelectMethod::default());
        Mod::Group(GroupMod::Add(Group { id: 1, kind, method, buckets: vec![bucket] }))
    };
    pipeline.modify(&[group(uses())], 0).unwrap();
    assert_eq!(pipeline.change_tunnel_options(&delete()), Err(OptionsError::Used));
    pipeline.modify(&[Mod::Group(GroupMod::Delete(1))], 0).unwrap();
    pipeline.change_tunnel_options(&delete()).unwrap();
}

#[test]
fn options_are_mapped_once_and_all_or_none() {
    let mut pipeline = mapped();
    let before = pipeline.tunnel_options().clone();
    for (octets, place, class, why) in [
        (3, 1, 1, OptionsError::Length),
        (0, 1, 1, OptionsError::Length),
        (128, 1, 1, OptionsError::Length),
        (12, 1, 1, OptionsError::Full),
        (4, 8, 1, OptionsError::Place),
        (4, 5, 1, OptionsError::Mapped),
        (4, 1, 0x0102, OptionsError::Twice),
    ] {
        let add = OptionsMod::Add(vec![option(7, 4, 2), option(class, octets, place)]);
        assert_eq!(pipeline.change_tunnel_options(&add), Err(why));
        assert_eq!(*pipeline.tunnel_options(), before);
    }
    assert_eq!(
        pipeline.change_tunnel_options(&OptionsMod::Delete(vec![option(0, 4, 9)])),
        Err(OptionsError::Place)
    );
    // A field without an option is free already.
    pipeline.change_tunnel_options(&OptionsMod::Delete(vec![option(0, 4, 7)])).unwrap();
    assert_eq!(*pipeline.tunnel_options(), before);
}
