//! Trace of a packet through the flow tables, in the format of `ovs-appctl ofproto/trace`. The lookup in the
//! tables records its steps. For the action `NORMAL`, the report also contains the decisions of the learning
//! bridge.

mod tree;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use control::{FailureKind, PlaneError};
use engine::worker::monotonic;
use model::{TracePacket, TraceRequest, UNTAGGED};
use packet::{DropReason, PortId, VlanId, spec};
use switch::flow::{
    Arrival, Field, Flow, NormalNote, Op, Pipeline, Resolved, STAGES, TraceReport, Translated,
    TranslationInput, resolve, text,
};

use super::show::Shown;
use tree::Tree;

/// Returns the API error for an invalid trace request, in the wording of Open vSwitch.
fn invalid(cause: String, fix: &str) -> PlaneError {
    PlaneError { kind: FailureKind::Invalid, object: "ofproto/trace".to_owned(), cause, fix: fix.to_owned() }
}

impl Shown {
    /// Traces a packet and returns the report. See [`control::Plane::trace_rules`].
    pub fn trace(&self, request: &TraceRequest) -> Result<String, PlaneError> {
        let (bridge, words) = self.place(request)?;
        let (tables, learning) = self.one(&bridge)?;
        let pipeline = tables.lock();
        let number = |name: &str| {
            pipeline.ports().values().find(|port| port.desc.name == name).map(|port| port.desc.number)
        };
        let mut flow = text::parse(&words, number).map_err(|error| {
            let cause = format!("Bad openflow flow syntax: {words}: {error}");
            invalid(cause, "write it as ovs-fields(7) says, such as in_port=1,ip,nw_dst=10.0.0.1")
        })?;
        let frame = match &request.packet {
            TracePacket::None => None,
            TracePacket::Generated => Some(generated(&words).map_err(|cause| {
                invalid(cause, "name what a packet can be made of, or give the packet in hexadecimal digits")
            })?),
            TracePacket::Digits(digits) => Some(spec::parse(&format!("hex:{digits}")).map_err(|error| {
                invalid(format!("Trailing garbage in packet data: {error}"), "give hexadecimal digits")
            })?),
        };
        if let Some(frame) = &frame {
            become_frame(&pipeline, &mut flow, frame)?;
        }
        let asked = TranslationInput { flow: &flow, frame: frame.as_deref(), trace: true };
        let translated = match &request.actions {
            None => pipeline.translate(asked),
            Some(words) => {
                let actions = text::read_actions(words, &flow, &number)
                    .map_err(|cause| invalid(cause, "write them as ovs-actions(7) says"))?;
                pipeline.packet_out(asked, &actions)
            }
        };
        let trace_report = pipeline.trace_report(&flow, &translated);
        let in_port = u32::try_from(flow.get(Field::InPort)).ok();
        let port = in_port.and_then(|number| pipeline.ports().get(&number)).map(|port| port.id);
        let names: BTreeMap<u32, String> = if request.names {
            pipeline.ports().iter().map(|(number, port)| (*number, port.desc.name.clone())).collect()
        } else {
            BTreeMap::new()
        };
        drop(pipeline);
        let resolved = match port {
            Some(port) => {
                let arrival = Arrival { port, flow: &flow, frame: frame.as_deref(), now: monotonic() };
                resolve(learning, arrival, &translated.program.ops)
            }
            None => Resolved { ops: translated.program.ops.clone(), notes: Vec::new() },
        };
        let name = |port: PortId| self.port(port, request.names);
        let told =
            written(&bridge, &flow, (&translated, &resolved), &trace_report, port, (&name, request.why));
        Ok(if request.names { named(&told, &names) } else { told })
    }

    /// Returns the name of the bridge in which the packet is traced, and the packet's flow in the syntax of
    /// `ovs-ofctl`.
    fn place(&self, request: &TraceRequest) -> Result<(String, String), PlaneError> {
        let of_datapath = text::from_datapath(&request.flow);
        match (&request.bridge, of_datapath) {
            (Some(bridge), None) => Ok((bridge.clone(), request.flow.clone())),
            (Some(_), Some(_)) => {
                Err(invalid("Cannot find the datapath".to_owned(), "leave the bridge away"))
            }
            (None, None) => {
                let cause = format!("syntax error at {} (or the bridge name was omitted)", request.flow);
                Err(invalid(cause, "name the bridge"))
            }
            (None, Some(flow)) => {
                let port = flow.port.unwrap_or_default();
                let (bridge, number) = self.bridge_of(&port).ok_or_else(|| {
                    let cause = format!("no OpenFlow port for datapath port {port}");
                    invalid(cause, "look at the ports with `ovs-appctl dpif/show`")
                })?;
                let comma = if flow.words.is_empty() { "" } else { "," };
                Ok((bridge.to_owned(), format!("in_port={number}{comma}{}", flow.words)))
            }
        }
    }
}

/// Replaces OpenFlow port numbers with port names in a trace report.
fn named(told: &str, names: &BTreeMap<u32, String>) -> String {
    const BEFORE: [&str; 2] = ["in_port=", "output:"];
    // As in Open vSwitch, the action set keeps numbers.
    if let Some((head, tail)) = told.split_once(" -> action set ") {
        let (set, tail) = tail.split_once('\n').unwrap_or((tail, ""));
        return format!("{} -> action set {set}\n{}", named(head, names), named(tail, names));
    }
    let mut text = String::with_capacity(told.len());
    let mut rest = told;
    while let Some(end) = BEFORE.iter().filter_map(|key| Some(rest.find(key)? + key.len())).min() {
        let (head, tail) = rest.split_at(end);
        let digits = tail.len() - tail.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (number, tail) = tail.split_at(digits);
        text.push_str(head);
        text.push_str(
            number.parse().ok().and_then(|number: u32| names.get(&number)).map_or(number, String::as_str),
        );
        rest = tail;
    }
    text + rest
}

/// Replaces the packet header fields of `flow` with the header fields of `frame`. Metadata fields keep their
/// values.
fn become_frame(pipeline: &Pipeline, flow: &mut Flow, frame: &[u8]) -> Result<(), PlaneError> {
    let in_port = u32::try_from(flow.get(Field::InPort)).unwrap_or_default();
    let own = pipeline.read(frame, in_port).map_err(|reason| {
        invalid(format!("the packet cannot be read: {}", reason.name()), "give a whole Ethernet frame")
    })?;
    if let Some(packet) = own.0.get(STAGES[0]..)
        && let Some(place) = flow.0.get_mut(STAGES[0]..)
    {
        place.copy_from_slice(packet);
    }
    Ok(())
}

/// Returns a frame that matches the packet header fields of the flow in the text `words`.
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

/// Returns the text for one event of the action `NORMAL`, in the wording of Open vSwitch. The returned flag is true if
/// the event is a warning.
fn normal_words(note: NormalNote, port: Option<PortId>, name: &impl Fn(PortId) -> String) -> (bool, String) {
    let detail = |text: &str| (false, text.to_owned());
    match note {
        NormalNote::Learned(mac, vid) => {
            let vid = if VlanId::new(vid) == Some(UNTAGGED) { 0 } else { vid };
            let port = port.map_or_else(String::new, name);
            (false, format!("learned that {mac} is on port {port} in VLAN {vid}"))
        }
        NormalNote::ToStation => detail("forwarding to learned port"),
        NormalNote::BackToStation => detail("learned port is input port, dropping"),
        NormalNote::Flood => detail("no learned MAC for destination, flooding"),
        NormalNote::Group => detail("forwarding to mcast group port"),
        NormalNote::Dropped(
            DropReason::VlanNotAllowed | DropReason::VlanTaggedOnAccess | DropReason::VlanUntaggedNotAdmitted,
        ) => (true, "disallowed VLAN VID for this input port, dropping".to_owned()),
        NormalNote::Dropped(reason) => (true, format!("dropping: {}", reason.explain())),
    }
}

/// Removes the last `Clone` operation if no operation follows it. The operations in the `Clone` then apply to the
/// packet itself instead of a copy. Open vSwitch omits such a copy too.
fn without_last_copy(ops: &[Op]) -> Vec<Op> {
    let mut at = 0;
    while let Some(op) = ops.get(at) {
        let Op::Clone(n) = op else {
            at += 1;
            continue;
        };
        let end = at + 1 + usize::from(*n);
        if end >= ops.len() {
            return [ops.get(..at), ops.get(at + 1..)].into_iter().flatten().flatten().cloned().collect();
        }
        at = end;
    }
    ops.to_vec()
}

fn written(
    bridge: &str,
    flow: &Flow,
    (translated, resolved): (&Translated, &Resolved),
    trace_report: &TraceReport,
    port: Option<PortId>,
    (name, why): (&impl Fn(PortId) -> String, bool),
) -> String {
    let mut out = format!("Flow: {}\n", text::whole(flow));
    let words = |note| normal_words(note, port, name);
    let told = Tree::written(bridge, &trace_report.lines, &resolved.notes, &words);
    out += &match flow.get(Field::EthType) {
        0x86dd => told.replace(" >> IPv4 decrement", " >> IPv6 decrement"),
        0x8847 | 0x8848 => told.replace(" >> IPv4 decrement", " >> MPLS decrement"),
        _ => told,
    };
    if why {
        out.push('\n');
        for bits in &trace_report.why {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {} because of {}", bits.fields, bits.because);
        }
    }
    let last = trace_report.changed.as_deref().unwrap_or("unchanged");
    let _ = write!(out, "\nFinal flow: {last}\nMegaflow: recirc_id=0,eth,{}\n", trace_report.megaflow);
    let mut actions = vec![text::program(&without_last_copy(&resolved.ops), name)];
    for told in &translated.to_controller {
        actions.retain(|action| action != "drop");
        actions.push(format!(
            "userspace(pid=0,controller(reason={},dont_send={},continuation={},recirc_id=1,rule_cookie={},controller_id={},max_len={}))",
            told.reason as u8,
            u8::from(told.frame.is_none()),
            u8::from(told.continuation.is_some()),
            if told.cookie == 0 { "0".to_owned() } else { format!("{:#x}", told.cookie) },
            told.controller,
            told.max_len
        ));
    }
    let _ = writeln!(out, "Datapath actions: {}", actions.join(","));
    if let Some(failed) = translated.failed {
        let _ = writeln!(out, "Translation failed ({}), packet is dropped.", failed.reason());
    } else if trace_report.is_own {
        out.push_str("This flow is handled by the userspace slow path because it:\n");
        out.push_str("  - Uses action(s) not supported by datapath.\n");
    }
    out
}
