//! Reads `[port.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use packet::{QueueId, WorkerId};

use super::fields::{Fields, Findings, bad_name, number_in, path, table_of};
use super::tree::{Node, Value};
use crate::spelling::nearest;
use crate::{
    AfXdp, Cause, Checksums, DeviceName, FilterName, Patch, Pcap, PcapTiming, Peer, Port, PortKind, PortName,
    Queues, Ring, Routing, Tap, Veth, WhenDown, XdpMode, XdpOptions, ZeroCopy,
};

const KINDS: &[&str] = &["af_xdp", "veth", "tap", "internal", "pcap", "patch", "ring", "null"];
const RING_BOUNDS: (i64, i64) = (64, 32_768);

pub(super) fn read_ports(
    node: &Node,
    findings: &mut Findings,
    declared: &mut BTreeSet<String>,
) -> BTreeMap<PortName, Port> {
    let mut ports = BTreeMap::new();
    let Some(fields) = table_of("port", node, findings) else { return ports };
    for entry in fields.entries() {
        let object = path("port", &entry.key);
        declared.insert(entry.key.clone());
        if let Some(place) = entry.place {
            findings.places.insert(object.clone(), place);
        }
        let name = entry.key.parse::<PortName>().map_err(|error| {
            findings.add(entry.place, object.clone(), bad_name("port")(&entry.key, error));
        });
        let Some(fields) = table_of(&object, &entry.node, findings) else { continue };
        // A port with an invalid name is read as well, so that its other problems are found.
        let stand_in = "port".parse().ok();
        let Some(name_or_stand_in) = name.as_ref().ok().or(stand_in.as_ref()) else { continue };
        let port = read_port(name_or_stand_in, fields, findings);
        if let (Ok(name), Some(port)) = (name, port) {
            ports.insert(name, port);
        }
    }
    ports
}

pub(super) fn read_port(name: &PortName, mut fields: Fields<'_>, findings: &mut Findings) -> Option<Port> {
    if !fields.has("kind") {
        fields.missing("kind", "kind = \"af_xdp\"", findings);
    }
    let kind = fields.text("kind", findings);
    let mtu = fields.mtu(findings);
    let workers = fields.numbers("workers", (0, 63), "worker", findings).unwrap_or_default();
    fields.renamed("spread", "software_rss", findings);
    fields.renamed("steer", "steering", findings);
    let software_rss = fields.flag("software_rss", findings).unwrap_or(false);
    let admin = fields.word("admin", &["up", "down"], &[true, false], findings).unwrap_or(true);
    let written = kind?;
    // If the kind is misspelled, the other keys are read as keys of the nearest kind, so that their problems
    // are found.
    let kind = KINDS.iter().find(|known| **known == written).copied().or_else(|| {
        let near = nearest(written, KINDS.iter().copied());
        let cause = Cause::NotOneOf { value: written.to_owned(), near, choices: KINDS };
        findings.add(fields.place_of("kind"), fields.path("kind"), cause);
        near
    })?;
    // A null port receives no packets, so it has no filter.
    let filter = if kind == "null" { None } else { read_filter_name(&mut fields, findings) };
    let read = read_kind(kind, name, &mut fields, findings);
    fields.finish_with(findings, |key| foreign(key, kind));
    let kind = read.filter(|_| kind == written)?;
    Some(Port {
        mtu,
        workers: workers.into_iter().map(WorkerId).collect(),
        software_rss,
        admin,
        filter,
        kind,
    })
}

fn read_kind(
    kind: &str,
    name: &PortName,
    fields: &mut Fields<'_>,
    findings: &mut Findings,
) -> Option<PortKind> {
    Some(match kind {
        "af_xdp" => {
            let device = read_device(name, fields, findings);
            let namespace = fields.namespace(findings);
            let xdp = read_xdp(fields, findings);
            PortKind::AfXdp(AfXdp { device: device?, namespace: namespace?, xdp })
        }
        "veth" => {
            let device = read_device(name, fields, findings);
            let namespace = fields.namespace(findings);
            let xdp = read_xdp(fields, findings);
            let peer = read_peer(fields, findings);
            PortKind::Veth(Veth { device: device?, namespace: namespace?, peer: peer?, xdp })
        }
        "tap" => PortKind::Tap(read_tap(name, fields, findings)?),
        "internal" => PortKind::Internal(read_tap(name, fields, findings)?),
        "pcap" => PortKind::Pcap(read_pcap(fields, findings)),
        "patch" => {
            if !fields.has("peer") {
                fields.missing("peer", "peer = \"patch1\"", findings);
            }
            let bad = |text, source| Cause::BadName { text, what: "port", source };
            PortKind::Patch(Patch { peer: fields.parsed("peer", bad, findings)? })
        }
        "ring" => {
            PortKind::Ring(Ring { size: fields.power_of_two("size", RING_BOUNDS, findings).unwrap_or(1024) })
        }
        "null" => PortKind::Null,
        // `read_port` passes only kinds from `KINDS`.
        _ => return None,
    })
}

/// Reads the name of the device. The default is the name of the port, if this name is a valid device name.
fn read_device(name: &PortName, fields: &mut Fields<'_>, findings: &mut Findings) -> Option<DeviceName> {
    if fields.has("device") {
        return fields.device("device", findings);
    }
    fields.get("device", findings);
    match name.as_str().parse() {
        Ok(device) => Some(device),
        Err(error) => {
            findings.add(fields.place, fields.object.clone(), bad_name("device")(name.as_str(), error));
            None
        }
    }
}

fn read_xdp(fields: &mut Fields<'_>, findings: &mut Findings) -> XdpOptions {
    let default = XdpOptions::default();
    let modes = [XdpMode::Auto, XdpMode::Native, XdpMode::Generic];
    let zero_copies = [ZeroCopy::Auto, ZeroCopy::Require, ZeroCopy::Off];
    let checksums = [Checksums::Auto, Checksums::On, Checksums::Off];
    XdpOptions {
        queues: read_queues(fields, findings).unwrap_or(default.queues),
        mode: fields.word("mode", &["auto", "native", "generic"], &modes, findings).unwrap_or(default.mode),
        zero_copy: fields
            .word("zero_copy", &["auto", "require", "off"], &zero_copies, findings)
            .unwrap_or(default.zero_copy),
        ring_size: fields.power_of_two("ring_size", RING_BOUNDS, findings).unwrap_or(default.ring_size),
        busy_poll: fields.number("busy_poll", (0, 10_000), " us", findings).unwrap_or(default.busy_poll),
        persist: fields.flag("persist", findings),
        when_down: fields.word("when_down", &["drop", "pass"], &[WhenDown::Drop, WhenDown::Pass], findings),
        complete_checksums: fields
            .word("complete_checksums", &["auto", "on", "off"], &checksums, findings)
            .unwrap_or(default.complete_checksums),
        routing: fields.word("routing", &["kernel"], &[Routing::Kernel], findings),
        steering: fields.parsed(
            "steering",
            |text, source| Cause::BadName { text, what: "steering", source },
            findings,
        ),
    }
}

fn read_filter_name(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<FilterName> {
    fields.parsed("filter", |text, source| Cause::BadName { text, what: "filter", source }, findings)
}

fn read_queues(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Queues> {
    let entry = fields.get("queues", findings)?;
    let object = fields.path("queues");
    match &entry.node.value {
        Value::Text(text) if text == "all" => Some(Queues::All),
        Value::Integer(_) => number_in(&object, &entry.node, (1, 256), "", findings).map(Queues::First),
        Value::List(items) if items.is_empty() => {
            findings.add(
                entry.node.place,
                object,
                Cause::Missing { key: "a queue", example: "queues = [0]" },
            );
            None
        }
        Value::List(_) => {
            let queues = fields.numbers("queues", (0, 255), "queue", findings)?;
            Some(Queues::List(queues.into_iter().map(QueueId).collect()))
        }
        other => {
            let expected = "a number of queues, a list of queues, or \"all\"";
            findings.add(entry.node.place, object, Cause::WrongType { expected, found: other.found() });
            None
        }
    }
}

fn read_peer(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Peer> {
    const EXAMPLE: &str = "peer = { name = \"eth0\", namespace = \"web1\" }";
    let Some(entry) = fields.get("peer", findings) else {
        fields.missing("peer", EXAMPLE, findings);
        return None;
    };
    let mut peer = table_of(&fields.path("peer"), &entry.node, findings)?;
    if !peer.has("name") {
        peer.missing("name", "name = \"eth0\"", findings);
    }
    let name = peer.device("name", findings);
    let namespace = peer.namespace(findings);
    let address = peer.addresses(findings);
    let mac = peer.station("mac", findings);
    let mtu = peer.mtu(findings);
    peer.finish(findings);
    Some(Peer { name: name?, namespace: namespace?, address, mac, mtu })
}

fn read_tap(name: &PortName, fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Tap> {
    let device = read_device(name, fields, findings);
    let namespace = fields.namespace(findings);
    let address = fields.addresses(findings);
    let mac = fields.station("mac", findings);
    let queues = fields.number("queues", (1, 256), "", findings).unwrap_or(1);
    Some(Tap { device: device?, namespace: namespace?, address, mac, queues })
}

fn read_pcap(fields: &mut Fields<'_>, findings: &mut Findings) -> Pcap {
    let pcap = Pcap {
        read: fields.file("read", findings),
        write: fields.file("write", findings),
        repeat: fields.flag("loop", findings).unwrap_or(false),
        timing: fields
            .word("timing", &["file", "flat-out"], &[PcapTiming::File, PcapTiming::FlatOut], findings)
            .unwrap_or(PcapTiming::File),
    };
    if !fields.has("read") && !fields.has("write") {
        findings.add(fields.place, fields.object.clone(), Cause::NothingToDo);
    }
    for key in ["loop", "timing"] {
        if fields.has(key) && !fields.has("read") {
            findings.add(fields.place_of(key), fields.path(key), Cause::NeedsOther { key, needs: "read" });
        }
    }
    pcap
}

/// Returns the problem cause for a key that is valid only for kinds of ports other than `kind`. Returns
/// `None` if no kind has the key.
fn foreign(key: &str, kind: &'static str) -> Option<Cause> {
    let kinds: &[&'static str] = match key {
        "mode" | "zero_copy" | "ring_size" | "busy_poll" | "persist" | "when_down" | "complete_checksums"
        | "routing" | "steering" => &["af_xdp", "veth"],
        "peer" => &["veth", "patch"],
        "device" | "namespace" => &["af_xdp", "veth", "tap", "internal"],
        "queues" => &["af_xdp", "veth", "tap", "internal"],
        "filter" => &["af_xdp", "veth", "tap", "internal", "pcap", "patch", "ring"],
        "address" | "mac" => &["tap", "internal"],
        "read" | "write" | "loop" | "timing" => &["pcap"],
        "size" => &["ring"],
        _ => return None,
    };
    Some(Cause::NotForKind { key: key.to_owned(), kind, kinds: kinds.to_vec() })
}
