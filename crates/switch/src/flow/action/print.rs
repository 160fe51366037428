//! Printing of the actions that have several arguments, in the syntax of ovs-actions(7).

use super::learn::{Learn, LearnPart, LearnSource};
use super::select::{BundleMode, HashFields};
use super::subfield::SubField;
use crate::flow::Field;
use crate::flow::numbers::reason as numbers;
use crate::flow::text::field::{hex, port, sub_field, value};

pub(super) fn set(field: Field, to: u128, mask: u128, load: bool) -> String {
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

pub(super) fn controller(
    max_len: u16,
    id: u16,
    reason: u8,
    userdata: &[u8],
    pause: bool,
    meter: Option<u32>,
) -> String {
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

pub(super) fn dotted(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(".")
}

pub(super) fn learn(of: &Learn) -> String {
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

pub(super) fn hashed(fields: HashFields) -> &'static str {
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

pub(super) fn chosen(mode: BundleMode) -> &'static str {
    match mode {
        BundleMode::Modulo => "modulo_n",
        BundleMode::Threshold => "hash_threshold",
        BundleMode::Weight => "hrw",
        BundleMode::Iterative => "iter_hash",
        BundleMode::ActiveBackup => "active_backup",
    }
}

pub(super) fn bundle(
    fields: HashFields,
    basis: u16,
    mode: BundleMode,
    ports: &[u32],
    to: Option<&SubField>,
) -> String {
    let (name, to) = match to {
        Some(to) => ("bundle_load", format!("{},", sub_field(to))),
        None => ("bundle", String::new()),
    };
    let ports: Vec<String> = ports.iter().map(|number| port(*number)).collect();
    let (fields, mode) = (hashed(fields), chosen(mode));
    format!("{name}({fields},{basis},{mode},ofport,{to}members:{})", ports.join(","))
}
