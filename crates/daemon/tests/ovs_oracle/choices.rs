//! Compares choices that depend on hashes: buckets of select groups, links of `multipath`, and members of
//! `bundle_load`. The two switches use different hash functions and may choose differently. Therefore, rules write each
//! choice into the source MAC address of a packet. The choice must be one of the permitted values and equal for all
//! packets of a flow, and the rest of the packet must be equal.

use std::collections::{BTreeMap, BTreeSet};

use super::ByPort;
use super::frames::{Frame, PORTS, Random, mark_of};

/// First octets of a source MAC address into which a rule has written a choice that depends on a hash
/// (02:5e:WHO:00:00:CHOICE). WHO identifies the group or action that has chosen, and CHOICE is the chosen bucket, link
/// or member.
const SIGN: [u8; 2] = [0x02, 0x5e];
/// First value of WHO (see [`SIGN`]) for `multipath` actions. The number of links is added to this value.
const LINKS: u8 = 0x10;
/// First value of WHO (see [`SIGN`]) for `bundle_load` actions. A bit for each member port is added to this value,
/// beginning with port 1.
const MEMBERS: u8 = 0x40;
/// Number of a port that does not exist, for members that must never be chosen.
const NOWHERE: u8 = 77;

/// Numbers of the permitted buckets of each select group, by group number.
pub type Buckets = BTreeMap<u8, BTreeSet<u8>>;

/// Returns a random select group in the syntax of `ovs-ofctl`, and the numbers of its buckets that a switch may choose.
pub fn group(random: &mut Random, id: u8, version: &str) -> (String, BTreeSet<u8>) {
    let method = match version {
        "OpenFlow15" => random.of(&[
            "",
            "selection_method=dp_hash,",
            "selection_method=hash,fields(eth_src,eth_dst),",
            "selection_method=hash,selection_method_param=7,fields(ip_src,ip_dst=255.255.255.0,tcp_dst),",
        ]),
        _ => "",
    };
    // All buckets use one port. If this port is the input port, no bucket sends anything.
    let port = 1 + random.below(PORTS.into());
    let mut line = format!("group_id={id},type=select,{method}");
    let mut may = BTreeSet::new();
    let last = 1 + random.below(5) as u8;
    for place in 0..=last {
        let weight = random.of(&[0, 1, 1, 3, 100]);
        // At least one bucket is always live.
        let (weight, dead) =
            if place == last && may.is_empty() { (2, false) } else { (weight, random.one_in(5)) };
        if weight > 0 && !dead {
            may.insert(place);
        }
        let watch = if dead { format!("watch_port:{NOWHERE},") } else { String::new() };
        line += &format!(
            "{}bucket=weight:{weight},{watch}actions=set_field:{}->eth_src,output:{port}",
            if place == 0 { "" } else { "," },
            address(id, place)
        );
    }
    (line, may)
}

fn address(who: u8, choice: u8) -> String {
    format!("{:02x}:{:02x}:{who:02x}:00:00:{choice:02x}", SIGN[0], SIGN[1])
}

/// Returns random actions that choose a link or a member by a hash, and send a packet that contains the choice.
pub fn action(random: &mut Random) -> String {
    let fields = random.of(&FIELDS);
    let to = 1 + random.below(PORTS.into());
    if random.one_in(3) {
        let members: Vec<usize> = (1..=usize::from(PORTS)).filter(|_| random.one_in(2)).collect();
        let members = if members.is_empty() { vec![to] } else { members };
        let who = MEMBERS | members.iter().fold(0, |bits, member| bits | 1 << (member - 1));
        let mut names: Vec<String> = members.iter().map(ToString::to_string).collect();
        if random.one_in(3) {
            names.push(NOWHERE.to_string());
        }
        let (names, basis) = (names.join(","), random.below(100));
        let choose = format!("bundle_load({fields},{basis},hrw,ofport,NXM_NX_REG2[0..15],members:{names})");
        return shown(&choose, who, to);
    }
    multipath(random, fields, to)
}

/// Names of the hash methods and fields in `ovs-ofctl`.
const FIELDS: [&str; 7] =
    ["eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src", "nw_dst", "symmetric_l3"];
/// Hash methods that have equal results for both directions of a flow.
pub const SYMMETRIC: [&str; 4] = ["symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "symmetric_l3"];

/// Returns a `multipath` action that hashes the given fields, followed by actions that send a packet with the choice to
/// a port.
pub fn multipath(random: &mut Random, fields: &str, to: usize) -> String {
    let links = 1 + random.below(16) as u8;
    let way = random.of(&["modulo_n", "hash_threshold", "hrw", "iter_hash"]);
    let (basis, argument) = (random.below(100), random.of(&[0, 1, 16, 64]));
    let choose = format!("multipath({fields},{basis},{way},{links},{argument},NXM_NX_REG2[0..7])");
    shown(&choose, LINKS + links, to)
}

/// Returns a `clone` action that executes `choose`, which writes its choice to register 2, and sends a copy of the
/// packet with the choice in its source MAC address to the port `to`.
fn shown(choose: &str, who: u8, to: usize) -> String {
    let sign = u64::from(SIGN[0]) << 40 | u64::from(SIGN[1]) << 32 | u64::from(who) << 24;
    format!(
        "clone({choose},load:{sign:#x}->NXM_OF_ETH_SRC[],move:NXM_NX_REG2[0..7]->NXM_OF_ETH_SRC[0..7],output:{to})"
    )
}

/// Returns WHO and CHOICE (see [`SIGN`]) of a frame that contains a choice, and `None` for other frames.
fn choice(frame: &[u8]) -> Option<(u8, u8)> {
    (frame[6..8] == SIGN).then(|| (frame[8], frame[11]))
}

/// Sets the choices in the output frames to 0. Returns the changed frames, and the choices that are not permitted.
pub fn without(outputs: &ByPort, buckets: &Buckets) -> (ByPort, Vec<(u8, u8)>) {
    let (mut outputs, mut strange) = (outputs.clone(), Vec::new());
    for frame in outputs.values_mut().flatten() {
        let Some((who, choice)) = choice(frame) else { continue };
        let may = match who {
            MEMBERS.. => (1..=PORTS).contains(&choice) && who & 1 << (choice - 1) != 0,
            LINKS.. => choice < who - LINKS,
            _ => buckets.get(&who).is_some_and(|may| may.contains(&choice)),
        };
        if !may {
            strange.push((who, choice));
        }
        frame[11] = 0;
    }
    (outputs, strange)
}

/// Returns all choices in the output frames of one input frame, sorted by port and in the order of the frames.
fn choices(outputs: &ByPort) -> Vec<(u8, u8)> {
    outputs.values().flatten().filter_map(|frame| choice(frame)).collect()
}

/// Compares the choices for input frames that were sent twice. Returns descriptions of the frames whose choices differ,
/// and the number of equal choices. `pairs` contains each frame with the number under which it was sent the second
/// time.
pub fn fickle(pairs: &[(&Frame, u32)], outputs: &BTreeMap<u32, ByPort>) -> (Vec<String>, usize) {
    let (none, mut wrong, mut agree) = (ByPort::new(), Vec::new(), 0);
    for (frame, again) in pairs {
        let [first, second] =
            [&frame.number, again].map(|number| choices(outputs.get(number).unwrap_or(&none)));
        if first == second {
            agree += first.len();
        } else {
            wrong.push(format!(
                "frame {} into port {} ({}): chose {first:02x?}, then {second:02x?}\n",
                frame.number, frame.port, frame.story
            ));
        }
    }
    (wrong, agree)
}

impl Frame {
    /// Returns whether both switches parse the frame in the same way, so that neither takes payload for a header.
    pub fn is_regular(&self) -> bool {
        let odd = [
            "mutated",
            "length",
            "version",
            "cut",
            "offset",
            "option",
            "fragment",
            "AH",
            "802.2",
            "MPLS",
            "4095",
            "three tags",
            "over 255",
        ];
        !odd.iter().any(|word| self.story.contains(word))
    }

    /// Returns a copy of the frame whose marks contain the number `number`.
    pub fn again(&self, number: u32) -> Frame {
        let mut bytes = self.bytes.clone();
        for at in 0..bytes.len().saturating_sub(11) {
            if mark_of(&bytes[at..at + 12]).is_some() {
                bytes[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
                bytes[at + 8..at + 12].copy_from_slice(&number.to_be_bytes().map(|octet| !octet));
            }
        }
        Frame { number, port: self.port, bytes, story: self.story.clone() }
    }

    /// Returns a frame in the opposite direction of an untagged TCP, UDP or SCTP flow, with another number.
    pub fn back(&self, number: u32) -> Option<Frame> {
        let mut frame = self.again(number);
        let (at, octets, ports) = match frame.bytes[12..15] {
            [0x08, 0x00, 0x45] if matches!(frame.bytes[23], 6 | 17 | 132) => (26, 4, 34),
            [0x86, 0xdd, _] if matches!(frame.bytes[20], 6 | 17 | 132) => (22, 16, 54),
            _ => return None,
        };
        for (at, octets) in [(0, 6), (at, octets), (ports, 2)] {
            let (one, other) = frame.bytes[at..at + 2 * octets].split_at_mut(octets);
            one.swap_with_slice(other);
        }
        Some(frame)
    }
}
