//! Printing of actions and instructions in the syntax of ovs-actions(7), and of groups and meters as
//! `ovs-ofctl dump-groups` and `dump-meters` print them.

use std::fmt::Write as _;

use super::field::{hex, port, sub_field, value};
use crate::flow::action::port as reserved;
use crate::flow::message::{Band, BandKind, Bucket, Group, GroupKind, Meter, SelectMethod};
use crate::flow::numbers::reason as numbers;
use crate::flow::{
    Action, BundleMode, Field, HashFields, Instructions, Learn, LearnPart, LearnSource, SubField,
};

/// Prints the instructions of a flow entry. A flow entry without instructions is printed as `drop`.
#[must_use]
pub fn instructions(of: &Instructions) -> String {
    let mut parts = Vec::new();
    parts.extend(of.meter.map(|meter| format!("meter:{meter}")));
    parts.extend(of.apply.iter().map(action));
    if of.clear {
        parts.push("clear_actions".to_owned());
    }
    if !of.write.is_empty() {
        parts.push(format!("write_actions({})", actions(&of.write)));
    }
    if let Some((value, mask)) = of.metadata {
        let rest = if mask == u64::MAX { String::new() } else { format!("/{}", hex(mask.into())) };
        parts.push(format!("write_metadata:{}{rest}", hex(value.into())));
    }
    parts.extend(of.goto.map(|table| format!("goto_table:{table}")));
    if parts.is_empty() { "drop".to_owned() } else { parts.join(",") }
}

/// Prints a list of actions, separated by commas.
#[must_use]
pub fn actions(of: &[Action]) -> String {
    of.iter().map(action).collect::<Vec<_>>().join(",")
}

/// Prints one action in the syntax of ovs-actions(7).
#[must_use]
#[allow(clippy::too_many_lines, reason = "one arm for each action")]
pub fn action(of: &Action) -> String {
    match of {
        Action::Output { port: reserved::CONTROLLER, max_len } => format!("CONTROLLER:{max_len}"),
        Action::Output { port: number, .. } if *number <= reserved::MAX => format!("output:{number}"),
        Action::Output { port: number, .. } => port(*number),
        Action::OutputReg { source, .. } => format!("output:{}", sub_field(source)),
        Action::Controller { max_len, id, reason, userdata, pause, meter } => {
            controller(*max_len, *id, *reason, userdata, *pause, *meter)
        }
        Action::Enqueue { port: number, queue } => format!("enqueue:{}:{queue}", port(*number)),
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::PopQueue => "pop_queue".to_owned(),
        Action::Group(id) => format!("group:{id}"),
        Action::Meter(id) => format!("meter:{id}"),
        Action::Set { field, value: to, mask, load } => set(*field, *to, *mask, *load),
        Action::Move { from, to } => format!("move:{}->{}", sub_field(from), sub_field(to)),
        Action::Push(part) => format!("push:{}", sub_field(part)),
        Action::Pop(part) => format!("pop:{}", sub_field(part)),
        Action::PushVlan(tpid) => format!("push_vlan:0x{tpid:04x}"),
        Action::PopVlan => "pop_vlan".to_owned(),
        Action::SetVlanVid(vid) => format!("mod_vlan_vid:{vid}"),
        Action::SetVlanPcp(pcp) => format!("mod_vlan_pcp:{pcp}"),
        Action::PushMpls(eth_type) => format!("push_mpls:0x{eth_type:04x}"),
        Action::PopMpls(eth_type) => format!("pop_mpls:0x{eth_type:04x}"),
        Action::PushPbb(eth_type) => format!("push_pbb:0x{eth_type:04x}"),
        Action::PopPbb => "pop_pbb".to_owned(),
        Action::CopyTtlOut => "copy_ttl_out".to_owned(),
        Action::CopyTtlIn => "copy_ttl_in".to_owned(),
        Action::SetMplsTtl(ttl) => format!("set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => "dec_mpls_ttl".to_owned(),
        Action::SetTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::DecTtl(controllers) if controllers.is_empty() || **controllers == [0] => "dec_ttl".to_owned(),
        Action::DecTtl(controllers) => {
            let ids: Vec<String> = controllers.iter().map(u16::to_string).collect();
            format!("dec_ttl({})", ids.join(","))
        }
        Action::Resubmit { port: Some(number), table: None } => format!("resubmit:{}", port(*number)),
        Action::Resubmit { port: number, table } => {
            let number = number.map(port).unwrap_or_default();
            format!("resubmit({number},{})", table.map(|table| table.to_string()).unwrap_or_default())
        }
        Action::Learn(learnt) => learn(learnt),
        Action::Conjunction(part) => {
            format!("conjunction({},{}/{})", part.id, u16::from(part.clause) + 1, part.clauses)
        }
        Action::Note(octets) => format!("note:{}", dotted(octets)),
        Action::Clone(inner) => format!("clone({})", actions(inner)),
        Action::Multipath { fields, basis, mode, max_link, argument, to } => format!(
            "multipath({},{basis},{},{},{argument},{})",
            hashed(*fields),
            chosen(*mode),
            u32::from(*max_link) + 1,
            sub_field(to)
        ),
        Action::Bundle { fields, basis, mode, ports, to } => {
            bundle(*fields, *basis, *mode, ports, to.as_ref())
        }
        Action::CheckPktLarger { len, to } => format!("check_pkt_larger({len})->{}", sub_field(to)),
        Action::FinTimeout { idle, hard } => {
            let times = [("idle_timeout", idle), ("hard_timeout", hard)];
            let times = times.iter().filter(|(_, time)| **time != 0);
            let times: Vec<String> = times.map(|(name, time)| format!("{name}={time}")).collect();
            format!("fin_timeout({})", times.join(","))
        }
        Action::Exit => "exit".to_owned(),
    }
}

fn set(field: Field, to: u128, mask: u128, load: bool) -> String {
    if load {
        let first = u16::try_from(mask.trailing_zeros().min(127)).unwrap_or_default();
        let bits = u16::try_from(mask.count_ones()).unwrap_or_default();
        let part = SubField { field, first, bits };
        if part.is_sound() && part.mask() == mask {
            return format!("load:{}->{}", hex(to >> first), sub_field(&part));
        }
    }
    format!("set_field:{}->{}", value(field, to, mask), field.name())
}

fn controller(max_len: u16, id: u16, reason: u8, userdata: &[u8], pause: bool, meter: Option<u32>) -> String {
    if reason == numbers::ACTION && id == 0 && userdata.is_empty() && !pause && meter.is_none() {
        return format!("CONTROLLER:{max_len}");
    }
    let mut parts = Vec::new();
    match reason {
        numbers::NO_MATCH => parts.push("reason=no_match".to_owned()),
        numbers::ACTION => {}
        numbers::INVALID_TTL => parts.push("reason=invalid_ttl".to_owned()),
        numbers::ACTION_SET => parts.push("reason=action_set".to_owned()),
        numbers::GROUP => parts.push("reason=group".to_owned()),
        numbers::PACKET_OUT => parts.push("reason=packet_out".to_owned()),
        other => parts.push(format!("reason={other}")),
    }
    if max_len != u16::MAX {
        parts.push(format!("max_len={max_len}"));
    }
    if id != 0 {
        parts.push(format!("id={id}"));
    }
    if !userdata.is_empty() {
        parts.push(format!("userdata={}", dotted(userdata)));
    }
    if pause {
        parts.push("pause".to_owned());
    }
    parts.extend(meter.map(|meter| format!("meter_id={meter}")));
    format!("controller({})", parts.join(","))
}

fn dotted(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(".")
}

fn learn(of: &Learn) -> String {
    const SEND_REMOVED: u16 = 1;
    const DELETE: u16 = 2;
    let mut parts = vec![format!("table={}", of.table)];
    let times = [
        ("idle_timeout", of.idle_timeout),
        ("hard_timeout", of.hard_timeout),
        ("fin_idle_timeout", of.fin_idle_timeout),
        ("fin_hard_timeout", of.fin_hard_timeout),
    ];
    parts.extend(times.iter().filter(|(_, time)| *time != 0).map(|(name, time)| format!("{name}={time}")));
    if of.priority != 0x8000 {
        parts.push(format!("priority={}", of.priority));
    }
    if of.flags & SEND_REMOVED != 0 {
        parts.push("send_flow_rem".to_owned());
    }
    if of.flags & DELETE != 0 {
        parts.push("delete_learned".to_owned());
    }
    if of.cookie != 0 {
        parts.push(format!("cookie={}", hex(of.cookie.into())));
    }
    if of.limit != 0 {
        parts.push(format!("limit={}", of.limit));
    }
    parts.extend(of.result.map(|result| format!("result_dst={}", sub_field(&result))));
    parts.extend(of.parts.iter().map(|part| match part {
        LearnPart::Match(LearnSource::Field(from), to) if from == to => sub_field(to),
        LearnPart::Match(LearnSource::Field(from), to) => format!("{}={}", sub_field(to), sub_field(from)),
        LearnPart::Match(LearnSource::Constant { value: constant, .. }, to) => {
            let is_whole = usize::from(to.bits) == to.field.bits();
            if is_whole {
                format!("{}={}", to.field.name(), value(to.field, *constant, to.field.all_ones()))
            } else {
                format!("{}={}", sub_field(to), hex(*constant))
            }
        }
        LearnPart::Load(LearnSource::Field(from), to) => {
            format!("load:{}->{}", sub_field(from), sub_field(to))
        }
        LearnPart::Load(LearnSource::Constant { value: constant, .. }, to) => {
            format!("load:{}->{}", hex(*constant), sub_field(to))
        }
        LearnPart::Output(from) => format!("output:{}", sub_field(from)),
    }));
    format!("learn({})", parts.join(","))
}

fn hashed(fields: HashFields) -> &'static str {
    match fields {
        HashFields::EthSrc => "eth_src",
        HashFields::SymmetricL4 => "symmetric_l4",
        HashFields::SymmetricL3L4 => "symmetric_l3l4",
        HashFields::SymmetricL3L4Udp => "symmetric_l3l4+udp",
        HashFields::NwSrc => "nw_src",
        HashFields::NwDst => "nw_dst",
        HashFields::SymmetricL3 => "symmetric_l3",
    }
}

fn chosen(mode: BundleMode) -> &'static str {
    match mode {
        BundleMode::Modulo => "modulo_n",
        BundleMode::Threshold => "hash_threshold",
        BundleMode::Weight => "hrw",
        BundleMode::Iterative => "iter_hash",
        BundleMode::ActiveBackup => "active_backup",
    }
}

fn bundle(fields: HashFields, basis: u16, mode: BundleMode, ports: &[u32], to: Option<&SubField>) -> String {
    let (name, to) = match to {
        Some(to) => ("bundle_load", format!("{},", sub_field(to))),
        None => ("bundle", String::new()),
    };
    let ports: Vec<String> = ports.iter().map(|number| port(*number)).collect();
    let (fields, mode) = (hashed(fields), chosen(mode));
    format!("{name}({fields},{basis},{mode},ofport,{to}members:{})", ports.join(","))
}

/// Prints a group: its type, selection method and buckets.
#[must_use]
pub fn group(of: &Group) -> String {
    let kind = match of.kind {
        GroupKind::All => "all",
        GroupKind::Select => "select",
        GroupKind::Indirect => "indirect",
        GroupKind::FastFailover => "ff",
    };
    let mut text = format!("group_id={},type={kind}", of.id);
    // Writing to a string cannot fail.
    let _ = match &of.method {
        SelectMethod::Default => Ok(()),
        SelectMethod::DpHash { parameter } => {
            write!(text, ",selection_method=dp_hash,selection_method_param={parameter}")
        }
        SelectMethod::Hash { fields, parameter } => {
            let fields = fields.iter().map(|(field, mask)| {
                let is_whole = *mask == field.all_ones();
                if is_whole { field.name().to_owned() } else { format!("{}={}", field.name(), hex(*mask)) }
            });
            let fields: Vec<String> = fields.collect();
            write!(
                text,
                ",selection_method=hash,selection_method_param={parameter},fields({})",
                fields.join(",")
            )
        }
    };
    for own in &of.buckets {
        text.push_str(&bucket(own, of.kind));
    }
    text
}

fn bucket(of: &Bucket, kind: GroupKind) -> String {
    let mut parts = vec![format!("bucket_id:{}", of.id)];
    // The default weight is omitted, as in `ovs-ofctl`.
    if kind == GroupKind::Select && of.weight != 1 {
        parts.push(format!("weight:{}", of.weight));
    }
    let watched = |number: &u32| *number != reserved::ANY;
    parts.extend(of.watch_port.filter(watched).map(|number| format!("watch_port:{}", port(number))));
    parts.extend(of.watch_group.filter(watched).map(|id| format!("watch_group:{id}")));
    let done = if of.actions.is_empty() { "drop".to_owned() } else { actions(&of.actions) };
    format!(",bucket={},actions={done}", parts.join(","))
}

/// Prints a meter and its bands.
#[must_use]
pub fn meter(of: &Meter) -> String {
    let mut text = format!("meter={} {}", of.id, if of.packets { "pktps" } else { "kbps" });
    if of.bursts {
        text.push_str(" burst");
    }
    if of.stats {
        text.push_str(" stats");
    }
    text.push_str(" bands=");
    let bands: Vec<String> = of.bands.iter().map(|own| band(own, of.bursts)).collect();
    text + &bands.join(" ")
}

fn band(of: &Band, bursts: bool) -> String {
    let burst = if bursts { format!(" burst_size={}", of.burst) } else { String::new() };
    match of.kind {
        BandKind::Drop => format!("type=drop rate={}{burst}", of.rate),
        BandKind::DscpRemark(raise) => {
            format!("type=dscp_remark rate={}{burst} prec_level={raise}", of.rate)
        }
    }
}
