//! A packet's way through the tables as people know it from `ovs-appctl ofproto/trace`, with the reasons of the megaflow's bits behind it. The
//! tables themselves are asked, with a recorder.

use std::fmt::Write as _;

use control::{FailureKind, PlaneError};
use packet::{FlowKey, PortId, spec};
use switch::flow::{Asked, Beyond, Field, Flow, Line, STAGES, Story, Translated, text};

use super::shown::Shown;
use crate::plane::ids::Names;

/// What `-generate` is spelled as.
const GENERATE: [&str; 2] = ["-generate", "--generate"];

impl Shown {
    /// See [`control::Plane::trace_rules`].
    pub fn trace(&self, bridge: &str, words: &str, packet: Option<&str>) -> Result<String, PlaneError> {
        let (tables, names) = self.one(bridge)?;
        let pipeline = tables.lock();
        let number = |name: &str| {
            pipeline.ports().values().find(|port| port.desc.name == name).map(|port| port.desc.number)
        };
        let invalid = |cause: String, fix: &str| PlaneError {
            kind: FailureKind::Invalid,
            object: format!("bridge.{bridge}"),
            cause,
            fix: fix.to_owned(),
        };
        let mut flow = text::parse(words, number).map_err(|error| {
            let cause = format!("Bad openflow flow syntax: {words}: {error}");
            invalid(cause, "write it as ovs-fields(7) says, such as in_port=1,ip,nw_dst=10.0.0.1")
        })?;
        let frame = match packet {
            None => None,
            Some(option) if GENERATE.contains(&option) => Some(generated(words).map_err(|cause| {
                invalid(cause, "name what a packet can be made of, or give the packet in hexadecimal digits")
            })?),
            Some(digits) => Some(spec::parse(&format!("hex:{digits}")).map_err(|error| {
                invalid(format!("Trailing garbage in packet data: {error}"), "give hexadecimal digits")
            })?),
        };
        if let Some(frame) = &frame {
            let mut key = FlowKey::ZERO;
            let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).map_err(|reason| {
                invalid(
                    format!("the packet cannot be read: {}", reason.name()),
                    "give a whole Ethernet frame",
                )
            })?;
            let in_port = u32::try_from(flow.get(Field::InPort)).unwrap_or_default();
            let own = Flow::new(&key, &Beyond::extract(frame, &key, &layers), in_port);
            if let Some(packet) = own.0.get(STAGES[0]..)
                && let Some(place) = flow.0.get_mut(STAGES[0]..)
            {
                place.copy_from_slice(packet);
            }
        }
        let fate = pipeline.translate(Asked { flow: &flow, frame: frame.as_deref(), trace: true });
        let story = pipeline.story(&flow, &fate);
        drop(pipeline);
        Ok(written(bridge, &flow, &fate, &story, names))
    }
}

/// A frame that is what the words say, metadata aside.
fn generated(words: &str) -> Result<Vec<u8>, String> {
    const METADATA: [&str; 9] =
        ["in_port", "metadata", "tun_", "pkt_mark", "vlan_tci", "recirc_id", "reg", "xreg", "xxreg"];
    let own = |word: &&str| {
        let is_metadata = METADATA.iter().any(|start| word.starts_with(start));
        !is_metadata && !word.is_empty() && *word != "eth"
    };
    let kept: Vec<&str> = words.split([',', ' ']).filter(own).collect();
    spec::parse(&kept.join(",")).map_err(|error| error.to_string())
}

fn written(bridge: &str, flow: &Flow, fate: &Translated, story: &Story, names: &Names) -> String {
    let title = format!("bridge(\"{bridge}\")");
    let mut out = format!("Flow: {}\n\n{title}\n{}\n", text::whole(flow), "-".repeat(title.len()));
    for line in &story.lines {
        // Writing to a string cannot fail.
        let _ = told(&mut out, line);
    }
    if fate.program.is_drop() && story.lines.iter().all(|line| !matches!(line, Line::Miss { .. })) {
        out.push_str("    drop\n");
    }
    let last = story.changed.as_deref().unwrap_or("unchanged");
    let _ = write!(out, "\nFinal flow: {last}\nMegaflow: recirc_id=0,eth,{}\n", story.megaflow);
    for bits in &story.why {
        let _ = writeln!(out, "  {} because of {}", bits.fields, bits.because);
    }
    let mut actions = vec![text::program(&fate.program.ops, &|port| names.port(port))];
    if !fate.to_controller.is_empty() {
        actions.retain(|action| action != "drop");
        actions.push("userspace(controller)".to_owned());
    }
    let _ = writeln!(out, "Datapath actions: {}", actions.join(","));
    if !fate.to_controller.is_empty() {
        out.push_str("This flow is handled by the decider because it:\n");
        out.push_str("  - Sends \"packet-in\" messages to the OpenFlow controller.\n");
    } else if story.is_own {
        out.push_str("This flow is handled by the decider because it:\n");
        out.push_str("  - Depends on more than its headers, and is not cached.\n");
    }
    out
}

/// A line: rules with their tables at the margin of their depth, what they do behind it.
fn told(out: &mut String, line: &Line) -> std::fmt::Result {
    let margin = |depth: u32| " ".repeat(4 * usize::try_from(depth).unwrap_or_default());
    match line {
        Line::Rule { depth, table, priority, cookie, matching, .. } => {
            let space = if matching.is_empty() { "" } else { ", " };
            let cookie = if *cookie == 0 { String::new() } else { format!(", cookie {cookie:#x}") };
            writeln!(out, "{}{table:2}. {matching}{space}priority {priority}{cookie}", margin(*depth))
        }
        Line::Miss { depth, table } => {
            writeln!(out, "{0}{table:2}. No match.\n{0}    drop", margin(*depth))
        }
        Line::Did { depth, action } => writeln!(out, "{}    {action}", margin(*depth)),
        Line::Note { depth, words } => writeln!(out, "{}     -> {words}", margin(*depth)),
        Line::More(more) => writeln!(out, "    (and {more} more)"),
    }
}
