//! Permitted differences between the two switches, each with a name and a reason (docs/switch.md lists them).

use std::collections::BTreeMap;

use super::ByPort;
use super::frames::Frame;
use super::rules::Rules;
use super::stations::Member;

/// A permitted difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    ReservedVlan,
    DropEligible,
    LaterFragment,
    Version,
    DataOffset,
    ArpOperation,
    ThirdTag,
    NoTag,
    FragmentProtocol,
    AtomicFragment,
    FourthLabel,
    LabelEntry,
    HeaderLength,
    ExtensionHeader,
    ForeignArp,
    Snap,
    NdOptions,
    SctpFragment,
    ServiceTag,
    VendorGroup,
    PriorityTag,
    SecondTag,
    PacketLength,
    ClonedGroup,
    ProtocolZero,
}

/// Features of a rule set that make certain differences permitted.
#[derive(Clone, Copy)]
pub struct Features {
    /// Whether a rule outside of table 0, which is reached by `resubmit`, writes fields after `check_pkt_larger`.
    pub writes_after_length_check: bool,
    /// Whether a `clone` action can reach a select group through a `resubmit`.
    pub select_group_in_clone: bool,
}

impl Features {
    pub fn of(rules: &Rules) -> Features {
        // Rules of table 0 are not reached by a `resubmit`, so only rules of other tables count.
        let writes_after_length_check = rules.flows.iter().any(|flow| {
            let written = flow.split_once("check_pkt_larger").map_or("", |(_, after)| after);
            !flow.starts_with("table=0,")
                && ["set_field:", "mod_", "load:", "move:"].iter().any(|set| written.contains(set))
        });
        let resubmits =
            |flow: &String| flow.split_once("clone(").is_some_and(|(_, after)| after.contains("resubmit("));
        let select_group_in_clone = rules.flows.iter().any(resubmits)
            && rules.flows.iter().any(|flow| flow.contains("group:"))
            && rules.groups.iter().any(|group| group.contains("type=select"));
        Features { writes_after_length_check, select_group_in_clone }
    }
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
            Difference::NoTag => "0 written as a tag, with a second one",
            Difference::FragmentProtocol => "protocol of later fragments of IPv6",
            Difference::AtomicFragment => "atomic fragment",
            Difference::FourthLabel => "fourth label",
            Difference::LabelEntry => "part of a label's entry written",
            Difference::HeaderLength => "header length of IPv4",
            Difference::ExtensionHeader => "extension header beyond the packet",
            Difference::ForeignArp => "ARP for other hardware",
            Difference::Snap => "label within 802.2",
            Difference::NdOptions => "options of neighbour discovery",
            Difference::SctpFragment => "checksum of a fragment of SCTP",
            Difference::ServiceTag => "service tag and NORMAL",
            Difference::VendorGroup => "vendors' reserved addresses and NORMAL",
            Difference::PriorityTag => "tag of VLAN 0 and NORMAL",
            Difference::SecondTag => "second tag and access ports",
            Difference::PacketLength => "fields written after check_pkt_larger",
            Difference::ClonedGroup => "select group inside clone",
            Difference::ProtocolZero => "protocol 0 of IPv4",
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
            Difference::NoTag => "OVS takes both off, ours the outer one",
            Difference::FragmentProtocol => {
                "for OVS it is 44; for ours what the fragment header names, as with IPv4"
            }
            Difference::AtomicFragment => {
                "OVS leaves the checksum as it was when it rewrites the destination; ours mends it"
            }
            Difference::FourthLabel => {
                "OVS reads and writes no more than three and drops the packet; ours has no such limit"
            }
            Difference::LabelEntry => {
                "a cached flow of OVS's writes all of the entry, as the packet had it that the flow was made for; ours the part that is named"
            }
            Difference::HeaderLength => {
                "under 20 octets, or beyond the packet: OVS has fields of what stands there; ours has none"
            }
            Difference::ExtensionHeader => "OVS writes no field of IPv6 then; ours does",
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
            Difference::ServiceTag => {
                "it names a VLAN of OVS's bridge; for ours only customer tags do (IEEE 802.1Q, 5.5), and the frame is untagged"
            }
            Difference::VendorGroup => {
                "OVS takes addresses of Cisco's and Extreme's protocols for reserved ones; ours forwards what IEEE 802.1Q does not reserve"
            }
            Difference::PriorityTag => {
                "OVS leaves one whose priority is not 0, takes a second one off whose priority is 0, and with the first one the second; ours sends frames of the untagged VLAN untagged, and a second tag is payload"
            }
            Difference::SecondTag => {
                "OVS floods no frame with a second tag to an access port, and takes both off where the station is known; ours takes the outer one off, behind which all is payload"
            }
            Difference::PacketLength => {
                "OVS undoes them when a resubmit returns from the rule that writes them; ours keeps them, as after other actions"
            }
            Difference::ClonedGroup => {
                "OVS recirculates for the group and skips the actions behind the clone; ours executes them"
            }
            Difference::ProtocolZero => "OVS writes no field of the IP header then; ours does",
        }
    }

    /// Returns the permitted difference that explains why the outputs for a frame differ. `members` contains the VLAN
    /// modes of the ports if rules use the action `NORMAL`.
    pub fn that_explains(
        frame: &Frame,
        members: Option<&[Member]>,
        features: Features,
        ovs: &ByPort,
        ours: &ByPort,
    ) -> Option<Difference> {
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
        if let Some(known) = members.and_then(|members| of_learning_bridges(frame, members, &theirs, &own)) {
            return Some(known);
        }
        // A fragment may differ by its checksum (`LaterFragment`, `AtomicFragment`) and by `NORMAL` at once.
        if frame.story.contains("atomic fragment") || is_later_fragment(frame) {
            let [theirs, own] = [&theirs, &own].map(|outputs| {
                let mut outputs = outputs.clone();
                outputs.values_mut().flatten().for_each(|frame| clear_sum(frame));
                outputs
            });
            if let Some(known) =
                members.and_then(|members| of_learning_bridges(frame, members, &theirs, &own))
            {
                return Some(known);
            }
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
        let labels = |frame: &[u8]| {
            let at = frame.windows(2).position(|type_| matches!(type_, [0x88, 0x47 | 0x48]));
            at.map_or(0, |at| labels_of(&frame[at + 2..]))
        };
        let most = own.values().flatten().map(|frame| labels(frame)).max();
        if (labels(&frame.bytes) >= 2 || most > Some(3)) && theirs.is_empty() {
            return Some(Difference::FourthLabel);
        }
        if labels(&frame.bytes) > 0 && differ_in_a_sum(&theirs, &own) {
            return Some(Difference::LabelEntry);
        }
        let most = ovs.values().flatten().map(|frame| {
            let mut count = 0;
            walk_tags(&mut frame.clone(), |_| count += 1);
            count
        });
        if (most.max() >= Some(2) || tags.len() >= 2) && ends_earlier(&theirs, &own, is_later_fragment(frame))
        {
            return Some(Difference::ThirdTag);
        }
        if members.is_none() && tags.len() >= 2 {
            let mut both = [&theirs, &own].map(Clone::clone);
            let all = both.iter_mut().flat_map(BTreeMap::values_mut).flatten();
            all.for_each(|frame| untag(frame, false));
            if both[0] == both[1] {
                return Some(Difference::NoTag);
            }
        }
        let is_later = is_later_fragment(frame);
        if is_later && frame.story.contains("IPv6") {
            return Some(Difference::FragmentProtocol);
        }
        let mutated = |what: &str| frame.story.contains(what) && frame.story.contains("mutated");
        let extended = ["options", "routing header", "AH"].iter().any(|header| frame.story.contains(header));
        if extended && mutated("IPv6") && like_sized(&theirs, &own) {
            return Some(Difference::ExtensionHeader);
        }
        if mutated("TCP") && differ_in_a_sum(&theirs, &own) {
            return Some(Difference::DataOffset);
        }
        if frame.story.contains("atomic fragment") && differ_in_a_sum(&theirs, &own) {
            return Some(Difference::AtomicFragment);
        }
        if is_later && differ_in_a_sum(&theirs, &own) {
            return Some(Difference::LaterFragment);
        }
        if has_protocol_zero(&frame.bytes) && like_sized(&theirs, &own) {
            return Some(Difference::ProtocolZero);
        }
        if features.select_group_in_clone && sent_more(&own, &theirs) {
            return Some(Difference::ClonedGroup);
        }
        (features.writes_after_length_check && like_sized(&theirs, &own)).then_some(Difference::PacketLength)
    }
}

/// Returns the permitted difference that explains why the outputs for a frame differ if rules use the action `NORMAL`.
fn of_learning_bridges(frame: &Frame, members: &[Member], ovs: &ByPort, ours: &ByPort) -> Option<Difference> {
    if frame.bytes[12..14] == [0x88, 0xa8] {
        return Some(Difference::ServiceTag);
    }
    let vendors = matches!(frame.bytes[..6], [0x01, 0x00, 0x0c, ..] | [0x00, 0xe0, 0x2b, ..]);
    if vendors && sent_more(ours, ovs) {
        return Some(Difference::VendorGroup);
    }
    // The packet may also end at a third tag after `NORMAL` has sent frames.
    let (mut unchanged, mut count) = (frame.bytes.clone(), 0);
    walk_tags(&mut unchanged, |tci| {
        tci[0] &= 0xef;
        count += 1;
    });
    let mut without_normal = ours.clone();
    without_normal.values_mut().for_each(|frames| frames.retain(|sent| *sent != unchanged));
    without_normal.retain(|_, frames| !frames.is_empty());
    if vendors && count >= 2 && ends_earlier(ovs, &without_normal, false) {
        return Some(Difference::VendorGroup);
    }
    let mut both = [ovs, ours].map(Clone::clone);
    let frames = |both: &mut [ByPort; 2], change: fn(&mut Vec<u8>)| {
        both.iter_mut().flat_map(BTreeMap::values_mut).flatten().for_each(change);
    };
    frames(&mut both, |frame| untag(frame, true));
    if both[0] == both[1] {
        return Some(Difference::PriorityTag);
    }
    let is_access = |port: u8| matches!(members[usize::from(port) - 1], Member::Access(_));
    for at_access in [|frame: &mut Vec<u8>| untag(frame, false), Vec::clear] {
        let mut both = both.clone();
        for outputs in &mut both {
            for (_, frames) in outputs.iter_mut().filter(|(port, _)| is_access(**port)) {
                frames.iter_mut().filter(|frame| is_tagged(frame)).for_each(at_access);
                frames.retain(|frame| !frame.is_empty());
            }
            outputs.retain(|_, frames| !frames.is_empty());
        }
        if both[0] == both[1] {
            return Some(Difference::SecondTag);
        }
    }
    // OVS sends the frame without both tags to some access ports, and does not flood the frame to other access ports.
    let mut tags = 0;
    walk_tags(&mut frame.bytes.clone(), |_| tags += 1);
    let [access, others] = [true, false].map(|wanted| {
        let mut both = both.clone();
        for outputs in &mut both {
            outputs.retain(|port, _| is_access(*port) == wanted);
            outputs.values_mut().flatten().filter(|_| wanted).for_each(|frame| untag(frame, false));
        }
        both
    });
    if tags >= 2 && others[0] == others[1] && sent_more(&access[1], &access[0]) {
        return Some(Difference::SecondTag);
    }
    // OVS removes the second tag together with the first one.
    let mut whole = frame.bytes.clone();
    untag(&mut whole, true);
    frames(&mut both, |frame| untag(frame, false));
    if frame.story.contains("VLAN 4095") && sent_more(&both[0], &both[1]) {
        return Some(Difference::ReservedVlan);
    }
    (whole.len() < frame.bytes.len() && is_tagged(&whole) && both[0] == both[1])
        .then_some(Difference::PriorityTag)
}

fn is_tagged(frame: &[u8]) -> bool {
    matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8])
}

/// Removes the VLAN tags of a frame. If `without_vlan` is set, removes only tags with VLAN ID 0.
fn untag(frame: &mut Vec<u8>, without_vlan: bool) {
    let mut at = 12;
    while let Some(&[0x81, 0x00, high, low] | &[0x88, 0xa8, high, low]) = frame.get(at..at + 4) {
        if !without_vlan || (high & 0xf, low) == (0, 0) {
            frame.drain(at..at + 4);
        } else {
            at += 4;
        }
    }
}

/// Calls `what` with the tag control information (TCI) of each VLAN tag of a frame, beginning with the outermost tag.
fn walk_tags(frame: &mut [u8], mut what: impl FnMut(&mut [u8])) {
    let mut at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(at..at + 2) {
        if let Some(tci) = frame.get_mut(at + 2..at + 4) {
            what(tci);
        }
        at += 4;
    }
}

/// Sets the TCP or UDP checksum of a frame to 0. The frame may have VLAN tags, and its packet may be a fragment.
fn clear_sum(frame: &mut [u8]) {
    let mut at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(at..at + 2) {
        at += 4;
    }
    let ip = at + 2;
    let octet = |at: usize| frame.get(at).copied().unwrap_or_default();
    let (protocol, header) = match [octet(at), octet(at + 1)] {
        [0x08, 0x00] => (octet(ip + 9), ip + usize::from(octet(ip) & 15) * 4),
        [0x86, 0xdd] => {
            let (mut protocol, mut header) = (octet(ip + 6), ip + 40);
            // Headers of fragments follow the IPv6 header.
            while protocol == 44 {
                (protocol, header) = (octet(header), header + 8);
            }
            (protocol, header)
        }
        _ => return,
    };
    let sum = match protocol {
        6 => header + 16,
        17 => header + 6,
        1 | 58 => header + 2,
        _ => return,
    };
    if let Some(octets) = frame.get_mut(sum..sum + 2) {
        octets.fill(0);
    }
}

/// Returns the number of MPLS labels up to the bottom of the stack.
fn labels_of(stack: &[u8]) -> usize {
    stack.chunks_exact(4).position(|entry| entry[2] & 1 != 0).map_or(0, |last| last + 1)
}

fn is_later_fragment(frame: &Frame) -> bool {
    let mut at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.bytes.get(at..at + 2) {
        at += 4;
    }
    // A mutation may have changed the offset, so the header is examined.
    let is_v4 = frame.bytes.get(at..at + 2) == Some(&[0x08, 0x00]);
    let offset = frame.bytes.get(at + 8..at + 10).is_some_and(|field| field[0] & 0x1f != 0 || field[1] != 0);
    frame.story.contains("later fragment") || is_v4 && offset
}

/// Returns whether the frame has an IPv4 header with protocol 0 after its VLAN tags.
fn has_protocol_zero(frame: &[u8]) -> bool {
    let mut at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(at..at + 2) {
        at += 4;
    }
    frame.get(at..at + 2) == Some(&[0x08, 0x00]) && frame.get(at + 11) == Some(&0)
}

/// Returns whether the version in the first IP header after the VLAN tags does not match the EtherType.
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

/// Returns whether two frames are equal except for one checksum. In an ICMP message, the type and the code, which
/// precede the checksum, may also differ.
fn alike(one: &[u8], other: &[u8]) -> bool {
    let differ: Vec<usize> = (0..one.len()).filter(|at| other.get(*at) != one.get(*at)).collect();
    one.len() == other.len() && differ.last().is_none_or(|last| last - differ[0] < 4)
}

/// Returns whether the output of both switches is equal except for checksums.
fn differ_in_a_sum(ovs: &ByPort, ours: &ByPort) -> bool {
    let all =
        |outputs: &ByPort| outputs.iter().map(|(port, frames)| (*port, frames.len())).collect::<Vec<_>>();
    all(ovs) == all(ours)
        && ovs.values().flatten().zip(ours.values().flatten()).all(|(one, other)| alike(one, other))
}

/// Returns whether `one` contains all frames of `other`, in the same order on each port. `one` may contain additional
/// frames.
fn sent_more(one: &ByPort, other: &ByPort) -> bool {
    other.iter().all(|(port, frames)| {
        one.get(port).is_some_and(|own| {
            let mut rest = own.iter();
            frames.iter().all(|frame| rest.any(|own| own == frame))
        })
    })
}

/// Returns whether the output frames of both switches have equal lengths.
fn like_sized(one: &ByPort, other: &ByPort) -> bool {
    let lengths = |outputs: &ByPort| -> Vec<(u8, Vec<usize>)> {
        outputs.iter().map(|(port, frames)| (*port, frames.iter().map(Vec::len).collect())).collect()
    };
    lengths(one) == lengths(other)
}

/// Returns whether Trivium's output on each port is the beginning of OVS's output. If `roughly` is set, frames that
/// differ only in a checksum count as equal.
fn ends_earlier(ovs: &ByPort, ours: &ByPort, roughly: bool) -> bool {
    let same = |one: &Vec<u8>, other: &Vec<u8>| one == other || roughly && alike(one, other);
    ours.iter().all(|(port, frames)| {
        ovs.get(port).is_some_and(|theirs| {
            theirs.len() >= frames.len() && theirs.iter().zip(frames).all(|(one, other)| same(one, other))
        })
    })
}
