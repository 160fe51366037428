//! The OpenFlow features that real packets meet: a list of cases, each with rules in the words of `ovs-ofctl`, frames that go into a bridge
//! of four ports, and the frames that must leave.
//!
//! The list has two readers. `daemon/tests/openflow_packets.rs` runs every case against the real binary and fails where one frame differs.
//! `openflow/tests/matrix.rs` writes the features into `docs/switch-matrix.md`. A feature without a case stands there as "-".

mod actions;
mod fields;
mod frames;

use std::collections::BTreeSet;

pub use frames::MARK;

/// The ports of the bridge, from 1 on.
pub const PORTS: u8 = 4;

/// Commands of `ovs-ofctl` that come before all cases: the bridge's name stands behind the first word.
pub const PREPARATION: [[&str; 2]; 1] = [[
    "add-tlv-map",
    "{class=0x100,type=0,len=8}->tun_metadata0,{class=0x101,type=0,len=8}->tun_metadata1,\
     {class=0x102,type=0,len=8}->tun_metadata2,{class=0x103,type=0,len=8}->tun_metadata3,\
     {class=0x104,type=0,len=8}->tun_metadata4,{class=0x105,type=0,len=8}->tun_metadata5,\
     {class=0x106,type=0,len=8}->tun_metadata6,{class=0x107,type=0,len=8}->tun_metadata7",
]];

/// A feature that a case proves: a row of `docs/switch-matrix.md`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feature {
    /// The field is matched whole: a frame with another value takes another way.
    Match(&'static str),
    /// The field is matched under a mask: a bit outside the mask makes no difference.
    Part(&'static str),
    /// The field is set: the frame that leaves, or the next table, has the new value.
    Set(&'static str),
    /// The action or instruction of this row is executed.
    Action(&'static str),
}

/// Rules, frames and the frames that must leave.
#[derive(Clone, Debug)]
pub struct PacketCase {
    /// The features that the case proves.
    pub proves: Vec<Feature>,
    /// The version that the client speaks, as in `ovs-ofctl -O`.
    pub version: &'static str,
    /// Commands of `ovs-ofctl` before the rules: command and argument.
    pub setup: Vec<(&'static str, String)>,
    /// The only rules of the bridge meanwhile.
    pub flows: Vec<String>,
    /// The frames, one after the other.
    pub steps: Vec<Step>,
}

/// A frame that goes in, and its consequences.
#[derive(Clone, Debug)]
pub struct Step {
    /// The port by which the frame goes in.
    pub port: u8,
    /// The frame, Ethernet header first. It contains [`MARK`].
    pub frame: Vec<u8>,
    /// How many times the frame goes in, one right behind the other.
    pub times: usize,
    /// The frames that leave all in all, with their ports. The order between ports does not matter.
    pub leaves: Vec<(u8, Vec<u8>)>,
    /// A part of a line that `ovs-ofctl monitor` prints.
    pub packet_in: Option<String>,
    /// A match for `ovs-ofctl dump-flows`, and a part of a line that the command prints in the end.
    pub shown: Option<(&'static str, &'static str)>,
}

impl PacketCase {
    /// Returns a case in OpenFlow 1.5 without a set-up.
    fn new(proves: &[Feature], flows: &[&str], steps: Vec<Step>) -> PacketCase {
        let flows = flows.iter().map(|flow| (*flow).to_owned()).collect();
        PacketCase { proves: proves.to_vec(), version: "OpenFlow15", setup: Vec::new(), flows, steps }
    }
}

impl Step {
    /// Returns the step of a frame that goes in once.
    fn new(port: u8, frame: &[u8], leaves: &[(u8, &[u8])]) -> Step {
        let leaves = leaves.iter().map(|(port, frame)| (*port, frame.to_vec())).collect();
        Step { port, frame: frame.to_vec(), times: 1, leaves, packet_in: None, shown: None }
    }
}

/// Returns all cases.
#[must_use]
pub fn all() -> Vec<PacketCase> {
    let mut cases = fields::cases();
    cases.extend(actions::cases());
    cases
}

/// Returns the features of all cases.
#[must_use]
pub fn features() -> BTreeSet<Feature> {
    all().into_iter().flat_map(|case| case.proves).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_bears_the_mark_and_every_step_has_a_consequence() {
        for case in all() {
            assert!(!case.proves.is_empty() && !case.flows.is_empty() && !case.steps.is_empty(), "{case:?}");
            for step in &case.steps {
                let frames = step.leaves.iter().map(|(_, frame)| frame).chain([&step.frame]);
                for frame in frames {
                    assert!(frame.windows(MARK.len()).any(|part| part == MARK), "{case:?}");
                    assert!((60..=1514).contains(&frame.len()), "{case:?}");
                }
                assert!(!step.leaves.is_empty() || step.packet_in.is_some(), "{case:?}");
            }
        }
    }
}
