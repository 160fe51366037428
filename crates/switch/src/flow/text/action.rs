//! Printing of actions and instructions in the syntax of ovs-actions(7), and of groups and meters as
//! `ovs-ofctl dump-groups` and `dump-meters` print them.

use std::fmt::Write as _;

use super::field::{hex, port};
use crate::flow::action::{port as reserved, text_of};
use crate::flow::message::{Band, BandKind, Bucket, Group, GroupKind, Meter, SelectMethod};
use crate::flow::{Action, Instructions};

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
    text_of(of)
}

/// Prints one action in the syntax of ovs-actions(7).
#[must_use]
pub fn action(of: &Action) -> String {
    of.text()
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
