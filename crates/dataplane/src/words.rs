//! Converts the steps that workers and hooks (XDP programs) record for a packet into text, for `explain` and `trace`.

use model::{LossReason, Step as Told};
use packet::record::{FloodClass, ReverseRoute, Step, TagChange, VlanSource};
use packet::{FlowKey, MacAddr, PortId};
use xdp::{Counter, HookSays};

use super::ids::Names;
use super::routes::ROUTED;

/// Returns the texts of a packet's recorded steps in order, each with the name of the pipeline stage that recorded the
/// step. The second value is one sentence about the outcome of the packet.
pub fn tell(steps: &[Step], names: &Names) -> (Vec<Told>, String) {
    let told = steps.iter().map(|step| {
        let (stage, what) = sentence(step, names);
        Told { stage: stage.to_owned(), what }
    });
    (told.collect(), verdict(steps, names))
}

/// Outcome of a packet that the hook itself drops, forwards or passes to the kernel, for `explain`.
pub struct End {
    /// Name of the reason for which the hook drops the packet. `None` if the hook does not drop the packet.
    pub drop: Option<&'static str>,
    /// Whether the hook passes the packet to the kernel's network stack.
    pub to_kernel: bool,
    /// Description of the packet's outcome in one sentence.
    pub verdict: String,
}

impl End {
    fn forwarded(verdict: String) -> Option<End> {
        Some(End { drop: None, to_kernel: false, verdict })
    }

    fn to_kernel(verdict: String) -> Option<End> {
        Some(End { drop: None, to_kernel: true, verdict })
    }
}

/// Returns the texts of the steps in which a hook processes a packet, and the outcome of the packet in the hook. The
/// outcome is `None` if the packet continues to a worker. `routed` is the device through which the kernel's routes send
/// the packet.
pub fn hook(says: &HookSays, routed: Option<&str>, names: &Names) -> (Vec<Told>, Option<End>) {
    let step = |what: String| Told { stage: "hook".to_owned(), what };
    let rules = says.rules.iter().map(|(rule, acted)| {
        let did = if *acted { "and acted" } else { "and did nothing" };
        step(format!("rule {rule} of the port's filter matched {did}"))
    });
    let user = says.user.as_ref().map(|(program, goes_on)| {
        step(if *goes_on {
            format!("the user's program {program} meets it first and is not run here: what follows holds if it goes on")
        } else {
            format!("the user's program {program} meets it first and never goes on: nothing of what follows happens")
        })
    });
    let mut steps: Vec<Told> = user.into_iter().chain(rules).collect();
    steps.extend(match (&says.flow, says.steered) {
        (Some(flow), _) => Some(step(format!("exact flow {} of the port's steering", flow.with_number()))),
        (None, Some(to)) => Some(step(format!("the table of the port's steering says {to}"))),
        (None, None) => None,
    });
    let dropped = |reason: &'static str, why: &str| {
        let verdict = format!("dropped in the hook: {reason}");
        (why.to_owned(), Some(End { drop: Some(reason), to_kernel: false, verdict }))
    };
    let (what, end) = match says.counter {
        Counter::FilterDropped => dropped("filter-dropped", "the filter drops it"),
        Counter::FilterLimited => {
            dropped("filter-limited", "it is over the rate of a rule: the filter drops it")
        }
        Counter::FilterAnswered => {
            let verdict = "answered in the driver hook with a SYN cookie".to_owned();
            let what = "a SYN to a service: the answer goes back the way that it came".to_owned();
            (what, End::forwarded(verdict))
        }
        Counter::BridgeLost => dropped(LossReason::DEVICE_GONE.name, "its station's device is gone"),
        Counter::BridgeHeld => {
            dropped(LossReason::HELD.name, "its flow is held while it changes into the hook")
        }
        Counter::Aborted => dropped("aborted", "the program gave a verdict that it may not give"),
        Counter::Bridged => {
            let port = says.to.map_or_else(|| "another port".to_owned(), |to| names.port(PortId(to)));
            let what = format!("both stations are known: straight to the device of {port}");
            (what, End::forwarded(format!("forwarded to {port} in the driver hook")))
        }
        // The steps of the look-ups in the flow tables contain the reason.
        Counter::FlowForwarded => {
            let port = says.to.map_or_else(|| "another port".to_owned(), |to| names.port(PortId(to)));
            (format!("a hot flow, answered here: straight to the device of {port}, by these rules:"), None)
        }
        Counter::FlowDropped => ("a hot flow, answered here: dropped, by these rules:".to_owned(), None),
        Counter::FibForwarded => {
            let device = routed.unwrap_or("the next hop's device");
            let what =
                format!("route and neighbour are the kernel's: straight to {device}{}", anew(&says.frame));
            let verdict = format!("forwarded to {device} in the driver hook, by the kernel's routes");
            (what, End::forwarded(verdict))
        }
        Counter::RouteForwarded => {
            let port = says.to.map_or_else(|| "another port".to_owned(), |to| names.port(PortId(to)));
            let to = says.frame.first_chunk().map(|octets| MacAddr(*octets).to_string()).unwrap_or_default();
            let tag = match says.frame.get(12..16) {
                Some([0x81, 0, high, low]) => {
                    format!(" with the tag of VLAN {}", u16::from_be_bytes([*high, *low]) & 0xfff)
                }
                _ => String::new(),
            };
            let what = format!("{ROUTED}leads to {to} behind {port}: straight to its device{tag}");
            (what, End::forwarded(format!("routed in the driver hook; it leaves by {port}")))
        }
        Counter::RouteBlackhole => {
            let (_, end) = dropped("route-blackhole", "");
            (format!("{ROUTED}says blackhole: dropped as route-blackhole"), end)
        }
        Counter::RouteReversePath => {
            // The steps of the look-ups in the routing tables contain the route to the source.
            ("refused here: no route leads back to its source as `rpf` asks".to_owned(), None)
        }
        Counter::RouteLimited => {
            let limit = "the limit of its class is used up, or its transport header cannot be read";
            dropped(packet::DropReason::PuntLimit.name(), limit)
        }
        Counter::SteeringKernel | Counter::SteeringCpu => {
            let where_to = match says.steered {
                Some(xdp::steer::SteerTo::Cpu(cpu)) => format!("the kernel on CPU {cpu}"),
                _ => "the kernel".to_owned(),
            };
            let verdict = format!("given to {where_to} by the driver hook's steering");
            (format!("to {where_to}"), End::to_kernel(verdict))
        }
        Counter::Steered | Counter::DownPassed | Counter::DownDropped => {
            ("up, to the worker of its queue".to_owned(), None)
        }
        passed => {
            let what = format!("left to the kernel as {passed}: {}", left(passed));
            (what, End::to_kernel("given to the kernel by the driver hook".to_owned()))
        }
    };
    steps.push(step(what));
    (steps, end)
}

/// Returns a text with the MAC addresses and the TTL or hop limit that a frame has after routing.
fn anew(frame: &[u8]) -> String {
    let mut key = FlowKey::default();
    match FlowKey::extract(frame, frame.len(), PortId(0), &mut key) {
        Ok(_) => format!(", from {} to {}, hop limit {}", key.eth_src(), key.eth_dst(), key.ttl()),
        Err(_) => String::new(),
    }
}

/// Default text of the reason why a hook passes a frame to the kernel. The text is used if the hook counts the frame in
/// a counter without a specific text.
const UNTOLD: &str = "so its counter says";

/// Returns the reason why the hook passes a frame to the kernel, as text.
fn left(counter: Counter) -> &'static str {
    match counter {
        Counter::PassedControl => "it is neither IPv4 nor IPv6",
        Counter::PassedGroup => "it is for a group",
        Counter::PassedLocal4 | Counter::PassedLocal6 => "it is for this machine",
        Counter::PassedFragment => "it is a fragment",
        Counter::PassedMalformed => "its headers are cut short or wrong",
        Counter::FibStation => "it is for another Ethernet address than the port's",
        Counter::FibTagged => "it has a VLAN tag",
        Counter::FibAddress => {
            "its source or destination is not forwarded, or the way back to its source leads elsewhere"
        }
        Counter::FibTtl => "its hop limit is used up; the stack tells the sender",
        Counter::FibOptions => "it has IPv4 options or IPv6 extension headers",
        Counter::FibPartial => "its sender left the checksum open; the stack completes it",
        Counter::FibBlackhole => "its route says blackhole; the stack drops it",
        Counter::FibUnreachable => "its route says unreachable; the stack tells the sender",
        Counter::FibProhibit => "its route says prohibit; the stack tells the sender",
        Counter::FibNoRoute => "it is for this machine, or there is no route",
        Counter::FibDisabled => "forwarding is off at the port's device",
        Counter::FibTunnel => "its route leads into a tunnel",
        Counter::FibNeighbor => "the next hop's Ethernet address is not known; the stack asks for it",
        Counter::FibTooLong => {
            "it is longer than its route or device carries; the stack cuts it in pieces or tells the sender"
        }
        Counter::FibFailed => "a helper of the kernel refused",
        Counter::FibSameDevice => "it would leave by the device that it came by",
        Counter::FibNoDevice => {
            "the device that it would leave by takes no redirected frames; the stack sends it"
        }
        Counter::RouteStation => "it is for another Ethernet address than the router's port has",
        Counter::RouteTagged => "it came to a router's port with a VLAN tag",
        Counter::RouteAddress => {
            "its source or destination is an address that leaves no network, or its source is this host"
        }
        Counter::RouteTtl => "its hop limit is used up at the router; the stack tells the sender",
        Counter::RouteOptions => "it has IPv4 options or a hop-by-hop header, which every router looks at",
        _ => UNTOLD,
    }
}

/// Returns the name of the drop reason if the packet was dropped according to the recorded `steps` and no copy of it
/// was transmitted. Otherwise returns `None`.
pub fn dropped(steps: &[Step]) -> Option<&'static str> {
    if steps.iter().any(|step| matches!(step, Step::Transmitted { .. })) {
        return None;
    }
    // A decided output ends in a drop if the port is down or its MTU is too small.
    steps.iter().rev().find_map(|step| match step {
        Step::Dropped(reason) => Some(reason.name()),
        _ => None,
    })
}

/// Returns the explanation of a drop reason, without the advice to use `trivium explain`.
fn explained(reason: packet::DropReason) -> String {
    let text = reason.explain();
    text.replace("; see which by `trivium explain`", ": those above")
        .replace(" by `trivium explain`", " above")
}

fn verdict(steps: &[Step], names: &Names) -> String {
    let mut outputs: Vec<String> = Vec::new();
    for step in steps {
        // A single output is decided and then transmitted. The copies of a flood are only transmitted.
        if let Step::Output { port, .. } | Step::Transmitted { port, .. } = step {
            let name = names.port(*port);
            if !outputs.contains(&name) {
                outputs.push(name);
            }
        }
    }
    let punted = if steps.contains(&Step::Punted) { "; a copy goes to the snooper" } else { "" };
    let drop = steps.iter().rev().find_map(|step| match step {
        Step::Dropped(reason) => Some(reason),
        _ => None,
    });
    if let Some(reason) = drop.filter(|_| dropped(steps).is_some()) {
        return format!("dropped as {}: {}{punted}", reason.name(), explained(*reason));
    }
    let to_kernel = steps.iter().any(|step| matches!(step, Step::ToKernel { .. }));
    let told = steps.iter().any(|step| matches!(step, Step::Told { .. }));
    match (outputs.as_slice(), drop) {
        ([_], None) if to_kernel => "it goes to the kernel".to_owned(),
        ([port], None) if told => format!("it goes no further; the error leaves by {port}"),
        ([], _) => format!("it leaves by no port{punted}"),
        ([port], _) => format!("it leaves by {port}{punted}"),
        (ports, _) => format!("copies leave by {}{punted}", ports.join(", ")),
    }
}

fn sentence(step: &Step, names: &Names) -> (&'static str, String) {
    let text = match step {
        Step::Received { port, queue, len } => {
            return ("receive", format!("{len} bytes from {}, queue {queue}", names.port(*port)));
        }
        Step::Parsed { l3, l4, malformed } => return ("parse", parsed(*l3, *l4, malformed.as_ref())),
        Step::SoftwareRss { bucket, worker } => {
            return ("software-rss", format!("flow bucket {bucket} belongs to worker {worker}"));
        }
        Step::ChecksumCompleted => {
            return ("execute", "the checksum that the sender left open is completed".to_owned());
        }
        Step::Segmented { segments } => return ("execute", format!("cut into {segments} segments")),
        Step::Transmitted { port, queue } => {
            return ("transmit", format!("given to {}, queue {queue}", names.port(*port)));
        }
        Step::Dropped(reason) => {
            return ("execute", format!("dropped as {}: {}", reason.name(), reason.explain()));
        }
        Step::Output { port, tag } => {
            return ("execute", format!("out of {}{}", names.port(*port), change(*tag)));
        }
        other => switching(other, names),
    };
    ("function", text)
}

fn parsed(l3: u16, l4: u16, malformed: Option<&packet::DropReason>) -> String {
    let network =
        if l3 == 0 { "no network header".to_owned() } else { format!("network header at byte {l3}") };
    let transport = if l4 == 0 { String::new() } else { format!(", transport header at byte {l4}") };
    let wrong = malformed.map(|reason| format!("; {} (a bridge forwards it all the same)", reason.name()));
    format!("{network}{transport}{}", wrong.unwrap_or_default())
}

fn change(tag: TagChange) -> String {
    match tag {
        TagChange::Keep => String::new(),
        TagChange::Pop => ", tag removed".to_owned(),
        TagChange::Push(vid) => format!(", tagged with VLAN {vid}"),
        TagChange::PushService(vid) => format!(", tagged with VLAN {vid} (802.1ad)"),
        TagChange::Set(vid) => format!(", tag set to VLAN {vid}"),
    }
}

/// Returns the text of a step that a bridge or a router has recorded.
fn switching(step: &Step, names: &Names) -> String {
    match step {
        Step::Bridge(bridge) => format!("bridge {}", names.bridge(*bridge)),
        Step::Vlan { vid: 0, .. } => "no VLAN separation on this port".to_owned(),
        Step::Vlan { vid, source } => format!("VLAN {vid}, {}", source_of(*source)),
        Step::Learned { mac, from: None } => format!("{mac} is learned here"),
        Step::Learned { mac, from: Some(port) } => format!("{mac} moves here from {}", names.port(*port)),
        Step::SourceKnown { mac, is_static: true } => format!("{mac} is configured here"),
        Step::SourceKnown { mac, is_static: false } => format!("{mac} is known here already"),
        Step::NotLearned { mac, why } => format!("{mac} is not learned: {why}"),
        Step::Found { mac, port, is_static: true, .. } => {
            format!("{mac} is configured at {}", names.port(*port))
        }
        Step::Found { mac, port, age, .. } => format!("{mac} is at {}, seen {age} s ago", names.port(*port)),
        Step::Flood { class } => match class {
            FloodClass::Broadcast => "broadcast: to every member of the VLAN".to_owned(),
            FloodClass::Multicast => "multicast nobody is known for: to every member of the VLAN".to_owned(),
            FloodClass::Unknown => "nobody knows the destination: to every member of the VLAN".to_owned(),
        },
        Step::Rule { table, priority, cookie } => {
            format!("table {table}: the rule of priority {priority} (cookie {cookie:#x}) matches")
        }
        Step::NoRule { table } => format!("table {table}: no rule matches"),
        Step::FlowHit => "a cached flow says what becomes of it".to_owned(),
        Step::Upcall => "no cached flow matches: the slow path looks it up in the tables".to_owned(),
        Step::ToController => "a copy goes to the controllers".to_owned(),
        Step::Routed { port, to } => format!(
            "a route leads to {to} behind {}; its addresses and hop count are written anew",
            names.port(*port)
        ),
        Step::ReversePath { from, source, back } => {
            let leads = match back {
                ReverseRoute::None => "no route leads there".to_owned(),
                ReverseRoute::Port(port) => format!("the route there leads out of {}", names.port(*port)),
                ReverseRoute::Elsewhere => {
                    "the route there leads out of a device that is none of its ports".to_owned()
                }
            };
            format!("its source {source} came in at {}, and {leads}", names.port(*from))
        }
        Step::Told { why, from } => format!("{why}: its sender is told by an ICMP error from {from}"),
        Step::ToKernel { why } => format!("it is the kernel's. {why}"),
        Step::Snooped { ports } => format!("the group's listeners and routers are at {ports} ports"),
        Step::Punted => "a copy goes to the snooper".to_owned(),
        Step::NotTo { port, reason } => format!("not to {}: {}", names.port(*port), reason.name()),
        // This step has no text here.
        other => format!("{other:?}"),
    }
}

fn source_of(source: VlanSource) -> &'static str {
    match source {
        VlanSource::Access => "the port's access VLAN",
        VlanSource::Tag => "from the frame's tag",
        VlanSource::Native => "the trunk's native VLAN",
        VlanSource::None => "no separation",
    }
}

#[cfg(test)]
mod tests {
    use packet::{DropReason, MacAddr, PortId, QueueId};

    use super::*;

    fn names() -> Names {
        let mut names = Names::new();
        names.ports.insert(1, "web1");
        names.ports.insert(2, "web2");
        names
    }

    #[test]
    fn a_forwarded_packet_reads_like_a_story() {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let steps = [
            Step::Received { port: PortId(1), queue: QueueId(0), len: 60 },
            Step::Vlan { vid: 10, source: VlanSource::Access },
            Step::Learned { mac, from: None },
            Step::Found { mac, port: PortId(2), age: 3, is_static: false },
            Step::Output { port: PortId(2), tag: TagChange::Push(10) },
        ];
        let (told, verdict) = tell(&steps, &names());
        let text: Vec<String> = told.iter().map(|step| format!("{}: {}", step.stage, step.what)).collect();
        assert_eq!(
            text,
            [
                "receive: 60 bytes from web1, queue 0",
                "function: VLAN 10, the port's access VLAN",
                "function: 02:00:00:00:00:09 is learned here",
                "function: 02:00:00:00:00:09 is at web2, seen 3 s ago",
                "execute: out of web2, tagged with VLAN 10",
            ]
        );
        assert_eq!(verdict, "it leaves by web2");
        assert_eq!(dropped(&steps), None);
    }

    #[test]
    fn what_is_dropped_at_its_output_leaves_by_no_port() {
        let out = Step::Output { port: PortId(2), tag: TagChange::Keep };
        let steps = [out, Step::Dropped(DropReason::PortDown)];
        let (_, verdict) = tell(&steps, &names());
        assert!(verdict.starts_with("dropped as port-down"), "{verdict}");
        assert_eq!(dropped(&steps), Some("port-down"));
        // If one port of a flood drops its copy, the other copies are transmitted.
        let steps =
            [Step::Dropped(DropReason::PortDown), Step::Transmitted { port: PortId(2), queue: QueueId(0) }];
        assert_eq!(tell(&steps, &names()).1, "it leaves by web2");
    }

    #[test]
    fn every_way_out_of_the_hook_is_told_in_words() {
        for counter in Counter::ALL {
            let says = HookSays {
                counter,
                verdict: xdp::Verdict::Pass,
                frame: vec![0; 60],
                rules: vec![("r".to_owned(), true)],
                to: None,
                neighbour: None,
                device: None,
                flow: None,
                steered: None,
                user: None,
            };
            let (steps, _) = hook(&says, None, &names());
            assert_eq!(steps[0].what, "rule r of the port's filter matched and acted");
            assert!(!steps[1].what.contains(UNTOLD), "{counter}: {}", steps[1].what);
        }
    }

    #[test]
    fn a_drop_names_its_reason() {
        let steps = [Step::Dropped(DropReason::VlanTaggedOnAccess)];
        let (_, verdict) = tell(&steps, &names());
        assert!(verdict.starts_with("dropped as vlan-tagged-on-access: A tagged frame came in"), "{verdict}");
        assert_eq!(dropped(&steps), Some("vlan-tagged-on-access"));
    }
}
