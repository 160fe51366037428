//! Where the two may differ, each by name and with its reason (docs/switch.md lists them).

use super::ByPort;
use super::frames::Frame;

/// A difference that is meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    ReservedVlan,
    DropEligible,
    LaterFragment,
    Version,
    DataOffset,
    ArpOperation,
    ThirdTag,
    FragmentProtocol,
    AtomicFragment,
    FourthLabel,
    HeaderLength,
    ForeignArp,
    Snap,
    NdOptions,
    SctpFragment,
}

impl Difference {
    pub fn name(self) -> &'static str {
        match self {
            Difference::ReservedVlan => "VLAN 4095",
            Difference::DropEligible => "drop eligibility",
            Difference::LaterFragment => "later fragment",
            Difference::Version => "version of IP",
            Difference::DataOffset => "data offset of TCP",
            Difference::ArpOperation => "operation of ARP",
            Difference::ThirdTag => "third tag",
            Difference::FragmentProtocol => "protocol of later fragments of IPv6",
            Difference::AtomicFragment => "atomic fragment",
            Difference::FourthLabel => "fourth label",
            Difference::HeaderLength => "header length of IPv4",
            Difference::ForeignArp => "ARP for other hardware",
            Difference::Snap => "label within 802.2",
            Difference::NdOptions => "options of neighbour discovery",
            Difference::SctpFragment => "checksum of a fragment of SCTP",
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Difference::ReservedVlan => {
                "no frame has that tag (IEEE 802.1Q, table 9-2); ours drops it, OVS forwards it"
            }
            Difference::DropEligible => {
                "OVS clears the bit of a tag that it writes, ours leaves it as it came"
            }
            Difference::LaterFragment => {
                "where addresses are rewritten OVS mends what would be a checksum if this were not a later fragment, and is payload"
            }
            Difference::Version => {
                "OVS takes IPv4 and IPv6 by EtherType alone; ours has no such fields where the version is another"
            }
            Difference::DataOffset => {
                "OVS takes ports of a TCP header whose data offset cannot be; ours does not"
            }
            Difference::ArpOperation => {
                "OVS writes no field of an ARP packet whose operation is 0 or over 255; ours does"
            }
            Difference::ThirdTag => {
                "a third tag takes the place of the innermost one in OVS; ours ends with the packet there"
            }
            Difference::FragmentProtocol => {
                "for OVS it is 44; for ours what the fragment header names, as with IPv4"
            }
            Difference::AtomicFragment => {
                "OVS leaves the checksum as it was when it rewrites the destination; ours mends it"
            }
            Difference::FourthLabel => {
                "OVS reads and writes no more than three and drops the packet; ours has no such limit"
            }
            Difference::HeaderLength => {
                "under 20 octets, or beyond the packet: OVS has fields of what stands there; ours has none"
            }
            Difference::ForeignArp => {
                "OVS writes the operation of ARP that is not for Ethernet and IPv4; ours leaves it alone"
            }
            Difference::Snap => {
                "OVS puts the label's EtherType in place of the length; ours of the EtherType behind SNAP"
            }
            Difference::NdOptions => {
                "with one twice or of an impossible length OVS has no field of the message, and of two it writes the first alone"
            }
            Difference::SctpFragment => {
                "it covers the whole message, which is not there: OVS changes it, ours does not"
            }
        }
    }

    pub fn that_explains(frame: &Frame, ovs: &ByPort, ours: &ByPort) -> Option<Difference> {
        let mut tags = Vec::new();
        walk_tags(&mut frame.bytes.clone(), |tci| tags.push(tci[1] == 0xff && tci[0] & 0xf == 0xf));
        if tags.contains(&true) && ours.is_empty() {
            return Some(Difference::ReservedVlan);
        }
        let plain = |outputs: &ByPort| {
            let mut outputs = outputs.clone();
            let frames = outputs.values_mut().flatten();
            frames.for_each(|frame| walk_tags(frame, |tci| tci[0] &= 0xef));
            outputs
        };
        let (theirs, own) = (plain(ovs), plain(ours));
        if theirs == own {
            return Some(Difference::DropEligible);
        }
        if has_other_version(&frame.bytes) {
            return Some(Difference::Version);
        }
        let told = [
            ("another version", Difference::Version),
            ("another length of the header", Difference::HeaderLength),
            ("of another hardware", Difference::ForeignArp),
            ("of another length", Difference::ForeignArp),
            ("two options", Difference::NdOptions),
            ("an odd option", Difference::NdOptions),
            ("data offset of its own", Difference::DataOffset),
            ("operation over 255", Difference::ArpOperation),
        ];
        if let Some((_, known)) = told.iter().find(|(story, _)| frame.story.contains(story)) {
            return Some(*known);
        }
        let is_labelled = |frame: &Vec<u8>| matches!(frame[12..14], [0x88, 0x47 | 0x48]);
        if frame.story.contains("802.2") && theirs.values().flatten().any(is_labelled) {
            return Some(Difference::Snap);
        }
        if frame.story.contains("SCTP")
            && frame.story.contains("first fragment")
            && differ_in_a_sum(&theirs, &own)
        {
            return Some(Difference::SctpFragment);
        }
        let labels = frame.bytes.windows(2).position(|type_| matches!(type_, [0x88, 0x47 | 0x48]));
        if labels.is_some_and(|at| labels_of(&frame.bytes[at + 2..]) >= 2) && theirs.is_empty() {
            return Some(Difference::FourthLabel);
        }
        let most = ovs.values().flatten().map(|frame| {
            let mut count = 0;
            walk_tags(&mut frame.clone(), |_| count += 1);
            count
        });
        if most.max() >= Some(2) && ends_earlier(&theirs, &own, is_later_fragment(frame)) {
            return Some(Difference::ThirdTag);
        }
        let is_later = is_later_fragment(frame);
        if is_later && frame.story.contains("IPv6") {
            return Some(Difference::FragmentProtocol);
        }
        if frame.story.contains("atomic fragment") && differ_in_a_sum(&theirs, &own) {
            return Some(Difference::AtomicFragment);
        }
        (is_later && differ_in_a_sum(&theirs, &own)).then_some(Difference::LaterFragment)
    }
}

/// The control information of a frame's tags, from the outermost.
fn walk_tags(frame: &mut [u8], mut what: impl FnMut(&mut [u8])) {
    let mut at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(at..at + 2) {
        if let Some(tci) = frame.get_mut(at + 2..at + 4) {
            what(tci);
        }
        at += 4;
    }
}

/// Labels that stand here, up to the last one.
fn labels_of(stack: &[u8]) -> usize {
    stack.chunks_exact(4).position(|entry| entry[2] & 1 != 0).map_or(0, |last| last + 1)
}

fn is_later_fragment(frame: &Frame) -> bool {
    let mut at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.bytes.get(at..at + 2) {
        at += 4;
    }
    // By its offset, which a mutation may have made.
    let is_v4 = frame.bytes.get(at..at + 2) == Some(&[0x08, 0x00]);
    let offset = frame.bytes.get(at + 8..at + 10).is_some_and(|field| field[0] & 0x1f != 0 || field[1] != 0);
    frame.story.contains("later fragment") || is_v4 && offset
}

/// Whether the first IP header behind the tags is of another version than the EtherType says.
fn has_other_version(frame: &[u8]) -> bool {
    let mut at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(at..at + 2) {
        at += 4;
    }
    match frame.get(at..at + 3) {
        Some(&[0x08, 0x00, first]) => first >> 4 != 4,
        Some(&[0x86, 0xdd, first]) => first >> 4 != 6,
        _ => false,
    }
}

/// Whether two frames are the same, except for a checksum (and type and code of ICMP in front of it).
fn alike(one: &[u8], other: &[u8]) -> bool {
    let differ: Vec<usize> = (0..one.len()).filter(|at| other.get(*at) != one.get(*at)).collect();
    one.len() == other.len() && differ.last().is_none_or(|last| last - differ[0] < 4)
}

/// Whether the same frames left, except for that.
fn differ_in_a_sum(ovs: &ByPort, ours: &ByPort) -> bool {
    let all =
        |outputs: &ByPort| outputs.iter().map(|(port, frames)| (*port, frames.len())).collect::<Vec<_>>();
    all(ovs) == all(ours)
        && ovs.values().flatten().zip(ours.values().flatten()).all(|(one, other)| alike(one, other))
}

/// Whether ours sent what OVS sent, and then no more.
fn ends_earlier(ovs: &ByPort, ours: &ByPort, roughly: bool) -> bool {
    let same = |one: &Vec<u8>, other: &Vec<u8>| one == other || roughly && alike(one, other);
    ours.iter().all(|(port, frames)| {
        ovs.get(port).is_some_and(|theirs| {
            theirs.len() >= frames.len() && theirs.iter().zip(frames).all(|(one, other)| same(one, other))
        })
    })
}
