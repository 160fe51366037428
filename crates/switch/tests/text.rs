//! Tests of the text form of rules, and of the reasons for the bits of a megaflow's mask.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use packet::{FlowKey, PortId};
use proptest::prelude::*;
use switch::flow::{
    Action, ExtendedKey, Field, Flow, FlowMod, Instructions, Match, MatchError, Mod, Pipeline, TraceLine,
    TranslationInput, all_bits, text,
};

fn number(name: &str) -> Option<u32> {
    (name == "eth1").then_some(1)
}

fn flow(words: &str) -> Flow {
    text::parse(words, number).unwrap()
}

fn rule(table: u8, priority: u16, matching: Match, actions: Vec<switch::flow::Action>) -> Mod {
    Mod::Flow(Box::new(FlowMod::add(table, priority, matching, Instructions::apply(actions))))
}

fn tcp_to(address: u32) -> Match {
    Match::ANY.with(Field::EthType, 0x0800).with(Field::Ipv4Dst, address.into())
}

#[test]
fn flows_are_read_as_they_are_printed() {
    for words in [
        "tcp,in_port=1,vlan_tci=0x0000,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=8,nw_ecn=1,nw_ttl=64,nw_frag=no,tp_src=1,tp_dst=80,tcp_flags=syn|ack",
        "icmp6,reg3=0x7,in_port=1,dl_vlan=5,dl_vlan_pcp=0,vlan_tci1=0x0000,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,ipv6_src=2001:db8::1,ipv6_dst=fe80::2,ipv6_label=0x00000,nw_tos=0,nw_ecn=0,nw_ttl=255,nw_frag=no,icmp_type=135,icmp_code=0,nd_target=2001:db8::9,nd_sll=02:00:00:00:00:01",
        "arp,in_port=LOCAL,vlan_tci=0x0000,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_op=1,arp_sha=02:00:00:00:00:01,arp_tha=00:00:00:00:00:00",
    ] {
        assert_eq!(text::whole(&flow(words)).replace(",nd_tll=00:00:00:00:00:00", ""), words);
    }
    for (words, printed) in [
        (
            "tcp,ct_state=+trk+est-rel,ct_zone=5,ct_mark=0x7,ct_label=0x1,ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,\
             ct_nw_proto=17,ct_tp_src=53,ct_tp_dst=80",
            "ct_state=est|trk,ct_zone=5,ct_mark=0x7,ct_label=0x1,ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,\
             ct_tp_src=53,ct_tp_dst=80,tcp,",
        ),
        ("udp6,ct_state=0x21/0x21,ct_ipv6_src=::1", "ct_state=new|trk,ct_ipv6_src=::1,udp6,"),
        ("ct_state=trk|new", "ct_state=new|trk,in_port=0,"),
    ] {
        let whole = text::whole(&flow(words));
        assert!(whole.starts_with(printed), "{words}: {whole}");
    }
    let mut tracked = Match::ANY;
    tracked.add(Field::CtState, 0x22, Some(0x26)).unwrap();
    tracked.add(Field::CtMark, 5, Some(7)).unwrap();
    assert_eq!(text::matching(&tracked, None), "ct_state=+est-rel+trk,ct_mark=0x5/0x7");
    // Bits without a meaning cannot be matched, and are left out of a mask, as in Open vSwitch.
    assert_eq!(tracked.add(Field::CtState, 0x100, Some(0x100)), Err(MatchError::Value(Field::CtState)));
    let all = Match::ANY.with(Field::CtState, 0x21);
    assert_eq!(all.mask.get(Field::CtState), 0xff);
    assert_eq!(text::matching(&all, None), "ct_state=new|trk");
    let asked =
        flow("tcp,ct_state=+trk+est,ct_zone=10,ct_mark=5,ct_nw_src=10.0.0.1,ct_nw_proto=6,ct_tp_dst=80");
    let mut mask = Flow::ZERO;
    mask.set(Field::CtState, 0x26);
    mask.set(Field::CtMark, 0xff);
    for field in [Field::CtZone, Field::CtNwSrc, Field::CtNwProto, Field::CtTpDst, Field::EthType] {
        mask.want(field);
    }
    assert_eq!(
        text::cached(None, "p1", &asked, &mask),
        "recirc_id(0),in_port(p1),ct_state(+est-rel+trk),ct_zone(10),ct_mark(0x5/0xff),\
         ct_tuple4(src=10.0.0.1,proto=6,tp_dst=80),eth_type(0x0800)"
    );
    // An inner tag, as printed for a frame that may have one.
    for words in ["dl_vlan_pcp=01", "dl_vlan=7,vlan_tci1=0x1005", "vlan_tci1=0xffff,dl_type=0x0806"] {
        let printed = text::whole(&flow(words));
        assert_eq!(text::whole(&flow(&printed)), printed, "{words}");
    }
    assert!(text::parse("vlan_tci1=0x10000", number).is_err());
    assert_eq!(flow("in_port=eth1,tcp,tcp_flags=+syn-ack").get(Field::TcpFlags), 2);
    assert_eq!(flow("tcp tp_dst=0x50").get(Field::TcpDst), 80);
    for (words, part) in [
        ("in_port=eth9", "eth9"),
        ("tp_dst=80", "prerequisites"),
        ("tcp,nw_dst=10.0.0", "nw_dst"),
        ("bogus", "bogus"),
        ("tcp,tp_dst=70000", "70000"),
        ("in_port=", "missing"),
        ("dl_vlan_pcp=9", "9"),
        ("ct_state=0x100", "ct_state"),
        ("ct_state=+bogus", "ct_state"),
        ("ct_nw_src=1.2.3.4", "prerequisites"),
    ] {
        let error = text::parse(words, number).unwrap_err().to_string();
        assert!(error.contains(part), "{words}: {error}");
    }
}

/// Example of the Open vSwitch paper (section 5.4): with rules for 10.0.0.0/8 and 10.1.2.3/32, the megaflow for a
/// packet to 10.5.6.7 matches a /16 prefix.
#[test]
fn each_bit_of_a_megaflow_has_its_reason() {
    let mut pipeline = Pipeline::new();
    let mut wide = Match::ANY.with(Field::EthType, 0x0800);
    wide.put(Field::Ipv4Dst, 0x0a00_0000, 0xff00_0000);
    let resubmit = switch::flow::Action::Resubmit { port: None, table: Some(1) };
    let set = switch::flow::Action::DecTtl(vec![0]);
    let mods = [
        rule(0, 10, wide, vec![resubmit]),
        rule(0, 20, tcp_to(0x0a01_0203), vec![]),
        rule(1, 5, Match::ANY, vec![set]),
    ];
    pipeline.modify(&mods, 0).unwrap();
    let asked = flow("in_port=1,udp,nw_dst=10.5.6.7,nw_ttl=9,tp_dst=53");
    let translated = pipeline.translate(TranslationInput { flow: &asked, frame: None, trace: true });
    let trace_report = pipeline.trace_report(&asked, &translated);
    let words: Vec<(String, u32)> = trace_report
        .lines
        .iter()
        .map(|line| match line {
            TraceLine::Rule { depth, table, priority, matching, actions, .. } => {
                (format!("{table}/{priority} {matching} {actions}"), *depth)
            }
            TraceLine::Did { depth, action } => (action.clone(), *depth),
            other => panic!("{other:?}"),
        })
        .collect();
    let wanted = [
        ("0/10 ip,nw_dst=10.0.0.0/8 resubmit(,1)", 0),
        ("resubmit(,1)", 0),
        ("1/5  dec_ttl", 1),
        ("dec_ttl", 1),
    ];
    assert_eq!(words, wanted.map(|(words, depth)| (words.to_owned(), depth)));
    let why = |field: &str| {
        let found = trace_report.why.iter().filter(|bits| bits.fields.contains(field));
        found.map(|bits| format!("{}: {}", bits.fields, bits.because)).collect::<Vec<_>>().join("; ")
    };
    assert!(
        why("nw_dst=10.0.0.0/8").contains("table 0: matched by the rule of priority 10"),
        "{trace_report:?}"
    );
    let other = why("/0.255.0.0");
    assert!(other.contains("not the rule of priority 20 (ip,nw_dst=10.1.2.3)"), "{trace_report:?}");
    assert!(why("nw_ttl=9").contains("table 1: action dec_ttl"), "{trace_report:?}");
    assert!(
        trace_report.megaflow.contains("nw_dst=10.5.0.0/16") && !trace_report.megaflow.contains("tp_dst")
    );
    // The reasons add up to the mask, and no bit has two reasons.
    let mut sum = Flow::ZERO;
    let parts = translated.trace.iter().filter_map(|step| match step {
        switch::flow::Trace::Lookup { bits, .. } | switch::flow::Trace::Needs { bits, .. } => Some(bits),
        _ => None,
    });
    for bits in parts {
        assert_eq!(sum.masked(bits), Flow::ZERO);
        sum.or(bits);
    }
    assert_eq!(sum, translated.mask);
    // Without a request there is no trace.
    assert!(
        pipeline.translate(TranslationInput { flow: &asked, frame: None, trace: false }).trace.is_empty()
    );
}

#[test]
fn a_story_without_end_is_told_within_bounds() {
    let mut pipeline = Pipeline::new();
    // Each round reads another bit and calls the next one twice.
    let mut mods = Vec::new();
    for table in 0..60_u8 {
        let mut bit = Match::ANY;
        bit.put(Field::EthSrc, 0, 1 << (table % 48));
        let again = Action::Resubmit { port: None, table: Some(table + 1) };
        mods.push(rule(table, 10, bit, vec![again.clone(), again]));
    }
    pipeline.modify(&mods, 0).unwrap();
    let asked = flow("in_port=1,dl_src=00:00:00:00:00:00");
    let translated = pipeline.translate(TranslationInput { flow: &asked, frame: None, trace: true });
    assert!(translated.unrecorded > 1000, "{}", translated.unrecorded);
    assert!(translated.trace.len() <= switch::flow::TRACED + 64, "{}", translated.trace.len());
    let trace_report = pipeline.trace_report(&asked, &translated);
    let Some(TraceLine::More(more)) = trace_report.lines.last() else {
        panic!("{:?}", trace_report.lines.last())
    };
    assert!(*more >= translated.unrecorded && trace_report.lines.len() == 1001);
    assert!(trace_report.why.len() >= 48, "each bit has its reason: {:?}", trace_report.why);
}

#[test]
fn any_bits_can_be_printed() {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(&frame, frame.len(), PortId(1), &mut key).unwrap();
    let flow = Flow::new(&key, &ExtendedKey::extract(&frame, &key, &layers), 1);
    for word in 0..switch::flow::FLOW_WORDS {
        for bit in 0..64 {
            let mut bits = Flow::ZERO;
            bits.0[word] = 1 << bit;
            let _ = text::part(&flow, &bits);
            let _ = text::matching(&Match { value: Flow::ZERO, mask: bits }, Some(1));
        }
    }
    assert!(text::cached(None, "1", &flow, &all_bits()).contains("ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6"));
}

/// Generates frames of several EtherTypes, with or without a VLAN tag, and with enough payload for every header.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let eth_types = prop::sample::select(vec![0x0800_u16, 0x86dd, 0x0806, 0x8847, 0x88e7, 0x88b5]);
    let protos = prop::sample::select(vec![1_u8, 2, 6, 17, 47, 58, 132]);
    let behind = prop::collection::vec(any::<u8>(), 80);
    (any::<bool>(), any::<u16>(), eth_types, protos, behind, prop::sample::select(vec![133_u8, 135, 136]))
        .prop_map(|(tagged, tci, eth_type, proto, mut behind, kind)| {
            match eth_type {
                0x0800 => {
                    behind[0] = 0x45;
                    behind[2..4].copy_from_slice(&80_u16.to_be_bytes());
                    (behind[9], behind[20]) = (proto, kind);
                }
                0x86dd => {
                    behind[0] = 0x60 | behind[0] & 0xf;
                    behind[4..6].copy_from_slice(&40_u16.to_be_bytes());
                    (behind[6], behind[40]) = (proto, kind);
                }
                0x0806 => behind[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]),
                _ => {}
            }
            let mut frame = vec![2; 12];
            if tagged {
                frame.extend([0x81, 0x00]);
                frame.extend(tci.to_be_bytes());
            }
            frame.extend(eth_type.to_be_bytes());
            frame.extend(behind);
            frame
        })
}

proptest! {
    #[test]
    fn any_packet_is_printed_so_that_it_can_be_read(frame in any_frame()) {
        let mut key = FlowKey::ZERO;
        if let Ok(layers) = FlowKey::extract(&frame, frame.len(), PortId(1), &mut key) {
            let flow = Flow::new(&key, &ExtendedKey::extract(&frame, &key, &layers), 7);
            let words = text::whole(&flow);
            let read = text::parse(&words, number).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(text::whole(&read), words);
        }
    }

    #[test]
    fn any_words_are_read_or_refused(words in "([a-z_]{1,9}(=[0-9a-fx:./+|-]{0,12})?,?){0,6}", noise in any::<String>()) {
        let _ = text::parse(&words, number);
        let _ = text::parse(&noise, number);
    }

    #[test]
    fn any_value_of_any_field_is_read_or_refused(field in 0..Field::ALL.len(), value in any::<u128>(), kind in 0_usize..9) {
        let kind = ["", "ip,", "ipv6,", "arp,", "tcp,", "icmp6,", "mpls,", "dl_type=0x88e7,", "sctp,"][kind];
        for value in [format!("{value:#x}"), (value & 0xff).to_string(), "1.2.3.4".to_owned(), "fe80::1".to_owned()] {
            let _ = text::parse(&format!("{kind}{}={value}", Field::ALL[field].name()), number);
        }
    }
}
