//! Reads `[port.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use packet::WorkerId;

use crate::load::fields::{Fields, Findings, bad_name, path, table_of};
use crate::load::tree::Node;
use crate::port::kind::{KIND_NAMES, KINDS, KindEntry};
use crate::spelling::nearest;
use crate::{Cause, FilterName, Port, PortName};

pub(crate) fn read_ports(
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

pub(crate) fn read_port(name: &PortName, mut fields: Fields<'_>, findings: &mut Findings) -> Option<Port> {
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
    let entry = |name: &str| KINDS.iter().find(|known| known.name == name);
    let kind = entry(written).or_else(|| {
        let near = nearest(written, KIND_NAMES.iter().copied());
        let cause = Cause::NotOneOf { value: written.to_owned(), near, choices: KIND_NAMES };
        findings.add(fields.place_of("kind"), fields.path("kind"), cause);
        near.and_then(entry)
    })?;
    // A port that receives no packets has no filter.
    let filter = if kind.receives { read_filter_name(&mut fields, findings) } else { None };
    let read = (kind.read)(name, &mut fields, findings);
    fields.finish_with(findings, |key| foreign(key, kind.name));
    let kind = read.filter(|_| kind.name == written)?;
    Some(Port {
        mtu,
        workers: workers.into_iter().map(WorkerId).collect(),
        software_rss,
        admin,
        filter,
        kind,
    })
}

fn read_filter_name(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<FilterName> {
    fields.parsed("filter", |text, source| Cause::BadName { text, what: "filter", source }, findings)
}

/// Returns the problem cause for a key that is valid only for kinds of ports other than `kind`. Returns
/// `None` if no kind has the key.
fn foreign(key: &str, kind: &'static str) -> Option<Cause> {
    let has_key = |known: &&KindEntry| match key {
        "filter" => known.receives,
        _ => known.keys.iter().any(|keys| keys.contains(&key)),
    };
    let kinds: Vec<&'static str> = KINDS.iter().filter(has_key).map(|known| known.name).collect();
    (!kinds.is_empty()).then(|| Cause::NotForKind { key: key.to_owned(), kind, kinds })
}
